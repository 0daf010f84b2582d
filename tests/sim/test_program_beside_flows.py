# SPDX-License-Identifier: Apache-2.0
"""A host's flows and its program take turns for the port, packet by packet."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.fabrics import GIGABIT, MICROSECOND
from tests.sim.programs import echo, ping, take_writes, write
from verbena import sim

PORT = 7471
PACKET = 3.6e-6  # seconds on the wire
CREDITS = {"flow": "credits", "room": 64 << 10}
PAUSES = {"flow": "pauses", "stop": 64 << 10, "go": 32 << 10, "spare": 64 << 10}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "credits": {"framing": "infiniband", "lanes": [CREDITS]},
    "pauses": {"lanes": [PAUSES]},
    "inside": {"inside": True},
    "bus": {"bus_rate": 20 * GIGABIT},
}


def pair(lanes: Any = None, inside: bool = False, **settings: Any) -> sim.World:
    """Two hosts at a switch, 10 Gb/s and 1 us."""
    made = sim.World(seed=1, timeout=14, **settings)
    center = made.add_switch(2, **({"lanes": lanes} if lanes else {}))
    for number in range(2):
        made.connect(made.add_host(), 0, center, number, rate=10 * GIGABIT, delay=MICROSECOND)
        if inside:
            made.inside(number)
    made.set_routes(center, [0, 1])
    return made


def seconds(kind: str, *flows: tuple[int, int], transport: str = "rc", size: int = 64) -> float:
    """What 20 answered messages take, or a WRITE of more than a MTU, beside endless flows."""
    world = pair(**KINDS[kind])
    for source, target in flows:
        world.add_flows(source, target, 1 << 40, transport=transport)
    if size == 64:
        programs = {"h0": echo(PORT, 20, size), "h1": ping("h0", PORT, 20, size)}
    else:
        programs = {"h0": take_writes(PORT, size), "h1": write("h0", PORT, bytes(size), 16)}
    return float(sim.run(programs, world).returned["h1"])


@pytest.mark.parametrize("flows", [[(0, 1)], [(1, 0)], [(0, 1), (1, 0)]], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_message_waits_for_packets_and_not_for_the_flow(
    kind: str, flows: list[tuple[int, int]]
) -> None:
    """Each way meets packets of the flow, of 3.4 us, at the host's port and in the switch."""
    alone, beside = (seconds(kind, *some) / 20 for some in ([], flows))
    assert alone < beside < alone + 4 * PACKET


@pytest.mark.parametrize("flow", [(0, 1), (1, 0)])
@pytest.mark.parametrize("kind", ["plain", "inside"])
def test_a_stream_of_tcp_does_not_stop_it_either(kind: str, flow: tuple[int, int]) -> None:
    alone, beside = (seconds(kind, *some, transport="tcp") / 20 for some in ([], [flow]))
    assert alone < beside < alone + 4 * PACKET


@pytest.mark.parametrize("kind", KINDS)
def test_a_flow_and_a_program_get_half_each(kind: str) -> None:
    size = 4 << 20
    alone, beside = (seconds(kind, *some, size=size) for some in ([], [(1, 0)]))
    assert beside / alone == pytest.approx(1.9, abs=0.15)
