# SPDX-License-Identifier: Apache-2.0
"""Times Dask over a scheme: ``python -m benchmarks.dask_worker WHAT SCHEME SECONDS``.

WHAT is "small" (round trips of a small message between two processes), "array" (100 MB one way) or
"shuffle" (1 GB between four workers). It prints a number, in microseconds or MiB/s or seconds;
dask_cases.py starts it.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np
from distributed.comm import CommClosedError, connect, listen
from distributed.protocol import to_serialize

ARRAY = 100_000_000
SHUFFLED = 1 << 30


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


def shuffle(scheme: str) -> float:
    import dask.array
    from distributed import Client, LocalCluster, wait

    with (
        LocalCluster(
            protocol=f"{scheme}://", n_workers=4, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        Client(cluster),
    ):
        side = int((SHUFFLED / 8) ** 0.5)
        rows = dask.array.ones((side, side), chunks=(side // 16, side)).persist()
        wait(rows)
        begin = time.perf_counter()
        wait(rows.rechunk((side, side // 16), method="tasks").persist())
        return time.perf_counter() - begin


def main(what: str, scheme: str, seconds: float) -> None:
    if what == "serve":
        asyncio.run(serve(scheme))
        return
    if what == "shuffle":
        print("took", shuffle(scheme))
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
