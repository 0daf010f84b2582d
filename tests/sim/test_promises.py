# SPDX-License-Identifier: Apache-2.0
"""Reservations that links cannot keep are told before a scenario runs."""

from __future__ import annotations

import pytest

from verbena.sim import Scenario, ScenarioError
from verbena.sim.result import REFUSED

# Two hosts at each end; the link between the switches is slower than those of the hosts.
TEXT = """\
[fabric]
topology = "chain"
switches = 2
hosts = 2
rate = "100GbE"
delay = "1 us"

[[link]]
between = "s0-s1"
rate = "40GbE"

[[traffic]]
pattern = "flows"
from = ["h0", "h1"]
to = ["h2", "h3"]
size = "1 MiB"
reserve = "15 Gb/s"
"""


def refused(scenario: Scenario) -> int:
    return int((scenario.run().flows["state"] == REFUSED).sum())


def test_what_fits_is_neither_refused_nor_remarked() -> None:
    scenario = Scenario.parse(TEXT)
    assert scenario.notes == ()
    assert refused(scenario) == 0
    exactly = scenario.changed({"traffic.0.reserve": "20 Gb/s"})
    assert exactly.notes == ()
    assert refused(exactly) == 0


def test_a_flow_that_reserves_more_than_a_link_between_switches_carries_is_an_error() -> None:
    with pytest.raises(ScenarioError) as caught:
        Scenario.parse(TEXT).changed({"traffic.0.reserve": "50 Gb/s"})
    assert caught.value.key == "traffic.0.reserve"
    assert "is 50 Gb/s, more than link s0-s1 on the way of a flow carries: 40 Gb/s" in str(
        caught.value
    )


def test_flows_that_reserve_more_together_are_remarked() -> None:
    scenario = Scenario.parse(TEXT).changed({"traffic.0.reserve": "30 Gb/s"})
    (note,) = scenario.notes
    assert note.startswith("link s0-s1 carries 40 Gb/s, and 60 Gb/s of it are reserved at 0 ps: ")
    assert refused(scenario) == 1


@pytest.mark.parametrize("later", ["0 us", "250 us", "270 us", "300 us"])
def test_the_remark_is_made_only_if_flows_are_there_at_once(later: str) -> None:
    """1 MiB at 30 Gb/s takes 280 us. The note may be missing near the end, and is never wrong."""
    second = '[[traffic]]\npattern = "flows"\nfrom = "h1"\nto = "h3"\nsize = "1 MiB"\n'
    second += f'reserve = "30 Gb/s"\nstart = "{later}"\n'
    first = TEXT.replace('["h0", "h1"]', '"h0"').replace('["h2", "h3"]', '"h2"')
    scenario = Scenario.parse(first.replace("15 Gb/s", "30 Gb/s") + second)
    assert bool(scenario.notes) == (refused(scenario) > 0)


def test_flows_that_wait_for_others_are_not_counted_as_there_at_once() -> None:
    """A ring's next step begins when the one before has come, so a link has two at most."""
    ring = TEXT.replace('"flows"\nfrom = ["h0", "h1"]\nto = ["h2", "h3"]', '"ring_all_reduce"')
    scenario = Scenario.parse(ring)
    assert scenario.notes == ()
    assert refused(scenario) == 0


def test_a_flow_behind_the_end_of_the_run_is_not_counted() -> None:
    late = TEXT.replace("15 Gb/s", "30 Gb/s") + 'start = "2 ms"\n'
    assert len(Scenario.parse('duration = "3 ms"\n' + late).notes) == 1
    assert Scenario.parse('duration = "1 ms"\n' + late).notes == ()
