# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of docs/simulation.md with the keys of [[traffic]] and of its patterns.

python docs/generate/traffic.py
"""

from __future__ import annotations

from pathlib import Path

import marks

from verbena.fabrics.collectives import COLLECTIVES
from verbena.sim.scenario_patterns import PATTERNS, REQUIRED, Key, Pattern
from verbena.sim.scenario_traffic import COMMON

PAGE = Path(__file__).parent.parent / "simulation.md"
BEGIN = "<!-- traffic: made by generate/traffic.py -->\n"
END = "<!-- end of traffic -->"


def without(key: Key) -> str:
    """Return the default of a key as text."""
    if key.default is REQUIRED:
        return key.without or "needed"
    if key.without:
        return key.without
    return f"`{key.default}`" if isinstance(key.default, str) and " " not in key.default else str(
        key.default
    )  # fmt: skip


def rows(head: str, keys: dict[str, Key]) -> list[list[str]]:
    return [
        [head if number == 0 else "", f"`{name}`", key.value, without(key), key.means]
        for number, (name, key) in enumerate(keys.items())
    ]


def groups() -> list[tuple[str, Pattern]]:
    """Patterns in their order; collective operations with the same keys are one."""
    found: dict[tuple[str, ...], tuple[list[str], Pattern]] = {}
    for name, pattern in PATTERNS.items():
        same = tuple(pattern.keys) if name in COLLECTIVES else (name,)
        found.setdefault(same, ([], pattern))[0].append(f"`{name}`")
    return [
        (", ".join(names) + (f": {pattern.means}" if pattern.means else ""), pattern)
        for names, pattern in found.values()
    ]


def table(rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def made() -> str:
    common = [["Key", "Value", "Without it", "Means"], ["---"] * 4]
    common += [row[1:] for row in rows("", COMMON)]
    own = [["`pattern =`", "Key", "Value", "Without it", "Means"], ["---"] * 5]
    for head, pattern in groups():
        own += rows(head, pattern.keys)
    return f"{table(common)}\n{table(own)}"


def replaced(page: str) -> str:
    return marks.replaced(page, BEGIN, END, made())


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text()))
