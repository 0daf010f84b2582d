# SPDX-License-Identifier: Apache-2.0
"""P11: a full bisection is not a crossbar."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.sim.fabrics import MIB, CheckedWorld, finish
from tests.validation.row import Confidence, Figure, Row, Scope, at_least, between, near
from tests.validation.static import by_chance
from verbena import fabrics
from verbena.fabrics import Routes
from verbena.sim import build


def in_packets(routes: Routes, seed: int) -> tuple[float, float]:
    """Mean share of its rate that a sender gets in one random bisection; and by link loads."""
    random = np.random.default_rng(seed)
    hosts = random.permutation(routes.tables.host_count)
    half = len(hosts) // 2
    source, target = hosts[:half], hosts[half:]
    world = CheckedWorld(framing="bare", timeout=0, window=64 * MIB)
    build(world, routes)
    world.add_flows(source, target, 2 * MIB)
    finish(world)
    took = world.flows()["finish"].astype(float)
    return float((2 * MIB * 80 / took).mean()), float(routes.rates(source, target).mean())


def tree(k: int, engine: str) -> Routes:
    return fabrics.route(fabrics.fat_tree(k, rate="100GbE", length_m=5), engine)


def measure(scope: Scope) -> Iterator[Figure]:
    for k, patterns in ((8, 200), (16, 40)):
        routes = by_chance(tree(k, "ecmp"), scope.seed)
        share = float(routes.effective_bisection(patterns, scope.seed).mean())
        yield between(f"static, by chance, k = {k}: effective bisection", share, 0.5, 0.65)
    for engine, known in (("ftree", 0.758), ("minhop", 0.444)):
        share = float(tree(8, engine).effective_bisection(200, scope.seed).mean())
        yield near(f"{engine}, k = 8, of OpenSM's {engine}", share, known, 0.04)
    for name, routes in (
        ("by chance", by_chance(tree(8, "ecmp"), scope.seed)),
        ("d-mod-k", tree(8, "ftree")),
    ):
        got, law = in_packets(routes, scope.seed)
        # By loads every link is shared evenly to the end; in packets those that end leave room.
        yield at_least(f"{name}, one bisection in packets", got, law * 0.95)
        yield near(f"{name}, in packets beside the loads", got, law, 0.15)


ROW = Row(
    number="P11",
    title="Multistage switches are not crossbars (Cluster 2008)",
    setup="Half of the hosts of a fat-tree, by chance, send to one of the other half each, 200 "
    "times; static ways. One such pattern in packets, 2 MiB each, beside what the load of the "
    "links says.",
    expected="55 to 60 % of the rated bisection (the paper's fabrics); OpenSM's own tables for k "
    "= 8: 0.758 with ftree, 0.444 with minhop.",
    fails="routes are better or worse spread than they say, or packets see other loads than "
    "tables.",
    meaning="Static routes lose about 40 % of a fabric that is rated for everything.",
    measure=measure,
    confidence=Confidence.TEXT,
    tested="`tests/fabrics/test_opensm.py` makes OpenSM's figures",
)
