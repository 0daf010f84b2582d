# SPDX-License-Identifier: Apache-2.0
"""A work queue: workers take rows of a matrix of the server by an atomic, and write the results.

The server shares two arrays and does nothing else until the workers have left. A worker takes the
next row by fetch_add on a counter, reads the row, and writes its sum into the results.
"""

import asyncio
import pickle
import sys

import numpy as np

import verbena

PORT = 7174
ROWS, COLUMNS = 100, 1000


async def serve() -> None:
    async with verbena.listen(PORT) as listener, await listener.accept() as conn:
        matrix = conn.array((ROWS, COLUMNS))
        matrix[...] = np.arange(ROWS)[:, np.newaxis]
        sums, counter = conn.array(ROWS), conn.array(1, "i8")
        await conn.send(pickle.dumps([conn.share(each) for each in (matrix, sums, counter)]))
        await conn.wait_closed()
        print("sums are right:", bool((sums == matrix.sum(axis=1)).all()))


async def work(host: str) -> None:
    async with verbena.connect(f"{host}:{PORT}") as conn:
        matrix, sums, counter = pickle.loads(await conn.recv())
        row = np.empty(COLUMNS)
        done = 0
        while (number := await counter[0].fetch_add(1)) < ROWS:
            await matrix[number].get(row)
            await sums[number].put(row.sum())
            done += 1
        print(done, "rows")


asyncio.run(work(sys.argv[1]) if len(sys.argv) > 1 else serve())
