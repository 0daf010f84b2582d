# SPDX-License-Identifier: Apache-2.0
"""Rows of a timeline: slices by time, and for a core on whose behalf it works.

timeline.py fills them from what computers tell their observers. Times are in ps, those that a core
tells are its cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from verbena._trace_events import PS_PER_US, Event

_EXCEPTION, _INTERRUPT, _CALL, _RETURN = range(4)  # enum vb_cpu_change

# The categories of charged costs (costs.py); others are work of a program or driver.
_CATEGORIES = {
    "syscall": "system call",
    "hard_irq": "interrupt",
    "softirq_poll": "interrupt",
    "softirq_packet": "interrupt",
    "copy": "copy",
    "idle": "idle",
    "user": "user",
    "program": "program",
    "verbs_post": "user",
    "doorbell": "user",
    "cq_poll": "user",
    "cq_poll_empty": "user",
}


@dataclass
class Slice:
    """Something that lasted: ``category`` is what Perfetto colours and filters by."""

    name: str
    category: str
    start: int
    end: int
    details: dict[str, Any]


@dataclass
class Row:
    """A row; ``free_at`` is the end of its last slice."""

    process: int
    number: int
    name: str
    slices: list[Slice] = field(default_factory=list)
    free_at: int = 0
    _extensible: Slice | None = None

    def add(
        self,
        name: str,
        category: str,
        start: int,
        duration: int,
        details: dict[str, Any] | None = None,
    ) -> None:
        """Adds a slice; without details it extends the last of these if it goes on with it."""
        last = self._extensible
        if last and details is None and last.name == name and last.end == start:
            last.end = start + duration
        else:
            self.slices.append(Slice(name, category, start, start + duration, details or {}))
            if details is None:
                self._extensible = self.slices[-1]
        self.free_at = max(self.free_at, start + duration)

    def events(self) -> Iterator[Event]:
        """Its slices as complete events; longer ones first where several begin at once.

        The format wants that a slice ends before the one in which it began, so one that another
        outlasts ends where that begins.
        """
        ordered = sorted(self.slices, key=lambda each: (each.start, -each.end))
        ends = [one.end for one in ordered]
        under_way: list[int] = []
        for number, one in enumerate(ordered):
            under_way = [each for each in under_way if ends[each] > one.start]
            for each in under_way:
                if ends[each] < one.end:
                    ends[each] = one.start
            under_way.append(number)
        for one, end in zip(ordered, ends, strict=True):
            yield {
                "ph": "X",
                "name": one.name,
                "cat": one.category,
                "ts": one.start / PS_PER_US,
                "dur": (end - one.start) / PS_PER_US,
                "pid": self.process,
                "tid": self.number,
                "args": one.details,
            }


class CoreRow(Row):
    """The row of a core. Machine code is split where an interrupt, exception or system call begins
    or ends; those may nest."""

    def __init__(self, process: int, number: int, name: str, time_at: Callable[[int], int]) -> None:
        super().__init__(process, number, name)
        self._time_at = time_at
        self._base = "program"
        self._nested: list[tuple[str, str]] = []  # names and categories
        self._changes: list[tuple[int, int, int, int]] = []  # of the run that is under way
        self._works_until = 0

    def change(self, change: int, vector: int, cycle: int, ring: int) -> None:
        """What ``CoreState.follow`` tells; the run that it belongs to is shown afterwards.

        An interrupt comes between two instructions, and other changes end one, of a cycle.
        """
        self._changes.append((cycle + (change != _INTERRUPT), change, vector, ring))

    def store(
        self, device: str, at: int, cycle: int, details: dict[str, Any], by_python: bool
    ) -> int:
        """A store to a device, which takes a cycle. Returns when it begins.

        A program in Python stores when the work that it has charged for that is over: the store is
        the last cycle of it. Without such work the core is idle a cycle later.
        """
        if by_python and self._works_until == at >= cycle:
            at -= cycle
        self.add(f"store to {device}", "store", at, cycle, details)
        self._works_until = max(self._works_until, at + cycle)
        return at

    def show(self, name: str, start: int, end: int) -> None:
        """Charged or idle cycles, or a run of machine code, which is a "program"."""
        if name != "program":
            self._between(start, end, name, _CATEGORIES.get(name, "work"))
            return
        for cycle, change, vector, ring in self._changes:
            at = min(max(cycle, start), end)
            self._between(start, at, *self._doing())
            self._apply(change, vector, ring)
            start = at
        self._changes.clear()
        self._between(start, end, *self._doing())

    def _between(self, start: int, end: int, name: str, category: str) -> None:
        at, until = self._time_at(start), self._time_at(end)
        if category == "idle":
            at = max(at, self._works_until)
        else:
            self._works_until = max(self._works_until, until)
        if until > at:
            self.add(name, category, at, until - at)

    def _doing(self) -> tuple[str, str]:
        return self._nested[-1] if self._nested else (self._base, _CATEGORIES[self._base])

    def _apply(self, change: int, vector: int, ring: int) -> None:
        if change == _INTERRUPT:
            self._nested.append((f"interrupt {vector}", "interrupt"))
        elif change == _EXCEPTION:
            self._nested.append((f"exception {vector}", "exception"))
        elif change == _CALL:
            self._nested.append(("system call", "system call"))
        elif change == _RETURN and self._nested:
            self._nested.pop()
        elif change == _RETURN:  # a kernel begins a process
            self._base = "user" if ring == 3 else "program"
