# SPDX-License-Identifier: Apache-2.0
"""Queue pairs that write for as long as they are asked to, all at once (test_bottleneck.py).

    shares_child.py -q QPS -D SECONDS -p PORT -x GID_INDEX [SERVER]

The client prints how many messages each of its queue pairs had acknowledged, as a JSON list.
"""

from __future__ import annotations

import argparse
import json
import socket
import time

from verbena import verbs
from verbena.verbs import AccessFlags

MESSAGE = 65_536
UNDER_WAY = 4  # messages of each queue pair


def serve(options: argparse.Namespace, qps: list[verbs.QP], region: verbs.MR) -> None:
    with socket.create_server(("", options.port)) as listener:
        peer = listener.accept()[0]
    with peer:
        for qp in qps:
            verbs.connect_rc(qp, peer, gid_index=options.gid_index)
        peer.sendall(json.dumps([region.addr, region.rkey]).encode() + b"\n")
        peer.recv(1)  # until the client has ended


def write(options: argparse.Namespace, qps: list[verbs.QP], cq: verbs.CQ, data: verbs.MR) -> None:
    with socket.create_connection((options.server, options.port)) as peer:
        for qp in qps:
            verbs.connect_rc(qp, peer, gid_index=options.gid_index)
        with peer.makefile() as lines:
            address, key = json.loads(lines.readline())
        done = {qp.qp_num: 0 for qp in qps}
        of_number = {qp.qp_num: qp for qp in qps}
        for qp in qps * UNDER_WAY:
            qp.write(data, address, key)
        end = time.monotonic() + options.seconds
        while time.monotonic() < end:
            for wc in cq.wait(1, 1):
                wc.raise_for_status()
                done[wc.qp_num] += 1
                of_number[wc.qp_num].write(data, address, key)
        print(json.dumps(list(done.values())), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-q", dest="qps", type=int, required=True)
    parser.add_argument("-D", dest="seconds", type=float, required=True)
    parser.add_argument("-p", dest="port", type=int, required=True)
    parser.add_argument("-x", dest="gid_index", type=int, required=True)
    parser.add_argument("server", nargs="?")
    options = parser.parse_args()
    with verbs.open_device() as ctx:
        pd, cq = ctx.alloc_pd(), ctx.create_cq(1024)
        memory = pd.alloc(MESSAGE, AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE)
        qps = [pd.create_qp(send_cq=cq, max_send_wr=16) for _ in range(options.qps)]
        if options.server:
            write(options, qps, cq, memory)
        else:
            serve(options, qps, memory)


if __name__ == "__main__":
    main()
