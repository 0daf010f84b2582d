# SPDX-License-Identifier: Apache-2.0
"""Items of a client that raise: the call ends with this exception, and the server is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from tests.rpc.conftest import Sample, Together, live, quiet
from verbena import rpc


class Mine(Exception):
    """An exception of the client's program."""


def plain() -> Iterator[int]:
    yield 1
    raise Mine("of my items")


async def asynchronous() -> AsyncIterator[int]:
    yield 1
    raise Mine("of my items")


async def from_a_call() -> AsyncIterator[int]:
    yield 1
    raise rpc.RpcError("of another call")


async def cancelled() -> AsyncIterator[int]:
    yield 1
    raise asyncio.CancelledError


@rpc.service
class Watched(Sample):
    """A service that notes how its stream of items ends."""

    async def watch(self, items: AsyncIterator[int]) -> int:
        try:
            async for item in items:
                self.ran.append(item)
        except asyncio.CancelledError:
            self.stopped.append("watch")
            raise
        return len(self.ran)


@pytest.mark.parametrize("source", [plain, asynchronous])
def test_a_call_ends_with_the_exception_of_its_items(
    together: Together, source: Callable[[], Any]
) -> None:
    async def side(client: rpc.Client) -> int:
        async with asyncio.timeout(20):
            call = client.total(source())
            for _ in range(2):
                with pytest.raises(Mine, match="of my items"):
                    await call
            with pytest.raises(Mine, match="of my items"):
                [item async for item in client.times(2, source())]
            async with client.total(source()) as begun:
                await asyncio.sleep(0.05)
                with pytest.raises(Mine, match="of my items"):
                    await begun
        await quiet(client)
        return int(await client.total([1, 2]))

    assert together(side) == 3


@pytest.mark.parametrize(
    ("items", "kind", "text"),
    [
        pytest.param(lambda: 5, TypeError, "not iterable", id="no iterable"),
        pytest.param(lambda: [object()], TypeError, "object", id="an item that cannot be sent"),
        pytest.param(from_a_call, rpc.RpcError, "of another call", id="RpcError"),
        pytest.param(cancelled, asyncio.CancelledError, None, id="CancelledError"),
    ],
)
def test_whatever_the_items_raise(items: Callable[[], Any], kind: Any, text: str | None) -> None:
    async def side(client: rpc.Client) -> None:
        async with asyncio.timeout(20):
            with pytest.raises(kind, match=text):
                await client.total(items())
        await quiet(client)
        assert await client.add(1, 2) == 3

    asyncio.run(live(Sample(), side, {}, {}))


def test_the_method_is_cancelled() -> None:
    async def side(client: rpc.Client) -> Watched:
        target = client.__dict__["server"]._target
        assert isinstance(target, Watched)

        async def when_it_was_taken() -> AsyncIterator[int]:
            yield 1
            while not target.ran:
                await asyncio.sleep(0.001)
            raise Mine

        async with asyncio.timeout(20):
            with pytest.raises(Mine):
                await client.watch(when_it_was_taken())
        await quiet(client)
        return target

    target = asyncio.run(live(Watched(), side, {}, {}))
    assert (target.ran, target.stopped) == ([1], ["watch"])
