# SPDX-License-Identifier: Apache-2.0
"""Timers over an agenda, which can be started anew. Every protocol of this room uses them.

A timer runs its call once for each start; a new start or a stop replaces the one before.
"""

from __future__ import annotations

from collections.abc import Callable

from verbena.host.clock import Agenda, Event

MICROSECOND = 10**6
MILLISECOND = 10**9
SECOND = 10**12


class Timer:
    """Runs ``call`` when its time is over; times are picoseconds."""

    def __init__(self, agenda: Agenda, call: Callable[[], None]) -> None:
        self._agenda = agenda
        self._call = call
        self._event: Event | None = None

    @property
    def running(self) -> bool:
        return self._event is not None

    def start(self, delay: int) -> None:
        """Run the call ``delay`` ps from now, and not when an earlier start said."""
        self.stop()
        self._event = self._agenda.add(self._agenda.now + delay, self._expire)

    def stop(self) -> None:
        if self._event is not None:
            self._event.cancel()
            self._event = None

    def _expire(self) -> None:
        self._event = None
        self._call()
