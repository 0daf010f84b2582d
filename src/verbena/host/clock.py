# SPDX-License-Identifier: Apache-2.0
"""The agenda of one computer: what its devices do later, in picoseconds.

A ``Computer`` of its own has one; events of one instant run in the order in which they were added.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from verbena.host.errors import HostError

NEVER = 1 << 63


class Agenda:
    """Calls and the time of each; ``now`` is that of the event that runs."""

    def __init__(self) -> None:
        self.now = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()

    @property
    def next_at(self) -> int:
        """The time of the next event; ``NEVER`` if there is none."""
        return self._events[0][0] if self._events else NEVER

    def add(self, at: int, call: Callable[[], None]) -> None:
        """Runs ``call`` at a time that is not past."""
        if at < self.now:
            raise HostError(f"an event at {at} ps is in the past: it is {self.now} ps")
        heapq.heappush(self._events, (at, next(self._order), call))

    def run_due(self, until: int) -> None:
        """Runs all events up to ``until``, and what they add up to then."""
        while self._events and self._events[0][0] <= until:
            at, _, call = heapq.heappop(self._events)
            self.now = max(self.now, at)
            call()
        self.now = max(self.now, until)
