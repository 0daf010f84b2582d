# SPDX-License-Identifier: Apache-2.0
"""One of two processes on one core that send each other a message in turn, and wait as WAY says.

Usage: one_core_child.py WAY ROLE FD CORE. The first one prints how many round trips a second had.
"""

from __future__ import annotations

import os
import socket
import sys
import time

from verbena.measure.side import PATIENCE, Endpoint, Side, endpoint

SECONDS = 1.0
CHUNK = 16  # round trips, after which the first one says whether there are more
OUT, IN = 0, 64  # words of the region; the receive's is behind them
RECEIVED = 128


def poll(end: Endpoint) -> None:
    deadline = time.monotonic() + PATIENCE
    while not (found := end.cq.poll(1)):
        if time.monotonic() > deadline:
            raise TimeoutError("no message")
    found[0].raise_for_status()


def wait(end: Endpoint) -> None:
    end.cq.wait(1, PATIENCE)[0].raise_for_status()


WAITS = {"poll": poll, "wait": wait}


def trip(end: Endpoint, way: str, first: bool, number: int) -> None:
    """A message to the other side and one from there, in the order of the side."""
    for sends in (first, not first):
        if way == "wait_u64":
            if sends:
                end.mr.store_u64(OUT, number)
                end.qp.write(end.mr, end.remote_addr + IN, end.rkey, OUT, 8)
                wait(end)
            elif not end.mr.wait_u64(IN, number, PATIENCE):
                raise TimeoutError("no word")
        elif sends:
            end.qp.send(end.mr, OUT, 8)
            WAITS[way](end)
        else:
            WAITS[way](end)
            end.qp.recv(end.mr, RECEIVED, 8)


def main(way: str, role: str, fd: str, core: str) -> None:
    os.sched_setaffinity(0, {int(core)})
    side = Side(role == "first", socket.socket(fileno=int(fd)))
    with endpoint(side, 4096, depth=64) as end:
        for _ in range(2):
            end.qp.recv(end.mr, RECEIVED, 8)
        side.meet()
        trips, more = 0, True
        deadline = time.monotonic() + SECONDS
        while more:
            for number in range(trips + 1, trips + CHUNK + 1):
                trip(end, way, side.first, number)
            trips += CHUNK
            if side.first:
                more = time.monotonic() < deadline
                side.send(more)
            else:
                more = side.receive()
    if side.first:
        print(trips)


if __name__ == "__main__":
    main(*sys.argv[1:])
