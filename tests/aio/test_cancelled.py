# SPDX-License-Identifier: Apache-2.0
"""Cancellation at every await of verbena.aio: no completion, no event and no queue pair is lost."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from tests.aio.conftest import AsyncEnds, Run
from tests.cancelling import at_every_await
from tests.verbs.side import Side
from verbena import aio, verbs


def test_a_receive_keeps_its_completion(run: Run, ends: AsyncEnds) -> None:
    near, far = ends.near, ends.far
    received: list[aio.Operation] = []

    async def receive() -> None:
        received.append(ends.peer.recv(far.mr, 0, 8))
        near.mr.store_u64(0, len(received))
        asyncio.get_running_loop().call_soon(near.qp.send, near.mr, 0, 8)
        await received[-1]

    async def check() -> None:
        await received[-1]
        assert far.mr.load_u64(0) == len(received)

    assert run(at_every_await(receive, check)) >= 1


def test_an_iteration_keeps_its_completion(run: Run, ends: AsyncEnds) -> None:
    near, far = ends.near, ends.far
    seen: list[int] = []
    posted = 0

    async def take() -> None:
        nonlocal posted
        posted += 1
        write = near.qp.write
        asyncio.get_running_loop().call_soon(
            lambda number: write(near.mr, *far.region(), length=8, wr_id=number), posted
        )
        seen.append((await anext(ends.near_cq)).wr_id)

    async def check() -> None:
        if len(seen) < posted:
            seen.append((await anext(ends.near_cq)).wr_id)
        assert seen == list(range(1, posted + 1))

    assert run(at_every_await(take, check)) >= 1


def test_an_event_is_not_lost(run: Run, ends: AsyncEnds) -> None:
    near, far = ends.near, ends.far
    events = aio.events(far.ctx)
    found: list[verbs.AsyncEvent] = []
    caused = 0

    async def take() -> None:
        nonlocal caused
        caused += 1
        qp = far.pd.create_qp(send_cq=far.cq)
        own = near.pd.create_qp(send_cq=near.cq)
        verbs.connect_pair(own, qp)
        asyncio.get_running_loop().call_soon(lambda: own.write(near.mr, 0, 0xBAD, length=8))
        found.append(await anext(events))

    async def check() -> None:
        while len(found) < caused:
            found.append(await anext(events))
        assert {each.event_type for each in found} == {verbs.EventType.QP_ACCESS_ERR}

    assert run(at_every_await(take, check)) >= 1


@pytest.mark.not_simulated("its streams are those of the fabric's hosts")
def test_connecting_leaves_queue_pairs_that_can_be_used(run: Run) -> None:
    """The peer of a cancelled attempt is connected, or told; the next attempt succeeds."""
    near, far = Side(), Side()

    async def attempt() -> None:
        one, other = (each.pd.create_qp(send_cq=each.cq) for each in (near, far))
        streams = [await asyncio.open_connection(sock=end) for end in socket.socketpair()]
        serving = asyncio.create_task(aio.connect_rc(other, *streams[1]))
        try:
            await aio.connect_rc(one, *streams[0])
        finally:
            streams[0][1].close()
            async with asyncio.timeout(10):
                with contextlib.suppress(verbs.ConnectError, asyncio.CancelledError):
                    await serving
            streams[1][1].close()
            one.close()
            other.close()

    async def check() -> None:
        await attempt()

    assert run(at_every_await(attempt, check)) >= 3
    near.close()
    far.close()
