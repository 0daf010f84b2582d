# SPDX-License-Identifier: Apache-2.0
"""The hop limit: with one, tables may lead in a cycle, and each packet is accounted for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.fabrics import GIGABIT, LINK, MIB, MICROSECOND, chain, credits, finish
from verbena.sim import World


def circle(hop_limit: int, **switch: Any) -> World:
    """Host 0 at a switch that passes what is for host 1 to another one, which passes it back."""
    world = World(hop_limit=hop_limit, framing="bare", timeout=0)
    one, other = (world.add_switch(2, **switch) for _ in range(2))
    # Slow enough for a lossless circle: V21 of the validation.
    world.connect(world.add_host(), 0, one, 0, rate=20 * GIGABIT, delay=MICROSECOND)
    world.connect(one, 1, other, 1, **LINK)
    world.connect(world.add_host(), 0, other, 0, **LINK)
    world.set_routes(one, [0, 1])
    world.set_routes(other, [1, 1])
    return world


def test_a_loop_is_refused_without_a_hop_limit() -> None:
    with pytest.raises(ValueError, match="the routes go round"):
        circle(0).add_flows(0, 1, MIB, transport="uc")


@pytest.mark.parametrize("switch", [{}, credits(64 << 10)])
def test_each_packet_of_a_loop_ends_at_the_limit(switch: dict[str, Any]) -> None:
    world = circle(7, **switch)
    world.add_flows(0, 1, 100 * 4096, transport="uc")
    finish(world)
    links = world.links()
    assert world.packets == {"sent": 100, "delivered": 0, "dropped": 100}
    assert links["dropped_hops"].sum() == 100
    # Six switches pass it on: the host's link, and six of the circle.
    assert links["packets"].sum() == 7 * 100
    assert world.flows()["done"][0] == 0


@pytest.mark.parametrize(("hop_limit", "arrives"), [(3, False), (4, True), (255, True)])
def test_who_needs_no_more_than_the_limit_arrives(hop_limit: int, arrives: bool) -> None:
    world = World(hop_limit=hop_limit, timeout=0)
    chain(world, [1, 0, 1])
    world.add_flows(0, 1, MIB, transport="uc")
    finish(world)
    assert bool(world.flows()["done"][0] == MIB) is arrives
    assert bool(world.links()["dropped_hops"].sum() == 0) is arrives


@pytest.mark.parametrize("hop_limit", [-1, 256])
def test_a_limit_that_no_header_holds_is_refused(hop_limit: int) -> None:
    with pytest.raises(ValueError, match="hop_limit"):
        World(hop_limit=hop_limit)
