# SPDX-License-Identifier: Apache-2.0
"""Cancellation: at every await of a call, and what the server and the next calls see of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.rpc.conftest import Sample, Together, quiet, target_of
from verbena import rpc
from verbena.verbs.here import place

Work = Callable[[rpc.Client], Awaitable[Any]]
_MOST = 400


async def _echo(client: rpc.Client, size: int) -> bool:
    data = size.to_bytes(4, "little") * (size // 4)
    return bytes(await client.late(data)) == data


async def _turned(client: rpc.Client) -> bool:
    return bytes(await client.turn(bytes(70_000))) == bytes(70_000)


async def _counted(client: rpc.Client) -> bool:
    return len([item async for item in client.count(20, 10)]) == 20


async def _fetched(client: rpc.Client) -> bool:
    return len([item async for item in client.count(3, 60_000)]) == 3


async def _summed(client: rpc.Client) -> bool:
    return bool(await client.total(range(20)) == 190)


async def _doubled(client: rpc.Client) -> bool:
    return [item async for item in client.times(2, range(20))] == list(range(0, 40, 2))


WORKS: dict[str, Work] = {
    "small": lambda client: _echo(client, 64),
    "parts": lambda client: _echo(client, 12_000),
    "large": lambda client: _echo(client, 100_000),
    "raw": _turned,
    "count": _counted,
    "count large": _fetched,
    "total": _summed,
    "times": _doubled,
}


async def cancelled_after(work: Work, client: rpc.Client, steps: int) -> bool:
    """Cancel work after so many iterations of the loop; return whether it was over before."""
    task = asyncio.ensure_future(work(client))
    step = 0 if place.get() is None else 5e-7  # of virtual time: an iteration takes none
    for _ in range(steps):
        await asyncio.sleep(step)
    is_over = task.done()
    task.cancel()
    with suppress(asyncio.CancelledError):
        assert await task
    return is_over


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", WORKS)
@pytest.mark.parametrize("request_way", ["auto", "ring", "datagram"])
def test_at_every_await(together: Together, name: str, request_way: str) -> None:
    """After each the calls of both sides end, their memory is free, and the next call is right."""
    work = WORKS[name]

    async def side(client: rpc.Client) -> int:
        for steps in range(_MOST):
            is_over = await cancelled_after(work, client, steps)
            await quiet(client)
            assert not client._link.poller.sleepers
            if not steps % 10 or is_over:
                assert await work(client)
            if is_over:
                return steps
        return _MOST

    assert 0 < together(side, {"calls": 8}, strategies=rpc.Strategies(request_way)) < _MOST


def test_a_cancelled_call_is_cancelled_at_the_server(together: Together) -> None:
    async def side(client: rpc.Client) -> tuple[list[Any], list[str]]:
        task = asyncio.create_task(client.held("one"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await quiet(client)
        target = target_of(client)
        return target.ran, target.stopped

    assert together(side) == (["one"], ["one"])


def test_a_call_that_waits_for_its_turn_is_never_sent(together: Together) -> None:
    async def side(client: rpc.Client) -> list[Any]:
        target = target_of(client)
        first = [asyncio.create_task(client.held(str(number))) for number in range(2)]
        await asyncio.sleep(0.05)
        second = asyncio.create_task(client.held("never"))
        with pytest.raises(rpc.DeadlinePassed, match="it has not begun"):
            await client.within(0.05).held("too late")
        second.cancel()
        target.gate.set()
        await asyncio.gather(*first)
        await quiet(client)
        return target.ran

    assert together(side, {"calls": 2}) == ["0", "1"]


def test_an_item_that_a_cancelled_task_waited_for_is_the_next_ones(together: Together) -> None:
    async def side(client: rpc.Client) -> list[int]:
        got: list[int] = []
        call = client.count(60)
        steps = 0
        while len(got) < 60:
            task = asyncio.create_task(anext(call))
            for _ in range(steps % 7):
                await asyncio.sleep(0)
            steps += 1
            task.cancel()
            try:
                got.append(int.from_bytes((await task)[:4], "little"))
            except asyncio.CancelledError:
                await asyncio.sleep(0.001)
        return got

    assert together(side) == list(range(60))


def test_calls_count_once_whatever_is_cancelled(together: Together) -> None:
    """A method runs at most once for each call, and for each that returned exactly once."""

    async def side(client: rpc.Client) -> None:
        target: Sample = target_of(client)
        returned: set[int] = set()

        async def one(number: int) -> None:
            await client.add(number, 0)
            returned.add(number)

        for number in range(150):
            task = asyncio.create_task(one(number))
            for _ in range(number % 9):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        await quiet(client)
        ran = [a for a, _ in target.ran]
        assert len(ran) == len(set(ran))
        assert returned <= set(ran)

    for way in ("inline", "ring", "datagram"):
        together(side, strategies=rpc.Strategies(way))


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("end", ["deadline", "both", "cancelled"])
def test_what_a_method_does_to_end_may_wait(together: Together, end: str, is_stream: bool) -> None:
    """Client and server both see a deadline pass, and the method's task is cancelled once."""

    async def side(client: rpc.Client) -> list[str]:
        limited = client.within(0.05 if end != "cancelled" else 60)

        async def call() -> None:
            if not is_stream:
                await limited.tidied()
                return
            async with limited.tidied_items() as items:
                async for _ in items:
                    pass

        task = asyncio.ensure_future(call())
        if end == "deadline":
            with pytest.raises(rpc.DeadlinePassed):
                await task
        else:
            await asyncio.sleep(0.05 if end == "both" else 0.02)
            task.cancel()
            await asyncio.wait([task])
        async with asyncio.timeout(5):
            while "tidy" not in target_of(client).stopped:
                await asyncio.sleep(0.01)
        return target_of(client).stopped

    assert together(side) == ["begins", "tidy"]
