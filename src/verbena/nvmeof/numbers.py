# SPDX-License-Identifier: Apache-2.0
"""Numbers that callers give, as ``int``: all public calls of this package convert theirs here.

A number of NumPy has few bits, and a sum with it wraps around: an offset of 32 bits near 4 GiB
would become one near 0. So nothing is computed before this.
"""

from __future__ import annotations

import operator

from verbena.cm.arguments import check_seconds, check_whole

__all__ = ["byte_count", "seconds", "whole"]


def byte_count(name: str, value: object) -> int:
    """Return a number of bytes, of whatever sign. Raises TypeError."""
    if type(value) is int:
        return value
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} is a number of bytes, and not {value!r}") from None


def whole(name: str, value: object, least: int, most: int) -> int:
    """Return a whole number from ``least`` to ``most``. Raises TypeError and ValueError."""
    check_whole(name, value, least, most)
    return operator.index(value)  # type: ignore[arg-type]


def seconds(name: str, value: float, most: float) -> float:
    """Return a number of seconds from 0 to ``most``. Raises TypeError and ValueError."""
    check_seconds(name, value, most)
    return value if type(value) is int else float(value)
