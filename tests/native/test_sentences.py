# SPDX-License-Identifier: Apache-2.0
"""Each number that a sentence of the core names by its place, as {0}, is given, and each is named.

The compiler checks the formats of printf in this way, and does not know those of hca/decline.h.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT

NATIVE = ROOT / "src" / "native"
CALL = re.compile(r"\b(\w+)\(")
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[()\[\]{},]|[^()\[\]{},"\']+')
PLACE = re.compile(r"\{(\d+)([a-zA-Z]?)\}")
FILES = sorted(NATIVE.rglob("*.c"))
# dropin/qp_ex.c: two numbers, and then those of the queue pair and its type, or some of them.
LISTS = {"refuse_list": 4}


def arguments(text: str, begin: int) -> list[str]:
    """Those of the call whose parenthesis ends before `begin`."""
    found, depth = [""], 0
    for token in TOKEN.findall(text[begin : begin + 4000]):
        if token in "([{":
            depth += 1
        elif token in ")]}":
            depth -= 1
        if depth < 0:
            return found
        if token == "," and not depth:
            found.append("")
        else:
            found[-1] += token
    return []


def sentences(text: str) -> Iterator[tuple[str, str, int]]:
    """The name of the called function, its sentence, and how many numbers follow."""
    for call in CALL.finditer(text):
        given = arguments(text, call.end())
        for at, one in enumerate(given):
            if one.lstrip().startswith('"') and PLACE.search(one):
                yield call[1], one, len(given) - at - 1


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(NATIVE)))
def test_each_number_has_its_place(file: Path) -> None:
    for name, sentence, numbers in sentences(file.read_text()):
        found = [(int(place), letter) for place, letter in PLACE.findall(sentence)]
        # A GID's number is its upper half, and the lower one follows.
        places = {place + half for place, letter in found for half in range(1 + (letter == "g"))}
        assert max(places) < LISTS.get(name, numbers), sentence
        if name not in LISTS and re.fullmatch(r'(\s*"(?:[^"\\]|\\.)*")+\s*', sentence):
            assert places == set(range(numbers)), sentence
