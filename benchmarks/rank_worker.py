# SPDX-License-Identifier: Apache-2.0
"""A rank that times a collective call: ``python -m benchmarks.rank_worker HOW CALL BYTES SECONDS``.

HOW is "verbena" or "mpi". Rank 0 prints the median of rounds, in microseconds. rank_cases.py starts
it.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

ROUNDS = 5


def verbena_call(call: str, nbytes: int) -> tuple[int, Callable[[], object]]:
    from verbena.collectives import sync

    group = sync.join()
    if call == "barrier":
        return group.rank, group.barrier
    mine, out = np.ones(nbytes // 8), np.empty(nbytes // 8)
    if call == "all_reduce":
        return group.rank, lambda: group.all_reduce(mine, out=out)
    if call == "broadcast":
        return group.rank, lambda: group.broadcast(mine, 0)
    if call == "all_gather":
        every = np.empty((group.size, nbytes // 8))
        return group.rank, lambda: group.all_gather(mine, out=every)
    parts = mine.reshape(group.size, -1)
    return group.rank, lambda: group.all_to_all(parts)


def mpi_call(call: str, nbytes: int) -> tuple[int, Callable[[], object]]:
    from mpi4py import MPI  # type: ignore[import-not-found,unused-ignore]

    world = MPI.COMM_WORLD
    if call == "barrier":
        return world.rank, world.Barrier
    mine, out = np.ones(nbytes // 8), np.empty(nbytes // 8)
    if call == "all_reduce":
        return world.rank, lambda: world.Allreduce(mine, out)
    if call == "broadcast":
        return world.rank, lambda: world.Bcast(mine, 0)
    if call == "all_gather":
        every = np.empty((world.size, nbytes // 8))
        return world.rank, lambda: world.Allgather(mine, every)
    return world.rank, lambda: world.Alltoall(mine, out)


def main(how: str, call: str, nbytes: int, seconds: float) -> None:
    rank, run = (verbena_call if how == "verbena" else mpi_call)(call, nbytes)
    # All ranks have to make as many calls: a few bytes take 300 us at most here, and 1 GB/s is low.
    count = max(5, int(seconds / ROUNDS / (300e-6 + nbytes / 1e9)))
    times = []
    for _ in range(ROUNDS + 1):
        begin = time.perf_counter()
        for _ in range(count):
            run()
        times.append((time.perf_counter() - begin) / count * 1e6)
    if rank == 0:
        print("median", statistics.median(times[1:]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
