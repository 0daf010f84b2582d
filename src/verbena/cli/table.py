# SPDX-License-Identifier: Apache-2.0
"""Text tables, which the commands of `verbena` print."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """Return rows as lines, each column as wide as its widest cell.

    >>> print(aligned([["a", "1"], ["bcd", "2"]]))
    a    1
    bcd  2
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(f"{indent}{line}".rstrip() for line in lines)
