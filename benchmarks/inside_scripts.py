# SPDX-License-Identifier: Apache-2.0
"""What an inside of hosts costs a simulation: python -m benchmarks.inside_scripts NAME ARGUMENTS

Sixteen hosts send to one, or read from it, with an inside at each host and without. ARGUMENTS is a
JSON object; the result is printed as one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from verbena import sim
from verbena.measure.case import KIB, MIB

SENDERS = 16
LINK: dict[str, Any] = {"rate": 10**11, "delay": 10**6}
INSIDE: dict[str, Any] = {
    "pcie": {"generation": 5, "lanes": 16},
    "iommu": {"entries": 64},
    "hca": {"mtt": 2048},
    "interrupts": {"time": 8_000_000},
}
MOST_SLICES = 1 << 20
TRAFFIC: dict[str, dict[str, Any]] = {
    "whole": {"size": MIB},
    "sends": {"size": MIB, "message": 4 * KIB, "operation": "send"},
    "writes": {"size": 800 * 64, "message": 64, "depth": 1},
    "reads": {"size": MIB, "message": 4 * KIB, "read": True},
}


def world_of(traffic: str, inside: dict[str, Any] | None) -> sim.World:
    """The hosts of a switch, with their flows; an inside at each host unless it is None."""
    world = sim.World(framing="bare")
    hosts = SENDERS + 1
    center = world.add_switch(hosts)
    for port in range(hosts):
        world.connect(world.add_host(), 0, center, port, **LINK)
    world.set_routes(center, list(range(hosts)))
    if inside is not None:
        for host in range(hosts):
            world.inside(host, **inside)
    world.add_flows(list(range(SENDERS)), SENDERS, **TRAFFIC[traffic])
    return world


def spent(world: sim.World) -> float:
    """Processor time of its run. Raises RuntimeError when not all packets arrive."""
    begin = time.process_time()
    end = world.run()
    took = time.process_time() - begin
    dropped, wrong = world.packets["dropped"], world.check(at_rest=end == "done")
    if end != "done" or dropped or wrong:
        raise RuntimeError(f"the run ended with {end!r} and {dropped} packets dropped: {wrong}")
    return took


def inside(seconds: float, traffic: str, recorded: bool) -> dict[str, float]:
    """Repeat the runs in turn for ``seconds``; return the least processor time of a packet with an
    inside, and without. ``recorded``: the inside records its slices."""
    given = INSIDE | ({"slices": MOST_SLICES} if recorded else {})
    pairs: list[tuple[float, float]] = []
    packets = 0
    while not pairs or sum(map(sum, pairs)) < seconds:
        plain, full = world_of(traffic, None), world_of(traffic, given)
        pairs.append((spent(full), spent(plain)))
        packets = plain.packets["sent"]
    with_it, without = (min(times) / packets for times in zip(*pairs, strict=True))
    return {"with": with_it, "without": without}


SCRIPTS: dict[str, Callable[..., dict[str, float]]] = {"inside": inside}


def main(name: str, arguments: str) -> None:
    print(json.dumps(SCRIPTS[name](**json.loads(arguments))))


if __name__ == "__main__":
    main(*sys.argv[1:])
