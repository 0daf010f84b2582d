# SPDX-License-Identifier: Apache-2.0
"""A ring all-reduce in NumPy: four processes end with the sum of their arrays.

Each process writes into its right neighbour's memory, with immediate data that notify the
neighbour. In N - 1 steps the chunks are summed on their way around the ring, and in N - 1 more the
sums go around. Each process sends 2 (N - 1) / N of the array, however many there are.
"""

import itertools
import multiprocessing as mp
import socket
import struct
import sys

import numpy as np

from verbena import verbs

RANKS, COUNT = 4, 1 << 20
KEY = struct.Struct("!QI")


class Ring:
    """The connections to the right and from the left neighbour; memory of `data`, followed by room
    for chunks that arrive to be summed."""

    def __init__(
        self, ctx: verbs.Context, rank: int, left: socket.socket, right: socket.socket
    ) -> None:
        pd = ctx.alloc_pd()
        self.sent, self.arrived = ctx.create_cq(16), ctx.create_cq(16)
        access = verbs.AccessFlags.LOCAL_WRITE | verbs.AccessFlags.REMOTE_WRITE
        self.mr = pd.alloc(2 * COUNT * 8, access)
        self.data, self.room = self.mr.array("f8").reshape(2, RANKS, COUNT // RANKS)
        self.right = pd.create_qp(send_cq=self.sent)
        self.left = pd.create_qp(send_cq=self.sent, recv_cq=self.arrived)
        ends = [(self.left, left), (self.right, right)]
        for qp, sock in ends if rank else reversed(ends):  # both ends of a connection at a time
            verbs.connect_rc(qp, sock)
        for _ in range(4):
            self.left.recv([])  # a write with an immediate value takes a receive, without memory
        left.sendall(KEY.pack(self.mr.addr, self.mr.rkey))
        self.addr, self.rkey = KEY.unpack(right.recv(KEY.size, socket.MSG_WAITALL))

    def step(self, chunk: int, target: int) -> None:
        """Write one chunk of `data` to the neighbour, at slot `target` of its memory, and wait for
        the left neighbour's chunk of this step."""
        size = COUNT // RANKS * 8
        there = self.addr + target * size
        self.right.write(self.mr, there, self.rkey, chunk * size, size, imm_data=target)
        self.sent.wait()[0].raise_for_status()
        self.arrived.wait()[0].raise_for_status()
        self.left.recv([])


def all_reduce(ring: Ring, rank: int) -> None:
    for n in range(RANKS - 1):
        sends, sums = (rank - n) % RANKS, (rank - n - 1) % RANKS
        ring.step(sends, RANKS + sends)
        ring.data[sums] += ring.room[sums]
    for n in range(RANKS - 1):
        chunk = (rank + 1 - n) % RANKS
        ring.step(chunk, chunk)


def process(rank: int, left: socket.socket, right: socket.socket) -> None:
    with left, right, verbs.open_device() as ctx:
        ring = Ring(ctx, rank, left, right)
        ring.data[:] = rank + 1
        all_reduce(ring, rank)
        found = " ".join(map(str, np.unique(ring.data)))
        sys.stdout.write(f"rank {rank}: every element is {found}\n")  # one write: lines stay whole
        right.sendall(b"!")  # it keeps its memory until our last write
        left.recv(1)


if __name__ == "__main__":
    spawn = mp.get_context("spawn")  # each process opens a device of its own
    ways = [socket.socketpair() for _ in range(RANKS)]  # from each rank to the next
    ranks = [
        spawn.Process(target=process, args=(rank, ways[rank - 1][1], ways[rank][0]))
        for rank in range(RANKS)
    ]
    for each in ranks:
        each.start()
    for end in itertools.chain(*ways):  # the ranks have their own
        end.close()
    for each in ranks:
        each.join()
    raise SystemExit(any(each.exitcode for each in ranks))
