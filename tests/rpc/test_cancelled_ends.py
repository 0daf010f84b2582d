# SPDX-License-Identifier: Apache-2.0
"""Cancellation at every await of what begins and ends clients and servers of verbena.rpc."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.cancelling import at_every_await
from tests.rpc.conftest import Sample
from verbena import rpc

pytestmark = pytest.mark.over_roce
WAYS = ("cm", "socket")


@pytest.mark.parametrize("via", WAYS)
def test_connecting_and_closing(via: Any) -> None:
    """The server keeps no link of a client that gave up, and serves the next one."""

    async def main() -> int:
        async with asyncio.timeout(60), rpc.serve(Sample(), "127.0.0.1:0", via=via) as server:
            address = f"127.0.0.1:{server.port}"

            async def attempt() -> None:
                client = await rpc.connect(address, Sample, via=via)
                try:
                    assert await client.add(1, 2) == 3
                finally:
                    await client.close()

            async def check() -> None:
                async with asyncio.timeout(10):
                    while server._guests:
                        await asyncio.sleep(1e-3)
                async with rpc.connect(address, Sample, via=via) as client:
                    assert await client.add(2) == 5

            return await at_every_await(attempt, check)

    assert asyncio.run(main()) >= 5


@pytest.mark.parametrize("via", WAYS)
def test_serving_and_closing(via: Any) -> None:
    """Its port is free afterwards, and its client's calls have ended."""

    async def main() -> int:
        async with rpc.serve(Sample(), "127.0.0.1:0", via=via) as found:
            address = f"127.0.0.1:{found.port}"

        async def called() -> None:
            async with rpc.connect(address, Sample, via=via) as client:
                await client.held("until the server goes")

        async def attempt() -> None:
            calling: asyncio.Task[None] | None = None
            try:
                async with rpc.serve(Sample(), address, via=via) as server:
                    calling = asyncio.create_task(called())
                    while not server.running:
                        await asyncio.sleep(1e-2)
                    await server.close(grace=0.01)
            finally:
                if calling is not None:
                    async with asyncio.timeout(10):
                        await asyncio.gather(calling, return_exceptions=True)

        async def check() -> None:
            async with (
                rpc.serve(Sample(), address, via=via),
                rpc.connect(address, Sample, via=via) as client,
            ):
                assert await client.add(2) == 5

        async with asyncio.timeout(60):
            return await at_every_await(attempt, check)

    assert asyncio.run(main()) >= 3
