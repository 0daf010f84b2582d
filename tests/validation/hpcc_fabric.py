# SPDX-License-Identifier: Apache-2.0
"""The fat-tree of the HPCC paper: 320 servers at 100 Gb/s, 20 racks, 20 aggregation switches and 16
cores at 400 Gb/s, 1 µs a link; a round trip without queues of 13 µs, and 32 MB in each switch.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.sim.fabrics import CheckedWorld
from verbena import fabrics
from verbena.sim import build

HOSTS, RATE = 320, 100 * 10**9
MICROSECOND, MILLISECOND = 10**6, 10**9
BASE_RTT = 13 * MICROSECOND
HPCC: dict[str, Any] = {"kind": "hpcc", "base_rtt": BASE_RTT}
DCQCN: dict[str, Any] = {"kind": "dcqcn", "set": "paper"}
# Kmin = 100 KB and Kmax = 400 KB for each 25 Gb/s, Pmax = 20 %: those of 100 Gb/s, the rate of the
# ports at which queues are. A switch here has one pair for all of its ports.
MARK = (400_000, 1_600_000, 0.2)
LANE: dict[str, Any] = {"flow": "pauses", "alpha": 0.11, "spare": 1_000_000, "mark": MARK}


@cache
def routes() -> fabrics.Routes:
    made = fabrics.xgft(
        [16, 4, 5],
        [1, 4, 4],
        rate="100GbE",
        switch_rate="400GbE",
        delay_ns=1000,
        switch_delay_ns=1000,
    )
    return fabrics.route(made, "ecmp")


def run(
    congestion: dict[str, Any],
    work: fabrics.Workload,
    seed: int,
    incast: int = 0,
    lane: dict[str, Any] | None = None,
) -> CheckedWorld:
    """All of the load, up to 50 ms; ``incast``: so many hosts send 500 KB each to host 0 at 100 us.

    The first flows are those of the load.
    """
    world = CheckedWorld(
        seed, mtu=1024, window=1 << 20, timeout=0, congestion=congestion, ack_bytes=1
    )
    build(world, routes(), {"lanes": [lane or LANE], "buffer": 32_000_000, "turns": "arrival"})
    flows = work.flows
    world.add_flows(flows["src"], flows["dst"], flows["bytes"], flows["start"])
    if incast:
        senders = np.arange(1, incast + 1) * (HOSTS // (incast + 1))
        world.add_flows(senders, 0, 500_000, 100 * MICROSECOND)
    world.run(until=50 * MILLISECOND)
    return world


def slowdowns(world: CheckedWorld, count: int) -> NDArray[np.float64]:
    """Of the first so many flows: the time that each took, to a round trip and its bytes alone."""
    flows = world.flows()[:count]
    end = np.where(flows["state"] == 2, flows["finish"], world.now)
    took = (end - flows["start"]).astype(float)
    frame = (1024 + 98) / 1024
    return took / (BASE_RTT + flows["bytes"] * frame * 8e12 / RATE)


def host_queues(world: CheckedWorld) -> NDArray[np.float64]:
    """The longest queue of each port that leads to a host, in bytes."""
    links = world.links()
    return links["queued_max"][links["to_node"] < HOSTS].astype(float)
