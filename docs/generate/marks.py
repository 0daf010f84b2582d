# SPDX-License-Identifier: Apache-2.0
"""Pages of which one part is made: it stands between two marks."""

from __future__ import annotations


def replaced(page: str, begin: str, end: str, made: str) -> str:
    """The page with what stands between its marks replaced. Raises ValueError without marks."""
    head, found, rest = page.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no marks {begin.strip()} and {end.strip()}")
    return f"{head}{found}\n{made}\n{closed}{tail}"
