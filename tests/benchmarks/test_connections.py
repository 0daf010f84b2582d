# SPDX-License-Identifier: Apache-2.0
"""The benchmarks' rows about connections by librdmacm."""

from __future__ import annotations

import pytest

from benchmarks import connections
from verbena.measure import cores
from verbena.measure.case import Effort, Unit
from verbena.measure.processes import MeasureError, SkipError

SAID = """creating id
step              total ms     max ms     min us  us / conn
create id    :       20.00       0.09      18.00      20.00
resolve addr :       70.00      39.68   30660.00      70.00
resolve route:       50.00       0.42      55.00      50.00
create qp    :        5.00       0.10       3.00       5.00
connect      :      375.00     237.81   29404.00     375.00
disconnect   :      250.00      76.27   33339.00     250.00
destroy      :      230.00      11.13      33.00     230.00
"""


def test_steps_of_cmtime_are_read() -> None:
    steps = connections.step_times(SAID)
    assert steps["resolve route"] == 50.0
    assert sum(steps.values()) == 1000.0
    with pytest.raises(MeasureError, match="says nothing"):
        connections.step_times("connecting\n")


@pytest.mark.debian
@pytest.mark.timeout(120)
def test_connections_are_measured() -> None:
    case = connections.ConnectionTime(20)
    try:
        found = case.measure(Effort(0.01), cores.choose())
    except SkipError as error:
        pytest.skip(str(error))
    assert case.unit is Unit.MICROSECONDS
    assert 10 < found.value < 1e6


def test_an_agent_starts() -> None:
    try:
        found = connections.AgentStart().measure(Effort(0.01), cores.choose())
    except SkipError as error:
        pytest.skip(str(error))
    assert 0 < found.value < 15
