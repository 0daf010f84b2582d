# SPDX-License-Identifier: Apache-2.0
"""Make from ranks.toml the enum of the locks' order, and the table of docs/locks.md.

scripts/native_sources.py writes both, and sees in `make lint` whether they are out of date.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "locks.md"
BEGIN_MARK = "<!-- locks: made by src/native/lock/ranks.py -->\n"
END_MARK = "<!-- end of locks -->"
KEYS = {"where", "kind", "protects", "beneath"}
KINDS = {"mutex", "rwlock", "biased", "word"}

HEAD = """\
// SPDX-License-Identifier: Apache-2.0
/* Made by ranks.py from ranks.toml. The order of the locks: docs/locks.md explains it. */
/* clang-format off */
#ifndef VB_LOCK_RANKS_H
#define VB_LOCK_RANKS_H

enum vb_rank {
    VB_RANK_NONE = 0, /* a lock that was never initialised */
"""


def locks() -> dict[str, dict[str, str]]:
    """The entries of ranks.toml, in their order. Raises ValueError where one lacks a part."""
    found: dict[str, dict[str, str]] = tomllib.loads((HERE / "ranks.toml").read_text())["lock"]
    for name, lock in found.items():
        if set(lock) != KEYS or lock["kind"] not in KINDS:
            raise ValueError(f"lock {name}: an entry has {', '.join(sorted(KEYS))}")
    return found


def header_file() -> str:
    lines = [f"    VB_RANK_{name}," for name in locks()]
    lines += ["};", "", "#define VB_RANK_NAMES \\", '    "NONE", \\']
    lines += [f'    "{name}", \\' for name in locks()]
    return HEAD + "\n".join([*lines, "", "#endif", ""])


def table() -> str:
    lines = ["| | Lock | Where | Kind | Protects | Beneath it |", "|---|---|---|---|---|---|"]
    for rank, (name, lock) in enumerate(locks().items(), 1):
        cells = [str(rank), name, lock["where"], lock["kind"], lock["protects"], lock["beneath"]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    head, begin, rest = PAGE.read_text().partition(BEGIN_MARK)
    _, end, tail = rest.partition(END_MARK)
    if not begin or not end:
        raise ValueError(f"{PAGE} has no marks {BEGIN_MARK.strip()} and {END_MARK}")
    return f"{head}{begin}\n{table()}\n{end}{tail}"


def outputs() -> dict[Path, str]:
    return {HERE / "ranks.h": header_file(), PAGE: page()}
