# SPDX-License-Identifier: Apache-2.0
"""The scenarios that come with Verbena: TOML files in the folder ``scenarios``."""

from __future__ import annotations

from pathlib import Path

__all__ = ["find", "names"]

FOLDER = Path(__file__).parent / "scenarios"


def names() -> list[str]:
    """In the order of the alphabet."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def find(name: str) -> Path | None:
    """The file of a ready scenario, or None where there is none of that name."""
    return FOLDER / f"{name}.toml" if name in names() else None
