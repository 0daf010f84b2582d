# SPDX-License-Identifier: Apache-2.0
"""The table of docs/development.md that says which tests to run after a change in a room.

scripts/mutate.py reads it, and tests/packaging/test_rooms.py holds it against the tree.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"^\| `(src/[^`]+)` \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)


def table(text: str) -> dict[str, list[str]]:
    """By room: the patterns of its tests, relative to the repository."""
    return {room: re.findall(r"`([^`]+)`", tests) for room, tests in ROW.findall(text)}


def rooms() -> dict[str, list[str]]:
    return table((ROOT / "docs" / "development.md").read_text())


def room_of(path: str, known: dict[str, list[str]]) -> str:
    """The innermost room of the table that a source file is in."""
    inside = [room for room in known if path.startswith(f"{room}/")]
    if not inside:
        raise LookupError(f"{path} is in no room of the table of docs/development.md: add its row")
    return max(inside, key=len)
