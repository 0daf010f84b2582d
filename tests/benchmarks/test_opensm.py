# SPDX-License-Identifier: Apache-2.0
"""The benchmarks' rows about subnet managers: ours, and OpenSM over ibsim."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import goals, opensm
from benchmarks.goal import Section
from verbena.measure import cores
from verbena.measure.case import Effort
from verbena.measure.processes import MeasureError, SkipError


def test_our_manager_is_measured_in_a_process_of_its_own() -> None:
    rows = [row for row in goals.all_goals() if row.section is Section.MANAGE]
    assert [row.bound for row in rows] == [0.5, 0.5, 1.0, 1.0]
    assert 0 < rows[0].ours.measure(Effort(0.01), cores.choose()).value < 30


def test_times_of_a_run_are_read(tmp_path: Path) -> None:
    (tmp_path / "times").write_text("0.512 0.080 0.261\n")
    with pytest.raises(MeasureError, match="has not brought the subnet up"):
        opensm.times_of(tmp_path)
    (tmp_path / "opensm.log").write_text("Nov 26 20:14:14 486534 [7A3D2740] 0x02 -> SUBNET UP\n")
    assert opensm.times_of(tmp_path) == [0.512, 0.080, 0.261]


@pytest.mark.debian
@pytest.mark.timeout(120)
def test_opensm_is_measured() -> None:
    try:
        for case in (
            opensm.OpenSm(8),
            opensm.OpenSmSweep(8, "ibsim"),
            opensm.OpenSmSweep(8, "verbena fabric"),
        ):
            assert 0 < case.measure(Effort(0.01), cores.choose()).value < 60
    except SkipError as error:
        pytest.skip(str(error))
