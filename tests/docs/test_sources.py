# SPDX-License-Identifier: Apache-2.0
"""docs/sources.md says of each number that is known from memory what was found about it."""

from __future__ import annotations

import re

from tests.support import ROOT
from tests.validation.row import Confidence
from tests.validation.rows import rows
from verbena.host.cost_list import listed_costs

PAGE = (ROOT / "docs" / "sources.md").read_text()
OUTCOMES = {"checked", "second hand", "partly", "not found"}


def lines() -> list[list[str]]:
    """The cells of the tables' lines, without their heads."""
    cells = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    return [row for row in cells if row[0] not in ("Number", "Cost")]


def test_each_number_has_an_outcome_that_the_page_explains() -> None:
    assert lines()
    for row in lines():
        assert row[-1] in OUTCOMES, row
    for word in OUTCOMES:
        assert f"* **{word}**:" in PAGE


def test_a_row_inside_a_computer_that_is_from_memory_is_on_the_page() -> None:
    """None of them is from memory as a whole any more."""
    used = {number for row in lines() for number in re.findall(r"C\d+", " ".join(row))}
    for row in rows():
        if row.number[0] == "C":
            assert row.confidence is not Confidence.MEMORY, row.number
            if "from memory" in f"{row.expected} {row.meaning} {row.missing}":
                assert row.number in used


def test_a_cost_that_is_from_memory_is_on_the_page() -> None:
    named = {name for row in lines() for name in re.findall(r"`(\w+)`", row[0])}
    wanted = {one.name for one in listed_costs() if "from memory" in one.source}
    assert wanted
    assert not wanted - named
