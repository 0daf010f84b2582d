# SPDX-License-Identifier: Apache-2.0
"""Pages with a generated part, which is between two marks. The generators call this."""

from __future__ import annotations

import re
from collections import defaultdict

VARYING = re.compile(r"\[\d+\]:|0x[0-9a-f]+|\b\d+ us|PSN \d+|\d+ next|has \d+ entries")
OUTPUT = re.compile(r"^```text\n.*?\n```$", re.MULTILINE | re.DOTALL)


def normal(text: str) -> str:
    """Without what differs from run to run: addresses, keys, times, and so the ends of lines."""
    return " ".join(VARYING.sub("N", " ".join(text.split())).split())


def settled(page: str, made: str) -> str:
    """Return what was made, with each block of output as the page has it if the two differ only in
    what differs from run to run."""
    known: dict[str, list[str]] = defaultdict(list)
    for block in OUTPUT.findall(page):
        known[normal(block)].append(block)

    def as_before(found: re.Match[str]) -> str:
        before = known[normal(found[0])]
        return before.pop(0) if before else found[0]

    return OUTPUT.sub(as_before, made)


def replaced(page: str, begin: str, end: str, made: str) -> str:
    """Return the page with the text between its marks replaced. Raises ValueError without marks."""
    head, found, rest = page.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no marks {begin.strip()} and {end.strip()}")
    return f"{head}{found}\n{made}\n{closed}{tail}"
