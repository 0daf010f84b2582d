# SPDX-License-Identifier: Apache-2.0
"""Awaits that find their completion do not suspend, and still let other tasks run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.aio.conftest import AsyncEnds, MakeEnds, Run
from verbena import aio


def steps(awaitable: Any) -> int:
    """How often ``awaitable`` suspends when every suspension is resumed at once."""

    async def program() -> Any:
        return await awaitable

    coroutine: Coroutine[Any, Any, Any] = program()
    count = 0
    try:
        while True:
            coroutine.send(None)
            count += 1
    except StopIteration:
        return count


@pytest.mark.direct_only("by packets a request takes time, for which one has to wait")
def test_a_completion_that_is_there_costs_no_suspension(ends: AsyncEnds) -> None:
    operation = ends.qp.write(ends.near.mr, *ends.far.region(), length=8)
    assert steps(operation) == 0


@pytest.mark.direct_only("by packets a request takes time, for which one has to wait")
def test_a_completion_in_an_iteration_costs_no_suspension(ends: AsyncEnds) -> None:
    ends.near.qp.write(ends.near.mr, *ends.far.region(), length=8, wr_id=3)
    assert steps(ends.near_cq.__anext__()) == 0


async def write_for(ends: AsyncEnds, seconds: float, length: int = 8) -> None:
    """Await one WRITE after the other."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await ends.qp.write(ends.near.mr, *ends.far.region(), length=length)


@pytest.mark.not_simulated("each request waits for virtual time, and so do the timeouts")
def test_a_timeout_ends_awaits_that_never_wait(run: Run, ends: AsyncEnds) -> None:
    async def program() -> None:
        async with asyncio.timeout(0.002):
            await write_for(ends, 60)  # OtherClock's 2 ms are a hundred thousand WRITEs

    with pytest.raises(TimeoutError):
        run(program())


async def turns_beside(program: Coroutine[Any, Any, object]) -> int:
    """How many turns of the loop another task has while this one runs."""
    counted = 0

    async def count() -> None:
        nonlocal counted
        while True:
            await asyncio.sleep(0)
            counted += 1

    other = asyncio.ensure_future(count())
    await program
    other.cancel()
    return counted


@pytest.mark.not_simulated("each request waits for virtual time")
def test_awaits_that_never_wait_let_others_run(run: Run, make_ends: MakeEnds) -> None:
    ends = make_ends(nbytes=1 << 20)

    async def write(count: int, length: int) -> None:
        for _ in range(count):
            await ends.qp.write(ends.near.mr, *ends.far.region(), length=length)

    async def program() -> tuple[int, int]:
        return await turns_beside(write(640, 8)), await turns_beside(write(40, 1 << 20))

    small, large = run(program())
    assert small >= 4
    assert large >= 4


@pytest.mark.not_simulated("each request waits for virtual time")
def test_awaits_whose_completion_arming_finds_let_others_run(
    run: Run, ends: AsyncEnds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a network a completion often comes just before the CQ is armed, and arming takes it."""
    poll, arm = aio.AsyncCQ.poll, aio.AsyncCQ._arm
    arming = []

    def poll_if_arming(acq: aio.AsyncCQ) -> bool:
        return bool(arming) and poll(acq)

    def arm_polling(acq: aio.AsyncCQ) -> None:
        arming.append(acq)
        arm(acq)
        arming.pop()

    monkeypatch.setattr(aio.AsyncCQ, "poll", poll_if_arming)
    monkeypatch.setattr(aio.AsyncCQ, "_arm", arm_polling)
    monkeypatch.setattr(aio.AsyncCQ, "_on_event", lambda acq: (acq._channel.drain(), acq._arm()))

    async def write(count: int) -> None:
        for _ in range(count):
            await ends.qp.write(ends.near.mr, *ends.far.region(), length=8)

    assert run(turns_beside(write(640))) >= 4
    assert run(turns_beside(take_own_writes(ends, 640))) >= 4


@pytest.mark.not_simulated("each request waits for virtual time")
def test_an_iteration_that_never_waits_lets_others_run(run: Run, ends: AsyncEnds) -> None:
    async def program() -> int:
        return await turns_beside(take_own_writes(ends, 640))

    assert run(program()) >= 4


async def take_own_writes(ends: AsyncEnds, count: int) -> None:
    for number in range(count):
        ends.near.qp.write(ends.near.mr, *ends.far.region(), length=8, wr_id=number)
        assert (await anext(ends.near_cq)).wr_id == number


@pytest.mark.direct_only("by packets each request has to be waited for")
def test_a_turn_given_to_others_loses_no_completion(ends: AsyncEnds) -> None:
    """A task may be cancelled there."""
    for number in range(1000):
        ends.near.qp.write(ends.near.mr, *ends.far.region(), length=8, wr_id=number)
        taking = ends.near_cq.__anext__().__await__()
        if not suspends(taking):
            continue
        with pytest.raises(asyncio.CancelledError):
            taking.throw(asyncio.CancelledError)
        assert steps(ends.near_cq.__anext__()) == 0
        return
    pytest.fail("no await gave a turn to others")


def suspends(stepping: Any) -> bool:
    try:
        stepping.send(None)
    except StopIteration:
        return False
    return True
