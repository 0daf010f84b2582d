# SPDX-License-Identifier: Apache-2.0
"""Streams whose items nobody takes: other calls and streams of their connection go on."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.rpc.conftest import Sample, live, quiet
from verbena import rpc
from verbena.rpc import flows, link
from verbena.rpc.flows import WINDOW

SIZE = 100_000
STREAMS = 20


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits by which few items are many."""
    monkeypatch.setattr(link, "_AHEAD", 10 * SIZE)
    monkeypatch.setattr(flows, "STREAM_AHEAD", 3 * SIZE)
    monkeypatch.setattr(flows, "ITEMS_AHEAD", 8 * SIZE)


async def nothing_is_kept(client: rpc.Client) -> None:
    """No call and no memory is left; fail if some stays."""
    await quiet(client)
    server = client.__dict__["server"]
    async with asyncio.timeout(10):
        for one in [client._link, *server._guests]:
            while one.offers or one._ahead or one.items_ahead or one._fetches:
                await asyncio.sleep(0.001)


def test_items_of_the_server() -> None:
    async def side(client: rpc.Client) -> None:
        async with AsyncExitStack() as stack:
            calls = [
                await stack.enter_async_context(client.count(40, SIZE)) for _ in range(STREAMS)
            ]
            await asyncio.sleep(0.1)
            async with asyncio.timeout(5):
                assert client._link.items_ahead <= 8 * SIZE
                assert len(await client.late(bytes(3 * SIZE))) == 3 * SIZE
                assert len(bytes(await client.turn(bytes(3 * SIZE)))) == 3 * SIZE
                for call in reversed(calls):  # also those of which nothing was fetched
                    assert (await anext(call))[:4] == bytes(4)
                rest = [int.from_bytes(item[:4], "little") async for item in calls[-1]]
                assert rest == list(range(1, 40))
        await nothing_is_kept(client)

    asyncio.run(live(Sample(), side, {}, {}))


def test_items_of_the_client() -> None:
    @rpc.service
    class Late:
        def __init__(self) -> None:
            self.gate = asyncio.Event()

        def echo(self, data: bytes) -> bytes:
            return data

        async def lengths(self, waits: bool, items: AsyncIterator[bytes]) -> int:
            if waits:
                await self.gate.wait()
            return sum([len(item) async for item in items])

    async def side(client: rpc.Client) -> None:
        target = client.__dict__["server"]._target
        calls = [client.lengths(True) for _ in range(STREAMS)]
        for call in calls:
            for _ in range(WINDOW):
                await call.send(bytes(SIZE))
            await call.end()
        async with asyncio.timeout(5):
            assert len(await client.echo(bytes(3 * SIZE))) == 3 * SIZE
            items = [bytes(SIZE)] * 40
            assert await client.lengths(False, items) >= 40 * SIZE
            target.gate.set()
            assert [await call >= WINDOW * SIZE for call in calls] == [True] * STREAMS
        await nothing_is_kept(client)

    asyncio.run(live(Late(), side, {}, {}))


@pytest.mark.parametrize("how", ["leave", "cancel", "forget"])
def test_what_a_call_that_has_ended_leaves_unread_is_dropped(how: str) -> None:
    async def side(client: rpc.Client) -> None:
        for _ in range(5):
            call = client.count(8, SIZE)
            async with asyncio.timeout(5):
                assert len(await anext(call)) == 4 + SIZE
                while client._calls.pending:
                    await asyncio.sleep(0.001)
            if how == "leave":
                async with call:
                    pass
            elif how == "cancel":
                call.cancel()
            del call
            gc.collect()
            await asyncio.sleep(0.001)
        await nothing_is_kept(client)

    asyncio.run(live(Sample(), side, {}, {}))


def test_a_large_item_is_fetched_alone() -> None:
    """One item may have more bytes than both limits."""

    async def side(client: rpc.Client) -> list[int]:
        async with asyncio.timeout(5):
            return [len(item) async for item in client.count(6, 20 * SIZE)]

    assert asyncio.run(live(Sample(), side, {}, {})) == [4 + 20 * SIZE] * 6
