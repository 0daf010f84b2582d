# SPDX-License-Identifier: Apache-2.0
"""The agenda of one or several computers: what their devices do later, in picoseconds.

A ``Computer`` of its own has one, and the computers of a ``Machines`` share one. Events of one
instant run in the order in which they were added.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from verbena._arguments import checked_class, is_whole
from verbena.host.errors import HostError, HostTypeError

NEVER = 1 << 63


class Event:
    """A call that is to be made; ``cancel`` takes it back."""

    __slots__ = ("call", "cause")

    def __init__(self, call: Callable[[], None], cause: int | None = None) -> None:
        self.call: Callable[[], None] | None = call
        self.cause = cause

    def cancel(self) -> None:
        """The call is not made; nothing if it was made already."""
        self.call = None


@checked_class(HostTypeError, but=("add", "run_due"))
class Agenda:
    """Calls and the time of each; ``now`` is that of the event that runs."""

    def __init__(self) -> None:
        self.now = 0
        self.runs = False  # an event runs: it is ``now``, wherever the cores are
        self.cause: int | None = None  # the store that led to what happens now, for a timeline
        self._events: list[tuple[int, int, Event]] = []
        self._order = count()

    @property
    def next_at(self) -> int:
        """The time of the next event; ``NEVER`` if there is none."""
        while self._events and self._events[0][2].call is None:
            heapq.heappop(self._events)
        return self._events[0][0] if self._events else NEVER

    def add(self, at: int, call: Callable[[], None]) -> Event:
        """Runs ``call`` at a time that is not past."""
        if not is_whole(at) or at < self.now or not callable(call):
            raise self._refusal(at, call)
        event = Event(call, self.cause)
        heapq.heappush(self._events, (at, next(self._order), event))
        return event

    def _refusal(self, at: object, call: object) -> HostError:
        if is_whole(at) and callable(call):
            return HostError(f"an event at {at} ps is in the past: it is {self.now} ps")
        return HostTypeError(
            f"an event has a time in ps, a whole number, and a function without arguments: its "
            f"time is {at!r}, and its call is {call!r}"
        )

    def run_due(self, until: int) -> None:
        """Runs all events up to ``until``, and what they add up to then."""
        self.runs = True
        try:
            while self.next_at <= until:
                at, _, event = heapq.heappop(self._events)
                call, event.call = event.call, None
                self.now = max(self.now, at)
                if call is not None:
                    self.cause = event.cause
                    call()
        finally:
            self.runs = False
            self.cause = None
        self.now = max(self.now, until)
