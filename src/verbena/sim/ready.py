# SPDX-License-Identifier: Apache-2.0
"""The scenarios that come with Verbena: TOML files in the folder ``scenarios``."""

from __future__ import annotations

import difflib
from pathlib import Path

__all__ = ["check", "find", "names"]

FOLDER = Path(__file__).parent / "scenarios"


def names() -> list[str]:
    """In the order of the alphabet."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def find(name: str) -> Path | None:
    """The file of a ready scenario, or None where there is none of that name."""
    return FOLDER / f"{name}.toml" if name in names() else None


def check(path: Path) -> None:
    """Raise FileNotFoundError, which names the ready ones, for what is no file of a scenario."""
    if path.exists() and not path.is_dir():
        return
    name = str(path)
    what = "a folder" if path.is_dir() else "no such file"
    close = difflib.get_close_matches(name, names(), 1)
    meant = f" (is {close[0]!r} meant?)" if close else ""
    raise FileNotFoundError(f"{name}: {what}, and no ready scenario{meant}: {', '.join(names())}")
