# SPDX-License-Identifier: Apache-2.0
"""P7: one packet of 256 is lost."""

from __future__ import annotations

from collections.abc import Iterator

from tests.sim.fabrics import CheckedWorld
from tests.validation.row import Confidence, Figure, Row, Scope, at_least, between, equal, near

LOSS, MTU = 1 / 256, 1024
SER = MTU * 200  # ps at 40 Gb/s


def goodput(window: int, seed: int, recovery: str = "go-back-n") -> tuple[float, float]:
    """Of the line, with so many packets to a round trip; and the part of the time it is busy."""
    per_bit = 1 - (1 - LOSS) ** (1 / (8 * MTU))
    world = CheckedWorld(
        seed, framing="bare", mtu=MTU, timeout=3, window=1 << 20, recovery=recovery
    )
    center = world.add_switch(2)
    # Store-and-forward takes one packet time of the round trip more.
    delay = max(0, (window - 2) * SER // 4)
    for port, errors in ((0, 0.0), (1, per_bit)):
        rate = 40 * 10**9
        world.connect(
            world.add_host(), 0, center, port, rate=rate, delay=delay, bit_error_rate=errors
        )
    world.set_routes(center, [0, 1])
    size = 1000 * 4_000_000
    world.add_flows(0, 1, size, message=4_000_000, depth=2)
    world.run(until=400 * 10**9)
    flow = world.flows()[0]
    busy = int(world.links()["busy"][0]) / world.now
    return int(flow["done"]) * 200 / world.now, busy


def measure(scope: Scope) -> Iterator[Figure]:
    for window in (8, 16):
        law = (1 - LOSS) / (1 + (window - 1) * LOSS)
        got, _ = goodput(window, scope.seed)
        yield near(f"w = {window}", got, law, 0.03, "of the line")
        yield between(f"w = {window}, of the row", got, 0.93, 0.98)
    for window in (8, 16):
        got, busy = goodput(window, scope.seed, "go-back-0")
        yield equal(f"go-back-0, w = {window}", got, 0.0, "of the line")
        yield at_least(f"go-back-0, w = {window}: the sender's link is busy", busy, 0.9)


ROW = Row(
    number="P7",
    title="Livelock (RDMA over commodity Ethernet at scale, SIGCOMM 2016)",
    setup="Two hosts and a switch, 40 Gb/s, messages of 4 MB, MTU 1024; one packet of 256 is "
    "lost, by chance (the paper: each whose IP-ID ends with 0xff).",
    expected="with go-back-0 nothing arrives although the sender's link is busy; with go-back-N "
    "0.94 to 0.97 of the line for 16 to 8 packets to a round trip (V12).",
    fails="a loss costs more than a round trip, so that large messages do not come through.",
    meaning="Go-back-N makes progress where an adapter that begins the message anew makes none: "
    "one message of 4 MB in four million gets through without a loss.",
    measure=measure,
    confidence=Confidence.MEMORY,
)
