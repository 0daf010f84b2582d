# SPDX-License-Identifier: Apache-2.0
"""Building blocks of ``verbena.aio``: tasks that wait for a wake-up, loops that watch a descriptor,
and the stream of a device's events.

Nothing here depends on verbs requests. An object belongs to one loop at a time, and only the thread
of that loop may use it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any, Self

from .verbs._verbs import WC, Context
from .verbs.attributes import AsyncEvent
from .verbs.errors import VerbsError
from .verbs.forked import follow

__all__ = ["EventStream", "Reader", "Step", "Steps", "Unheard", "Wakeup", "wake"]

Steps = Generator[asyncio.Future[None] | None, None, WC]
"""What an await yields: a future to wait for, or None to let other tasks run first."""


class Wakeup:
    """The futures of tasks that wait for one condition; a woken task checks the condition again."""

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
                self.one()  # this task was woken and gives up: wake another one
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
    """Wake the task that waits by this future. Returns False if no task waits any more."""
    if waiter.done() or waiter.get_loop().is_closed():
        return False
    waiter.set_result(None)
    return True


class Reader:
    """Makes a loop call ``ready`` when a descriptor is readable.

    The reader moves to another loop when that uses it, unless the earlier loop is running: then it
    is in another thread, and tasks there would wait for ever.
    """

    def __init__(self, fd: int, ready: Callable[[], None]) -> None:
        self._fd = fd
        self._ready = ready
        self.loop: asyncio.AbstractEventLoop | None = None
        follow(self)

    def attach(self) -> asyncio.AbstractEventLoop:
        """Watch the descriptor in the running loop, and return the loop. Raises as ``check``."""
        loop = asyncio.get_running_loop()
        if loop is not self.loop:
            self.check()
            self.detach()
            loop.add_reader(self._fd, self._ready)
            self.loop = loop
        return loop

    def check(self) -> None:
        """Raise VerbsError(EBUSY) when a running loop of another thread watches the descriptor."""
        if self.loop is None or not self.loop.is_running():
            return
        if self.loop is not _running_loop():
            raise VerbsError(
                errno.EBUSY,
                "this belongs to another loop, which is running in another thread: use it there"
                " (asyncio.run_coroutine_threadsafe), or make a CQ, a channel and an AsyncCQ for"
                " each loop",
            )

    def stay_with_parent(self) -> None:
        """In a forked child the loop's epoll descriptor is the parent's, and stays as it is."""
        loop, self.loop = self.loop, None
        if loop is not None and loop.is_running():
            with suppress(RuntimeError):  # it is another thread's, which has not come along
                loop.call_soon(_end_child)

    def detach(self) -> None:
        if self.loop is not None and not self.loop.is_closed():
            self.loop.remove_reader(self._fd)
        self.loop = None


def _end_child() -> None:
    """End a forked child that has come back to the parent's loop, of which it has a copy.

    Python has no running loop there, so nothing could be awaited, while the copy would go on to
    handle what is the parent's. A loop that the child runs itself, as to end its tasks, goes on.
    """
    if _running_loop() is not None:
        return
    raise SystemExit(
        "a forked child came back to its parent's event loop, which does not run in a child: end"
        " it by os._exit, or start it by multiprocessing or subprocess"
    )


class Step(Coroutine[asyncio.Future[None] | None, None, WC]):
    """An awaitable that suspends only when it has to wait, or to let other tasks run.

    It is also a coroutine, since ``asyncio.create_task`` and ``TaskGroup.create_task`` require one;
    they step it by ``send``.
    """

    __slots__ = ("_stepping",)

    # By task. It is made with the first of them: most are awaited, and never stepped.
    _stepping: dict[object, Steps]

    def send(self, value: None, /) -> asyncio.Future[None] | None:
        """Start or continue, as a task does."""
        return self._step(lambda steps: steps.send(value))

    def throw(self, error: Any, /, *rest: Any) -> asyncio.Future[None] | None:
        """Raise ``error`` at the place of the wait, as a cancelled task does."""
        return self._step(lambda steps: steps.throw(error, *rest))

    def _step(
        self, how: Callable[[Steps], asyncio.Future[None] | None]
    ) -> asyncio.Future[None] | None:
        """Step the running task. Several tasks may await one Step; each has a generator of its
        own."""
        task = _current_task()
        if not hasattr(self, "_stepping"):
            self._stepping = {}
        if task not in self._stepping:
            self._stepping[task] = self.__await__()
        try:
            return how(self._stepping[task])
        except BaseException:
            self._stepping.pop(task, None)
            raise

    def close(self) -> None:
        """End the waits of the tasks that step it. A request that was posted stays posted."""
        while getattr(self, "_stepping", None):
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
    """A failure that no task has retrieved yet. If none ever does, the loop's exception handler
    gets it, as with the exception of an asyncio Future that was never retrieved."""

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


class EventStream:
    """A device's asynchronous events: ``async for event in aio.events(ctx)``.

    The iteration ends when the stream or the context is closed.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._wakeup = Wakeup()
        self._reader = Reader(context.async_fd, self._on_event)
        self._closed = False
        context.call_when_closed(self.close)

    def close(self) -> None:
        """End the iteration. The context stays open."""
        self._closed = True
        self._reader.detach()
        self._wakeup.all()

    def _on_event(self) -> None:
        self._reader.detach()  # else the loop calls this again until the event is taken
        self._wakeup.all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncEvent:
        while not self._closed:
            event = self._context.get_async_event(0)
            if event is not None:
                return event
            await _Pause(self._wakeup, self._reader.attach())
        raise StopAsyncIteration


class _Pause:
    def __init__(self, wakeup: Wakeup, loop: asyncio.AbstractEventLoop) -> None:
        self._wakeup = wakeup
        self._loop = loop

    def __await__(self) -> Generator[asyncio.Future[None], None, None]:
        return self._wakeup.wait(self._loop)
