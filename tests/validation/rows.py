# SPDX-License-Identifier: Apache-2.0
"""All rows, found by their files: v03_queue.py has V3, p07_livelock.py P7, c13_napi.py C13."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from tests.validation.row import Row

FILE = re.compile(r"([vpc])(\d\d)_\w+")


def rows() -> list[Row]:
    """V rows by number, then P, then C. Raises ValueError when a file and its row do not agree."""
    found = []
    names = (path.stem for path in Path(__file__).parent.glob("*.py"))
    for match in filter(None, map(FILE.fullmatch, names)):
        row: Row = importlib.import_module(f"tests.validation.{match[0]}").ROW
        if row.number != f"{match[1].upper()}{int(match[2])}":
            raise ValueError(f"{match[0]}.py has the row {row.number}")
        found.append(row)
    return sorted(found, key=lambda row: ("VPC".index(row.number[0]), int(row.number[1:])))


def row(number: str) -> Row:
    """Raises KeyError."""
    return {each.number: each for each in rows()}[number]
