# SPDX-License-Identifier: Apache-2.0
"""Cancellation at every await of a rank: the others are told at once, and a new group can form."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from tests.cancelling import Moment, cancelled_at
from tests.collectives.conftest import joined
from verbena import collectives
from verbena.collectives import Group, GroupError
from verbena.peers import PeerConnection

CALLS: dict[str, Callable[[Group], Awaitable[Any]]] = {
    "barrier": lambda group: group.barrier(),
    "all_reduce": lambda group: group.all_reduce(np.ones(50_000)),
    "all_to_all": lambda group: group.all_to_all(np.ones((2, 3))),
    "gather": lambda group: group.gather(np.ones(3)),
    "settle": lambda group: group.settle(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call(name: str) -> None:
    """The other rank has its result, or GroupError; it never waits for one that gave up."""
    call = CALLS[name]

    async def once(at: int, moment: Moment) -> bool:
        first, second = await joined(2)
        other = asyncio.create_task(_told(second, call))

        async def work() -> None:
            await call(first)

        try:
            is_over = await cancelled_at(work(), at, moment)
            async with asyncio.timeout(10):
                if is_over:
                    await first.barrier()
                else:
                    first.abort()
                await other
        finally:
            first.abort()
            second.abort()
        return is_over

    async def main() -> int:
        counts = []
        for moment in Moment:
            at = 0
            while not await once(at, moment):
                at += 1
            counts.append(at)
        return max(counts)

    assert asyncio.run(main()) >= (0 if name == "settle" else 1)


async def _told(group: Group, call: Callable[[Group], Awaitable[Any]]) -> None:
    try:
        await call(group)
        await group.barrier()
    except GroupError:
        pass


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[PeerConnection]:
    """Every connection that is made, whoever has it."""
    found: list[PeerConnection] = []
    plain = PeerConnection.__init__

    def init(conn: PeerConnection, *args: Any, **options: Any) -> None:
        plain(conn, *args, **options)
        found.append(conn)

    monkeypatch.setattr(PeerConnection, "__init__", init)
    return found


@pytest.mark.parametrize(("size", "rank"), [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)])
def test_joining(made: list[PeerConnection], size: int, rank: int) -> None:
    """No rank keeps a connection, and a new group at the address is whole."""
    address = "127.0.0.1:7190"
    ranks = range(size)

    async def join(rank: int) -> None:
        group = await collectives.join(rank, size, address, timeout=10)
        await group.leave()

    async def attempt(at: int) -> bool:
        others = [asyncio.create_task(join(each)) for each in ranks if each != rank]
        is_over = await cancelled_at(join(rank), at, Moment.WAITING)
        async with asyncio.timeout(5):
            while size == 2 and any(each.closed is None for each in made):
                await asyncio.sleep(1e-3)
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        return is_over

    async def whole() -> None:
        groups = await asyncio.gather(
            *(collectives.join(each, size, address, timeout=10) for each in ranks)
        )
        await asyncio.gather(*(group.barrier() for group in groups))
        await asyncio.gather(*(group.leave() for group in groups))

    async def main() -> int:
        at = 0
        async with asyncio.timeout(60):
            while not await attempt(at):
                assert all(each.closed is not None for each in made)
                at += 1
            await whole()
        return at

    assert asyncio.run(main()) >= 3
