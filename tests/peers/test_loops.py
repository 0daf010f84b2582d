# SPDX-License-Identifier: Apache-2.0
"""A connection of verbena.peers belongs to one event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import verbena
from verbena.peers import PeerConnection, PeerListener, sync
from verbena.peers.sync import LoopThread

Call = Callable[[PeerConnection, PeerListener], Awaitable[Any]]
CALLS: dict[str, Call] = {
    "send": lambda conn, _: conn.send(b"small"),
    "send a long one": lambda conn, _: conn.send(bytes(100_000)),
    "post": lambda conn, _: conn.post(b"small"),
    "recv": lambda conn, _: conn.recv(),
    "wait_closed": lambda conn, _: conn.wait_closed(),
    "close": lambda conn, _: conn.close(),
    "accept": lambda _, listener: listener.accept(),
}
CALL = pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))


async def made() -> tuple[PeerListener, PeerConnection, PeerConnection]:
    listener = await verbena.listen("127.0.0.1:0").__aenter__()
    accepting = asyncio.ensure_future(listener.accept())
    conn = await verbena.connect(f"127.0.0.1:{listener.port}").__aenter__()
    return listener, conn, await accepting


async def go_on(listener: PeerListener, conn: PeerConnection, other: PeerConnection) -> None:
    """Nothing has come of the call in the other loop."""
    async with asyncio.timeout(10), listener, conn, other:
        await conn.send(b"of the own loop")
        assert await other.recv() == b"of the own loop"


async def refused(call: Call, conn: PeerConnection, listener: PeerListener) -> None:
    async with asyncio.timeout(5):
        with pytest.raises(RuntimeError, match="belongs to the event loop in which it was made"):
            await call(conn, listener)


@CALL
def test_a_loop_that_runs_after_the_first_one(call: Call) -> None:
    with asyncio.Runner() as runner:
        listener, conn, other = runner.run(made())
        with asyncio.Runner() as second:
            second.run(refused(call, conn, listener))
        runner.run(go_on(listener, conn, other))


@CALL
def test_a_loop_of_another_thread(call: Call) -> None:
    async def main() -> None:
        listener, conn, other = await made()
        await asyncio.to_thread(asyncio.run, refused(call, conn, listener))
        await go_on(listener, conn, other)

    asyncio.run(main())


def test_a_listener_is_closed_in_its_own_loop_alone() -> None:
    async def close(listener: PeerListener) -> None:
        listener.close()

    with asyncio.Runner() as runner:
        listener, conn, other = runner.run(made())
        with asyncio.Runner() as second, pytest.raises(RuntimeError, match="belongs to the event"):
            second.run(close(listener))
        runner.run(go_on(listener, conn, other))


def test_a_listener_whose_loop_was_closed_says_so() -> None:
    with asyncio.Runner() as runner:
        listener, *_ = runner.run(made())
    with pytest.raises(RuntimeError, match="before its loop, or use `async with`"):
        listener.close()


def test_a_recv_that_is_used_twice() -> None:
    async def main() -> None:
        listener, conn, other = await made()
        await other.send(b"first")
        await other.send(b"second")
        receiving = conn.recv()
        assert await receiving == b"first"
        for _ in range(2):
            with pytest.raises(RuntimeError, match="call recv"):
                await receiving
        with pytest.raises(RuntimeError, match="call recv"):
            async with receiving:
                pass
        assert await conn.recv() == b"second"
        await go_on(listener, conn, other)

    asyncio.run(main())


@pytest.mark.parametrize("what", ["loan", "window"])
def test_a_block_that_is_dropped_and_collected_in_the_loop_s_thread(what: str) -> None:
    """The collector runs where the next object is made: that thread must not wait for itself."""
    with sync.listen("127.0.0.1:0") as listener, ThreadPoolExecutor() as pool:
        accepting = pool.submit(listener.accept)
        with sync.connect(f"127.0.0.1:{listener.port}") as near, accepting.result(10) as far:
            near.send(b"kept")
            kept: list[Any] = [far.borrow(timeout=5) if what == "loan" else far.lend(far.array(4))]
            kept[0].__enter__()

            async def drop() -> None:
                kept.clear()

            sync.run_in_loop(drop(), 5)
            near.send(b"next")
            if what == "window":
                assert far.recv(timeout=5) == b"kept"
            assert far.recv(timeout=5) == b"next"


def test_a_call_in_the_loop_s_own_thread_is_refused() -> None:
    with sync.listen("127.0.0.1:0") as listener:

        async def accept() -> None:
            listener.accept()

        with pytest.raises(RuntimeError, match="in the thread of its own loop would never end"):
            sync.run_in_loop(accept(), 5)


def test_a_thread_that_cannot_be_started_is_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    loops = LoopThread()
    with monkeypatch.context() as context:
        context.setattr(threading.Thread, "start", refuse)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="can't start"):
                loops.call(lambda: asyncio.sleep(0))
    assert loops.call(lambda: asyncio.sleep(0, "slept"), timeout=5) == "slept"
