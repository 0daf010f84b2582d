# SPDX-License-Identifier: Apache-2.0
"""A client to which its program has no reference any more is closed, with a ResourceWarning."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.rpc.conftest import Sample
from verbena import fabrics, rpc, sim

WAYS = pytest.mark.parametrize(
    ("via", "request_way"),
    [("cm", "auto"), ("socket", "auto"), ("cm", "ring"), ("socket", "datagram")],
)


@contextmanager
def warns(count: int) -> Iterator[None]:
    """So many clients are found unclosed in the block."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield
    said = [str(each.message) for each in warned if "<Client of" in str(each.message)]
    assert len(said) == count, said
    assert all(each.startswith("unclosed <Client of Sample at ") for each in said)


async def nobody(server: Any) -> None:
    """Return when the server has no clients any more."""
    async with asyncio.timeout(10):
        while server.clients:
            await asyncio.sleep(0.01)


@WAYS
def test_the_server_is_told(via: Any, request_way: Any) -> None:
    """Calls, streams, methods and other clients of the same connection keep it until they go."""

    async def main() -> None:
        target = Sample()
        async with rpc.serve(target, "127.0.0.1:0", via=via) as server:
            address = f"127.0.0.1:{server.port}"

            async def connected() -> Any:
                asked = rpc.Strategies(request=request_way)
                return await rpc.connect(address, Sample, via=via, strategies=asked)

            client = await connected()
            assert await client.add(1, 2) == 3
            assert [item async for item in client.count(2)] == [bytes(4), b"\1\0\0\0"]
            with warns(1):
                del client
                await nobody(server)

            client = await connected()
            calling = asyncio.ensure_future(client.held("here"))
            other = client.within(5)
            method = other.add
            with warns(0):
                del client, other
                await asyncio.sleep(0.05)
                target.gate.set()
                assert await calling == "here"
                assert await method(1, 2) == 3
            with warns(1):
                del calling, method
                await nobody(server)

            stream = (await connected()).count(3)
            with warns(0):
                assert [len(item) async for item in stream] == [4, 4, 4]
            with warns(1):
                del stream
                await nobody(server)

    asyncio.run(main())


@pytest.mark.parametrize("via", ["cm", "socket"])
def test_a_closed_one_and_one_whose_server_has_gone(via: Any) -> None:
    async def main() -> None:
        async with rpc.serve(Sample(), "127.0.0.1:0", via=via) as server:
            address = f"127.0.0.1:{server.port}"
            async with rpc.connect(address, Sample, via=via) as closed:
                assert await closed.add(1, 2) == 3
            del closed
            client = await rpc.connect(address, Sample, via=via)
            call = client.add
        with pytest.raises(rpc.ServerGone):
            await call(1, 2)
        del client, call

    with warns(0):
        asyncio.run(main())


@pytest.mark.parametrize("via", ["cm", "socket"])
def test_a_simulated_program_that_returns(via: Any) -> None:
    async def server() -> float:
        loop = asyncio.get_running_loop()
        async with rpc.serve(Sample(), ":7174", via=via) as serving:
            await asyncio.sleep(1e-3)
            assert serving.clients
            while serving.clients:
                assert loop.time() < 0.1
                await asyncio.sleep(1e-5)
            return loop.time()

    async def client() -> None:
        made = await rpc.connect("h0:7174", Sample, via=via)
        assert await made.add(1, 2) == 3
        await asyncio.sleep(2e-3)

    def ran() -> Any:
        fabric = fabrics.ring(6, rate="100GbE", length_m=5)
        return sim.run({"h0": server, "h5": client}, fabric).returned["h0"]

    with warns(2):
        assert ran() == ran() < 3e-3


def test_a_loop_that_ends_at_once() -> None:
    async def main() -> None:
        async with rpc.serve(Sample(), "127.0.0.1:0") as server:
            address = f"127.0.0.1:{server.port}"

            def other() -> None:
                async def call() -> None:
                    client = await rpc.connect(address, Sample)
                    assert await client.add(1, 2) == 3

                asyncio.run(call())

            await asyncio.to_thread(other)
            await nobody(server)

    with warns(1):
        asyncio.run(main())
