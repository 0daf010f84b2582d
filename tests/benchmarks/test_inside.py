# SPDX-License-Identifier: Apache-2.0
"""Rows of what an inside of hosts costs: each has the same flows with and without, from one run."""

from __future__ import annotations

import pytest

from benchmarks import goals, inside_scripts, simulation_goals
from benchmarks.goal import Better
from verbena.measure import cores
from verbena.measure.case import Effort


def test_reads_and_recorded_slices_have_rows() -> None:
    rows = [*simulation_goals.insides()]
    assert len({row.name for row in rows}) == 2 * len(inside_scripts.TRAFFIC)
    assert {(row.bound, row.better) for row in rows} == {(3.0, Better.LOWER)}
    assert sum("READs" in row.name for row in rows) == 2
    assert sum("slices recorded" in row.name for row in rows) == 4
    assert [row.name for row in goals.all_goals() if "an inside" in row.name] == [
        row.name for row in rows
    ]


def test_a_row_is_measured_with_and_without() -> None:
    row = next(one for one in simulation_goals.insides() if "READs" in one.name)
    ours, peer = (one.measure(Effort(0.01), cores.choose()).value for one in row.cases())
    assert 0 < peer < ours < 100  # us a packet


@pytest.mark.parametrize("traffic", inside_scripts.TRAFFIC)
def test_the_flows_are_the_same_and_arrive(traffic: str) -> None:
    plain = inside_scripts.world_of(traffic, None)
    full = inside_scripts.world_of(traffic, inside_scripts.INSIDE | {"slices": 1000})
    for world in (plain, full):
        assert inside_scripts.spent(world) > 0
    assert plain.flows()["bytes"].tolist() == full.flows()["bytes"].tolist()
    assert full.now > plain.now


def test_a_run_that_went_wrong_is_no_measurement() -> None:
    world = inside_scripts.world_of("whole", None)
    world.set_link(0, 0, False, 0)
    with pytest.raises(RuntimeError, match="the run ended with"):
        inside_scripts.spent(world)
