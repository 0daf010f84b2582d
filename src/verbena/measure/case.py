# SPDX-License-Identifier: Apache-2.0
"""The interface of all cases, with their units. `verbena demo` and the benchmarks measure cases."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from verbena.measure.cores import Cores

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SMALL = 8
MIN_ITERATIONS, MAX_ITERATIONS = 20, 50_000_000


class Unit(StrEnum):
    """Units of measured values."""

    MICROSECONDS = "µs"
    SECONDS = "s"
    MILLIONS = "M/s"
    PER_SECOND = "1/s"
    BANDWIDTH = "MiB/s"
    PERCENT = "%"
    KIBIBYTES = "KiB"
    BYTES = "B"


class Memory(StrEnum):
    """Whose memory the peer reaches: allocated by the library to be shared, or the program's."""

    SHARED = "shared"
    OWN = "own"


@dataclass(frozen=True)
class Sample:
    """A measured value in its case's unit, and operations per second, to size the next run."""

    value: float
    rate: float | None = None


@dataclass(frozen=True)
class Effort:
    """How long to measure, in seconds, and how many operations a second are known or expected."""

    seconds: float
    rate: float | None = None

    def iterations(self, expected_rate: float) -> int:
        """How many operations fill the time; `expected_rate` is taken where none was measured."""
        wanted = self.seconds * (self.rate or expected_rate)
        return int(min(max(wanted, MIN_ITERATIONS), MAX_ITERATIONS))


class Case(Protocol):
    """One number that can be measured again and again. Cases are compared by value."""

    def __hash__(self) -> int: ...

    @property
    def label(self) -> str:
        """What is run, for the report."""

    @property
    def unit(self) -> Unit: ...

    def measure(self, effort: Effort, cores: Cores) -> Sample:
        """Measure once. Raises MeasureError, or SkipError when this machine cannot."""


def size_text(size: int) -> str:
    """A size in the largest unit that divides it.

    >>> size_text(65536), size_text(8)
    ('64 KiB', '8 B')
    """
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def unit_of(test: str, size: int) -> Unit:
    """Return the unit of a perftest or UCX test: messages per second for small ones, else MiB/s."""
    if test.endswith("_lat"):
        return Unit.MICROSECONDS
    return Unit.MILLIONS if size == SMALL else Unit.BANDWIDTH


def expected_rate(size: int, per_second: float, bytes_per_second: float) -> float:
    """Return operations per second, if an operation has a fixed cost and a cost for each byte."""
    return 1 / (1 / per_second + size / bytes_per_second)
