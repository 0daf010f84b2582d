# SPDX-License-Identifier: Apache-2.0
"""A process with a connection, to which it sends hostile packets.

`hostile_child.py refusals` ends with status 0 if each kind was refused and counted by its name;
`hostile_child.py flood SOURCE TARGET` throws until its input ends, and says how many it threw.
"""

from __future__ import annotations

import random
import select
import socket
import sys
import time
from collections.abc import Callable

from verbena import verbs, wire

PORT = 4791
HERE = "127.0.0.1"
STRANGER = "127.0.0.9"
RC_WRITE_ONLY = 0x0A
WORD = 8
BREATH = 512  # packets
ALL = verbs.AccessFlags.LOCAL_WRITE | verbs.AccessFlags.REMOTE_WRITE
CLEAN = b"untouched"


def packet(
    ends: tuple[str, str], sport: int, qp_num: int, psn: int, rkey: int, va: int, pkey: int = 0xFFFF
) -> bytes:
    """The UDP payload of a WRITE of eight bytes, with a right ICRC."""
    source, target = ends
    reth, payload = wire.Reth(va=va, rkey=rkey, dmalen=WORD), b"hostile!"
    length = 8 + 12 + 16 + len(payload) + 4
    made = wire.Packet(
        encap="RoCEv2/IPv4",
        opcode=RC_WRITE_ONLY,
        pkey=pkey,
        dest_qp=qp_num,
        psn=psn,
        ack_req=1,
        reth=reth,
        payload=payload,
        eth=wire.Ethernet(dst=bytes(6), src=bytes(6), type=0x0800),
        ipv4=wire.Ipv4(
            tos=0,
            len=20 + length,
            id=0,
            frag=0x4000,
            ttl=64,
            proto=17,
            csum=0,
            src=socket.inet_aton(source),
            dst=socket.inet_aton(target),
        ),
        udp=wire.Udp(sport=sport, dport=PORT, len=length, csum=0),
    )
    made.icrc = wire.icrc(made.to_bytes())
    return made.to_bytes()[14 + 20 + 8 :]


class Attacker:
    """Sends from one address of this host, without a fragment: as RoCE does."""

    def __init__(self, source: str, target: str = HERE) -> None:
        self.ends = (source, target)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.IPPROTO_IP, 10, 3)  # IP_MTU_DISCOVER, IP_PMTUDISC_PROBE
        self.socket.bind((source, 0))
        self.socket.connect((target, PORT))

    def throw(self, qp_num: int, psn: int, rkey: int, va: int, pkey: int = 0xFFFF) -> None:
        self.socket.send(self.packet(qp_num, psn, rkey, va, pkey))

    def packet(self, qp_num: int, psn: int, rkey: int, va: int, pkey: int = 0xFFFF) -> bytes:
        return packet(self.ends, self.socket.getsockname()[1], qp_num, psn, rkey, va, pkey)


def refusals() -> None:
    """Two queue pairs that are connected by packets; the second is attacked."""
    with verbs.open_device("verbena0") as ctx:
        pd, cq = ctx.alloc_pd(), ctx.create_cq(64, ctx.create_comp_channel())
        index = next(
            each.gid_index
            for each in ctx.query_gid_table()
            if bytes(each.gid)[12:] == socket.inet_aton(HERE)
        )
        near, far = (pd.create_qp(send_cq=cq) for _ in range(2))
        ends = [verbs.local_qp_info(qp, psn=77, gid_index=index)[0] for qp in (near, far)]
        verbs.bring_up(near, ends[0], ends[1], index)
        verbs.bring_up(far, ends[1], ends[0], index)
        source, target = pd.alloc(64), pd.alloc(64, ALL)
        memoryview(target)[: len(CLEAN)] = CLEAN

        def carry() -> None:
            near.write(source, target.addr + 32, target.rkey, length=WORD)
            (wc,) = cq.wait(1, 20)
            wc.raise_for_status()

        def counted(name: str, part: str = "engine") -> int:
            counters = ctx.counters()
            assert counters is not None
            return counters[part][name]

        def refused(name: str, throw: Callable[[], None]) -> None:
            before = counted(name)
            throw()
            deadline = 20 * 100
            while counted(name) == before and deadline:
                cq.wait(1, 0.01)
                deadline -= 1
            assert counted(name) == before + 1, name
            assert bytes(memoryview(target)[: len(CLEAN)]) == CLEAN

        carry()
        stranger, peer = Attacker(STRANGER), Attacker(HERE)
        there, va, psn = far.qp_num, target.addr, 78
        refused("drop_source", lambda: stranger.throw(there, psn, target.rkey, va))
        refused("drop_pkey", lambda: peer.throw(there, psn, target.rkey, va, pkey=0x1234))
        refused("duplicate_requests", lambda: peer.throw(there, 77, target.rkey, va))
        carry()  # none of these has harmed it
        refused("refused_key", lambda: peer.throw(there, psn + 1, target.rkey ^ 0x5A5A00, va))
        assert far.state == verbs.QPState.ERR  # a wrong guess ends the guesser's connection


def flood(source: str, target: str) -> None:
    """To the first queue pair of every process that there may be, by a stranger's address."""
    chance = random.Random(1)
    attacker = Attacker(source, target)
    packets = []
    for slot in range(1, 4095):
        made = attacker.packet(
            slot << 12, chance.getrandbits(24), chance.getrandbits(32), chance.getrandbits(48)
        )
        packets.append(made)
        if slot % 4 == 0:
            packets.append(made[:-4] + bytes(4))  # a wrong ICRC
        if slot % 16 == 1:
            packets.append(made[: chance.randrange(len(made))])
    thrown = 0
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        for number, made in enumerate(packets):
            if number % BREATH == 0:  # or two processors have nothing left for those attacked
                time.sleep(0.001)
            try:
                attacker.socket.send(made)
                thrown += 1
            except OSError:  # a full queue, or an ICMP message
                continue
    print(thrown)


if __name__ == "__main__":
    refusals() if sys.argv[1] == "refusals" else flood(*sys.argv[2:])
