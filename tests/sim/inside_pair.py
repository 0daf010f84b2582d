# SPDX-License-Identifier: Apache-2.0
"""Two hosts with an inside and a cable, for tests of what requests cost (tests/sim, validation)."""

from __future__ import annotations

from typing import Any

from tests.sim.fabrics import GIGABIT, MICROSECOND, CheckedWorld, finish
from verbena.sim.inside import Inside, InsideCounters

FREE = {"post": 0, "doorbell": 0, "poll": 0, "interrupt": 0, "wakeup": 0, "syscall": 0}


class InsideWorld(CheckedWorld):
    """A world that keeps the insides of its hosts, by their number."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.insides: dict[int, Inside] = {}

    def inside(self, host: int | str, **keywords: Any) -> Inside:
        made = super().inside(host, **keywords)
        self.insides[made.host] = made
        return made


def pair(
    rate: int = 100 * GIGABIT, delay: int = MICROSECOND, *, framing: str = "ethernet", **inside: Any
) -> InsideWorld:
    """Both hosts have the same inside."""
    world = InsideWorld(framing=framing, threads=1)
    for _ in range(2):
        world.add_host()
    world.connect(0, 0, 1, 0, rate=rate, delay=delay)
    for host in (0, 1):
        world.inside(host, **inside)
    return world


def of_flow(
    size: int, *, inside: dict[str, Any], **flow: Any
) -> tuple[InsideWorld, InsideCounters]:
    """One flow from host 0 to host 1; the counters are host 0's."""
    world = pair(**inside)
    world.add_flows(0, 1, size, **flow)
    finish(world)
    return world, world.insides[0].counters()


def rate_of(world: CheckedWorld) -> float:
    """Gb/s of the flow, from its start to its end."""
    flow = world.flows()[0]
    return float(flow["bytes"]) * 8000 / float(flow["finish"] - flow["start"])
