# SPDX-License-Identifier: Apache-2.0
"""V21: a routing loop fills what PFC keeps, unless the hop limit empties it faster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.sim.fabrics import CheckedWorld
from tests.validation.row import Figure, Row, Scope, around, at_least, equal, holds

RATE, DELAY = 40 * 10**9, 1_000_000
LANE = {"flow": "pauses", "stop": 40_000, "go": 36_000, "spare": 40_000}
HOPS = 16
MILLISECOND = 10**9


@dataclass(frozen=True)
class Loop:
    """``carried``: packets over a link of the loop for each one that was dropped there."""

    end: str
    ports: int
    dropped: int
    carried: float


def loop(rate: int, switches: int, end: int) -> Loop:
    """So many switches pass a host's packets round until their hop limit is used up."""
    # The first switch takes one as well, and the last drops what has none left.
    world = CheckedWorld(framing="bare", mtu=1024, timeout=0, hop_limit=HOPS + 1)
    nodes = [world.add_switch(4, lanes=[LANE]) for _ in range(switches)]
    world.connect(world.add_host(), 0, nodes[0], 0, rate=rate, delay=DELAY)
    world.connect(world.add_host(), 0, nodes[1], 1, rate=RATE, delay=DELAY)
    for at, node in enumerate(nodes):
        world.connect(node, 2, nodes[(at + 1) % switches], 3, rate=RATE, delay=DELAY)
    for at, node in enumerate(nodes):
        world.set_routes(node, [0 if at == 0 else 2, 2])
    world.add_flows(0, 1, 1 << 40, transport="uc")
    why = world.run(until=end * MILLISECOND)
    links = world.links()
    dropped = int(links["dropped_hops"].sum())
    assert dropped == world.packets["dropped"]
    carried = links["packets"][links["port"] == 2].sum() / max(1, dropped)
    if why == "time":
        world.run(until=(end + 1) * MILLISECOND)
        why = "moving" if world.packets["dropped"] > dropped else "deadlock"
    return Loop(why, len(world.blocked()), dropped, float(carried))


def measure(scope: Scope) -> Iterator[Figure]:
    end = scope.pick(10, 100)
    for switches, rates in ((2, ((4.8, 5.2))), (4, (9.7, 10.3))):
        law = switches * RATE / HOPS / 1e9
        below, above = (loop(int(rate * 1e9), switches, end) for rate in rates)
        name = f"{switches} switches, threshold {law:g} Gb/s"
        yield equal(f"{name}: deadlock at {rates[0]} Gb/s", below.end == "deadlock", 0)
        yield holds(f"{name}: deadlock at {rates[1]} Gb/s", above.end == "deadlock")
        yield equal(f"{name}: ports of the cycle that is named", above.ports, switches)
        yield at_least(f"{name}: packets dropped below it", below.dropped, 1)
        yield around(f"{name}: links of the loop to each of them", below.carried, HOPS, 0.05)


ROW = Row(
    number="V21",
    title="A routing loop with PFC",
    setup="Switches whose tables lead a host's packets round, at B = 40 Gb/s with PFC, each packet "
    "over TTL = 16 links of the loop (the hosts send with 17, since the first switch takes one as "
    "well); the host sends at a rate r of its link.",
    expected="deadlock if, and only if, r > n·B/TTL: 5 Gb/s for two switches, 10 Gb/s for four.",
    fails="the hop limit is not taken at each switch, its drops are not counted by their reason, "
    "or a circle of full buffers goes on.",
    meaning="Below the threshold the hop limit empties the loop as fast as it is filled. Above it "
    "buffers fill, and then no packet moves any more whose hop limit could end.",
    measure=measure,
    quick=True,
)
