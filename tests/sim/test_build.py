# SPDX-License-Identifier: Apache-2.0
"""Worlds made of fabrics and routes: what the routing promises is what packets meet."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.sim.fabrics import MIB, credits, finish
from verbena import fabrics
from verbena.sim import World, add_group, build, levels
from verbena.sim.reroute import ways_without

SER, ACK = 4096 * 80, 64 * 80


def test_shift_permutations_meet_no_queue_on_a_fat_tree() -> None:
    """V23: d-mod-k gives each flow links of its own, so all end at once."""
    fabric = fabrics.fat_tree(4, rate="100GbE", length_m=200)
    routes = fabrics.route(fabric, "ftree")
    hosts = np.arange(16)
    for shift in (1, 5, 8):
        world = World(framing="bare")
        build(world, routes)
        world.add_flows(hosts, (hosts + shift) % 16, MIB)
        finish(world)
        # A packet, and acknowledgements of other flows that have just come.
        assert world.links()["queued_max"].max() < 2 * 4096
        assert (world.flows()["resent"] == 0).all()
        drain = 256 * (SER + ACK)  # what is sent on a link, and acknowledgements the other way
        assert world.flows()["finish"].max() <= drain + 6 * (2 * 10**6 + SER + ACK)


@pytest.mark.parametrize(("engine", "end"), [("minhop", "deadlock"), ("dfsssp", "done")])
def test_lanes_that_the_routes_ask_for_keep_a_ring_alive(engine: str, end: str) -> None:
    """V25: a cycle of channel dependencies deadlocks under load, and the lanes break it."""
    fabric = fabrics.ring(6, rate="100GbE", length_m=200)
    routes = fabrics.route(fabric, engine)
    world = World(framing="bare", window=MIB, timeout=0)
    build(world, routes, credits(8 << 10, lanes=max(2, routes.lanes.lanes)))
    hosts = np.arange(world.hosts)
    for shift in (2, 3):
        target = (hosts + shift) % world.hosts
        there, back = levels(routes, hosts, target), levels(routes, target, hosts)
        world.add_flows(hosts, target, 4 * MIB, level=there, back_level=back)
    finish(world, end)


def test_equal_cost_ways_are_all_used() -> None:
    fabric = fabrics.fat_tree(4, rate="100GbE", length_m=200)
    world = World(framing="bare", timeout=0)
    build(world, fabrics.route(fabric, "ecmp"), {"balance": "packet"})
    world.add_flows(np.arange(8), np.arange(8, 16), MIB)
    finish(world)
    links = world.links()
    between = (links["node"] >= 16) & (links["to_node"] >= 16)
    assert (links["packets"][between] > 0).all()


def test_what_does_not_fit_is_refused() -> None:
    fabric = fabrics.ring(6, rate="100GbE", length_m=1)
    world = World()
    build(world, fabrics.route(fabric, "minhop"))
    with pytest.raises(ValueError, match="nodes already"):
        build(world, fabrics.route(fabric, "minhop"))
    routes = fabrics.route(fabric, "dfsssp")
    if routes.lanes.lanes > 1:
        with pytest.raises(ValueError, match="the routes need"):
            build(World(), routes, credits(8 << 10))


def dual_rail() -> fabrics.Fabric:
    """Two hosts, each plugged into s0 with port 1 and into s1 with port 2."""
    made = fabrics.Fabric("dual rail")
    for switch in ("s0", "s1"):
        made.add_switch(switch, ports=4)
    for host in ("h0", "h1"):
        made.add_host(host, ports=2)
        made.connect(host, "s0", a_port=1)
        made.connect(host, "s1", a_port=2)
    made.connect("s0", "s1")
    return made


@pytest.mark.parametrize(
    ("source", "target", "ways"),
    [
        ((0, 1), (1, 1), [(0, 4), (4, 2)]),
        ((0, 2), (1, 2), [(1, 5), (5, 3)]),
        ((0, 1), (1, 2), [(0, 4), (4, 5), (5, 3)]),
        ((1, 2), (0, 1), [(3, 5), (5, 4), (4, 0)]),
    ],
)
def test_a_flow_leaves_and_arrives_by_the_ports_that_it_names(
    source: tuple[int, int], target: tuple[int, int], ways: list[tuple[int, int]]
) -> None:
    routes = fabrics.route(dual_rail(), "minhop")
    world = World(framing="bare")
    build(world, routes)
    tables = routes.tables
    ends = list(zip(tables.end_node.tolist(), tables.end_port.tolist(), strict=True))
    assert (world.hosts, ends) == (4, [(0, 1), (0, 2), (1, 1), (1, 2)])
    world.add_flows([ends.index(source)], [ends.index(target)], MIB)
    finish(world)
    links = world.links()
    sent = links[links["bytes"] >= MIB]
    assert set(zip(sent["node"].tolist(), sent["to_node"].tolist(), strict=True)) == set(ways)
    back = links[(links["packets"] > 0) & (links["bytes"] < MIB)]  # acknowledgements
    assert set(zip(back["to_node"].tolist(), back["node"].tolist(), strict=True)) == set(ways)


def test_two_rails_carry_twice_as_much() -> None:
    routes = fabrics.route(dual_rail(), "minhop")
    ends = []
    for sources, targets in (([0, 0], [2, 2]), ([0, 1], [2, 3])):
        world = World(framing="bare")
        build(world, routes)
        world.add_flows(sources, targets, MIB)
        finish(world)
        ends.append(int(world.flows()["finish"].max()))
    assert 1.9 < ends[0] / ends[1] < 2.1


def test_a_group_has_the_first_port_of_a_host() -> None:
    fabric = dual_rail()
    world = World(framing="bare")
    build(world, fabrics.route(fabric, "minhop"))
    assert add_group(world, fabric, ["h0", "h1"], "s0") == 0


def test_a_host_that_is_not_plugged_in_is_refused() -> None:
    fabric = dual_rail()
    routes = fabrics.route(fabric, "minhop")
    less = dataclasses.replace(routes.tables, end_node=np.zeros_like(routes.tables.end_node))
    with pytest.raises(ValueError, match="h1 is not plugged in"):
        build(World(), dataclasses.replace(routes, tables=less))


def test_routes_around_a_dual_rail_host_are_refused() -> None:
    with pytest.raises(ValueError, match="dual rail: routes are made anew only where each host"):
        ways_without(dual_rail(), [])
