# SPDX-License-Identifier: Apache-2.0
"""The timer of a local APIC: a count that goes down, once or again and again.

``LocalApics`` makes one for each core. Time is the computer's, in picoseconds: the count is what
follows from the time since it began, and only its end is an event (SDM volume 3, 11.5.4).
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from verbena.host.clock import Event

ONE_SHOT, PERIODIC = 0, 1


def divisor(code: int) -> int:
    """What the divide configuration register says: bits 3, 1 and 0 are 7 for 1, 0 for 2, 1 for 4,
    up to 6 for 128."""
    number = code >> 1 & 4 | code & 3
    return 1 if number == 7 else 2 << number


class ApicTimer:
    """``clock_ps`` is the clock that it divides; ``expire`` is called at each end of the count."""

    def __init__(
        self,
        clock_ps: Fraction,
        now: Callable[[], int],
        at: Callable[[int, Callable[[], None]], Event],
        expire: Callable[[], None],
    ) -> None:
        self._clock_ps, self._now, self._at, self._expire = clock_ps, now, at, expire
        self.mode = ONE_SHOT
        self.initial = self.divide_code = 0
        self._begin = self._periods = self._count = 0
        self._event: Event | None = None

    @property
    def _tick_ps(self) -> Fraction:
        return self._clock_ps * divisor(self.divide_code)

    @property
    def current(self) -> int:
        """The count now; 0 if the timer stands."""
        if self._event is None:
            return 0
        gone = int((self._now() - self._begin) / self._tick_ps)
        return max(self._periods * self.initial + self._count - gone, 0)

    def start(self, count: int) -> None:
        """A write of the initial count; 0 stops the timer."""
        self.initial = count
        self._run(count)

    def divide(self, code: int) -> None:
        """Another divisor: what is left of the count goes on with it."""
        left = self.current
        self.divide_code = code & 0xB
        if self._event is not None:
            self._run(max(left, 1))

    def _run(self, count: int) -> None:
        if self._event is not None:
            self._event.cancel()
            self._event = None
        self._begin, self._periods, self._count = self._now(), 0, count
        if count:
            self._set()

    def _set(self) -> None:
        """The next end is counted from the first beginning, so that fractions do not add up."""
        ticks = self._count + self._periods * self.initial
        due = self._begin - int(-ticks * self._tick_ps // 1)
        self._event = self._at(max(due, self._now()), self._end)

    def _end(self) -> None:
        self._event = None
        if self.mode == PERIODIC and self.initial:
            self._periods += 1
            self._set()
        self._expire()
