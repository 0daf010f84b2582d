# SPDX-License-Identifier: Apache-2.0
"""The benchmarks' rows about simulated computers and cables; bounds of speed have much slack, for
loaded machines and builds with sanitizers."""

from __future__ import annotations

import os

import pytest

from benchmarks import goals, host_scripts
from verbena.measure import cores
from verbena.measure.case import Effort

SANITIZED = bool(os.environ.get("VERBENA_SANITIZE"))
SLACK = 100 if SANITIZED else 10


def test_the_rows_and_one_in_a_process_of_its_own() -> None:
    names = {one.name: one.bound for one in goals.all_goals() if one.section.name == "COMPUTERS"}
    assert len(names) == 8
    assert names["instructions of a processor"] == 80.0
    (row,) = goals.select(False, "loads of a device in Python")[:1]
    assert row.ours.measure(Effort(0.01), cores.choose()).value > 0


@pytest.mark.parametrize(
    ("found", "least"),
    [
        (lambda: host_scripts.instructions(0.05), 80e6),
        (lambda: host_scripts.accesses(0.05, "load"), 2e6),
        (lambda: host_scripts.accesses(0.05, "store"), 2e6),
        (lambda: host_scripts.accesses(0.05, "load", link=True), 0.2e6),
        (lambda: host_scripts.accesses(0.05, "store", link=True), 0.1e6),
        (lambda: host_scripts.cable(0.02, 256, 512, 1000, 0.3), 4e6),
        (lambda: host_scripts.cable(0.02, 256, 64, 1000), 1.5e6),
        (lambda: host_scripts.cable(0.02, 256, 1518, 1000), 0.3e6),
    ],
)
def test_speed_within_a_tenth_of_what_is_documented(found, least) -> None:  # type: ignore[no-untyped-def]
    (speed,) = found().values()
    assert speed > least / SLACK
