# SPDX-License-Identifier: Apache-2.0
"""An exception of a signal handler, as Ctrl-C is, takes a thread out of calls of peers.sync.

What such a call has taken meanwhile is the next call's, in its order, and no block is left open.
"""

from __future__ import annotations

import asyncio
import itertools
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import numpy as np
import pytest

from verbena.peers import Lending, PeerListener, PeerMemoryRevoked, sync
from verbena.peers._blocks import Block
from verbena.peers.connection import Receiving
from verbena.peers.sync import LoopThread, SyncPeerConnection
from verbena.rpc.client import CallStream, OpenLink

SMALL, LARGE = 20, 200_000


class Tick(Exception):
    """What the signal handler raises."""


def _tick(*_: object) -> None:
    raise Tick


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, _tick)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def pair() -> Iterator[tuple[SyncPeerConnection, SyncPeerConnection]]:
    with sync.listen("127.0.0.1:0") as listener, ThreadPoolExecutor() as pool:
        accepting = pool.submit(listener.accept)
        with sync.connect(f"127.0.0.1:{listener.port}") as near, accepting.result(10) as far:
            yield near, far


def interrupt_after(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, times: int = 1
) -> list[Any]:
    """Interrupt the main thread when the loop's has done a step for it, before that can tell it.

    Return the objects whose step it was.
    """
    step: Callable[..., Any] = getattr(owner, name)
    seen: list[Any] = []

    async def interrupted(self: Any) -> Any:
        result = await step(self)
        if len(seen) < times:
            seen.append(self)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
            time.sleep(0.05)
        return result

    monkeypatch.setattr(owner, name, interrupted)
    return seen


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("how", ["_bytes", "__aenter__"])
def test_the_message_is_the_next_one(
    pair: tuple[SyncPeerConnection, SyncPeerConnection],
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    size: int,
) -> None:
    near, far = pair

    def receive() -> bytes:
        if how == "_bytes":
            return far.recv(timeout=5)
        with far.borrow(timeout=5) as view:
            return bytes(view)

    for number in range(3):
        near.send(bytes([number]) * size)
    interrupt_after(monkeypatch, Receiving, how, 2)
    for _ in range(2):
        with pytest.raises(Tick):
            receive()
    assert [receive() for _ in range(3)] == [bytes([number]) * size for number in range(3)]
    near.send(b"after")  # their credits have come back
    for number in range(40):
        near.send(bytes([number]) * size)
        assert len(receive()) == (5 if not number else size)


def test_a_message_that_came_back_may_be_lent_and_written(
    pair: tuple[SyncPeerConnection, SyncPeerConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    near, far = pair
    near.send(b"first")
    interrupt_after(monkeypatch, Receiving, "_bytes")
    with pytest.raises(Tick):
        far.recv(timeout=5)
    with far.borrow(timeout=5) as view:
        assert bytes(view) == b"first"
        view[0] = ord("F")


def greeted_by(port: int) -> bytes:
    with sync.connect(f"127.0.0.1:{port}", timeout=20) as conn:
        return conn.recv(timeout=20)


def test_a_connection_that_nobody_got_is_the_next_one_s(monkeypatch: pytest.MonkeyPatch) -> None:
    with sync.listen("127.0.0.1:0") as listener, ThreadPoolExecutor() as pool:
        got = pool.submit(greeted_by, listener.port)
        interrupt_after(monkeypatch, PeerListener, "accept")
        with pytest.raises(Tick):
            listener.accept(timeout=20)
        with listener.accept(timeout=20) as conn:
            conn.send(b"hi")
            assert got.result(20) == b"hi"


def _tick_in_call(_: int, frame: FrameType | None) -> None:
    """Raise where the call waits, and not where it has returned, and the test has its result."""
    if frame is not None and frame.f_code.co_name in ("call", "wait"):
        raise Tick


def test_an_accept_that_is_interrupted_at_any_moment() -> None:
    moments, clients = random.Random(2), 40
    signal.signal(signal.SIGALRM, _tick_in_call)
    with sync.listen("127.0.0.1:0") as listener, ThreadPoolExecutor(clients) as pool:
        got = [pool.submit(greeted_by, listener.port) for _ in range(clients)]
        for _ in range(clients):
            conn = None
            while conn is None:
                try:
                    signal.setitimer(signal.ITIMER_REAL, moments.uniform(1e-4, 2e-2))
                    conn = listener.accept(timeout=20)
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except Tick:
                    pass
            with conn:
                conn.send(b"hi")
        assert [each.result(20) for each in got] == [b"hi"] * clients


def test_a_window_that_nobody_got_ends(
    pair: tuple[SyncPeerConnection, SyncPeerConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    near, far = pair
    table = near.array(8)
    lending = interrupt_after(monkeypatch, Lending, "__aenter__")
    with pytest.raises(Tick), near.lend(table):
        pytest.fail("the block begins")
    near.send(b"next")
    assert far.recv(timeout=5) == b"next"
    assert lending[0]._mw is None
    with near.lend(table):
        pass


def test_a_block_ends_though_its_end_is_interrupted(
    pair: tuple[SyncPeerConnection, SyncPeerConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    near, _ = pair
    table = near.array(8)
    ended: list[Lending] = []
    end = Lending._end

    async def interrupted(self: Lending) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
        time.sleep(0.05)
        await end(self)
        ended.append(self)

    monkeypatch.setattr(Lending, "_end", interrupted)
    with pytest.raises(Tick), near.lend(table):
        pass
    near.send(b"")
    assert ended


def test_the_end_of_a_block_holds_up_no_other_thread(
    pair: tuple[SyncPeerConnection, SyncPeerConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    near, far = pair
    ending, may_end = threading.Event(), threading.Event()
    end = Lending._end

    async def waits(self: Lending) -> None:
        ending.set()
        await asyncio.to_thread(may_end.wait, 20)
        await end(self)

    def lend() -> None:
        with near.lend(near.array(8)):
            pass

    monkeypatch.setattr(Lending, "_end", waits)
    thread = threading.Thread(target=lend)
    thread.start()
    try:
        assert ending.wait(10)
        begun = time.monotonic()
        for _ in range(5):
            near.send(b"meanwhile")
            assert far.recv(timeout=5) == b"meanwhile"
        assert time.monotonic() - begun < 1
    finally:
        may_end.set()
        thread.join(10)
    assert not thread.is_alive()


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A second exception takes the thread away before it has told the loop of the first.

    The list has the names of what the loop was not told.
    """
    loop = sync._thread._running()
    tell = loop.call_soon_threadsafe
    untold: list[str] = []

    def interrupted(callback: Callable[..., object], *args: Any, **named: Any) -> Any:
        if getattr(callback, "__name__", "") == "leave" and len(untold) < 2:
            untold.append("leave")
            signal.raise_signal(signal.SIGALRM)
        return tell(callback, *args, **named)

    monkeypatch.setattr(loop, "call_soon_threadsafe", interrupted)
    return untold


@pytest.mark.parametrize("how", ["_bytes", "__aenter__"])
def test_a_message_is_the_next_one_after_two_interruptions(
    pair: tuple[SyncPeerConnection, SyncPeerConnection],
    again: list[str],
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    near, far = pair

    def receive() -> bytes:
        if how == "_bytes":
            return far.recv(timeout=5)
        with far.borrow(timeout=5) as view:
            return bytes(view)

    for number in range(3):
        near.send(bytes([number]))
    interrupt_after(monkeypatch, Receiving, how, 2)
    for _ in range(2):
        with pytest.raises(Tick):
            receive()
    assert len(again) == 2
    assert [receive() for _ in range(3)] == [bytes([number]) for number in range(3)]


def test_a_wait_ends_after_two_interruptions(
    pair: tuple[SyncPeerConnection, SyncPeerConnection], again: list[str]
) -> None:
    """The call that nobody waits for is cancelled before another one takes the message."""
    near, far = pair
    for number in range(2):
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Tick):
            far.recv(timeout=5)
        assert len(again) == number + 1
        near.send(bytes([number]))
        assert far.recv(timeout=5) == bytes([number])


def test_a_block_ends_after_two_interruptions(
    pair: tuple[SyncPeerConnection, SyncPeerConnection],
    again: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    near, far = pair
    near.send(b"lent")
    interrupt_after(monkeypatch, Receiving, "__aexit__")
    lent: list[memoryview] = []
    with pytest.raises(Tick), far.borrow(timeout=5) as view:
        lent.append(view)
    assert again
    near.send(b"next")
    assert far.recv(timeout=5) == b"next"
    with pytest.raises(ValueError, match="released"):
        len(lent[0])


def raise_at(number: int) -> Callable[..., Any]:
    """A trace function that raises Tick at an event: at any other one there could be a signal."""
    left = number

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if event in ("call", "line"):
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise Tick
        return trace

    return trace


@pytest.mark.parametrize("kind", ["lend", "borrow"])
def test_a_block_ends_wherever_its_end_is_interrupted(
    pair: tuple[SyncPeerConnection, SyncPeerConnection], kind: str
) -> None:
    """Before the next call, and though the exception refers to the block."""
    near, far = pair
    table = far.array(4)
    interrupted: list[Tick] = []

    def leave(number: int) -> bool:
        """Leave a block; return whether the event did not come."""
        block = far.lend(table, write=True) if kind == "lend" else far.borrow(timeout=5)
        with block as seen:
            views.append(seen)
            sys.settrace(raise_at(number))
        sys.settrace(None)
        return True

    for number in itertools.count():
        views: list[Any] = []
        near.send(b"lent")
        try:
            is_over = leave(number)
        except Tick as error:
            is_over = False
            interrupted.append(error)
        finally:
            sys.settrace(None)
        far.send(b"over")
        assert near.recv(timeout=5) == b"over"
        if kind == "lend":
            assert far.recv(timeout=5) == b"lent"
            with pytest.raises(PeerMemoryRevoked):
                near.put(pickle.loads(pickle.dumps(views[0])), np.ones(4))
        else:
            with pytest.raises(ValueError, match="released"):
                len(views[0])
        if is_over:
            break
    assert len(interrupted) > 20
    assert not table.any()


def test_an_unmade_block_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal's handler may have interrupted what makes it."""
    dropped: list[object] = []  # exceptions of destructors
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)
    for kind in (Block, CallStream, OpenLink):
        unmade = kind.__new__(kind)
        del unmade
    assert not dropped


CALLBACKS = """
import gc
from concurrent.futures import ThreadPoolExecutor
from verbena.peers import sync

with sync.listen("127.0.0.1:0") as listener, ThreadPoolExecutor() as pool:
    accepting = pool.submit(listener.accept)
    with sync.connect(f"127.0.0.1:{listener.port}"), accepting.result(10):
        print(gc.callbacks)
"""


def test_no_callback_of_the_collector_takes_an_exception() -> None:
    """Python drops what a signal's handler raises there, so Ctrl-C might do nothing."""
    ran = subprocess.run([sys.executable, "-c", CALLBACKS], capture_output=True, text=True)
    assert ran.stdout == "[]\n", ran.stderr


def _is_in_thread_call(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code is not LoopThread.call.__code__:
        frame = frame.f_back
    return frame is not None


def test_interruptions_at_any_moment_one_upon_the_other(
    pair: tuple[SyncPeerConnection, SyncPeerConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio's debug mode looks at the stack in each step, and a second tick finds it there."""
    near, far = pair
    count, moments, loop = 400, random.Random(3), sync._thread._running()

    ticks = 0  # of this call

    def tick(_: int, frame: FrameType | None) -> None:
        nonlocal ticks
        if ticks < 3 and _is_in_thread_call(frame):
            ticks += 1
            signal.setitimer(signal.ITIMER_REAL, moments.uniform(5e-6, 1e-4))  # for another one
            raise Tick

    def send() -> None:
        for number in range(count):
            near.send(number.to_bytes(4, "little"))

    monkeypatch.setattr(sys, "unraisablehook", str)  # Python drops those of its destructors
    signal.signal(signal.SIGALRM, tick)
    sending = threading.Thread(target=send)
    got: list[int] = []
    chained = 0
    loop.set_debug(True)
    sending.start()
    try:
        while len(got) < count:
            message, ticks = None, 0
            try:
                signal.setitimer(signal.ITIMER_REAL, moments.uniform(2e-4, 5e-3))
                message = far.recv(timeout=5)
            except Tick as error:
                chained += isinstance(error.__context__, Tick)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            if message is not None:
                got.append(int.from_bytes(message, "little"))
    finally:
        loop.set_debug(False)
        sending.join(10)
    assert got == list(range(count))
    assert chained > 20


@pytest.mark.parametrize("sizes", [[SMALL], [SMALL, LARGE]])
def test_interruptions_at_any_moment(
    pair: tuple[SyncPeerConnection, SyncPeerConnection], sizes: list[int]
) -> None:
    near, far = pair
    count, rng = 400, random.Random(1)

    def send() -> None:
        for number in range(count):
            time.sleep(0.001)
            near.send(number.to_bytes(4, "little") + bytes(rng.choice(sizes)))

    sending = threading.Thread(target=send)
    got: list[int] = []
    ticks = 0
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        sending.start()
        while len(got) < count:
            message = None
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(2e-4, 3e-3))
                message = far.recv(timeout=5)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Tick:
                ticks += 1
            if message is not None:
                got.append(int.from_bytes(message[:4], "little"))
        sending.join(10)
    assert got == list(range(count))
    assert ticks > 20
    assert not [str(each.message) for each in warned]
