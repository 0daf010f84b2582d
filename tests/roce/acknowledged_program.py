# SPDX-License-Identifier: Apache-2.0
"""Moves QPs to ERR whose requests were acknowledged, and prints the completions' status.

    acknowledged_program.py ROUNDS

The process's own threads are given no processor time meanwhile, as on a busy machine: so the
acknowledgements are in its socket. Each round has a peer in a process of its own.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing.connection import Connection

from verbena import verbs

Ends = tuple[verbs.Context, verbs.CQ, verbs.QP, verbs.MR]


def connected(link: Connection) -> Ends:
    """A QP that is connected with the process at the link's other end."""
    ctx = verbs.open_device()
    pd = ctx.alloc_pd()
    cq = ctx.create_cq(16)
    qp = pd.create_qp(send_cq=cq)
    info, index = verbs.local_qp_info(qp, psn=1)
    link.send(info)
    verbs.bring_up(qp, info, link.recv(), index)
    return ctx, cq, qp, pd.alloc(64)


def receive(link: Connection, cores: set[int]) -> None:
    """Take a message, and say so when it is acknowledged."""
    os.sched_setaffinity(0, cores)
    ctx, cq, qp, mr = connected(link)
    qp.recv(mr)
    link.send("ready")
    while not cq.poll():
        pass
    while not ctx.counters()["engine"]["acks_sent"]:
        cq.poll()
    link.send("acknowledged")
    link.recv()


def starve_other_threads(core: int) -> None:
    """Keep this process on a core, where its other threads run when this one sleeps."""
    for thread in map(int, os.listdir("/proc/self/task")):
        os.sched_setaffinity(thread, {core})
        if thread != os.getpid():
            os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))


def send() -> str:
    """Send a message, move the QP to ERR when it is acknowledged, and return how it ended."""
    spawning = multiprocessing.get_context("spawn")
    cores = os.sched_getaffinity(0)
    link, far = spawning.Pipe()
    peer = spawning.Process(target=receive, args=(far, cores))
    peer.start()
    _, cq, qp, mr = connected(link)
    link.recv()
    starve_other_threads(min(cores))
    qp.send(mr)
    while not link.poll() and peer.is_alive():  # it does not sleep
        pass
    link.recv()
    qp.modify(qp_state=verbs.QPState.ERR)
    (wc,) = cq.wait(1, timeout=5)
    link.send("over")
    peer.join()
    os.sched_setaffinity(0, cores)
    return wc.status.name


if __name__ == "__main__":
    for _ in range(int(sys.argv[1])):
        print(send())
