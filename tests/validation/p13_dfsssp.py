# SPDX-License-Identifier: Apache-2.0
"""P13: DFSSSP spreads its ways better than min-hop and up/down, without a credit loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import networkx as nx
import numpy as np

from tests.fabrics.support import routed
from tests.sim.fabrics import MIB, CheckedWorld, credits
from tests.validation.row import Confidence, Figure, Row, Scope, at_least, at_most, holds
from verbena import fabrics
from verbena.fabrics import Fabric, Routes
from verbena.sim import build, levels

WIRING: dict[str, Any] = {"rate": "100GbE", "length_m": 5}
FIXED = 1  # of the fabric and the matching of which it is known what they do


def irregular(switches: int, cables: int, hosts: int, seed: int) -> Fabric:
    """Switches by chance, each with so many cables to others and so many hosts."""
    made = Fabric(f"{switches} switches by chance")
    for switch in range(switches):
        made.add_switch(f"s{switch}", ports=cables + hosts)
        for host in range(switch * hosts, (switch + 1) * hosts):
            made.add_host(f"h{host}")
            made.connect(f"h{host}", f"s{switch}", **WIRING)
    for a, b in sorted(nx.random_regular_graph(cables, switches, seed=seed).edges):
        made.connect(f"s{a}", f"s{b}", **WIRING)
    return made


def share(routes: Routes, patterns: int, seed: int) -> float:
    return float(routes.effective_bisection(patterns, seed).mean())


def in_packets(routes: Routes, room: int) -> tuple[str, float]:
    """How one random matching ends, with the acknowledgements on lanes of their own ways, and the
    mean share of its link that a sender gets."""
    hosts = np.random.default_rng(FIXED).permutation(routes.tables.host_count)
    half = len(hosts) // 2
    source, target = hosts[:half], hosts[half : 2 * half]
    world = CheckedWorld(framing="bare", timeout=0, window=MIB)
    build(world, routes, credits(room, max(1, routes.lanes.lanes)))
    there, back = levels(routes, source, target), levels(routes, target, source)
    world.add_flows(source, target, 2 * MIB, level=there, back_level=back)
    end = world.run()
    took = world.flows()["finish"].astype(float)
    return end, float((2 * MIB * 80 / took).mean())


def measure(scope: Scope) -> Iterator[Figure]:
    patterns = scope.pick(40, 200)
    kinds = {
        "ring of 8": (fabrics.ring(8, 4, **WIRING), 1.05, 0.97),
        "irregular": (irregular(32, 4, 4, FIXED), 1.1, 0.97),
        "fat-tree of k = 8": (fabrics.fat_tree(8, **WIRING), 1.6, 1.6),
        "fat-tree of k = 12": (fabrics.fat_tree(12, **WIRING), 2.0, 2.0),
    }
    for name, (fabric, tree, shortest) in kinds.items():
        routes = fabrics.route(fabric, "dfsssp")
        mine = share(routes, patterns, scope.seed)
        for engine, least in (("updn", tree), ("minhop", shortest)):
            other = share(routed(fabric, engine), patterns, scope.seed)
            yield at_least(f"{name}: share, beside {engine}", mine / other, least)
        yield at_most(f"{name}: lanes", routes.lanes.lanes, 5)
        yield holds(f"{name}: no credit loop", fabrics.credit_loop(routes) is None)
    fabric = kinds["irregular"][0]
    end, _ = in_packets(fabrics.route(fabric, "minhop"), 8 << 10)
    yield holds("irregular, in packets, 8 KiB: minhop deadlocks", end == "deadlock")
    end, mine = in_packets(routes := fabrics.route(fabric, "dfsssp"), 8 << 10)
    yield holds("irregular, in packets, 8 KiB a lane: dfsssp does not", end == "done")
    _, other = in_packets(routed(fabric, "updn"), routes.lanes.lanes * 8 << 10)
    yield at_least("irregular, in packets, the same memory: beside updn", mine / other, 1.1)


ROW = Row(
    number="P13",
    title="DFSSSP's effective bandwidth (IPDPS 2011)",
    setup="A ring of 8 switches with 4 hosts each, 32 switches by chance with 4 cables and 4 "
    "hosts each, and fat-trees of k = 8 and 12: half of the hosts, by chance, send to one of the "
    "others each, 200 times, and links are shared evenly. One matching on the irregular fabric in "
    "packets, 2 MiB each, with credits.",
    expected="up to twice the effective bandwidth of min-hop and up*/down* routes, on few lanes, "
    "and no deadlock (Domke, Hoefler, Nagel).",
    fails="ways are not spread by their load, or the lanes leave a credit loop.",
    meaning="Lanes buy shortest ways everywhere without deadlock, and loads counted by path buy "
    "up to twice their rate.",
    measure=measure,
    confidence=Confidence.TEXT,
    quick=True,
    tested="`tests/fabrics/test_opensm.py` compares with OpenSM's DFSSSP on fat-trees",
    missing="the paper's own fabrics (Deimos, Odin, CHiC, Ranger, Tsubame): they are not at hand. "
    "On a ring and by chance shortest ways are spread as well by min-hop, which has a credit loop "
    "there; twice is reached on trees, where OpenSM's min-hop deals the same uplinks everywhere.",
)
