# SPDX-License-Identifier: Apache-2.0
"""verbena.peers without asyncio: the same names, for ``with`` and ``for``, and calls that block.

    with sync.connect("server:7174") as conn:
        conn.send(b"hello")
        print(conn.recv(timeout=10))

One thread of the process runs an event loop for all connections, so credits and confirmations go
on while the program computes, and any thread may use a connection. A forked child starts its own.
"""

from __future__ import annotations

import asyncio
import os
import select
import selectors
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Protocol, Self, TypeVar, Unpack, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike, NDArray

from verbena.cm.arguments import CONNECT_SECONDS, check_timeout, keywords, limited
from verbena.verbs.forked import follow
from verbena.verbs.here import place

from ._blocks import Block
from .arrays import RemoteArray
from .connection import ConnectOptions, PeerConnection, PeerOptions, connect_peer
from .errors import Ended, PeerConnectionEnded, PeerError
from .listening import PeerListener, listen_for_peers
from .thread_calls import Begin, OpenBlock, ThreadCall, ThreadCalls

__all__ = [
    "SyncPeerConnection",
    "SyncPeerListener",
    "connect",
    "is_in_loop",
    "listen",
    "run_in_loop",
]

T = TypeVar("T")
_NO_MESSAGE = "no message came"
_NO_ATOMIC = "the atomic was not done"


@runtime_checkable
class HasOwnLoop(Protocol):
    """A place with an event loop for calls that block: a simulated host, which has no threads."""

    def run_blocking(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there until it ends, and return its result."""
        ...


class LastingExecutor(ThreadPoolExecutor):
    """The loop's executor, also when the program ends, where Python's executors take no more work.

    Then it works at once, in the loop's thread: a file that is stored at the end may need a
    connection, and that the address of a host.
    """

    def submit(self, work: Callable[..., T], /, *given: Any, **named: Any) -> Future[T]:
        """Have a thread do it. Raises RuntimeError where no thread can be started."""
        try:
            return super().submit(work, *given, **named)
        except RuntimeError:
            if threading.main_thread().is_alive():
                raise
        done: Future[T] = Future()
        try:
            done.set_result(work(*given, **named))
        except Exception as error:
            done.set_exception(error)
        return done


class LoopThread:
    """A thread that runs an event loop; it starts with the first call of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watched: selectors.EpollSelector | None = None  # by the loop
        self._thread: threading.Thread | None = None
        self._calls = ThreadCalls()
        follow(self)

    def stay_with_parent(self) -> None:
        """In a forked child the next call starts a loop: no thread has come along.

        What remains of the parent's loop gets an epoll descriptor of its own, since it would have
        the parent's watch nothing when it is collected.
        """
        watched = self._watched
        self._lock = threading.Lock()
        self._loop = self._thread = self._watched = None
        self._calls = ThreadCalls()
        if watched is not None:
            with suppress(OSError), select.epoll() as empty:  # no descriptor is left
                os.dup2(empty.fileno(), watched.fileno(), inheritable=False)

    def call(
        self,
        begin: Begin[T],
        timeout: float | None = None,
        late: str = "the call has not ended",
        *,
        put_back: Callable[[T], object] | None = None,
        must_end: bool = False,
    ) -> T:
        """Run a coroutine there and return its result.

        If an exception takes the calling thread away before that, the coroutine is cancelled unless
        it ``must_end``, and ``put_back`` is called there with the result, if there is one in spite
        of this. Raises TimeoutError after ``timeout`` seconds, with ``late`` for what has not
        happened, and RuntimeError in the loop's own thread, which would wait for itself.
        """
        loop = self.ready()
        if not isinstance(loop, asyncio.AbstractEventLoop):
            return loop.run_blocking(_within(begin, timeout, late))
        calls = self._calls
        made = ThreadCall(lambda: _within(begin, timeout, late), calls, put_back, must_end)
        error: BaseException | None = None
        try:
            calls.open[made] = None
            loop.call_soon_threadsafe(made.start)
            error = made.wait()
            if error is None:
                return made.take()
        except BaseException:
            # No handler runs before these two: the next call ends this one if the loop is not told.
            calls.open[made] = None
            made.is_left = True
            loop.call_soon_threadsafe(made.leave)
            raise
        try:
            raise error
        finally:
            del error, made  # which its traceback would keep, and they it

    def ready(self) -> asyncio.AbstractEventLoop | HasOwnLoop:
        """Return the loop for a call of this thread. Raises as ``call``, and OSError."""
        if self.is_here():
            raise RuntimeError(
                "a call of verbena.peers.sync in the thread of its own loop would never end: make"
                " it in another thread, or await verbena.connect's connections in a loop of yours"
            )
        return _own_loop() or self._running()

    def block(self, begin: Callable[[], T], end: Begin[object]) -> AbstractContextManager[T]:
        """Return a ``with`` block whose beginning calls ``begin``, and whose end is a coroutine.

        Once it has begun it ends when it is left or dropped, whatever interrupts that: before the
        next call begins.
        """
        calls = self._calls
        made = partial(OpenBlock, end, calls)
        return Block(begin, made, self._end, self._end_later, calls.blocks)

    def _end(self, opened: OpenBlock) -> None:
        self.call(opened.end, must_end=True)

    def _end_later(self, opened: OpenBlock) -> None:
        """End a block that was dropped, in whatever thread that is."""
        if self._loop is None or _own_loop():
            opened.forget()
        else:
            self._loop.call_soon_threadsafe(self._calls.end_blocks)

    def is_here(self) -> bool:
        """Whether the calling thread is the loop's own."""
        return self._thread is threading.current_thread()

    def _running(self) -> asyncio.AbstractEventLoop:
        loop = self._loop
        if loop is not None:
            return loop
        with self._lock:
            if self._loop is None:
                self._start()
            assert self._loop is not None
            return self._loop

    def _start(self) -> None:
        """Start the thread. Raises OSError and RuntimeError where nothing is left for it.

        A signal may interrupt this when the thread runs.
        """
        self._watched = selectors.EpollSelector()
        loop = asyncio.SelectorEventLoop(self._watched)
        loop.set_default_executor(LastingExecutor())
        self._thread = threading.Thread(target=loop.run_forever, name="verbena.peers", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            loop.close()
            raise
        finally:
            if self._thread.is_alive():
                self._loop = loop


def _own_loop() -> HasOwnLoop | None:
    here: object = place.get()
    return here if here is not None and isinstance(here, HasOwnLoop) else None


async def _within(begin: Begin[T], timeout: float | None, late: str) -> T:
    limit = asyncio.timeout(limited(timeout))
    try:
        async with limit:
            return await begin()
    except TimeoutError:
        if not limit.expired():
            raise
        raise TimeoutError(f"{late} within {timeout:g} s") from None


_thread = LoopThread()


def _timed(
    begin: Begin[T],
    timeout: float | None,
    late: str,
    put_back: Callable[[T], object] | None = None,
) -> T:
    """Run a coroutine that ``begin`` makes, in ``timeout`` seconds at most; 0: what is there now.

    Raises TypeError and ValueError for what is no timeout, before anything begins.
    """
    check_timeout(timeout)
    return _thread.call(begin, timeout, late, put_back=put_back)


def run_in_loop(work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
    """Run a coroutine in the loop of the synchronous connections, and return its result.

    Modules call it whose own calls block, as verbena.disk_files. Raises TimeoutError after
    ``timeout`` seconds, and what the coroutine raises.
    """
    try:
        _thread.ready()
    except BaseException:
        work.close()
        raise
    return _thread.call(lambda: work, timeout)


def is_in_loop() -> bool:
    """Whether the calling thread is that of the loop, in which ``run_in_loop`` would never end."""
    return _thread.is_here()


class SyncPeerConnection:
    """As ``PeerConnection``, with calls that block."""

    def __init__(self, conn: PeerConnection) -> None:
        self._conn = conn

    @property
    def closed(self) -> Ended | None:
        """Why it has ended; None while it has not."""
        return self._conn.closed

    @property
    def is_connected(self) -> bool:
        """Whether there is a queue pair."""
        return self._conn.is_connected

    @property
    def peer(self) -> str:
        """The peer's address."""
        return self._conn.peer

    def __repr__(self) -> str:
        return f"<SyncPeerConnection with {self.peer}: {self.closed or 'open'}>"

    def send(self, data: Any, timeout: float | None = None) -> None:
        """Send a message. Raises TimeoutError, and errors as PeerConnection.send.

        A call in another thread meanwhile of ``close`` is among the latter.
        """
        _timed(lambda: self._conn.send(data), timeout, "the message was not sent")

    def recv(self, timeout: float | None = None) -> bytes:
        """Receive the next message.

        Raises TimeoutError, and MemoryError for a message of which there is no room for a copy. No
        message is lost then, nor by an exception of a signal handler: it is the next one's.
        """
        receiving = self._conn.recv()
        return _timed(receiving._bytes, timeout, _NO_MESSAGE, receiving.put_back)

    def borrow(self, timeout: float | None = None) -> AbstractContextManager[memoryview]:
        """Receive the next message as a loan of its memory, for a ``with`` block.

        Raises TimeoutError as the block begins. No message is lost then, nor by an exception of a
        signal handler before the block has begun.
        """
        receiving = self._conn.recv()

        def begin() -> memoryview:
            return _timed(receiving.__aenter__, timeout, _NO_MESSAGE, receiving.put_back)

        return _thread.block(begin, receiving.__aexit__)

    def __iter__(self) -> Iterator[bytes]:
        while True:
            try:
                yield self.recv()
            except PeerConnectionEnded as error:
                if error.reason in (Ended.PEER, Ended.HERE):
                    return
                raise

    def array(self, shape: int | tuple[int, ...], dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """Return a new array in memory that the peer may be given access to."""
        return self._conn.array(shape, dtype)

    def share(self, array: Any) -> RemoteArray:
        """Name a dense part of an array of ``conn.array`` for the peer."""
        return self._conn.share(array)

    def lend(self, array: Any, *, write: bool = False) -> AbstractContextManager[RemoteArray]:
        """Lend a part of an array to this peer for the time of a ``with`` block."""
        lending = self._conn.lend(array, write=write)

        def begin() -> RemoteArray:
            return _thread.call(lending.__aenter__, put_back=lending.take_back)

        return _thread.block(begin, lending.__aexit__)

    def get(
        self, remote: RemoteArray, into: Any = None, timeout: float | None = None
    ) -> NDArray[Any]:
        """Read an array of the peer's; as RemoteArray.get."""
        return _timed(lambda: remote.get(into), timeout, "the array was not read")

    def put(self, remote: RemoteArray, local: Any, timeout: float | None = None) -> None:
        """Write an array of the peer's; as RemoteArray.put."""
        _timed(lambda: remote.put(local), timeout, "the array was not written")

    def fetch_add(self, remote: RemoteArray, value: int, timeout: float | None = None) -> int:
        """Add to one item atomically, and return what it was."""
        return _timed(lambda: remote.fetch_add(value), timeout, _NO_ATOMIC)

    def compare_swap(
        self, remote: RemoteArray, expected: int, new: int, timeout: float | None = None
    ) -> int:
        """Set one item to ``new`` if it is ``expected``, and return what it was."""
        return _timed(lambda: remote.compare_swap(expected, new), timeout, _NO_ATOMIC)

    def wait_closed(self, timeout: float | None = None) -> Ended:
        """Wait until it has ended, and return why. Raises TimeoutError."""
        return _timed(self._conn.wait_closed, timeout, "the connection has not ended")

    def close(self, patience: float = 5.0) -> None:
        """Wait until the peer has what was sent, and disconnect; as PeerConnection.close.

        Calls of other threads that send, or use arrays of the peer's, raise PeerConnectionEnded
        meanwhile.
        """
        _thread.call(lambda: self._conn.close(patience))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        _thread.call(lambda: self._conn.__aexit__(kind, *error))


class SyncPeerListener(AbstractContextManager["SyncPeerListener"]):
    """As ``PeerListener``, with calls that block."""

    def __init__(self, listener: PeerListener) -> None:
        self._listener = listener

    @property
    def port(self) -> int:
        """The port at which it listens."""
        return self._listener.port

    def accept(self, timeout: float | None = None) -> SyncPeerConnection:
        """Wait for the next peer. Raises TimeoutError, PeerError and OSError.

        Nothing is lost when it raises TimeoutError, or is interrupted: a connection that is being
        made is what a later call returns. So ``timeout=0`` can be polled.
        """
        listener = self._listener
        return SyncPeerConnection(
            _timed(listener.accept, timeout, "no peer connected", listener.give_back)
        )

    def __iter__(self) -> Iterator[SyncPeerConnection]:
        while True:
            try:
                yield self.accept()
            except PeerError:
                return

    def close(self) -> None:
        """Listen no more; connections that were given go on."""
        _thread.call(self._close, must_end=True)

    async def _close(self) -> None:
        self._listener.close()

    def __exit__(self, *error: object) -> None:
        self.close()


@keywords(ConnectOptions, slots=32, slot_size=4096, timeout=CONNECT_SECONDS)
def connect(address: str, **options: Unpack[ConnectOptions]) -> SyncPeerConnection:
    """Connect to ``"host:port"``, as verbena.connect. Raises ValueError, TypeError and OSError,
    among these TimeoutError."""
    return SyncPeerConnection(
        _thread.call(lambda: connect_peer(address, options), put_back=PeerConnection.abort)
    )


@keywords(PeerOptions, slots=32, slot_size=4096)
def listen(address: str | int, **options: Unpack[PeerOptions]) -> SyncPeerListener:
    """Listen at ``"host:port"``, or a port of every address. Raises OSError."""
    return SyncPeerListener(
        _thread.call(lambda: listen_for_peers(address, options), put_back=PeerListener.close)
    )
