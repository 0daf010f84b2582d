# SPDX-License-Identifier: Apache-2.0
"""Routes that are made anew after a link has died or come back, and calls at times of the world."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from tests.sim.fabrics import GIGABIT, LINK, MIB, MICROSECOND, finish, star
from verbena import fabrics, sim
from verbena.sim import Scenario, ScenarioError, ScenarioResult, World, build
from verbena.sim._world import STATES
from verbena.sim.reroute import reroute, ways_without

TREE = """\
[fabric]
topology = "fat_tree"
k = 4
rate = "100GbE"
delay = "1 us"

[routing]
engine = "ecmp"
reroute = "200 us"

[adapter]
timeout = 5

[[traffic]]
name = "all"
pattern = "shift"
by = 8
size = "8 MiB"

[[event]]
link = "e0-a0"
at = "20 us"
up = false
"""
UP = '\n[[event]]\nlink = "{}"\nat = "{}"\nup = {}\n'
PAUSES = """
[[switch.class]]
name = "lossless"
flow = "pauses"
stop = "64 KiB"
spare = "96 KiB"
"""


def states(result: ScenarioResult) -> list[str]:
    return [STATES[state] for state in result.flows["state"]]


@pytest.mark.parametrize("switch", ["", PAUSES])
@pytest.mark.parametrize("engine", ["ecmp", "minhop", "updn", "ftree", "sssp"])
def test_flows_recover_from_a_dead_link(engine: str, switch: str) -> None:
    """Where no route is made anew those that went over it fail."""
    text = TREE.replace("ecmp", engine) + switch
    anew = Scenario.parse(text).run()
    stays = Scenario.parse(text.replace('reroute = "200 us"\n', "")).run()
    assert states(anew) == ["done"] * 16
    assert "failed" in states(stays)
    assert anew.wrong is None
    assert stays.wrong is None


def test_nothing_goes_onto_a_dead_link_any_more() -> None:
    scenario = Scenario.parse(TREE)
    world = scenario.world()
    dead = [scenario.link_end(name) for name in ("e0-a0", "a0-e0")]
    rows = [
        number
        for number, link in enumerate(world.links())
        if (int(link["node"]), int(link["port"])) in dead
    ]
    seen = []
    for at in (220, 260, 2000):
        world.run(until=at * MICROSECOND)
        seen.append(world.links()["packets"][rows].tolist())
    assert seen[0] != [0, 0]
    assert seen[1] == seen[2]  # what waited for the link when routes were made anew has left


def test_a_link_that_comes_back_is_used_again() -> None:
    back = UP.format("e0-a0", "300 us", "true")
    scenario = Scenario.parse(TREE.replace("8 MiB", "32 MiB") + back)
    assert [change.at for change in scenario.reroutes] == [220 * MICROSECOND, 500 * MICROSECOND]
    world, result = scenario.world(), scenario.run()
    assert states(result) == ["done"] * 16
    node, port = scenario.link_end("e0-a0")
    row = np.flatnonzero((world.links()["node"] == node) & (world.links()["port"] == port))[0]
    sent = []
    for at in (300, 500, 5000):
        world.run(until=at * MICROSECOND)
        sent.append(int(world.links()["packets"][row]))
    assert sent[0] == sent[1] < sent[2]


@pytest.mark.parametrize("period", [40, 150])
def test_a_link_that_flaps_faster_than_routes_are_made(period: int) -> None:
    """What counts is how the link is when routes are made; all flows end."""
    flaps = "".join(
        UP.format("e0-a0", f"{20 + n * period} us", ["false", "true"][n % 2]) for n in range(1, 10)
    )
    scenario = Scenario.parse(TREE + flaps)
    looks = [change.at // MICROSECOND for change in scenario.reroutes]
    expected = range(220, 220 + 10 * period, period)
    assert set(looks) <= set(expected)
    result = scenario.run()
    assert states(result) == ["done"] * 16
    assert result.flows["retransmissions"].sum() > 0


def test_routes_are_made_anew_when_a_scenario_says_so() -> None:
    text = TREE.replace('reroute = "200 us"\n', "")
    text += '\n[[event]]\nat = "150 us"\nreroute = true\n'
    scenario = Scenario.parse(text)
    assert [change.at for change in scenario.reroutes] == [150 * MICROSECOND]
    assert states(scenario.run()) == ["done"] * 16


def test_a_run_that_is_over_before_is_as_without() -> None:
    late, never = (
        Scenario.parse(TREE.replace("200 us", delay).replace("up = false", "up = true")).run()
        for delay in ("9 ms", "99 ms")
    )
    assert late.time == never.time < 9 * 10**9
    assert late.flows.tobytes() == never.flows.tobytes()


# ---- no way left ---------------------------------------------------------------------------------

CHAIN = """\
[fabric]
topology = "chain"
switches = 3
hosts = 2
rate = "100GbE"
delay = "1 us"

[routing]
reroute = "100 us"

[adapter]
timeout = 3
retry_count = 7

[[traffic]]
name = "near"
pattern = "flows"
from = "h0"
to = "h1"
size = "4 MiB"

[[traffic]]
name = "far"
pattern = "flows"
from = "h0"
to = "h5"
size = "4 MiB"

[[event]]
link = "s1-s2"
at = "50 us"
up = false
"""


def test_where_no_way_is_left_the_result_says_it() -> None:
    result = Scenario.parse(CHAIN).run()
    assert states(result) == ["done", "failed"]
    assert result.dropped["route"] > 0
    note = next(note for note in result.notes if "no way leads" in note)
    assert note.startswith("from 150 us on, without s1")
    assert "from h0 to h4 (16 such pairs)" in note


def test_a_part_that_comes_back_is_reached_again() -> None:
    result = Scenario.parse(CHAIN + UP.format("s1-s2", "120 us", "true")).run()
    assert states(result) == ["done", "done"]
    assert not any("no way leads" in note for note in result.notes)  # at 150 us it is up


def test_a_host_whose_own_cable_is_out_has_no_way() -> None:
    fabric = fabrics.chain(2, 2, rate="100GbE", delay_ns=1000)
    cable = next(cable for cable in fabric.cables() if "h3" in (cable.a, cable.b))
    ways = ways_without(fabric, [cable])
    assert set(ways.lost) == {(a, b) for a in fabric.hosts for b in fabric.hosts
                              if a != b and "h3" in (a, b)}  # fmt: skip
    assert all((table[3] == -1).all() for table in ways.ports)


def test_without_a_cable_less_the_ways_are_those_of_the_routes() -> None:
    for engine in ("minhop", "ecmp", "updn", "ftree"):
        fabric = fabrics.fat_tree(4, rate="100GbE", length_m=1)
        routes, ways = fabrics.route(fabric, engine), ways_without(fabric, [], engine)
        for number, table in enumerate(ways.ports):
            own = routes.ports_of(number)
            same = np.full((len(own), max(own.shape[1], table.shape[1])), -1)
            other = same.copy()
            same[:, : own.shape[1]], other[:, : table.shape[1]] = own, table
            assert (same == other).all()


def test_a_promise_that_has_no_way_is_refused() -> None:
    fabric = fabrics.chain(2, 1, rate="100GbE", delay_ns=1000)
    world = World()
    build(world, fabrics.route(fabric))
    cable = next(cable for cable in fabric.cables() if {cable.a, cable.b} == {"s0", "s1"})
    world.add_flows(0, 1, MIB, 10 * MICROSECOND, reserve=GIGABIT)
    world.call_at(MICROSECOND, lambda world: reroute(world, fabric, [cable]))
    finish(world)
    assert [STATES[state] for state in world.flows()["state"]] == ["refused"]


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (('"ecmp"', '"dfsssp"'), 'routing.reroute is not for engine = "dfsssp"'),
        (('reroute = "200 us"', "reroute = 3.5"), "routing.reroute"),
        (('at = "20 us"\nup = false', "reroute = true"), "event.0 needs the key 'at'"),
        (('link = "e0-a0"\nat = "20 us"', 'reroute = true\nat = "20 us"'), "event.0.up is unknown"),
    ],
)
def test_what_cannot_be_is_named(change: tuple[str, str], wrong: str) -> None:
    assert change[0] in TREE
    with pytest.raises(ScenarioError, match=wrong):
        Scenario.parse(TREE.replace(*change))


# ---- calls at a time -----------------------------------------------------------------------------


def test_a_call_comes_at_its_time_and_may_change_the_world() -> None:
    world, seen = World(), []
    star(world, 3)

    def first(given: World) -> None:
        seen.append(given.now)
        given.add_flows(1, 2, MIB, given.now)
        given.call_at(given.now + 7, lambda later: seen.append(later.now))

    world.call_at(5 * MICROSECOND, first)
    world.call_at(3 * MICROSECOND, lambda given: seen.append(given.now))
    world.add_flows(0, 2, MIB)
    finish(world)
    assert seen == [3 * MICROSECOND, 5 * MICROSECOND, 5 * MICROSECOND + 7]
    assert [STATES[state] for state in world.flows()["state"]] == ["done", "done"]
    with pytest.raises(ValueError, match="in the past"):
        world.call_at(0, first)


def test_routes_that_are_set_by_hand_in_mid_run_are_taken_at_once() -> None:
    """Two ways; the flow is moved to the other one and loses nothing."""
    world = World()
    nodes = [world.add_switch(3) for _ in range(2)]
    for node in nodes:
        world.connect(world.add_host(), 0, node, 0, **LINK)
    for port in (1, 2):
        world.connect(nodes[0], port, nodes[1], port, **LINK)
    world.set_routes(nodes[0], [0, 1])
    world.set_routes(nodes[1], [1, 0])
    world.add_flows(0, 1, 4 * MIB)
    world.call_at(100 * MICROSECOND, lambda given: given.set_routes(nodes[0], [0, 2]))
    finish(world)
    links = world.links()
    sent = [int(links["packets"][(links["node"] == nodes[0]) & (links["port"] == port)][0])
            for port in (1, 2)]  # fmt: skip
    assert sent[0] == pytest.approx(100e6 / (4096 + 90) / 80, rel=0.05)
    assert sum(sent) == 1024
    assert world.flows()["resent"][0] == 0


def test_calls_change_nothing_by_themselves() -> None:
    def ran(calls: int) -> Any:
        world = World(seed=3, timeout=4)
        star(world, 4, {**LINK, "bit_error_rate": 1e-7}, buffer=64 << 10)
        world.add_flows([0, 1, 2], 3, MIB)
        for number in range(calls):
            world.call_at(number * 7919, lambda given: None)
        finish(world)
        return world.flows().tobytes(), world.links().tobytes(), world.now

    assert ran(0) == ran(50)


def test_what_a_call_raises_ends_the_run_which_goes_on() -> None:
    world = World()
    star(world, 2)
    world.add_flows(0, 1, MIB)

    def fails(given: World) -> None:
        raise LookupError("not here")

    world.call_at(9 * MICROSECOND, fails)
    with pytest.raises(LookupError):
        world.run()
    assert world.now == 9 * MICROSECOND
    finish(world)


def test_calls_come_beside_programs() -> None:
    world, seen = sim.World(), []
    star(world, 2)
    world.call_at(3 * 10**12, lambda given: seen.append(given.now))

    async def program() -> None:
        await asyncio.sleep(2)
        assert not seen
        await asyncio.sleep(2)
        assert seen == [3 * 10**12]

    sim.run({"h0": program}, world)
