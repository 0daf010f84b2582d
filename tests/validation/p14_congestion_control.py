# SPDX-License-Identifier: Apache-2.0
"""P14: InfiniBand's congestion control frees the victims of a hotspot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.sim.fabrics import CheckedWorld, credits
from tests.validation.row import Confidence, Figure, Row, Scope, at_least, at_most
from tests.validation.testbed import jain
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
BUS = 26 * 10**9  # of a host, as PCIe 2.0 x8: no link is full but by several hosts


def rates(
    hot: bool, congestion: dict[str, Any] | None, seed: int, fecn_at: str = "root"
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Shares of a link: of flows that share one with the hotspot's tree, of the others, and of the
    24 hosts that all send to host 0; and how many packets of the first were marked.
    """
    fabric = fabrics.clos2(12, rate="4xQDR", length_m=5)  # 12 leaves of 6 hosts
    routes = fabrics.route(fabric, "ftree")
    world = CheckedWorld(
        seed, framing="infiniband", mtu=2048, timeout=0, congestion=congestion, bus_rate=BUS
    )
    build(world, routes, {**credits(32 << 10), "fecn": 16 << 10, "fecn_at": fecn_at})
    random = np.random.default_rng(seed)
    hosts = random.permutation(np.arange(1, world.hosts))
    shift = int(random.integers(6, world.hosts - 6))
    senders, others = hosts[:HOT], hosts[HOT:]
    others = others[(others + shift) % world.hosts != 0]
    target = (others + shift) % world.hosts
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
    marked = int(world.flows()["marked"][: len(others)][victim].sum())
    return got[: len(others)][victim], got[: len(others)][~victim], got[len(others) :], marked


def measure(scope: Scope) -> Iterator[Figure]:
    seeds = range(scope.seed, scope.seed + 3)
    ways: tuple[tuple[Any, ...], ...] = ((False, None), (True, None), (True, CCT))
    runs = [[rates(*how, seed) for seed in seeds] for how in ways]
    alone, without, with_control = (
        [np.concatenate([run[part] for run in each]) for part in range(3)] for each in runs
    )
    had = float(without[0].mean() / alone[0].mean())
    yield at_most("victims, of what they have without a hotspot", had, 0.3)
    has = float(with_control[0].mean() / alone[0].mean())
    yield at_least("the same with congestion control", has, 0.9)
    others = float(with_control[1].mean() / alone[1].mean())
    yield at_least("flows beside the tree, with congestion control", others, 0.95)
    hot = float(with_control[2].sum()) / len(seeds)
    yield at_least("the hot link, with congestion control", hot, 0.9, "of it")
    fair = [jain(run[2]) for run in runs[2]]
    yield at_least("fairness of those that send to it (Jain), the least", min(fair), 0.9)
    every = sum(rates(True, CCT, seed, "output")[3] for seed in seeds)
    part = sum(run[3] for run in runs[2]) / every
    yield at_most("marks of victims, of those if victims' ports marked too", part, 0.7)


ROW = Row(
    number="P14",
    title="InfiniBand congestion control and a hotspot (Gran, Zahavi, Reinemo and others)",
    setup="72 hosts on a two-tier fat-tree at 32 Gb/s, which send at most 26, and 32 KiB of "
    "credits for each input: 24 hosts by chance send to one, the others to those some hosts "
    "further; three such choices. Victims are those that share a link with the way to the hot "
    "host. FECN above 16 KiB of queue at ports that have credits; CCT linear to 127 packet times, "
    "CCTI_Increase 1, CCTI_Timer 150 (154 µs).",
    expected="the hotspot's tree of full buffers takes the victims' bandwidth; with congestion "
    "control it is gone, and they have nearly what they had without a hotspot.",
    fails="marks do not find the flows that cause the tree, or sources do not slow down enough.",
    meaning="The fabric's own congestion control removes the tree, at little cost for the hot "
    "link.",
    measure=measure,
    confidence=Confidence.TEXT,
    missing="the papers' 648-port fabric; Threshold in 15 steps, Marking_Rate and Packet_Size of "
    "the switch.",
    seconds=600,
)
