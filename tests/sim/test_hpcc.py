# SPDX-License-Identifier: Apache-2.0
"""HPCC: what switches say of themselves, and what a sender makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.sim.fabrics import GIGABIT, LINK, MIB, MICROSECOND, CheckedWorld, chain, star
from verbena.sim import Scenario, ScenarioError, World
from verbena.sim._world import STATES

# Two links of 1 us each way, packets of 1 KiB.
HPCC: dict[str, Any] = {"kind": "hpcc", "base_rtt": 5 * MICROSECOND}
LANES: dict[str, Any] = {"lanes": [{"flow": "pauses", "stop": 1 << 20, "go": 1 << 19,
                                    "spare": 1 << 20}]}  # fmt: skip
FRAME = 1024 + 12 + 62 + 42  # with the telemetry
PART = 0.95 * 1024 / FRAME


@pytest.mark.parametrize("switch", [{}, LANES])
@pytest.mark.parametrize("flows", [1, 16])
def test_flows_share_a_port_almost_without_a_queue(flows: int, switch: dict[str, Any]) -> None:
    """The target utilisation, fairly, and after the start few packets wait."""
    world = CheckedWorld(mtu=1024, timeout=0, window=MIB, congestion=HPCC)
    center = star(world, flows + 1, **switch)
    world.add_flows(np.arange(1, flows + 1), 0, 1 << 40, message=1 << 16, depth=16)
    samples = world.sample(MICROSECOND, [(center, 0)])
    world.run(until=300 * MICROSECOND)
    before = world.flows()["done"].astype(float)
    world.run(until=1000 * MICROSECOND)
    rates = (world.flows()["done"] - before) * 8 / 700 / 1000
    assert rates.sum() == pytest.approx(100 * PART, rel=0.04)
    assert rates.sum() ** 2 / (flows * (rates**2).sum()) > 0.97
    queue = samples.data["bytes"][300:, 0]
    assert queue.mean() < 5 * FRAME
    assert queue.max() < 20 * FRAME


def test_the_slowest_link_of_several_decides() -> None:
    congestion = {**HPCC, "base_rtt": 9 * MICROSECOND}
    world = CheckedWorld(mtu=1024, timeout=0, window=MIB, congestion=congestion)
    nodes = [world.add_switch(2) for _ in range(3)]
    world.connect(world.add_host(), 0, nodes[0], 0, **LINK)
    for at, rate in ((0, 100), (1, 25)):
        link = {"rate": rate * GIGABIT, "delay": MICROSECOND}
        world.connect(nodes[at], 1, nodes[at + 1], 0, **link)
    world.connect(world.add_host(), 0, nodes[2], 1, **LINK)
    for node in nodes:
        world.set_routes(node, [0, 1])
    world.add_flows(0, 1, 1 << 40, message=1 << 16, depth=16)
    world.run(until=300 * MICROSECOND)
    before = int(world.flows()["done"][0])
    world.run(until=1000 * MICROSECOND)
    rate = (int(world.flows()["done"][0]) - before) * 8 / 700 / 1000
    assert rate == pytest.approx(25 * PART, rel=0.05)


def test_more_than_seven_switches_are_passed() -> None:
    world = CheckedWorld(mtu=1024, timeout=0, congestion={**HPCC, "base_rtt": 40 * MICROSECOND})
    chain(world, [1, *[0] * 10, 1])
    world.add_flows([0, 1], [1, 0], MIB)
    assert world.run() == "done"


def test_the_telemetry_is_on_the_wire() -> None:
    sizes = {}
    for name, congestion in (("without", None), ("with", HPCC)):
        world = CheckedWorld(mtu=1024, timeout=0, congestion=congestion)
        star(world, 2)
        world.add_flows(0, 1, 100 * 1024)
        assert world.run() == "done"
        links = world.links()
        sizes[name] = int(links["bytes"].sum()), int(links["packets"].sum())
    more = sizes["with"][0] - sizes["without"][0]
    assert sizes["with"][1] == sizes["without"][1] == 400
    # An acknowledgement fills a frame of the least length up before it takes more room.
    assert more == 400 * 42


def test_every_kind_of_flow_runs_beside() -> None:
    """READs, datagrams and lost packets: nothing is told of them, or told again."""
    world = World(mtu=1024, timeout=6, congestion=HPCC)
    star(world, 5, {**LINK, "bit_error_rate": 1e-7}, buffer=1 << 16)
    world.add_flows([0, 1, 2], 4, MIB, operation=["write", "read", "send"])
    world.add_flows([0, 1], 3, MIB, transport=["uc", "ud"], operation="send", message=1024)
    assert world.run() == "done"
    states = [STATES[state] for state in world.flows()["state"]]
    assert states == ["done"] * 3 + ["incomplete"] * 2
    assert world.check(at_rest=True) is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "needs base_rtt"),
        ({"base_rtt": 0}, "base_rtt is 0"),
        ({"base_rtt": 1, "target": 0}, "target is 0, and not a number above 0 to 1"),
        ({"base_rtt": 1, "eta": 0.9}, "unknown key eta"),
    ],
)
def test_what_it_cannot_be_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        World(congestion={"kind": "hpcc", **given})


def test_a_scenario_asks_for_the_round_trip_with_its_unit() -> None:
    """What the error shows is taken as it stands; a number alone is refused with the same words."""
    flow = {"pattern": "flows", "from": "h0", "to": "h1", "size": "1 MiB"}
    fabric = {"topology": "pair", "rate": "100GbE", "delay": "1 us"}
    settings = {"fabric": fabric, "traffic": [flow], "congestion": {"kind": "hpcc"}}
    with pytest.raises(ScenarioError) as caught:
        Scenario.make(settings)
    words = "congestion needs the key 'base_rtt': a round trip without queues, as in \"9 us\""
    assert str(caught.value).endswith(words)
    settings["congestion"] = {"kind": "hpcc", "base_rtt": 9}
    with pytest.raises(
        ScenarioError, match=r"congestion\.base_rtt = 9: it needs a unit: it is to be a time"
    ):
        Scenario.make(settings)
    settings["congestion"] = {"kind": "hpcc", "base_rtt": "9 us"}
    assert Scenario.make(settings).run().end == "done"


def shared(mtu: int, senders: int = 4, **congestion: object) -> Scenario:
    settings: dict[str, Any] = {
        "duration": "5 ms",
        "seed": 1,
        "fabric": {"topology": "one_switch", "hosts": 5, "rate": "100GbE", "delay": "1 us"},
        "adapter": {"mtu": mtu},
        "congestion": {"kind": "hpcc", "base_rtt": "6 us", **congestion},
        "traffic": [{"pattern": "incast", "senders": senders, "size": "1 GiB", "within": "20 us"}],
    }
    return Scenario.make(settings)


def slowest_of_fastest(scenario: Scenario) -> float:
    """From 5 to 10 ms, when the start is over: the slowest flow's part of what the fastest had."""
    before, after = (
        scenario.changed({"duration": until}).run().flows["done"].astype(float)
        for until in ("5 ms", "10 ms")
    )
    return float((after - before).min() / (after - before).max())


def test_a_scenario_notes_an_add_that_is_little_beside_a_packet() -> None:
    (note,) = shared(4096).notes
    assert note == (
        "hpcc adds 80 bytes to a window at a time (congestion.add), less than a 32nd of the mtu, "
        "4096: flows that share a link stay unequal; add = 820 or a smaller mtu brings them "
        "together"
    )
    assert shared(4096, add=127).notes
    assert shared(4096, add=128).notes == shared(1024).notes == shared(2048).notes == ()
    assert shared(4096, senders=1).notes == ()


def test_the_add_and_the_mtu_that_the_note_advises_bring_flows_together() -> None:
    assert slowest_of_fastest(shared(4096)) < 0.65
    assert slowest_of_fastest(shared(4096, add=820)) > 0.9
    assert 0.7 < slowest_of_fastest(shared(1024)) < 0.9
