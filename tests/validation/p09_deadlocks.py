# SPDX-License-Identifier: Apache-2.0
"""P9: a cyclic buffer dependency is not yet a deadlock."""

from __future__ import annotations

from collections.abc import Iterator

from tests.sim.fabrics import CheckedWorld
from tests.validation.row import Confidence, Figure, Row, Scope, equal, holds

RATE, DELAY = 40 * 10**9, 1_000_000
LANE = {"flow": "pauses", "stop": 40_000, "go": 36_000, "spare": 40_000}
A, B, C, D = range(4)
FIRST, SECOND, THIRD = (A, D), (C, B), (B, C)


def ring(flows: list[tuple[int, int]], limit: int = RATE) -> tuple[str, int]:
    """How 20 ms end, and in how many ports of a cycle, if the third flow's host has that rate.

    Switches A, B, C, D in a ring, clockwise. Each has a host that sends and one that receives, and
    B has one more that sends.
    """
    world = CheckedWorld(framing="bare", mtu=1024, timeout=0, window=4 << 20)
    nodes = [world.add_switch(5, lanes=[LANE]) for _ in range(4)]
    sender, receiver, owner = {}, {}, []
    for node in nodes:
        for port, group in ((0, sender), (1, receiver)):
            group[node] = world.hosts
            owner.append((node, port))
            world.connect(world.add_host(), 0, node, port, rate=RATE, delay=DELAY)
    extra = world.hosts
    owner.append((B, 4))
    world.connect(world.add_host(), 0, B, 4, rate=limit, delay=DELAY)
    for node in nodes:
        world.connect(node, 2, (node + 1) % 4, 3, rate=RATE, delay=DELAY)
    for node in nodes:
        world.set_routes(node, [port if where == node else 2 for where, port in owner])
    for source, target in flows:
        host = extra if (source, target) == THIRD else sender[source]
        world.add_flows(host, receiver[target], 1 << 38)
    end = world.run(until=20 * 10**9)
    if end == "time":  # is anything moving?
        before = world.packets["delivered"]
        world.run(until=21 * 10**9)
        end = "moving" if world.packets["delivered"] > before else "deadlock"
    return end, len(world.blocked())


def measure(scope: Scope) -> Iterator[Figure]:
    yield holds("flows 1 and 2 go on", ring([FIRST, SECOND])[0] == "moving")
    end, ports = ring([FIRST, SECOND, THIRD])
    yield holds("with flow 3: deadlock", end == "deadlock")
    yield equal("with flow 3: ports of the cycle that is named", ports, 4)
    for gbps in (1, 2):
        end, _ = ring([FIRST, SECOND, THIRD], gbps * 10**9)
        yield holds(f"with flow 3 at {gbps} Gb/s they go on", end == "moving")


ROW = Row(
    number="P9",
    title="Deadlocks in datacenter networks (HotNets 2016)",
    setup="Four switches A, B, C, D in a ring at 40 Gb/s with PFC; flow 1 goes from A to D, flow "
    "2 from C to B, so that their buffers depend on each other in a circle; flow 3 from B to C.",
    expected="flows 1 and 2 alone do not deadlock, with flow 3 they do, and with flow 3 held to "
    "2 Gb/s or less they do not.",
    fails="pauses stay when buffers are free, or do not spread round the ring.",
    meaning="Whether a cycle of dependencies becomes a deadlock depends on the load.",
    measure=measure,
    confidence=Confidence.MEMORY,
    differs="with flow 3 held to 1 or 2 Gb/s: it deadlocks, later (after about 200 KB of flow 3, "
    "at any rate). Switches here serve inputs strictly in turn, so flows 1 and 2 have exactly "
    "half of each link that they share, and what one packet of flow 3 has delayed is never "
    "caught up. The limit of 2 Gb/s is from memory, and the paper's switches are not known in "
    "this respect.",
    missing="the routing loop, which is V21.",
)
