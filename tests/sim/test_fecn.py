# SPDX-License-Identifier: Apache-2.0
"""What a switch is set to mark: Marking_Rate and Victim_Mask of InfiniBand's congestion control."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.fabrics import GIGABIT, MIB, MICROSECOND, chain, credits, finish, star
from verbena.sim import Scenario, ScenarioError, World

ROOM = credits(32 << 10)


def marked(seed: int = 1, **switch: Any) -> int:
    """Of an incast that nothing slows."""
    world = World(seed, framing="infiniband", mtu=1024, timeout=0)
    star(world, 5, fecn=8 << 10, **switch)
    world.add_flows([0, 1, 2, 3], 4, 4 * MIB)
    finish(world)
    return int(world.links()["marked"].sum())


@pytest.mark.parametrize("switch", [{}, ROOM])
def test_the_rate_is_the_mean_number_of_packets_between_marks(switch: dict[str, Any]) -> None:
    every = marked(**switch)
    assert every > 12_000
    for rate in (1, 9, 99):
        expected = every / (rate + 1)
        got = marked(**switch, fecn_rate=rate)
        assert got == pytest.approx(expected, abs=5 * expected**0.5)
    assert marked(**switch, fecn_rate=9) == marked(**switch, fecn_rate=9)
    assert marked(**switch, fecn_rate=9) != marked(2, **switch, fecn_rate=9)


@pytest.mark.parametrize(
    ("victims", "seen"), [((), False), ([1], True), ([0, 2], False), ("hosts", False)]
)
def test_ports_of_the_mask_mark_victims(victims: Any, seen: bool) -> None:
    """The packets at port 1 of node 0 wait for the credits of the next switch, the root."""
    link = {"rate": 100 * GIGABIT, "delay": MICROSECOND // 10}
    world = World(framing="bare", timeout=0)
    chain(world, [1, 2], link, fecn=8 << 10, fecn_victims=victims, **ROOM)
    world.add_flows([0, 1], 2, MIB, message=1 << 14, depth=4)
    finish(world)
    links = world.links()
    before = (links["node"] == 0) & (links["to_node"] == 1)
    assert (links["marked"][before] > 20) == seen
    root = (links["node"] == 1) & (links["port"] == 3)
    assert links["marked"][root] > 20


@pytest.mark.parametrize(("victims", "seen"), [((), False), ("hosts", True)])
def test_all_ports_to_hosts_may_be_in_the_mask(victims: Any, seen: bool) -> None:
    """A broken adapter pauses: the port to it has a queue, and may not send."""
    lane = {"flow": "pauses", "stop": 64 << 10, "go": 32 << 10, "spare": 64 << 10}
    world = World(framing="bare", timeout=0)
    star(world, 3, lanes=[lane], fecn=8 << 10, fecn_victims=victims)
    world.pause_storm(3, 0, 500 * MICROSECOND)  # host 2
    world.add_flows(0, 2, MIB, 100 * MICROSECOND)
    finish(world)
    assert (world.links()["marked"].sum() > 10) == seen


def test_what_cannot_be_set_is_refused() -> None:
    world = World()
    for words, given in (
        ("fecn_rate is 65536", {"fecn": 1, "fecn_rate": 65536}),
        ("a port of fecn_victims is 2", {"fecn": 1, "fecn_victims": [2]}),
        ("not 'hosts' or a list", {"fecn": 1, "fecn_victims": "switches"}),
        ("nothing gets it", {"fecn_rate": 3}),
        ("nothing gets it", {"fecn_victims": "hosts"}),
        ("victims get it anyway", {"fecn": 1, "fecn_at": "output", "fecn_victims": [1], **ROOM}),
    ):
        with pytest.raises(ValueError, match=words):
            world.add_switch(2, **given)
    assert world.nodes == 0


SCENARIO = """\
[fabric]
topology = "ring"
switches = 3
rate = "100GbE"
length_m = 5

[routing]
engine = "updn"
roots = ["s0"]

[switch]
flow = "credits"
room = "32 KiB"
fecn = "8 KiB"

[adapter]
framing = "infiniband"
timeout = 0

[[traffic]]
name = "in"
pattern = "flows"
from = ["h0", "h1"]
to = "h2"
size = "1 MiB"
"""


def test_scenarios_have_both() -> None:
    every = Scenario.parse(SCENARIO).run()
    few = Scenario.parse(SCENARIO).changed({"switch.fecn_rate": 15}).run()
    assert 0 < few.links["marks"].sum() < every.links["marks"].sum() / 5
    masked = Scenario.parse(SCENARIO).changed({"switch.fecn_victims": "hosts"})
    assert masked.switching.settings.fecn_victims == "hosts"
    assert masked.run().end == "done"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("fecn_rate = -1", "fecn_rate.*whole number from 0 to 65535"),
        ("fecn_victims = 'switches'", "fecn_victims.*there are hosts"),
        ("fecn_victims = [99]", "a port of fecn_victims is 99"),
        ("fecn_at = 'output'\nfecn_victims = [1]", "victims get it anyway"),
    ],
)
def test_a_scenario_names_the_key_that_is_wrong(line: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        Scenario.parse(SCENARIO.replace('fecn = "8 KiB"', f'fecn = "8 KiB"\n{line}'))
