# SPDX-License-Identifier: Apache-2.0
"""The blocks of the documentation's pages, as a reader copies them. Called by test_pages.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support import ROOT

FENCE = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?$")
INDENT = "    "


@dataclass(frozen=True)
class Block:
    """`kind` is the fence's word, or `shell` for an indented block; `follows` says that nothing but
    blank lines stands between it and the block before. `title` is the name of the file that a
    reader saves it as, or "" for what is pasted."""

    page: str
    line: int
    kind: str
    text: str
    follows: bool
    title: str = ""

    @property
    def first(self) -> str:
        """Its first line, by which lists of blocks name it."""
        return self.text.partition("\n")[0].strip()

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    found = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
    return ["README.md", *found]


def blocks(page: str) -> list[Block]:
    return list(found((ROOT / page).read_text().split("\n"), page))


def found(lines: list[str], page: str) -> Iterator[Block]:
    at, follows = 0, False
    while at < len(lines):
        fence = FENCE.match(lines[at])
        if fence:
            end = lines.index("```", at + 1)
            text, kind = "\n".join(lines[at + 1 : end]), fence[1] or "plain"
            yield Block(page, at + 2, kind, text, follows, fence[2] or "")
            at, follows = end + 1, True
        elif starts_indented(lines, at):
            end = end_of_indented(lines, at)
            text = "\n".join(line.removeprefix(INDENT) for line in lines[at:end])
            yield Block(page, at + 1, "shell", text, follows)
            at, follows = end, True
        else:
            follows = follows and not lines[at].strip()
            at += 1


def starts_indented(lines: list[str], at: int) -> bool:
    return lines[at].startswith(INDENT) and not lines[at - 1].strip()


def end_of_indented(lines: list[str], at: int) -> int:
    """Behind its last line; a blank line belongs to it if an indented one follows."""
    end = at
    while end < len(lines) and (lines[end].startswith(INDENT) or not lines[end].strip()):
        end += 1
    while not lines[end - 1].strip():
        end -= 1
    return end
