# SPDX-License-Identifier: Apache-2.0
"""P10: RoCE with and without PFC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.sim.fabrics import CheckedWorld
from tests.validation.row import Confidence, Figure, Row, Scope, at_least, equal
from verbena import fabrics
from verbena.sim import build

LOSSY: dict[str, Any] = {"buffer": 240_000}
PFC: dict[str, Any] = {
    "lanes": [{"flow": "pauses", "stop": 220_000, "go": 210_000, "spare": 40_000}]
}
PS = 8 * 10**12 // (40 * 10**9)  # for a byte


def run(switch: dict[str, Any], work: fabrics.Workload, seed: int) -> CheckedWorld:
    fabric = fabrics.fat_tree(6, rate="40GbE", delay_ns=2000)
    world = CheckedWorld(seed, mtu=1024, timeout=6, window=120_000)
    build(world, fabrics.route(fabric, "ecmp"), switch)
    flows = work.flows
    world.add_flows(flows["src"], flows["dst"], flows["bytes"], flows["start"])
    world.run()
    return world


def slowdown(world: CheckedWorld) -> np.ndarray:
    """Of each flow: the time that it took, to the time alone (24 µs and its bytes)."""
    flows = world.flows()
    flows = flows[flows["state"] == 2]
    took = (flows["finish"] - flows["start"]).astype(float)
    return took / (24e6 + flows["bytes"] * PS * 1.08)


def measure(scope: Scope) -> Iterator[Figure]:
    work = fabrics.poisson(
        54, 0.7, "websearch", link="40GbE", duration_ps=6 * 10**9, seed=scope.seed
    )
    lossy, pfc = run(LOSSY, work, scope.seed), run(PFC, work, scope.seed)
    yield equal("with PFC: packets lost", int(pfc.packets["dropped"]), 0)
    yield at_least("without PFC: packets lost", int(lossy.packets["dropped"]), 1000)
    without, with_pfc = slowdown(lossy), slowdown(pfc)
    yield at_least(
        "mean slowdown: without / with PFC", float(without.mean() / with_pfc.mean()), 1.0
    )
    tail = float(np.quantile(without, 0.99) / np.quantile(with_pfc, 0.99))
    yield at_least("99th percentile: without / with PFC", tail, 1.0)
    failed = int((lossy.flows()["state"] == 3).sum())
    yield equal("connections that end", failed, 0)


ROW = Row(
    number="P10",
    title="RoCE with and without PFC (IRN, SIGCOMM 2018)",
    setup="A fat-tree of k = 6 (54 hosts), 40 Gb/s, 2 µs a link, MTU 1024, 240 KB for each port, "
    "PFC at 220 KB, a window of the 120 KB that fill a round trip, timeout 262 µs; random pairs "
    "at 70 % load, sizes of the web search distribution, no congestion control.",
    expected="RoCE without PFC is slower than with PFC: go-back-N repeats a round trip for a loss.",
    fails="losses cost nothing, or pauses cost more than losses.",
    meaning="RoCE's adapters of then needed PFC; the paper's point is that better ones do not.",
    measure=measure,
    confidence=Confidence.MEMORY,
    missing="IRN itself (selective repeat and a bound on what is in flight), which beats RoCE with "
    "PFC by 6 to 83 %.",
    seconds=600,
)
