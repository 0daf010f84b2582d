# SPDX-License-Identifier: Apache-2.0
"""Timers over an agenda, which itself cannot cancel. Every protocol of this room uses them.

A timer runs its call once for each start; a new start or a stop replaces the one before.
"""

from __future__ import annotations

from collections.abc import Callable

from verbena.host.clock import Agenda

MICROSECOND = 10**6
MILLISECOND = 10**9
SECOND = 10**12


class Timer:
    """Runs ``call`` when its time is over; times are picoseconds."""

    def __init__(self, agenda: Agenda, call: Callable[[], None]) -> None:
        self._agenda = agenda
        self._call = call
        self._start = 0
        self.running = False

    def start(self, delay: int) -> None:
        """Run the call ``delay`` ps from now, and not when an earlier start said."""
        self._start += 1
        self.running = True
        start = self._start
        self._agenda.add(self._agenda.now + delay, lambda: self._expire(start))

    def stop(self) -> None:
        self._start += 1
        self.running = False

    def _expire(self, start: int) -> None:
        if start == self._start:
            self.running = False
            self._call()
