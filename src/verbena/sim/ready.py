# SPDX-License-Identifier: Apache-2.0
"""The scenarios that come with Verbena, which are the TOML files in the folder ``scenarios``.

``Scenario.load`` and ``verbena sim`` look up names here.
"""

from __future__ import annotations

import difflib
from pathlib import Path

__all__ = ["check", "find", "names"]

FOLDER = Path(__file__).parent / "scenarios"


def names() -> list[str]:
    """Return the names of the scenarios in alphabetical order."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def find(name: str) -> Path | None:
    """Return the file of the scenario with this name, or None."""
    return FOLDER / f"{name}.toml" if name in names() else None


def check(path: Path) -> None:
    """Raise FileNotFoundError, which lists the names, if the path is not a file."""
    if path.exists() and not path.is_dir():
        return
    name = str(path)
    what = "a folder" if path.is_dir() else "no such file"
    close = difflib.get_close_matches(name, names(), 1)
    meant = f" (is {close[0]!r} meant?)" if close else ""
    raise FileNotFoundError(f"{name}: {what}, and no ready scenario{meant}: {', '.join(names())}")
