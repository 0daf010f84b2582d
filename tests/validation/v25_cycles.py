# SPDX-License-Identifier: Apache-2.0
"""V25: cycles of channel dependencies and deadlock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from tests.fabrics.support import routed
from tests.sim.fabrics import MIB, CheckedWorld, credits
from tests.validation.row import Figure, Row, Scope, equal, holds
from verbena import fabrics
from verbena.fabrics import Fabric, Routes
from verbena.sim import build, levels

FABRICS = {
    "ring of 6": lambda: fabrics.ring(6, rate="100GbE", length_m=200),
    "torus of 4x4": lambda: fabrics.torus((4, 4), rate="100GbE", length_m=200),
    "dragonfly": lambda: fabrics.dragonfly(2, 4, 2, rate="100GbE", length_m=200),
}
ENGINES = ("updn", "dfsssp", "minhop", "sssp")
# What the specification of each engine promises: a loop on rings and tori, or never one.
CYCLIC = {"minhop", "sssp"}


def is_stuck(routes: Routes) -> bool:
    """Under shifts with small buffers: does a run end in a deadlock?"""
    return any(run(routes, shifts) == "deadlock" for shifts in ((2, 3), range(1, 8)))


def run(routes: Routes, shifts: Iterable[int]) -> str:
    world = CheckedWorld(framing="bare", window=MIB, timeout=0)
    build(world, routes, credits(8 << 10, lanes=max(2, routes.lanes.lanes)))
    hosts = np.arange(world.hosts)
    for shift in shifts:
        target = (hosts + shift) % world.hosts
        apart = hosts != target
        source, target = hosts[apart], target[apart]
        there, back = levels(routes, source, target), levels(routes, target, source)
        world.add_flows(source, target, 2 * MIB, level=there, back_level=back)
    return world.run()


def measure(scope: Scope) -> Iterator[Figure]:
    for name in scope.pick(("ring of 6", "dragonfly"), tuple(FABRICS)):
        fabric: Fabric = FABRICS[name]()
        for engine in scope.pick(("dfsssp", "minhop"), ENGINES):
            routes = routed(fabric, engine)
            loop = fabrics.credit_loop(routes) is not None
            stuck = is_stuck(routes)
            if engine not in CYCLIC:
                yield equal(f"{name}, {engine}: has a cycle", loop, 0)
            elif name != "dragonfly":
                yield equal(f"{name}, {engine}: has a cycle", loop, 1)
            yield holds(f"{name}, {engine}: no deadlock without a cycle", loop or not stuck)
            if loop and name == "ring of 6":
                yield holds(f"{name}, {engine}: deadlock with one", stuck)


ROW = Row(
    number="V25",
    title="No cycle, no deadlock",
    setup="Routes of four engines on a ring, a torus and a dragonfly: is there a cycle in the "
    "graph of channel dependencies, and do shifts of 2 MiB with 8 KiB of buffer for each lane "
    "deadlock? Acknowledgements go on the lane of their own way. up*/down* goes below the fabric's "
    "centre, `roots=[fabrics.centre(fabric)]`, where it finds no roots of its own, as on a ring.",
    expected="up*/down* with roots and DFSSSP have no cycle on any topology, shortest ways have "
    "one on rings and tori; without a cycle there is no deadlock (Dally, Seitz 1987), and the "
    "ring's is met.",
    fails="the check misses a cycle that packets find, or an engine leaves one.",
    meaning="The check before the run and the deadlock in it agree.",
    measure=measure,
    quick=True,
    tested="`tests/fabrics/test_routing.py`, `tests/sim/test_build.py`; "
    "`tests/fabrics/test_opensm.py` compares with OpenSM's tables",
)
