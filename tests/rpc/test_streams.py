# SPDX-License-Identifier: Apache-2.0
"""Streams of verbena.rpc in both directions: order, sizes, back-pressure, ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.rpc.conftest import Together, quiet, target_of
from verbena import rpc
from verbena.rpc.flows import WINDOW


@pytest.mark.parametrize("size", [0, 5000, 100_000])
@pytest.mark.parametrize("way", ["auto", "inline", "rendezvous"])
def test_items_of_the_server_come_in_order(together: Together, size: int, way: str) -> None:
    async def side(client: rpc.Client) -> list[tuple[int, int]]:
        items = [item async for item in client.count(50, size)]
        await quiet(client)
        return [(int.from_bytes(item[:4], "little"), len(item) - 4) for item in items]

    plan = rpc.Strategies(way)
    assert together(side, {"strategies": plan}) == [(number, size) for number in range(50)]


def test_a_call_that_returns_items_is_not_awaited(together: Together) -> None:
    async def side(client: rpc.Client) -> list[int]:
        with pytest.raises(TypeError, match=r"async for item in client\.count"):
            await client.count(3, 0)
        return [len(item) async for item in client.count(3, 0)]

    assert together(side) == [4] * 3


def test_items_of_the_client(together: Together) -> None:
    async def numbers() -> AsyncIterator[int]:
        for number in range(100):
            yield number

    async def side(client: rpc.Client) -> list[int]:
        by_hand = client.total()
        for number in range(100):
            await by_hand.send(number)
        await by_hand.end()
        return [await by_hand, await client.total(range(100)), await client.total(numbers())]

    assert together(side) == [4950] * 3


def test_both_directions_at_once(together: Together) -> None:
    async def side(client: rpc.Client) -> tuple[list[int], list[int]]:
        async with client.times(3) as call:
            answered = []
            for number in range(40):  # each is answered before the next is sent
                await call.send(number)
                answered.append(await anext(call))
            await call.end()
            assert [item async for item in call] == []
        return answered, [item async for item in client.times(2, range(60))]

    first, second = together(side)
    assert first == [3 * number for number in range(40)]
    assert second == [2 * number for number in range(60)]


def test_a_sender_waits_for_the_program_that_takes(together: Together) -> None:
    """A client that takes nothing has the server stop after WINDOW items."""

    async def side(client: rpc.Client) -> tuple[int, int]:
        async with client.count(1000) as call:
            await asyncio.sleep(0.1)
            first = len(target_of(client).ran)
            for _ in range(WINDOW // 2):
                await anext(call)
            await asyncio.sleep(0.1)
            second = len(target_of(client).ran)
        await quiet(client)
        assert target_of(client).stopped == ["count"]
        return first, second

    # One more than is granted has been made, and waits to be sent.
    assert together(side) == (WINDOW + 1, WINDOW + WINDOW // 2 + 1)


def test_a_server_that_does_not_take_stops_the_client(together: Together) -> None:
    """The method takes one item; a client that sends on has WINDOW more on their way."""

    async def side(client: rpc.Client) -> int:
        sent = 0

        async def send_all(call: rpc.CallStream) -> None:
            nonlocal sent
            while True:
                await call.send(1)
                sent += 1

        async with client.one_then_wait() as call:
            sending = asyncio.create_task(send_all(call))
            await asyncio.sleep(0.1)
            sending.cancel()
        await quiet(client)
        return sent

    assert together(side) == WINDOW


def test_a_method_that_takes_only_the_first_item(together: Together) -> None:
    async def side(client: rpc.Client) -> int:
        call = client.first()
        await call.send(7)
        result = int(await call)
        with pytest.raises(rpc.RpcError, match="takes no more items"):
            await call.send(8)
        assert await client.first(range(9, 1000)) == 9
        await quiet(client)
        return result

    assert together(side) == 7


@pytest.mark.parametrize("given", [None, 5])
def test_items_that_are_none(together: Together, given: Any) -> None:
    async def side(client: rpc.Client) -> int:
        with pytest.raises(rpc.WrongArguments, match="total takes items"):
            await asyncio.wait_for(client.total(given), 5)
        await quiet(client)
        return int(await client.total([3, 4]))

    assert together(side) == 7


def test_wrong_items_and_failures(together: Together) -> None:
    async def side(client: rpc.Client) -> None:
        with pytest.raises(rpc.RemoteFailure, match="ValidationError: Expected `int`, got `str`"):
            await client.total(["x"])
        with pytest.raises(rpc.WrongArguments):
            async for _ in client.count("x"):
                pass
        with pytest.raises(rpc.RpcError, match="returns no items"):
            await anext(client.total())
        with pytest.raises(rpc.DeadlinePassed):
            async for _ in client.within(0.05).times(2):
                pass
        await quiet_soon(client)

    together(side)


async def quiet_soon(client: rpc.Client) -> None:
    """Wait for calls that were given up; those that were never ended are cancelled."""
    for pending in list(client._calls.pending.values()):
        client._calls.give_up(pending)
    await quiet(client)


def test_leaving_the_block_cancels_at_the_server(together: Together) -> None:
    async def side(client: rpc.Client) -> list[str]:
        async with client.count(1000) as call:
            await anext(call)
        await quiet(client)
        return target_of(client).stopped

    assert together(side) == ["count"]


def test_many_streams_of_one_client(together: Together) -> None:
    async def side(client: rpc.Client) -> list[Any]:
        async def one(by: int) -> list[int]:
            return [item async for item in client.times(by, range(30))]

        return await asyncio.gather(*(one(by) for by in range(12)))

    expected = [[by * number for number in range(30)] for by in range(12)]
    assert together(side, {"calls": 5}, slots=4) == expected


def test_what_waits_for_credits_is_sent_though_no_task_waits(together: Together) -> None:
    async def side(client: rpc.Client) -> list[int]:
        await client.add(1)
        await asyncio.sleep(0.05)  # the event of that call has come, and nobody asks for the next
        call = client.total()
        for number in range(WINDOW):
            await call.send(number)
        await call.end()
        for _ in range(1000):  # this task does not wait for the server
            await asyncio.sleep(1e-4)
            if not client._link._outbox:
                break
        left = len(client._link._outbox)
        return [left, await call]

    assert together(side, {"slots": 1}, slots=1) == [0, sum(range(WINDOW))]
