# SPDX-License-Identifier: Apache-2.0
"""`group_child.py send|receive ADDRESS GROUP COUNT`: one member of a multicast group, as a program.

A receiver says "ready" and, after COUNT datagrams, their texts; a sender sends COUNT of them when a
line on its input tells it to.
"""

from __future__ import annotations

import ipaddress
import sys

from verbena import verbs

QKEY = 0x11111111
GRH = 40
SIZE = 256


def as_gid(address: str) -> bytes:
    parsed = ipaddress.ip_address(address)
    return ipaddress.ip_address(f"::ffff:{parsed}").packed if parsed.version == 4 else parsed.packed


def index_of(ctx: verbs.Context, address: str) -> int:
    wanted = as_gid(address)
    return next(
        each.gid_index
        for each in ctx.query_gid_table()
        if bytes(each.gid) == wanted and each.gid_type == verbs.GidType.ROCE_V2
    )


def main(role: str, address: str, group: str, count: int) -> None:
    with verbs.open_device("verbena0") as ctx:
        pd, cq = ctx.alloc_pd(), ctx.create_cq(64, ctx.create_comp_channel())
        mr = pd.alloc(SIZE * (count + 1))
        qp = pd.create_qp(send_cq=cq, qp_type=verbs.QPType.UD)
        verbs.bring_up_ud(qp)
        if role == "receive":
            for number in range(count):
                qp.recv(mr, number * SIZE, SIZE, wr_id=number)
            qp.attach_mcast(as_gid(group))
        print("ready", flush=True)
        if role == "receive":
            for wc in cq.wait(count, 30):
                at = wc.wr_id * SIZE + GRH
                print(bytes(memoryview(mr)[at : at + wc.byte_len - GRH]).decode())
            assert cq.wait(1, 0.1) == []  # and no copies
            qp.detach_mcast(as_gid(group))
            return
        ah = pd.create_ah(dgid=as_gid(group), sgid_index=index_of(ctx, address), is_global=True)
        sys.stdin.readline()
        for number in range(count):
            text = f"number {number}".encode()
            memoryview(mr)[: len(text)] = text
            qp.send(mr, 0, len(text), ah=ah, remote_qpn=verbs.MULTICAST_QPN, remote_qkey=QKEY)
            cq.wait(1, 10)[0].raise_for_status()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
