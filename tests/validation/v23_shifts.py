# SPDX-License-Identifier: Apache-2.0
"""V23: shifts on a fat-tree."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.sim.fabrics import MIB, CheckedWorld, finish
from tests.validation.row import Figure, Row, Scope, at_most, equal, near
from verbena import fabrics
from verbena.sim import build

SER, ACK = 4096 * 80, 64 * 80


def measure(scope: Scope) -> Iterator[Figure]:
    for k in (8, 16):
        routes = fabrics.route(fabrics.fat_tree(k, rate="100GbE", length_m=200), "ftree")
        hosts = np.arange(routes.tables.host_count)
        loads = [routes.max_link_load(hosts, np.roll(hosts, -by)) for by in hosts[1:]]
        free = int((np.array(loads) == 1).sum())
        yield equal(f"k = {k}: shifts in which no link is shared", free, len(hosts) - 1)
        slowest, queue = 0.0, 0
        shifts = (1, k // 2, 5 * k, len(hosts) // 2)
        for by in shifts:
            world = CheckedWorld(framing="bare")
            build(world, routes)
            world.add_flows(hosts, np.roll(hosts, -by), MIB)
            finish(world)
            slowest = max(slowest, float(world.flows()["finish"].max()))
            queue = max(queue, int(world.links()["queued_max"].max()))
        # A link carries 256 packets, and the acknowledgements of the flow that comes back on it.
        alone = 256 * (SER + ACK) + 6 * (2 * 10**6 + ACK) + 5 * SER
        yield near(f"k = {k}: the slowest of all flows", slowest / 1e6, alone / 1e6, 0.03, "µs")
        yield at_most(f"k = {k}: longest queue, packets", queue / 4096, 2)


ROW = Row(
    number="V23",
    title="Shifts on a fat-tree",
    setup="Every host of a k-ary fat-tree sends to the one so many places further on, with d-mod-k "
    "routing: all shifts in the tables, four of them in packets (1 MiB each).",
    expected="no link is shared in any of 127 (k = 8) and 1023 (k = 16) shifts, as in OpenSM's "
    "ftree; so all flows run at full rate and end together.",
    fails="two destinations share a way up, or a queue forms where no two flows meet.",
    meaning="What the tables promise is what packets meet.",
    measure=measure,
    tested="`tests/sim/test_build.py`; `tests/fabrics/test_opensm.py` compares with OpenSM itself",
    seconds=600,
)
