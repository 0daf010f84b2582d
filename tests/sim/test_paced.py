# SPDX-License-Identifier: Apache-2.0
"""Virtual time that follows a clock (``verbena.sim.paced``), with a clock of the test's own."""

from __future__ import annotations

import pytest

from verbena.sim import Scenario
from verbena.sim.paced import MOST_BEHIND, TURN, PacedScenario

SECOND = 10**12
TEXT = """
[fabric]
topology = "clos2"
radix = 4
rate = "4xSDR"
[routing]
engine = "updn"
[switch]
flow = "credits"
room = "64 KiB"
[adapter]
framing = "infiniband"
[management]
begin = "bare"
[[event]]
link = "e0-a0"
at = "2 ms"
up = false
[[traffic]]
name = "pairs"
pattern = "shift"
by = 4
size = "4 MiB"
"""


class HandClock:
    """A clock that the test moves, or that moves at each look."""

    def __init__(self, step: float = 0.0) -> None:
        self.now, self.step = 100.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def paced(clock: HandClock, pace: float = 1.0, manager: str | None = "h0") -> PacedScenario:
    return PacedScenario(Scenario.parse(TEXT), pace, manager=manager, clock=clock)


def pass_time(of: PacedScenario, clock: HandClock, seconds: float, step: float = 0.001) -> None:
    end = clock.now + seconds
    while clock.now < end:
        clock.now += step
        of.advance()


@pytest.mark.parametrize("pace", [1.0, 0.5, 2.0])
def test_virtual_time_goes_at_its_pace(pace: float) -> None:
    clock = HandClock()
    of = paced(clock, pace)
    pass_time(of, clock, 0.02)
    assert of.world.now == pytest.approx(0.02 * pace * SECOND, rel=1e-3)


def test_traffic_begins_when_the_subnet_is_up_and_events_count_from_then() -> None:
    clock = HandClock()
    of = paced(clock)
    assert of.result() is None
    assert "begins when" in of.describe()[1]
    pass_time(of, clock, 0.1)
    assert of.began is not None
    assert 1 < of.began / 10**9 < 10
    result = of.result()
    assert result is not None
    assert result.end == "done"
    assert (result.flows["start"] >= of.began).all()
    assert result.link_events[0][2] == of.began + 2 * 10**9
    assert result.recovery is not None
    assert not result.recovery.dead
    assert result.management is not None
    assert len(result.management.sweeps) == 2
    assert any("8 of 8 flows" in line for line in of.report())


def test_without_a_manager_nothing_begins_and_nothing_is_left_to_happen() -> None:
    clock = HandClock()
    of = paced(clock, manager=None)
    pass_time(of, clock, 0.1)
    assert of.began is None
    assert of.is_idle
    assert of.report() == of.describe()


def test_a_slow_machine_loses_time_and_does_not_catch_up_for_ever() -> None:
    clock = HandClock()
    of = paced(clock)
    pass_time(of, clock, 0.03)  # up
    clock.step = TURN  # each look at the clock takes a whole turn
    before = of.world.now
    for _ in range(20):
        clock.now += 1
        of.advance()
    assert before < of.world.now < before + SECOND
    clock.step = 0.0
    pass_time(of, clock, 0.2)
    at = of.world.now
    pass_time(of, clock, 0.2)
    assert of.world.now - at <= (0.2 + MOST_BEHIND) * SECOND * 1.001


def test_a_link_that_is_cut_has_its_recovery_watched() -> None:
    clock = HandClock()
    scenario = Scenario.parse(
        TEXT.replace('at = "2 ms"', 'at = "200 ms"').replace("4 MiB", "64 MiB")
    )
    of = PacedScenario(scenario, 1.0, manager="h0", clock=clock)
    pass_time(of, clock, 0.02)
    of.set_link("e1", 3, up=False)
    pass_time(of, clock, 0.5)
    assert of.managed.agents["e1"].ports[3].is_cut
    result = of.result()
    assert result is not None
    assert result.end == "done"
    of.set_link("e1", 3, up=True)
    pass_time(of, clock, 0.1)
    assert not of.managed.agents["e1"].ports[3].is_cut


def test_a_manager_goes_on_after_the_last_flow() -> None:
    clock = HandClock()
    of = paced(clock)
    pass_time(of, clock, 0.1)
    manager = of.run.manager
    assert manager is not None
    assert not of.world.flows_left
    sweeps = len(manager.sweeps)
    of.set_link("e1", 3, up=False)
    pass_time(of, clock, 0.1)
    assert len(manager.sweeps) == sweeps + 1


def test_what_cannot_be_paced_is_refused() -> None:
    plain = TEXT.replace('[management]\nbegin = "bare"\n', "")
    with pytest.raises(ValueError, match=r"no table \[management\]"):
        PacedScenario(Scenario.parse(plain))
    for wrong in (0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="pace"):
            PacedScenario(Scenario.parse(TEXT), wrong)
