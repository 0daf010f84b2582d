# SPDX-License-Identifier: Apache-2.0
"""Worlds made of fabrics and routes: what the routing promises is what packets meet."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.fabrics import MIB, credits, finish
from verbena import fabrics
from verbena.sim import World, build, levels

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
