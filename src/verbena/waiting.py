# SPDX-License-Identifier: Apache-2.0
"""How tasks wait for a thing, and loops for a descriptor: what ``verbena.aio`` is made of.

Nothing here knows requests. All of it belongs to one loop at a time, and to that loop's thread.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from .verbs._verbs import WC
from .verbs.errors import VerbsError

__all__ = ["Reader", "Step", "Steps", "Unheard", "Wakeup", "wake"]

Steps = Generator[asyncio.Future[None] | None, None, WC]
"""What an await goes through: a future to wait for, or None to let others run first."""


class Wakeup:
    """Futures of the tasks that wait for one thing; setting them wakes the tasks to look again."""

    def __init__(self) -> None:
        self._waiters: deque[asyncio.Future[None]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiters)

    def wait(self, loop: asyncio.AbstractEventLoop) -> Generator[asyncio.Future[None], None, None]:
        """Suspend the running task until it is woken."""
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append(waiter)
        try:
            yield from waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                self.one()  # this task was woken but gives up: pass the word on
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def one(self) -> None:
        while self._waiters and not wake(self._waiters.popleft()):
            pass

    def all(self) -> None:
        while self._waiters:
            self.one()


def wake(waiter: asyncio.Future[None]) -> bool:
    """False: nobody waits by it any more."""
    if waiter.done() or waiter.get_loop().is_closed():
        return False
    waiter.set_result(None)
    return True


class Reader:
    """Has a loop call ``ready`` when a descriptor is readable.

    Follows the program from loop to loop, but not away from one that runs: that is in another
    thread, and whoever waits there would wait for ever.
    """

    def __init__(self, fd: int, ready: Callable[[], None]) -> None:
        self._fd = fd
        self._ready = ready
        self.loop: asyncio.AbstractEventLoop | None = None

    def attach(self) -> asyncio.AbstractEventLoop:
        """Read from the running loop, which is returned."""
        loop = asyncio.get_running_loop()
        if loop is not self.loop:
            self.check()
            self.detach()
            loop.add_reader(self._fd, self._ready)
            self.loop = loop
        return loop

    def check(self) -> None:
        """Raise VerbsError(EBUSY) when the descriptor is read by a loop of another thread."""
        if self.loop is None or not self.loop.is_running():
            return
        if self.loop is not _running_loop():
            raise VerbsError(
                errno.EBUSY,
                "this belongs to another loop, which is running in another thread: use it there"
                " (asyncio.run_coroutine_threadsafe), or make a CQ, a channel and an AsyncCQ for"
                " each loop",
            )

    def detach(self) -> None:
        if self.loop is not None and not self.loop.is_closed():
            self.loop.remove_reader(self._fd)
        self.loop = None


class Step(Coroutine[asyncio.Future[None] | None, None, WC]):
    """An awaitable that suspends only when it must, or when it is others' turn.

    It is a coroutine for who asks for one: ``asyncio.create_task`` and ``TaskGroup.create_task``
    do, and step it by ``send``.
    """

    __slots__ = ("_stepping",)

    def __init__(self) -> None:
        self._stepping: dict[object, Steps] = {}  # by task

    def send(self, value: None, /) -> asyncio.Future[None] | None:
        """Start or go on, as a task does."""
        return self._step(lambda steps: steps.send(value))

    def throw(self, error: Any, /, *rest: Any) -> asyncio.Future[None] | None:
        """Raise ``error`` where it waits, as a task does that is cancelled."""
        return self._step(lambda steps: steps.throw(error, *rest))

    def _step(
        self, how: Callable[[Steps], asyncio.Future[None] | None]
    ) -> asyncio.Future[None] | None:
        """Several tasks may be made of one: each has steps of its own."""
        task = _current_task()
        if task not in self._stepping:
            self._stepping[task] = self.__await__()
        try:
            return how(self._stepping[task])
        except BaseException:
            self._stepping.pop(task, None)
            raise

    def close(self) -> None:
        """End the waits of the tasks that step it. A request that was posted stays so."""
        while self._stepping:
            self._stepping.popitem()[1].close()


def _current_task() -> object:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop is running
        return None


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Unheard:
    """A failure that nobody has asked for yet. If nobody ever does, the loop is told of it.

    ``asyncio`` does the same with a Future's exception that was never retrieved.
    """

    __slots__ = ("_error", "_loop", "heard")

    def __init__(self, error: Exception, loop: asyncio.AbstractEventLoop | None) -> None:
        self._error = error
        self._loop = loop or _running_loop()
        self.heard = False

    def __del__(self) -> None:
        if self.heard:
            return
        said = "a request failed, and nobody awaited its operation"
        if self._loop is not None:
            self._loop.call_exception_handler({"message": said, "exception": self._error})
        else:
            logging.getLogger("asyncio").error("%s: %s", said, self._error)
