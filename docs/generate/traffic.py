# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of docs/simulation.md with the keys of [[traffic]] and of its patterns.

python docs/generate/traffic.py
"""

from __future__ import annotations

from pathlib import Path

import marks

from verbena.sim.scenario_patterns import PATTERNS, Collective, Explained, Pattern, Table, explained

PAGE = Path(__file__).parent.parent / "simulation.md"
BEGIN = "<!-- traffic: made by generate/traffic.py -->\n"
END = "<!-- end of traffic -->"


TAG = Explained("name", "a pattern of the next table", "needed", required=True)


def rows(head: str, keys: dict[str, Explained]) -> list[list[str]]:
    return [
        [head if number == 0 else "", f"`{name}`", key.value, key.without, key.means]
        for number, (name, key) in enumerate(keys.items())
    ]


def own_keys(pattern: type[Pattern]) -> dict[str, Explained]:
    """Those that not every pattern has; the needed ones first."""
    common = explained(Table)
    own = {name: key for name, key in explained(pattern).items() if name not in common}
    return dict(sorted(own.items(), key=lambda item: not item[1].required))


def groups() -> list[tuple[str, type[Pattern]]]:
    """Patterns in their order; collective operations with the same keys are one."""
    found: dict[tuple[str, ...], tuple[list[str], type[Pattern]]] = {}
    for name, pattern in PATTERNS.items():
        same = tuple(own_keys(pattern)) if issubclass(pattern, Collective) else (name,)
        found.setdefault(same, ([], pattern))[0].append(f"`{name}`")
    return [(", ".join(names) + means(pattern), pattern) for names, pattern in found.values()]


def means(pattern: type[Pattern]) -> str:
    return "" if issubclass(pattern, Collective) else f": {pattern.__doc__}"


def table(rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def made() -> str:
    common = [["Key", "Value", "Without it", "Means"], ["---"] * 4]
    common += [row[1:] for row in rows("", {"pattern": TAG, **explained(Table)})]
    own = [["`pattern =`", "Key", "Value", "Without it", "Means"], ["---"] * 5]
    for head, pattern in groups():
        own += rows(head, own_keys(pattern))
    return f"{table(common)}\n{table(own)}"


def replaced(page: str) -> str:
    return marks.replaced(page, BEGIN, END, made())


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text()))
