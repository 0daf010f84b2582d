# SPDX-License-Identifier: Apache-2.0
"""A service by remote procedure calls: typed methods, streams, deadlines, a raw array.

The server has one object; each client calls its methods as if it had it. A call that is too late is
cancelled at the server.
"""

import asyncio
import sys
from collections.abc import AsyncIterator

import numpy as np

from verbena import rpc

PORT = 7174


@rpc.service
class Statistics:
    def mean(self, values: list[float], digits: int = 2) -> float:
        return round(sum(values) / len(values), digits)

    def total(self, data: rpc.Buffer) -> rpc.Buffer:
        return np.frombuffer(data).sum(keepdims=True)

    async def running(self, values: AsyncIterator[float]) -> AsyncIterator[float]:
        total = 0.0
        async for value in values:
            total += value
            yield total

    async def slow(self) -> None:
        await asyncio.sleep(60)


async def serve() -> None:
    async with rpc.serve(Statistics(), PORT) as server:
        await server.wait_closed()


async def call(host: str) -> None:
    async with rpc.connect(f"{host}:{PORT}", Statistics) as statistics:
        print(await statistics.mean([1, 2, 4]), await statistics.mean([1, 2, 4], digits=4))
        print(np.frombuffer(await statistics.total(np.ones(1_000_000))))
        print([total async for total in statistics.running(range(5))])
        for wrong in (statistics.mean("text"), statistics.within(0.1).slow()):
            try:
                await wrong
            except rpc.RpcError as error:
                print(type(error).__name__)


asyncio.run(call(sys.argv[1]) if len(sys.argv) > 1 else serve())
