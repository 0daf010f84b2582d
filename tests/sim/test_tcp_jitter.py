# SPDX-License-Identifier: Apache-2.0
"""TCP's jitter: flows do not lock in phase, seeds differ, and nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.sim.fabrics import GIGABIT, MIB, MICROSECOND, finish, star
from verbena.sim import Scenario, World, sweep

MILLISECOND = 1000 * MICROSECOND
SEGMENT = 1538 * 8 * 1000  # ps on a link of 1 Gb/s
# Less than a packet's time by which one cable is longer. In 7 of 12 such cables one flow gets less
# than 3 % of the other's rate without a jitter.
LONGER = [int(SEGMENT * part) for part in np.arange(12) / 12]


def two(longer: int, seed: int = 1, round_trip: int = 1, **tcp: Any) -> World:
    """Two Reno flows into 1 Gb/s and 125 kB of queue; ms of the second one's round trip."""
    world = World(seed, tcp=tcp)
    center = world.add_switch(3, buffer=125_000)
    for port, rate, delay in (
        (0, 10 * GIGABIT, 400 * MICROSECOND),
        (1, 10 * GIGABIT, (500 * round_trip - 100) * MICROSECOND + longer),
        (2, GIGABIT, 100 * MICROSECOND),
    ):
        world.connect(world.add_host(), 0, center, port, rate=rate, delay=delay)
    world.set_routes(center, [0, 1, 2])
    world.add_flows([0, 1], 2, 1 << 40, transport="tcp", control="reno")
    return world


def ratio(world: World) -> float:
    """Of what both get in six seconds, after one."""
    world.run(until=1000 * MILLISECOND)
    before = world.flows()["done"].astype(float)
    world.run(until=7000 * MILLISECOND)
    got = world.flows()["done"] - before
    assert got.sum() * 8 / 6 == pytest.approx(0.949 * GIGABIT, rel=0.03)
    return float(got[0] / max(got[1], 1.0))


def test_flows_with_equal_round_trips_get_as_much() -> None:
    """Whatever part of a packet one cable is longer by."""
    ratios = [ratio(two(longer)) for longer in LONGER]
    assert min(ratios) > 0.5
    assert max(ratios) < 2
    assert np.mean(ratios) == pytest.approx(1, abs=0.2)


def test_without_it_flows_lock_in_phase() -> None:
    ratios = [ratio(two(longer, jitter=0)) for longer in LONGER[1::3]]
    assert min(min(ratios), 1 / max(ratios)) < 0.1


def test_a_longer_round_trip_gets_less_by_its_length() -> None:
    """1/RTT (RFC 5348 and its sources), RTT being 1 and 3 ms with up to 1 ms of queue."""
    ratios = [ratio(two(longer, round_trip=3)) for longer in LONGER[::4]]
    assert min(ratios) > 2
    assert max(ratios) < 4.5


def finishes(seed: int, **tcp: Any) -> NDArray[np.uint64]:
    world = World(seed, tcp={"least_rto": MILLISECOND, **tcp})
    star(world, 5, {"rate": GIGABIT, "delay": 10 * MICROSECOND}, buffer=64 << 10)
    world.add_flows(range(4), 4, MIB, transport="tcp", control=["reno", "cubic"] * 2)
    finish(world)
    found: NDArray[np.uint64] = world.flows()["finish"]
    return found


def test_a_seed_says_what_is_drawn() -> None:
    assert finishes(1).tolist() == finishes(1).tolist()
    assert len({tuple(finishes(seed).tolist()) for seed in range(4)}) == 4
    assert len({tuple(finishes(seed, jitter=0).tolist()) for seed in range(4)}) == 1
    assert finishes(1, jitter=1000).tolist() != finishes(1, jitter=0).tolist()


def test_seeds_of_a_sweep_differ_a_little() -> None:
    scenario = Scenario.load("tcp-bufferbloat").variant("shallow")
    table = sweep(scenario.changed({"duration": "100 ms"}), seeds=4, workers=1)
    goodput = table["goodput"]
    assert 0 < goodput.std() < 0.1 * goodput.mean()


def test_a_flow_alone_is_late_by_less_than_a_segment_for_each_round_trip() -> None:
    """10, 20 and 40 segments: three round trips, of 100 us and a jitter of up to 12.3 us."""
    found = []
    for jitter in ({"jitter": 0}, {}):
        world = World(3, tcp=jitter)
        link = {"rate": GIGABIT, "delay": 50 * MICROSECOND}
        world.connect(world.add_host(), 0, world.add_host(), 0, **link)
        world.add_flows(0, 1, 70 * 1460, transport="tcp")
        finish(world)
        found.append(int(world.flows()["finish"][0]))
    assert 0 < found[1] - found[0] < 5 * SEGMENT


def test_segments_and_acknowledgements_stay_in_order() -> None:
    """Nothing is sent again where nothing is lost, however large the jitter is."""
    world = World(1, tcp={"jitter": 200 * MICROSECOND})
    star(world, 3, {"rate": GIGABIT, "delay": 10 * MICROSECOND})
    world.add_flows([0, 1], 2, 4 * MIB, transport="tcp")
    finish(world)
    assert world.flows()["resent"].tolist() == [0, 0]
    assert world.flows()["timeouts"].tolist() == [0, 0]


def test_one_more_flow_changes_no_other_flow_s_numbers() -> None:
    """On links of its own: those of flow 0 come of its number and the seed."""
    found = []
    for flows in (1, 2):
        world = World(7)
        for _ in range(2):
            link = {"rate": GIGABIT, "delay": 50 * MICROSECOND}
            world.connect(world.add_host(), 0, world.add_host(), 0, **link)
        world.add_flows([0, 2][:flows], [1, 3][:flows], MIB, transport="tcp")
        finish(world)
        found.append(int(world.flows()["finish"][0]))
    assert found[0] == found[1]


def test_what_is_no_time_is_refused() -> None:
    for wrong in (-1, 1.5, "much", 10**13):
        with pytest.raises(ValueError, match="jitter is"):
            World(tcp={"jitter": wrong})
    scenario = Scenario.load("tcp-incast").changed({"tcp.jitter": "3 us"})
    assert scenario.adapter.tcp.jitter == 3 * MICROSECOND
