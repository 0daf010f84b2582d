# SPDX-License-Identifier: Apache-2.0
"""P14: InfiniBand's congestion control frees the victims of a hotspot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.sim.fabrics import CheckedWorld, credits
from tests.validation.row import Confidence, Figure, Row, Scope, at_least, at_most
from verbena import fabrics
from verbena.sim import build

CCT: dict[str, Any] = {
    "kind": "cct",
    "gaps": [float(entry) for entry in range(128)],
    "increase": 1,
    "timer": 150 * 1_024_000,
    "notice_interval": 0,
}
BEGIN, END = 10, 20  # ms
HOT = 24


def rates(
    hot: bool, congestion: dict[str, Any] | None, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shares of a link: of flows that share one with the hotspot's tree, of the others, and of the
    24 hosts that all send to host 0.
    """
    fabric = fabrics.clos2(12, rate="4xQDR", length_m=5)  # 12 leaves of 6 hosts
    routes = fabrics.route(fabric, "ftree")
    world = CheckedWorld(seed, framing="infiniband", mtu=2048, timeout=0, congestion=congestion)
    build(world, routes, {**credits(32 << 10), "fecn": 64 << 10})
    hosts = np.random.default_rng(seed).permutation(np.arange(1, world.hosts))
    senders, others = hosts[:HOT], hosts[HOT:]
    target = np.roll(others, 1)
    tree = routes.link_load(senders, 0) > 0
    ways = routes.links(others, target)
    victim = (tree[ways] & (ways >= 0)).any(axis=1)
    world.add_flows(others, target, 1 << 40, message=1 << 14, depth=16)
    if hot:
        world.add_flows(senders, 0, 1 << 40, message=1 << 14, depth=16)
    done = []
    for until in (BEGIN, END):
        world.run(until=until * 10**9)
        done.append(world.flows()["done"].astype(float))
    got = (done[1] - done[0]) * 8 / ((END - BEGIN) * 1e-3) / 32e9
    return got[: len(others)][victim], got[: len(others)][~victim], got[len(others) :]


def measure(scope: Scope) -> Iterator[Figure]:
    seeds = range(scope.seed, scope.seed + 3)
    runs = [
        [np.concatenate(part) for part in zip(*(rates(*how, seed) for seed in seeds), strict=True)]
        for how in ((False, None), (True, None), (True, CCT))
    ]
    alone, without, with_control = runs
    had = float(without[0].mean() / alone[0].mean())
    yield at_most("victims, of what they have without a hotspot", had, 0.3)
    has = float(with_control[0].mean() / alone[0].mean())
    yield at_least("the same with congestion control", has, 0.75)
    others = float(with_control[1].mean() / alone[1].mean())
    yield at_least("flows beside the tree, with congestion control", others, 0.9)
    hot = float(with_control[2].sum()) / len(seeds)
    yield at_least("the hot link, with congestion control", hot, 0.8, "of it")


ROW = Row(
    number="P14",
    title="InfiniBand congestion control and a hotspot (Gran, Zahavi, Reinemo and others)",
    setup="72 hosts on a two-tier fat-tree at 32 Gb/s, 32 KiB of credits for each input: 24 "
    "hosts by chance send to one, the others in a ring by chance; three such choices. Victims "
    "are those that share a link with the way to the hot host. FECN above 64 KiB of queue, which "
    "only the root of the tree has; CCT linear to 127 packet times, CCTI_Increase 1, CCTI_Timer "
    "150 (154 µs).",
    expected="the hotspot's tree of full buffers takes the victims' bandwidth; with congestion "
    "control it is gone, and they have nearly what they had without a hotspot.",
    fails="marks do not find the flows that cause the tree, or sources do not slow down enough.",
    meaning="The fabric's own congestion control removes the tree, at little cost for the hot "
    "link.",
    measure=measure,
    confidence=Confidence.TEXT,
    missing="the papers' 648-port fabric; and how evenly the senders share the hot link, for "
    "which they found that the threshold needs a hysteresis of more than a packet. A switch here "
    "has none, and it marks at ports that wait for credits, too, where IBA A10.2.1.1 marks at "
    "the root alone: a lower threshold marks the victims.",
    seconds=600,
)
