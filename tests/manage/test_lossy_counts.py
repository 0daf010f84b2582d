# SPDX-License-Identifier: Apache-2.0
"""How many of thousands, or of 2**60, packets are lost: as often as chance says, and in no time."""

from __future__ import annotations

import random
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest

from verbena.manage.agents.lossy_links import damaged_of, shared_out


def damaged(packets: int, chance: float, seed: int) -> int:
    link: Any = (SimpleNamespace(loss=chance), None)
    return damaged_of([link], packets, random.Random(seed))[0]


@pytest.mark.parametrize(
    ("packets", "chance"),
    [(50, 0.1), (1000, 0.01), (1 << 30, 1e-9), (1 << 60, 1e-17), (1 << 20, 0.3), (10_000, 0.9995)],
)
def test_the_mean_of_many_draws(packets: int, chance: float) -> None:
    """Five standard deviations of the mean of 400 draws."""
    found = [damaged(packets, chance, seed) for seed in range(400)]
    off = 5 * (packets * chance * (1 - chance) / 400) ** 0.5
    assert fmean(found) == pytest.approx(packets * chance, abs=off)
    assert 0 <= min(found) <= max(found) <= packets


@pytest.mark.parametrize("chance", [0.0, 1.0])
@pytest.mark.parametrize("packets", [1, 100, 1 << 60])
def test_never_and_always(packets: int, chance: float) -> None:
    assert damaged(packets, chance, 1) == packets * chance


@pytest.mark.parametrize("times", [0, 1, 70, 1 << 62])
def test_losses_are_shared_out_in_proportion(times: int) -> None:
    chances = [0.0, 0.1, 0.3, 0.0]
    found = [shared_out(times, chances, random.Random(seed)) for seed in range(400)]
    for each in found:
        assert sum(each) == times
        assert each[0] == each[3] == 0
    off = 5 * (times * 0.25 * 0.75 / 400) ** 0.5
    assert fmean(each[1] for each in found) == pytest.approx(times / 4, abs=off)


@pytest.mark.parametrize("times", [3, 1000, 1 << 62])
def test_links_that_nearly_never_lose(times: int) -> None:
    """A rest that is computed by differences would be 0 here."""
    found = shared_out(times, [1.0, 1e-20, 1e-20], random.Random(1))
    assert sum(found) == times
    assert found[0] >= times - 10


def test_losses_where_no_link_loses_are_nowhere() -> None:
    assert shared_out(5, [0.0, 0.0], random.Random(1)) == [0, 0]
