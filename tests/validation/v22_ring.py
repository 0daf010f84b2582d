# SPDX-License-Identifier: Apache-2.0
"""V22: a ring of four switches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.sim.fabrics import LINK, MIB, CheckedWorld, credits
from tests.validation.row import Confidence, Figure, Row, Scope, equal, holds
from verbena import fabrics
from verbena.sim import build, levels

KIB = 1 << 10
HOSTS = np.arange(4)


def one_lane(room: int) -> CheckedWorld:
    """All flows go three links clockwise; after the run."""
    world = CheckedWorld(framing="bare", window=256 * KIB, timeout=0)
    nodes = [world.add_switch(3, **credits(room)) for _ in HOSTS]
    for node in nodes:
        world.connect(world.add_host(), 0, node, 0, **LINK)
    for at, node in enumerate(nodes):
        world.connect(node, 1, nodes[(at + 1) % 4], 2, **LINK)
    for at, node in enumerate(nodes):
        world.set_routes(node, [0 if host == at else 1 for host in HOSTS])
    world.add_flows(HOSTS, (HOSTS + 3) % 4, 4 * MIB)
    world.run()
    return world


def routed(room: int, dateline: bool) -> CheckedWorld:
    """All flows go two links clockwise by dimension-order routing; after the run."""
    fabric = fabrics.ring(4, rate="100GbE", length_m=200)
    routes = fabrics.route(fabric, "dor", dateline=dateline)
    world = CheckedWorld(framing="bare", window=256 * KIB, timeout=0)
    build(world, routes, credits(room, max(2, routes.lanes.lanes)))
    target = (HOSTS + 2) % 4
    there, back = levels(routes, HOSTS, target), levels(routes, target, HOSTS)
    world.add_flows(HOSTS, target, 4 * MIB, level=there, back_level=back)
    world.run()
    return world


def measure(scope: Scope) -> Iterator[Figure]:
    for room in (8, 32, 128):
        world = one_lane(room * KIB)
        yield equal(f"{room} KiB: flows that never end", world.flows_left, 4)
        yield equal(f"{room} KiB: ports of the cycle that is named", len(world.blocked()), 4)
    for room in (512, 1024):
        yield equal(f"{room} KiB: flows that never end", one_lane(room * KIB).flows_left, 0)
    stuck = routed(8 * KIB, dateline=False).flows_left
    yield equal("two links, 8 KiB: flows that never end", stuck, 4)
    for room in (8, 128):
        left = routed(room * KIB, dateline=True).flows_left
        yield equal(f"two links, {room} KiB, a dateline: flows that never end", left, 0)
    loop = fabrics.credit_loop(fabrics.route(fabrics.ring(4), "dor", dateline=False))
    yield holds("the cycle is found before the run", loop is not None)


ROW = Row(
    number="V22",
    title="A ring of buffers deadlocks",
    setup="Four switches in a ring, each with a host whose flow of 4 MiB goes three links "
    "clockwise with a window of 256 KiB; credits, one lane. Then two links, and a second lane "
    "behind a dateline.",
    expected="deadlock with 8, 32 and 128 KiB for each lane, with all four flows unfinished; "
    "none from 512 KiB on, since the window is less; none with the second lane. The figures are "
    "those of a bare event loop without a protocol.",
    fails="a credit returns without a packet having left, or the end of the run is taken for done.",
    meaning="A deadlock is seen, named port by port, and cured by what cures it in practice. (Over "
    "two links 32 KiB suffice: each ring link is then shared by a flow that begins and one that "
    "ends, and the start fills no more than that.)",
    measure=measure,
    confidence=Confidence.PROGRAM,
    tested="`tests/sim/test_world.py`",
)
