# SPDX-License-Identifier: Apache-2.0
"""A service and its client: ``rpc_program.py`` serves, ``rpc_program.py HOST`` calls.

The calls have small and large arguments and results, streams both ways, a failure, and one that is
cancelled. The strategies are those that Verbena chooses by itself.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import numpy as np

from verbena import rpc

PORT = 7301
MIB = 1 << 20


@rpc.service
class Shelf:
    def length(self, data: bytes) -> int:
        return len(data)

    def echo(self, data: rpc.Buffer) -> rpc.Buffer:
        return data

    async def count(self, number: int) -> AsyncIterator[int]:
        for each in range(number):
            yield each

    async def lengths(self, parts: AsyncIterator[bytes]) -> AsyncIterator[int]:
        async for part in parts:
            yield len(part)

    async def slow(self) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("slow was cancelled")
            raise

    def fail(self) -> None:
        raise ValueError("a failure")


async def serve() -> None:
    async with rpc.serve(Shelf(), PORT) as server:
        print("listening")
        await server.wait_closed()


async def parts() -> AsyncIterator[bytes]:
    for size in (10, MIB // 4, 5000):
        yield bytes(size)


async def call(host: str) -> None:
    async with rpc.connect(f"{host}:{PORT}", Shelf) as shelf:
        for size in (0, 10, 5000, 65_536, MIB):
            assert await shelf.length(bytes(size)) == size
        large = np.random.default_rng(1).integers(0, 256, MIB, "u1")
        assert np.array_equal(np.frombuffer(await shelf.echo(large), "u1"), large)
        print("arguments are right")
        print("streams:", sum([each async for each in shelf.count(100)]), end=" ")
        print([each async for each in shelf.lengths(parts())])
        print("together:", sum(await asyncio.gather(*(shelf.length(bytes(n)) for n in range(50)))))
        await cancel(shelf)


async def cancel(shelf: rpc.Stub[Shelf]) -> None:
    slow = asyncio.ensure_future(shelf.slow())
    await asyncio.sleep(0.2)
    slow.cancel()
    await asyncio.wait([slow])
    print("cancelled:", slow.cancelled())
    try:
        await shelf.fail()
    except rpc.RemoteFailure as error:
        print(error)


if __name__ == "__main__":
    asyncio.run(call(sys.argv[1]) if sys.argv[1:] else serve())
