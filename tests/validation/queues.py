# SPDX-License-Identifier: Apache-2.0
"""One switch, sources that are much faster than its outputs, and packets one by one.

Each packet is a flow of its own, so that nothing but queues holds it back: what it waited is the
time that it took less the least time that it can take.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.sim.fabrics import CheckedWorld

PACKET = 4096
SLOW = 80  # ps for a byte, 100 Gb/s
SERVICE = PACKET * SLOW
ACK = 64


def funnel(sources: int, sinks: int, *, fast: int = 8 * 10**12, **switch: Any) -> CheckedWorld:
    """Hosts 0 to sources - 1 on links of ``fast`` bits/s, then the sinks on links of 100 Gb/s.

    No link has a delay. ``switch``: keywords of World.add_switch.
    """
    world = CheckedWorld(framing="bare", timeout=0)
    ports = sources + sinks
    center = world.add_switch(ports, **switch)
    for port in range(ports):
        rate = fast if port < sources else 10**11
        world.connect(world.add_host(), 0, center, port, rate=rate, delay=0)
    world.set_routes(center, np.arange(ports))
    return world


def waits(world: CheckedWorld, fast: int = 1) -> NDArray[np.float64]:
    """ps that each packet waited for the output; ``fast``: ps for a byte of its source's link."""
    flows = world.flows()
    took = flows["finish"].astype(np.int64) - flows["start"].astype(np.int64)
    least = flows["bytes"].astype(np.int64) * (fast + SLOW) + ACK * (SLOW + fast)
    return (took - least).astype(np.float64)


def lindley(arrival: NDArray[np.int64], service: NDArray[np.int64]) -> NDArray[np.int64]:
    """What each packet waits before one server, by W' = max(0, W + S - A) (Lindley 1952)."""
    steps = service[:-1] - np.diff(arrival)
    walk = np.concatenate([[0], np.cumsum(steps)])
    return walk - np.minimum.accumulate(np.minimum(walk, 0))
