# SPDX-License-Identifier: Apache-2.0
"""Failures that would go unnoticed are reported: to the peer, a second loop, the loop's handler."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from tests.aio.conftest import AsyncEnds, Run
from tests.verbs.side import Side
from verbena import aio, verbs


async def wait_for(operation: aio.Operation) -> verbs.WC:
    return await operation


@pytest.mark.not_simulated("a world has one thread")
def test_a_loop_of_another_thread_is_refused(run: Run, ends: AsyncEnds) -> None:
    """It would take the completions that the first one sleeps for."""

    async def use(kind: str) -> None:
        async with asyncio.timeout(5):
            if kind == "iteration":
                await anext(ends.far_cq)
            elif kind == "receive":
                await ends.peer.recv(ends.far.mr)
            else:
                await ends.peer.write(ends.far.mr, *ends.near.region(), length=8)

    def elsewhere(kind: str) -> BaseException | None:
        try:
            asyncio.run(use(kind))
        except (verbs.VerbsError, TimeoutError) as error:
            return error
        return None

    async def program() -> int:
        waiting = asyncio.ensure_future(wait_for(ends.peer.recv(ends.far.mr)))
        await asyncio.sleep(0)
        for kind in ("iteration", "receive", "write"):
            error = await asyncio.get_running_loop().run_in_executor(None, elsewhere, kind)
            assert isinstance(error, verbs.VerbsError), error
            assert error.errno == errno.EBUSY
            assert "belongs to another loop" in str(error)
        await ends.qp.send(ends.near.mr, length=8)
        return (await waiting).byte_len

    assert run(program()) == 8


def test_a_failure_that_nobody_awaits_is_told(run: Run, ends: AsyncEnds) -> None:
    told: list[dict[str, Any]] = []
    addr, rkey = ends.far.region()

    async def program() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        ends.qp.write(ends.near.mr, addr, rkey ^ 1)
        with pytest.raises(verbs.CompletionError):
            await ends.qp.write(ends.near.mr, addr, rkey)  # flushed, which is no news

    run(program())
    (context,) = told
    assert "nobody awaited" in context["message"]
    assert isinstance(context["exception"], verbs.CompletionError)
    assert context["exception"].status == verbs.WCStatus.REM_ACCESS_ERR


@pytest.mark.direct_only("by packets the request fails later, and nobody waits for that")
def test_a_failure_is_told_when_the_queue_is_closed(run: Run, ends: AsyncEnds) -> None:
    told: list[dict[str, Any]] = []

    async def program() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        ends.peer.recv(ends.far.mr)  # is not done, which is no news
        addr, rkey = ends.far.region()
        ends.qp.write(ends.near.mr, addr, rkey ^ 1)
        ends.near_cq.close()
        ends.far_cq.close()

    run(program())
    gc.collect()
    assert len(told) == 1


CLOSERS: dict[str, Callable[[AsyncEnds], None]] = {
    "context": lambda ends: ends.near.ctx.close(),
    "QP": lambda ends: ends.near.qp.close(),
    "QP, and then the CQ": lambda ends: (ends.near.qp.close(), ends.near.cq.close())[0],
    "with block of the CQ": lambda ends: ends.near.cq.__exit__(None, None, None),
}


@pytest.mark.direct_only("by packets the request fails later, and nobody waits for that")
@pytest.mark.parametrize("close", CLOSERS.values(), ids=CLOSERS.keys())
def test_a_failure_is_told_by_whatever_closes_the_queue(
    run: Run, ends: AsyncEnds, close: Callable[[AsyncEnds], None]
) -> None:
    told: list[dict[str, Any]] = []
    addr, rkey = ends.far.region()

    async def program() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        aio.AsyncQP(ends.near.qp, ends.near_cq).write(ends.near.mr, addr, rkey ^ 1)
        close(ends)

    run(program())
    gc.collect()
    (context,) = told
    assert context["exception"].status == verbs.WCStatus.REM_ACCESS_ERR


def test_a_closing_cq_that_stays_open_posts_what_is_queued(
    run: Run, make_ends: Callable[..., AsyncEnds]
) -> None:
    """It has QPs, so closing fails: what it has polled made room, which is used."""
    ends = make_ends(max_send_wr=2)

    async def program() -> None:
        place = ends.far.region()
        room = ends.near.qp.cap.max_send_wr
        posted = [ends.qp.write(ends.near.mr, *place, length=8) for _ in range(3 * room)]
        with pytest.raises(verbs.VerbsError, match="QPs still complete into the CQ"):
            ends.near.cq.close()
        async with asyncio.timeout(10):
            for operation in posted:
                assert (await operation).is_success

    run(program())


def test_an_operation_says_what_it_is(run: Run, ends: AsyncEnds) -> None:
    async def program() -> None:
        received = ends.peer.recv(ends.far.mr)
        number = f"{ends.far.qp.qp_num:#x}"
        assert repr(received) == (
            f"<Operation, a receive of <QP RC {number}>, wr_id={received.token:#x}: on its way>"
        )
        sent = ends.qp.send(ends.near.mr, length=8)
        await sent
        assert f"a request of {ends.near.qp!r}" in repr(sent)
        assert repr(sent).endswith(": done, SUCCESS>")

    run(program())


def test_a_failure_that_is_awaited_is_not_told(run: Run, ends: AsyncEnds) -> None:
    told: list[dict[str, Any]] = []

    async def program() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        addr, rkey = ends.far.region()
        failing = [ends.qp.write(ends.near.mr, addr, rkey ^ 1) for _ in range(2)]
        for operation in failing:
            with pytest.raises(verbs.CompletionError):
                await operation

    run(program())
    gc.collect()
    assert told == []


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda ends: aio.AsyncCQ("x"), r"AsyncCQ takes a CQ, and not str.*create_comp_channel"),
        (lambda ends: aio.AsyncQP(None, ends.near_cq), "AsyncQP takes a QP, and not NoneType"),
        (lambda ends: aio.events(ends.near.qp), "an open device, and not QP"),
    ],
)
def test_something_else_is_named(
    ends: AsyncEnds, make: Callable[[AsyncEnds], object], words: str
) -> None:
    with pytest.raises(TypeError, match=words):
        make(ends)


async def both_streams(
    one: Callable[..., Awaitable[Any]], other: Callable[..., Awaitable[Any]]
) -> list[Any]:
    """What becomes of two ends, each given the reader and the writer of its side."""
    ends = socket.socketpair()
    streams = [await asyncio.open_connection(sock=end) for end in ends]
    outcomes = await asyncio.gather(
        *(end(*stream) for end, stream in zip((one, other), streams, strict=True)),
        return_exceptions=True,
    )
    for _, writer in streams:
        writer.close()
    return outcomes


@pytest.mark.not_simulated("its streams are those of the fabric's hosts")
@pytest.mark.parametrize("qp", ["closed", "none", "connected"])
def test_the_peer_of_a_qp_that_cannot_be_connected_is_told(run: Run, qp: str) -> None:
    near, far, third = Side(), Side(), Side()
    given: Any = None if qp == "none" else far.qp
    if qp == "closed":
        far.qp.close()
    if qp == "connected":
        verbs.connect_pair(far.qp, third.qp)

    async def program() -> list[Any]:
        async with asyncio.timeout(10):
            return await both_streams(
                partial(aio.connect_rc, near.qp), partial(aio.connect_rc, given)
            )

    told, failed = run(program())
    assert isinstance(told, verbs.ConnectError)
    assert told.errno == errno.ECONNREFUSED
    assert str(failed) in str(told)
    for side in (near, far, third):
        side.close()


def test_a_socket_is_no_stream(run: Run, ends: AsyncEnds) -> None:
    a, b = socket.socketpair()
    with a, b, pytest.raises(TypeError, match=r"asyncio.open_connection.*verbena.connect_rc"):
        run(aio.connect_rc(ends.near.qp, a, a))  # type: ignore[arg-type]
