# SPDX-License-Identifier: Apache-2.0
"""Faults of 29 kinds at random places of a fabric of 495 nodes, with noise: what is found."""

from __future__ import annotations

import pytest

from tests.manage.diagnose import planted
from tests.support import ROOT

SEEDS = range(1, 6)
PAGE = ROOT / "docs" / "diagnose.md"


@pytest.fixture(scope="module")
def outcomes() -> list[planted.Outcome]:
    return [planted.trial(seed) for seed in SEEDS]


@pytest.mark.timeout(300)
def test_nearly_all_faults_are_found(outcomes: list[planted.Outcome]) -> None:
    """Some are so small that they cannot be told from the noise."""
    missed = [name for each in outcomes for name, found in each.found.items() if not found]
    planted_in_all = sum(len(each.found) for each in outcomes)
    assert planted_in_all >= 20 * len(SEEDS)
    assert len(missed) <= 0.05 * planted_in_all, missed
    once = {name for each in outcomes for name, found in each.found.items() if found}
    assert once == set(outcomes[0].found)


def test_hardly_a_finding_is_false(outcomes: list[planted.Outcome]) -> None:
    """Incast, restarted hosts, an older rack and errors of a good link name nobody."""
    false = [str(finding) for each in outcomes for finding in each.false]
    true = sum(each.true for each in outcomes)
    assert len(false) <= 0.02 * (true + len(false)), false


def test_incast_is_a_note(outcomes: list[planted.Outcome]) -> None:
    assert all(each.notes >= 3 for each in outcomes)


def test_the_table_of_the_page_is_current(outcomes: list[planted.Outcome]) -> None:
    page = PAGE.read_text()
    assert page == planted.page_with(page, planted.table(outcomes)), (
        "run: python -m tests.manage.diagnose"
    )
