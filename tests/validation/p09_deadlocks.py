# SPDX-License-Identifier: Apache-2.0
"""P9: a cyclic buffer dependency is not yet a deadlock."""

from __future__ import annotations

from collections.abc import Iterator

from tests.sim.fabrics import CheckedWorld
from tests.validation.row import Confidence, Figure, Row, Scope, equal, holds

RATE, DELAY = 40 * 10**9, 1_000_000
STOP = 40_000
A, B, C, D = range(4)
FIRST, SECOND, THIRD = (A, D), (C, B), (B, C)


# An input that goes on when it holds less than this is empty before the next packet comes: it is
# drained at half the rate, while the word to go on, and then the packet, take a delay each.
DRY = RATE // 2 * 2 * DELAY // (8 * 10**12)


def ring(flows: list[tuple[int, int]], limit: int = RATE, go: int = 2_000) -> tuple[str, int]:
    """How 20 ms end, and in how many ports of a cycle, if the third flow's host has that rate.

    Switches A, B, C, D in a ring, clockwise. Each has a host that sends and one that receives, and
    B has one more that sends.
    """
    world = CheckedWorld(framing="bare", mtu=1024, timeout=0, window=4 << 20)
    lane = {"flow": "pauses", "stop": STOP, "go": go, "spare": 40_000}
    nodes = [world.add_switch(5, lanes=[lane]) for _ in range(4)]
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
    for gbps in (8, 20):
        end, _ = ring([FIRST, SECOND, THIRD], gbps * 10**9)
        yield holds(f"with flow 3 at {gbps} Gb/s: deadlock", end == "deadlock")
    for go in (36_000, DRY + 1_000):
        end, _ = ring([FIRST, SECOND], go=go)
        yield holds(f"inputs go on at {go:,} bytes: flows 1 and 2 go on", end == "moving")
        end, _ = ring([FIRST, SECOND, THIRD], 10**9, go)
        yield holds(f"inputs go on at {go:,} bytes, flow 3 at 1 Gb/s: deadlock", end == "deadlock")
    end, _ = ring([FIRST, SECOND, THIRD], 10**9, DRY - 1_000)
    yield holds(f"inputs go on at {DRY - 1_000:,} bytes, flow 3 at 1 Gb/s: none", end == "moving")


ROW = Row(
    number="P9",
    title="Deadlocks in datacenter networks (HotNets 2016)",
    setup="Four switches A, B, C, D in a ring at 40 Gb/s and 1 µs with PFC; flow 1 goes from A to "
    "D, flow 2 from C to B, so that their buffers depend on each other in a circle; flow 3 from B "
    "to C. An input is paused at 40,000 bytes and goes on at 2,000, where nothing else is said.",
    expected="flows 1 and 2 alone do not deadlock, with flow 3 they do, and with flow 3 held to "
    "2 Gb/s or less they do not.",
    fails="pauses stay when buffers are free, or do not spread round the ring; or an input that "
    "is never empty catches up what a packet of another flow has delayed.",
    meaning="Whether a cycle of dependencies becomes a deadlock depends on the load; and at how "
    "many bytes a paused input goes on decides whether a limit for flow 3 helps. Flows 1 and 2 "
    "have half of each link that they share. While the hosts' inputs always have a packet, what "
    "one of flow 3 delays is never caught up, so that buffers fill and any rate of flow 3 ends in "
    "a deadlock, only later. They are empty now and then if they go on below C·d = 5,000 bytes: "
    "drained at C/2 while the word and then the packet take d each. The ring's inputs catch up "
    "in these gaps, and below a rate that grows with them flow 3 does no harm. With which "
    "threshold inputs went on in the publication is not known here.",
    measure=measure,
    confidence=Confidence.MEMORY,
)
