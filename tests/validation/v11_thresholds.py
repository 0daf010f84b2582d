# SPDX-License-Identifier: Apache-2.0
"""V11: ECN before PFC, in a switch with a shared buffer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.sim.fabrics import CheckedWorld
from tests.validation.row import Figure, Row, Scope, around, equal, holds, near

BUFFER, PORTS, LANES, FLIGHT, BETA = 12_000_000, 32, 8, 22_400, 8.0
SHARED = BUFFER - LANES * PORTS * FLIGHT  # what the headroom leaves
PACKET = 256
FILL = 60_000  # bytes that each queue is offered


def t_pfc() -> float:
    """Bytes, each input and priority having the same."""
    return SHARED / (LANES * PORTS)


def t_ecn() -> float:
    return BETA * SHARED / (LANES * PORTS * (BETA + 1))


def filled(mark_at: int) -> CheckedWorld:
    """Until the first pause; eight inputs, one for each priority, fill all outputs' queues."""
    lane: dict[str, Any] = {"flow": "pauses", "alpha": BETA / LANES, "spare": 1 << 20}
    lane["mark"] = (mark_at, mark_at + 1, 1.0)
    world = CheckedWorld(framing="bare", mtu=PACKET, window=(1 << 32) - 1, timeout=0)
    center = world.add_switch(LANES + PORTS, lanes=[lane] * LANES, buffer=SHARED)
    for port in range(LANES + PORTS):
        rate = 32 * 10**11 if port < LANES else 10**9  # in much faster than out
        world.connect(world.add_host(), 0, center, port, rate=rate, delay=0)
    world.set_routes(center, np.arange(LANES + PORTS))
    source, output = (part.ravel() for part in np.indices((LANES, PORTS)))
    world.add_flows(source, LANES + output, FILL, level=source)
    at = 0
    while not world.links()["pauses"].any() and world.flows_left:
        at += 40_000
        world.run(until=at)
    return world


def measure(scope: Scope) -> Iterator[Figure]:
    yield around("t_PFC", t_pfc() / 1e3, 24.47, 0.006, "KB")
    yield around("t_ECN", t_ecn() / 1e3, 21.75, 0.006, "KB")
    world = filled(int(t_ecn()) - 4 * PACKET)
    links = world.links()
    outputs = links[links["node"] == 0][LANES:]
    queue = float(outputs["queued_max"].mean())
    yield near("a queue at the first pause", queue / 1e3, 21.75, 0.025, "KB")
    yield holds("marked by then, where t_ECN is 5 % less", bool((outputs["marked"] > 0).all()))
    late = filled(int(t_ecn()) + 4 * PACKET).links()
    yield equal("marks by then, where it is 5 % more", int(late["marked"].sum()), 0)


ROW = Row(
    number="V11",
    title="ECN before pauses, in a shared buffer",
    setup="The switch of the DCQCN paper: 12 MB, 32 ports, 8 priorities, 22.4 KB of headroom for "
    "each, dynamic thresholds with β = 8 (`alpha` = β/8). Eight inputs, one for each priority, "
    "fill the queues of all outputs alike.",
    expected="t_PFC = (B − 8 n t_flight)/(8 n) = 24.47 KB when all is divided alike; the first "
    "pause comes when each queue has β (B − 8 n t_flight)/(8 n (β + 1)) = 21.75 KB, so a mark "
    "below that comes before any pause, and one above it does not.",
    fails="the dynamic threshold counts the wrong bytes, or marking looks at another queue.",
    meaning="With thresholds below these bounds senders are told to slow down before anyone is "
    "stopped.",
    measure=measure,
    quick=True,
)
