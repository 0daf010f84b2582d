# SPDX-License-Identifier: Apache-2.0
"""Times Dask over a scheme: ``python -m benchmarks.dask_worker WHAT SCHEME SECONDS``.

WHAT is "small" (round trips of a small message between two processes), "array" (100 MB one way),
or a load of dask_loads.py, which four workers carry out. It prints a number, in microseconds or
MiB/s or seconds; dask_cases.py starts it.

Memory that a process uses for the first time costs more than all else in a shuffle, so the time of
a load is the median of those after the first.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from distributed.comm import CommClosedError, connect, listen
from distributed.protocol import to_serialize

from benchmarks.dask_loads import LOADS

ARRAY = 100_000_000
REPEATED = 7


async def serve(scheme: str) -> None:
    async def answer(comm: Any) -> None:
        try:
            while True:
                message = await comm.read()
                await comm.write({"op": "seen", "x": message["x"] if message["op"] == "x" else 0})
        except CommClosedError:
            pass

    async with listen(f"{scheme}://127.0.0.1:0", answer) as listener:
        print(listener.contact_address, flush=True)
        await asyncio.Event().wait()


async def exchange(address: str, what: str, seconds: float) -> float:
    comm = await connect(address)
    array = to_serialize(np.ones(ARRAY // 8))
    message = {"op": "x", "x": b"x" * 64} if what == "small" else {"op": "array", "x": array}
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        begin = time.perf_counter()
        await comm.write(message)
        await comm.read()
        times.append(time.perf_counter() - begin)
    await comm.close()
    took = statistics.median(times[len(times) // 10 :])
    return took * 1e6 if what == "small" else ARRAY / took / 2**20


def of_workers(scheme: str, what: Callable[[Any], float]) -> float:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            protocol=f"{scheme}://", n_workers=4, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        return statistics.median([what(client) for _ in range(1 + REPEATED)][1:])


def main(what: str, scheme: str, seconds: float) -> None:
    if what == "serve":
        asyncio.run(serve(scheme))
        return
    if what in LOADS:
        print("took", of_workers(scheme, LOADS[what]))
        return
    words = [sys.executable, "-m", "benchmarks.dask_worker", "serve", scheme, "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            address = server.stdout.readline().strip()
            print("took", asyncio.run(exchange(address, what, seconds)))
        finally:
            server.kill()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
