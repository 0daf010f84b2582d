# SPDX-License-Identifier: Apache-2.0
"""A client of verbena.rpc belongs to one event loop."""

from __future__ import annotations

import asyncio

import pytest

from tests.rpc.conftest import Sample
from verbena import rpc
from verbena.rpc.server import RpcServer


def test_a_client_is_called_from_another_loop() -> None:
    async def connected() -> tuple[RpcServer, rpc.Client]:
        server = await rpc.serve(Sample(), "127.0.0.1:0")
        return server, await rpc.connect(f"127.0.0.1:{server.port}", Sample, spin=0)

    async def closed(server: RpcServer, client: rpc.Client) -> None:
        assert await client.add(1, 2) == 3
        await client.close()
        await server.close()

    async def called(client: rpc.Client) -> None:
        async with asyncio.timeout(5):
            with pytest.raises(RuntimeError, match="belongs to the event loop"):
                await client.add(1, 2)

    with asyncio.Runner() as runner:
        server, client = runner.run(connected())
        with asyncio.Runner() as other:
            other.run(called(client))
        runner.run(closed(server, client))


def test_a_client_is_called_from_the_loop_of_another_thread() -> None:
    """The first loop runs meanwhile."""

    async def main() -> None:
        async with (
            rpc.serve(Sample(), "127.0.0.1:0") as server,
            rpc.connect(f"127.0.0.1:{server.port}", Sample, spin=0) as client,
        ):

            async def called() -> None:
                async with asyncio.timeout(5):
                    await client.add(1, 2)

            for _ in range(2):
                with pytest.raises(RuntimeError, match="belongs to the event loop"):
                    await asyncio.to_thread(asyncio.run, called())
            assert await client.add(1, 2) == 3

    asyncio.run(main())
