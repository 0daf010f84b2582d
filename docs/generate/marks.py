# SPDX-License-Identifier: Apache-2.0
"""Pages with a generated part, which is between two marks. The generators call this."""

from __future__ import annotations


def replaced(page: str, begin: str, end: str, made: str) -> str:
    """Return the page with the text between its marks replaced. Raises ValueError without marks."""
    head, found, rest = page.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no marks {begin.strip()} and {end.strip()}")
    return f"{head}{found}\n{made}\n{closed}{tail}"
