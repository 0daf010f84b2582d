# SPDX-License-Identifier: Apache-2.0
"""The callbacks of an event loop: those that are ready, and those that have a time.

``loop.Loop`` makes a ``Callback`` for each ``call_soon`` and keeps its timers in ``Timers``. They
have the documented methods of asyncio.Handle and asyncio.TimerHandle, and nothing of their
implementation. Callbacks of one time are called in the order in which they were scheduled.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from heapq import heapify, heappop, heappush
from itertools import count
from math import nextafter
from typing import Any

__all__ = ["PS", "Callback", "Timer", "Timers", "ps_of", "seconds_of"]

PS = 1_000_000_000_000
"""Picoseconds in a second."""

NEVER = 2.0**63 / PS
"""Seconds: a timer from here on is beyond the world's clock, and is never due."""

_CANCELLED_MOST = 100  # with more, cancelled timers leave the heap when they are its majority


class Callback:
    """What ``call_soon`` returns."""

    __slots__ = ("__weakref__", "args", "context", "function")

    def __init__(self, function: Callable[..., Any], args: Any, context: Context) -> None:
        self.function: Callable[..., Any] | None = function  # None: it was cancelled
        self.args = args
        self.context = context

    def cancel(self) -> None:
        self.function, self.args = None, ()

    def cancelled(self) -> bool:
        return self.function is None

    def get_context(self) -> Context:
        return self.context

    def __repr__(self) -> str:
        what = "cancelled" if self.function is None else f"{self.function!r}, {self.args!r}"
        return f"<{type(self).__name__}: {what}>"


class Timer(Callback):
    """What ``call_at`` and ``call_later`` return."""

    __slots__ = ("_seconds", "timers")

    def __init__(
        self, seconds: float, function: Callable[..., Any], args: Any, context: Context
    ) -> None:
        super().__init__(function, args, context)
        self.timers: Timers | None = None  # those that it is one of
        self._seconds = seconds

    def when(self) -> float:
        return self._seconds

    def cancel(self) -> None:
        waits = self.function is not None
        super().cancel()
        if waits and self.timers is not None:
            self.timers.note_cancelled()


class Timers:
    """Timers that are not due yet. A cancelled one stays until it is the first, or one of many."""

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, Timer]] = []  # by time, then by number
        self._numbers = count()
        self._cancelled = 0  # how many of the heap are
        self._first = 0.0  # seconds whose ps are kept in _first_ps
        self._first_ps: int | None = 0

    def add(self, timer: Timer) -> None:
        timer.timers = self
        heappush(self.heap, (timer.when(), next(self._numbers), timer))

    def first(self) -> int | None:
        """Return when the next timer is due, in ps, or None if none is due within the clock.

        It is rounded up exactly, so that the loop's time is then never less than the timer's,
        however late it is.
        """
        heap = self.heap
        while heap and heap[0][2].function is None:
            heappop(heap)
            self._cancelled -= 1
        if not heap:
            return None
        seconds = heap[0][0]
        if seconds != self._first:
            self._first, self._first_ps = seconds, ps_of(seconds)
        return self._first_ps

    def beyond(self) -> float | None:
        """Return the seconds of the next timer if it is beyond the clock, and so never due."""
        if self.first() is not None or not self.heap:
            return None
        return self.heap[0][0]

    def take(self, now: int) -> list[Timer]:
        """Remove the timers that are due at ``now``, in ps, and return them in their order."""
        taken = []
        while (due := self.first()) is not None and due <= now:
            timer = heappop(self.heap)[2]
            timer.timers = None
            taken.append(timer)
        return taken

    def note_cancelled(self) -> None:
        """Note that one of these timers was cancelled."""
        self._cancelled += 1
        if self._cancelled > max(_CANCELLED_MOST, len(self.heap) // 2):
            self.heap[:] = [entry for entry in self.heap if entry[2].function is not None]
            heapify(self.heap)
            self._cancelled = 0

    def clear(self) -> None:
        for _, _, timer in self.heap:
            timer.timers = None
        self.heap.clear()
        self._cancelled = 0


def ps_of(seconds: float) -> int | None:
    """Return seconds in ps, rounded up exactly. None is a time beyond the clock, which never
    comes."""
    if seconds >= NEVER:
        return None
    if seconds <= 0:
        return 0
    whole, parts = seconds.as_integer_ratio()
    return -(-whole * PS // parts)


def seconds_of(ps: int) -> float:
    """Return the time of a timer that is due after so many ps of the world's clock, to the ps."""
    when = ps / PS
    if (ps_of(when) or 0) > ps:  # its next fraction of a second is below, by less than 1 ps
        when = nextafter(when, 0)
    return when
