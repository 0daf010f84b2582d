# SPDX-License-Identifier: Apache-2.0
"""What a value in a scenario may be: functions that take it, or raise ValueError."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from verbena.sim.units import bytes_of, picoseconds

__all__ = [
    "anything",
    "flag",
    "list_of",
    "meant",
    "number",
    "one_of",
    "rate",
    "size",
    "text",
    "time",
    "whole",
]

T = TypeVar("T")
LONGEST = 10**16  # ps: some hours


def anything(value: Any) -> Any:
    return value


def text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("it is to be text, in quotes")
    return value


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("it is to be true or false")
    return value


def whole(least: int, most: int) -> Callable[[object], int]:
    """A whole number in a range."""

    def kind(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError(f"it is to be a whole number from {least} to {most}")
        return value

    return kind


def number(least: float, most: float, *, above: bool = False) -> Callable[[object], float]:
    """Any number in a range, without its lower end if it is to be ``above``."""

    def kind(value: object) -> float:
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good or not least <= value <= most or (above and value == least):  # type: ignore[operator]
            limit = "" if math.isinf(most) else f" to {most:g}"
            raise ValueError(
                f"it is to be a number {'above' if above else 'from'} {least:g}{limit}"
            )
        return float(value)  # type: ignore[arg-type]

    return kind


def one_of(names: Collection[str]) -> Callable[[object], str]:
    def kind(value: object) -> str:
        if not isinstance(value, str) or value not in names:
            raise ValueError(f"{meant(value, names)}there are {', '.join(names)}")
        return value

    return kind


def meant(value: object, names: Collection[str]) -> str:
    """ "is 'incast' meant? ", where one of the names is close to the value."""
    close = difflib.get_close_matches(value, names, 1) if isinstance(value, str) else []
    return f"is {close[0]!r} meant? " if close else ""


def list_of(kind: Callable[[Any], T]) -> Callable[[object], list[T]]:
    """A list, or one thing that stands for a list of it."""

    def kinds(value: object) -> list[T]:
        return [kind(item) for item in (value if isinstance(value, list) else [value])]

    return kinds


def time(value: object) -> int:
    """Picoseconds from 0."""
    try:
        found = picoseconds(value)
    except ValueError as error:
        raise ValueError(f"it {error}") from None
    if found < 0:
        raise ValueError("it is negative: times and delays are 0 or more, and a run begins at 0")
    if found > LONGEST:
        raise ValueError("it is more than 10000 s")
    return found


def size(least: int = 0, most: int = 1 << 62) -> Callable[[object], int]:
    """Bytes."""

    def kind(value: object) -> int:
        try:
            found = bytes_of(value)
        except ValueError as error:
            raise ValueError(f"it {error}") from None
        if not least <= found <= most:
            limit = f" to {most}" if most < 1 << 62 else ""
            raise ValueError(f"it is to be from {least}{limit} bytes")
        return found

    return kind


def rate(value: object) -> Any:
    """A fabrics.Rate, from text with a unit or a name."""
    from verbena import fabrics

    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise ValueError('it is to be a rate, as in "100GbE" or "4xHDR"')
    return fabrics.rate(value)  # type: ignore[arg-type]  # which says what a number lacks
