# SPDX-License-Identifier: Apache-2.0
"""Chooses the two cores of a measurement, and starts programs on them. All cases use this."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


@dataclass(frozen=True)
class Cores:
    """The core of each of the two processes; the same one twice where there is only one."""

    first: int
    second: int

    @property
    def distinct(self) -> bool:
        return self.first != self.second

    def __str__(self) -> str:
        if self.distinct:
            return f"cores {self.first} and {self.second}"
        return f"core {self.first} alone: both processes share it, so latencies are scheduling"


def choose() -> Cores:
    """Return two cores that this process may use; if possible not two threads of one core."""
    allowed = sorted(os.sched_getaffinity(0))
    first = allowed[0]
    others = [core for core in allowed if core not in siblings(first)] or allowed[1:]
    return Cores(first, others[0] if others else first)


def siblings(core: int) -> set[int]:
    """The hardware threads of `core`, itself among them."""
    try:
        return parse_list(Path(SIBLINGS.format(core)).read_text())
    except OSError:
        return {core}


def parse_list(text: str) -> set[int]:
    """Parse a list of CPUs in the kernel's format.

    >>> sorted(parse_list("0-2,8"))
    [0, 1, 2, 8]
    """
    found: set[int] = set()
    for part in text.strip().split(","):
        start, _, end = part.partition("-")
        found.update(range(int(start), int(end or start) + 1))
    return found


@contextmanager
def pinned(core: int) -> Iterator[None]:
    """Run this thread on `core` for a while; processes started meanwhile stay there."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
