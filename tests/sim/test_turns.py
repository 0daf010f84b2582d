# SPDX-License-Identifier: Apache-2.0
"""Who is next at an output: an input in turn, or what came first."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.fabrics import GIGABIT, LINK, MIB, MICROSECOND, CheckedWorld
from verbena.sim import World

PAUSES = {"flow": "pauses", "stop": 64 << 10, "go": 32 << 10, "spare": 64 << 10}


def received(turns: str) -> list[float]:
    """Gb/s of two hosts, at 100 and 50 Gb/s, through one port of 100 Gb/s without limit."""
    world = CheckedWorld(framing="bare", timeout=0)
    center = world.add_switch(3, lanes=[{}], turns=turns)
    for port, rate in enumerate((100, 50, 100)):
        world.connect(world.add_host(), 0, center, port, rate=rate * GIGABIT, delay=MICROSECOND)
    world.set_routes(center, [0, 1, 2])
    world.add_flows([0, 1], 2, 1 << 40, transport="uc", message=4096, depth=64)
    world.run(until=100 * MICROSECOND)
    before = world.flows()["done"]
    world.run(until=300 * MICROSECOND)
    return [float(done) * 8 / 2e5 for done in world.flows()["done"] - before]


def test_inputs_take_turns() -> None:
    assert received("input") == pytest.approx([50, 50], rel=0.02)


def test_what_comes_first_goes_first() -> None:
    assert received("arrival") == pytest.approx([100 * 2 / 3, 100 / 3], rel=0.02)


@pytest.mark.parametrize("lane", [{"flow": "credits", "room": 32 << 10}, PAUSES])
@pytest.mark.parametrize("turns", ["input", "arrival"])
def test_a_deadlock_is_named_port_by_port(turns: str, lane: dict[str, Any]) -> None:
    world = CheckedWorld(framing="bare", timeout=0, window=256 << 10)
    nodes = [world.add_switch(3, lanes=[lane], turns=turns) for _ in range(4)]
    for at, node in enumerate(nodes):
        world.connect(world.add_host(), 0, node, 0, **LINK)
        world.connect(node, 1, nodes[(at + 1) % 4], 2, **LINK)
    for at, node in enumerate(nodes):
        world.set_routes(node, [0 if host == at else 1 for host in range(4)])
    world.add_flows([0, 1, 2, 3], [3, 0, 1, 2], 4 * MIB)
    assert world.run() == "deadlock"
    assert sorted(world.blocked()) == sorted((node, 1) for node in nodes)


def test_other_turns_are_refused() -> None:
    with pytest.raises(ValueError, match="turns is 'lot', and not one of arrival, input"):
        World().add_switch(2, turns="lot")
