# SPDX-License-Identifier: Apache-2.0
"""Coroutines that run in the loop of verbena.peers.sync for threads that wait; ``sync`` calls it.

An exception of a signal handler, as Ctrl-C is, may take the thread away at any moment, and another
one while that is handled. What the coroutine returns goes to the thread or is put back, whatever
happens. Python runs handlers where a function is called or a loop goes round, and at no other
place, so the thread says by single statements, without a call, what has become of it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, Generic, TypeVar

__all__ = ["Begin", "OpenBlock", "ThreadCall", "ThreadCalls"]

T = TypeVar("T")
Begin = Callable[[], Coroutine[Any, Any, T]]
"""Makes the coroutine of a call, in the loop's thread: one that never runs is never made."""

_LEAVING = 1.0  # seconds for which others wait until a call that was left has ended


class ThreadCalls:
    """The calls of a loop whose results are on their way, and the tasks that threads have left."""

    def __init__(self) -> None:
        self.open: dict[ThreadCall[Any], None] = {}  # a set, from which ``del`` takes one
        self.blocks: dict[OpenBlock, None] = {}  # that have begun
        # The thread whose next call waits for it; None: those of all, as what was cancelled is
        # over soon, and others may take what it puts back.
        self.left: dict[asyncio.Task[Any], int | None] = {}

    async def settle(self, thread: int) -> None:
        """End what threads have left, for a call that is about to begin: what is put back is its.

        The loop was not told of a thread that another signal has interrupted before it could.
        """
        for call in list(self.open):
            if call.is_left:
                call.leave()
        self.end_blocks()
        before = [task for task, of in self.left.items() if of is None or of == thread]
        if before:
            await asyncio.wait(before, timeout=_LEAVING)

    def end_blocks(self) -> None:
        """Begin the ends of the blocks that were left or dropped, if that was not done."""
        for block in list(self.blocks):
            if block.is_left:
                self.left[block.begin_end()] = block.thread


class OpenBlock:
    """A ``with`` block that has begun; the thread sets ``is_left``."""

    def __init__(self, end: Begin[object], calls: ThreadCalls) -> None:
        self.is_left = False
        self.thread = threading.get_ident()
        self._end = end
        self._calls = calls
        self._ending: asyncio.Task[object] | None = None

    def begin_end(self) -> asyncio.Task[object]:
        """Return the task that ends it, of which there is one."""
        if self._ending is None:
            self.forget()
            self._ending = asyncio.get_running_loop().create_task(self._end())
            self._ending.add_done_callback(self._ended)
        return self._ending

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._calls.left.pop(task, None)
        if not task.cancelled():
            task.exception()  # perhaps nobody asks for it

    async def end(self) -> None:
        """End it, or wait until it has ended."""
        await asyncio.wait([self.begin_end()])
        self.begin_end().result()

    def forget(self) -> None:
        """It is not to be ended once more."""
        self._calls.blocks.pop(self, None)


class ThreadCall(Generic[T]):
    """A coroutine that runs in the loop for a thread that waits.

    The thread adds the call to those that are open, and has the loop ``start`` it. Then it waits
    and takes the result, or sets ``is_left`` and has the loop ``leave`` it. A coroutine whose
    thread has gone is cancelled, unless it ``must_end``; if it returns all the same, ``put_back``
    has what it returned, in the loop.
    """

    def __init__(
        self,
        begin: Begin[T],
        calls: ThreadCalls,
        put_back: Callable[[T], object] | None = None,
        must_end: bool = False,
    ) -> None:
        self.is_left = False
        self._thread = threading.get_ident()
        self._begin = begin
        self._calls = calls
        self._put_back = put_back
        self._must_end = must_end
        self._task: asyncio.Task[None] | None = None
        self._has_ended = False
        self._error: BaseException | None = None
        self._results: list[T] = []  # at most one, and none once it was put back
        # A plain lock: to interrupt the wait for a Condition may leave that in disorder.
        self._end = threading.Lock()
        self._end.acquire()

    # ---- in the loop ----

    def start(self) -> None:
        """Run the coroutine."""
        if self._task is None and not self._has_ended:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._ended)

    async def _run(self) -> None:
        if not self.is_left:
            await self._calls.settle(self._thread)
        self._results.append(await self._begin())

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._calls.left.pop(task, None)
        self._error = CancelledError() if task.cancelled() else task.exception()
        self._has_ended = True
        self._task = None  # which goes here, and not in a thread that signals may interrupt
        if self._error is not None:
            self._calls.open.pop(self, None)  # there is nothing to take
        elif self.is_left:
            self._return()
        self._end.release()

    def leave(self) -> None:
        """The thread has gone. The coroutine takes its first step in any case."""
        self.start()
        if self._has_ended:
            self._return()
        elif self._task is not None and self._task not in self._calls.left:
            self._calls.left[self._task] = self._thread if self._must_end else None
            if not self._must_end:
                asyncio.get_running_loop().call_soon(self._task.cancel)

    def _return(self) -> None:
        self._calls.open.pop(self, None)
        if self._put_back is not None and self._results:
            self._put_back(self._results.pop())

    # ---- in the thread ----

    def wait(self) -> BaseException | None:
        """Wait for the end; return the coroutine's exception."""
        self._end.acquire()
        return self._error

    def take(self) -> T:
        """Return what the coroutine has returned, which is the thread's from here."""
        del self._calls.open[self]
        return self._results[0]
