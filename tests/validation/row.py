# SPDX-License-Identifier: Apache-2.0
"""What a row of the validation is: a set-up, what is known about it, and what is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

T = TypeVar("T")


class Confidence(StrEnum):
    """Where the expectation comes from."""

    EXACT = "exact: it follows from the set-up"
    PROGRAM = "made by another program"
    TEXT = "text of the publication"
    MEMORY = "from memory of the publication"


@dataclass(frozen=True)
class Scope:
    """How much to measure. ``quick``: in a second or less, with wider statistics."""

    seed: int = 1
    quick: bool = False

    def pick(self, quick: T, full: T) -> T:
        return quick if self.quick else full


@dataclass(frozen=True)
class Figure:
    """One number, and between which it is to be."""

    what: str
    measured: float
    least: float
    most: float
    expected: float | None = None
    unit: str = ""
    rule: str = ""

    @property
    def passed(self) -> bool:
        return self.least <= self.measured <= self.most

    @property
    def ratio(self) -> float | None:
        return self.measured / self.expected if self.expected else None


def near(
    what: str, measured: float, expected: float, within: float = 0.02, unit: str = ""
) -> Figure:
    """As expected, but for a part ``within`` of it."""
    off = abs(expected) * within
    rule = f"within {within * 100:g} %" if within else "exactly"
    return Figure(what, measured, expected - off, expected + off, expected, unit, rule)


def around(what: str, measured: float, expected: float, off: float, unit: str = "") -> Figure:
    """As expected, but for so much."""
    return Figure(what, measured, expected - off, expected + off, expected, unit, f"± {off:g}")


def equal(what: str, measured: float, expected: float, unit: str = "") -> Figure:
    return near(what, measured, expected, 0.0, unit)


def at_least(what: str, measured: float, bound: float, unit: str = "") -> Figure:
    return Figure(what, measured, bound, float("inf"), bound, unit, "or more")


def at_most(what: str, measured: float, bound: float, unit: str = "") -> Figure:
    return Figure(what, measured, float("-inf"), bound, bound, unit, "or less")


def between(what: str, measured: float, least: float, most: float, unit: str = "") -> Figure:
    return Figure(what, measured, least, most, None, unit, f"{least:g} to {most:g}")


def holds(what: str, is_so: bool) -> Figure:
    """A statement, as 1 or 0."""
    return Figure(what, float(is_so), 1.0, 1.0, 1.0, "", "yes (1)")


@dataclass(frozen=True)
class Row:
    """A law or a published result.

    ``measure`` yields the figures; conservation is asserted in each of its runs. ``quick``: with
    a scope that is quick it is also a test of `make test`. ``tested``: where the same law is a
    test already, or where what is missing here is. ``missing``: what of the row is not measured,
    and why. ``differs``: a known disagreement, and its cause; the row has failed when there is none
    any more. ``seconds``: it has failed when it takes longer.
    """

    number: str
    title: str
    setup: str
    expected: str
    fails: str
    meaning: str
    measure: Callable[[Scope], Iterator[Figure]]
    confidence: Confidence = Confidence.EXACT
    quick: bool = False
    tested: str = ""
    missing: str = ""
    differs: str = ""
    seconds: float = 300.0
