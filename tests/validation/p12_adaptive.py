# SPDX-License-Identifier: Apache-2.0
"""P12: static and adaptive ways through a Clos network."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.sim.fabrics import CheckedWorld, finish
from tests.validation.row import Confidence, Figure, Row, Scope, at_least, between
from tests.validation.static import by_chance
from verbena import fabrics
from verbena.fabrics import Routes
from verbena.sim import build

PACKET, SER = 4096, 4096 * 80


def routed(engine: str) -> Routes:
    fabric = fabrics.clos3(16, pods=8, rate="100GbE", length_m=5)  # 512 hosts
    return fabrics.route(fabric, engine)


def share(routes: Routes, balance: str, packets: int, seed: int) -> float:
    """Mean share of its link that a host of a random permutation gets.

    Each packet is a message of its own, sent at the link's rate: nothing waits for an order.
    """
    world = CheckedWorld(framing="bare", timeout=0)
    build(world, routes, {"balance": balance})
    work = fabrics.permutation(world.hosts, 1, seed=seed)
    source = np.repeat(work.flows["src"], packets)
    target = np.repeat(work.flows["dst"], packets)
    start = np.tile(np.arange(packets) * SER, world.hosts)
    world.add_flows(source, target, PACKET, start)
    finish(world)
    last = world.flows()["finish"].reshape(world.hosts, packets).max(axis=1)
    return float((packets * SER / last).mean())


def measure(scope: Scope) -> Iterator[Figure]:
    static = routed("ecmp")
    got = share(by_chance(static, scope.seed), "flow", 256, scope.seed)
    yield between("static ways, by chance", got, 0.35, 0.62, "of a link")
    got = share(routed("ftree"), "flow", 256, scope.seed)
    yield between("static ways, d-mod-k", got, 0.45, 0.68, "of a link")
    got = share(static, "packet", 1024, scope.seed)
    # In turn, and not by queues: data and acknowledgements count alike, and meet by chance.
    yield at_least("each packet another way", got, 0.85, "of a link")


ROW = Row(
    number="P12",
    title="Static and adaptive routing on a Clos network (Geoffray, Hoefler)",
    setup="512 hosts in three tiers, a random permutation, 1 MiB (4 MiB) in messages of a packet "
    "each at the rate of the link: one way for each pair, or each packet over the next of all "
    "ways.",
    expected='static ways get about half ("you waste 50 %"), adaptive ones nearly all.',
    fails="ways that are equal are not all used, or a shared link gives more than its rate.",
    meaning="Spreading by packet fills a Clos network; a way for each pair leaves half of it idle.",
    measure=measure,
    confidence=Confidence.TEXT,
    missing="adaptive routing by queues; and RC over such ways: packets overtake each other, and "
    "RC goes back for each that is early.",
    seconds=600,
)
