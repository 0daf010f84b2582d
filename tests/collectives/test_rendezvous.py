# SPDX-License-Identifier: Apache-2.0
"""Ranks that end while the group forms: the others say which one, or wait for it to come again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from verbena import collectives, peers
from verbena.collectives import RankDied
from verbena.collectives.links import LINK_OPTIONS
from verbena.collectives.rendezvous import Place

pytestmark = pytest.mark.over_roce
PORT = 7194
NOBODY = "127.0.0.1:7198"  # nobody listens there


def joining(rank: int, size: int, port: int) -> asyncio.Task[Any]:
    return asyncio.create_task(collectives.join(rank, size, f"127.0.0.1:{port}", timeout=10))


async def reach(port: int) -> peers.PeerConnection:
    while True:
        try:
            return await peers.connect(f"127.0.0.1:{port}", **LINK_OPTIONS)
        except ConnectionRefusedError:
            await asyncio.sleep(0.01)


async def as_rank_0(
    port: int, size: int, rank: int, act: Callable[[peers.PeerConnection], Awaitable[None]]
) -> BaseException:
    """What a rank's join raises, where `act` is what rank 0 does with its connection."""
    async with peers.listen(port, **LINK_OPTIONS) as listener:
        task = joining(rank, size, port)
        conn = await listener.accept()
        await conn.recv()
        await act(conn)
        await asyncio.wait([task])
        conn.abort()
        error = task.exception()
        assert error is not None
        return error


def test_who_ends_before_it_says_its_rank_may_come_again() -> None:
    async def main(port: int) -> None:
        first = joining(0, 2, port)
        stranger = await reach(port)
        stranger.abort()
        second = joining(1, 2, port)
        groups = await asyncio.gather(first, second)
        await asyncio.gather(*(group.barrier() for group in groups))
        await asyncio.gather(*(group.leave() for group in groups))

    asyncio.run(main(PORT))


def test_a_rank_that_ends_before_it_has_its_links_is_named_at_rank_0() -> None:
    async def main(port: int) -> RankDied:
        task = joining(0, 2, port)
        conn = await reach(port)
        await conn.send(json.dumps({"rank": 1, "size": 2, "port": 0}).encode())
        await conn.recv()  # the addresses
        conn.abort()
        with pytest.raises(RankDied) as caught:
            await task
        return caught.value

    error = asyncio.run(main(PORT))
    assert error.rank == 1
    assert "rank 1 has ended" in str(error)


def test_rank_0_that_ends_is_named() -> None:
    async def ends(conn: peers.PeerConnection) -> None:
        conn.abort()

    error = asyncio.run(as_rank_0(PORT, 2, 1, ends))
    assert isinstance(error, RankDied)
    assert error.rank == 0


def test_a_rank_that_cannot_be_reached_is_one_error_and_no_group_of_them() -> None:
    async def tells(conn: peers.PeerConnection) -> None:
        addresses = {str(rank): NOBODY for rank in (1, 2)}
        await conn.send(json.dumps({"addresses": addresses}).encode())

    error = asyncio.run(as_rank_0(PORT, 3, 2, tells))
    assert isinstance(error, ConnectionRefusedError)


def test_a_place_of_numbers_of_few_bits() -> None:
    place = Place(np.uint8(1), np.uint8(3), "localhost:0")  # type: ignore[arg-type]
    assert [type(place.rank), type(place.size)] == [int, int]
    with pytest.raises(TypeError, match="rank is a whole number, and not '1'"):
        Place("1", 3, "localhost:0")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="size is a whole number, and not True"):
        Place(0, True, "localhost:0")
