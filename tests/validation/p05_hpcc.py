# SPDX-License-Identifier: Apache-2.0
"""P5: HPCC beside DCQCN on 320 servers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.validation.hpcc_fabric import (
    DCQCN,
    HOSTS,
    HPCC,
    MILLISECOND,
    host_queues,
    run,
    slowdowns,
)
from tests.validation.row import Confidence, Figure, Row, Scope, at_least, between, equal
from verbena import fabrics

FAN_IN = 60
NAMES = {"websearch": "WebSearch", "fb_hadoop": "FB_Hadoop"}


def compare(sizes: str, load: float, incast: int, seed: int) -> Iterator[Figure]:
    work = fabrics.poisson(
        HOSTS, load, sizes, link="100GbE", duration_ps=MILLISECOND // 2, seed=seed
    )
    count = len(work.flows)
    hpcc, dcqcn = (run(kind, work, seed, incast) for kind in (HPCC, DCQCN))
    name = f"{NAMES[sizes]}, {load * 100:g} %{', incast' if incast else ''}"
    yield equal(f"{name}: flows that do not end", hpcc.flows_left + dcqcn.flows_left, 0)
    ours, theirs = slowdowns(hpcc, count), slowdowns(dcqcn, count)
    for part in (0.95, 0.99):
        ratio = float(np.quantile(ours, part) / np.quantile(theirs, part))
        yield between(f"{name}: {part * 100:g}th percentile, to DCQCN's", ratio, 0.0, 0.85)
    ratio = float(host_queues(dcqcn).mean() / host_queues(hpcc).mean())
    yield at_least(f"{name}: DCQCN's longest queues before hosts, to HPCC's", ratio, 1.5)


def measure(scope: Scope) -> Iterator[Figure]:
    for sizes in NAMES:
        for load, incast in ((0.3, FAN_IN), (0.5, 0)):
            yield from compare(sizes, load, incast, scope.seed)


ROW = Row(
    number="P5",
    title="HPCC beside DCQCN on 320 servers (HPCC, SIGCOMM 2019)",
    setup="The paper's fat-tree: 320 servers at 100 Gb/s in 20 racks, 20 aggregation switches and "
    "16 cores at 400 Gb/s, 1 µs a link, PFC with dynamic thresholds in 32 MB; half a millisecond "
    "of WebSearch or FB_Hadoop flows at 50 % of the hosts' rate, or at 30 % with 60 hosts that "
    "send 500 KB each to one. HPCC with η = 0.95, maxStage = 5, W_AI = 80 bytes and T = 13 µs; "
    "DCQCN with the paper's parameters and the thresholds of P6. Of each flow: the time that it "
    "took, to a round trip and its bytes alone.",
    expected="flows end sooner with HPCC (up to 95 % sooner at the tail), and its queues are "
    "shorter. Others could not repeat the paper's curves for DCQCN, so orderings are compared.",
    fails="the window does not follow the busiest link, or telemetry is that of another packet.",
    meaning="Who knows what each link carries needs no queue to find out.",
    measure=measure,
    confidence=Confidence.TEXT,
    tested="`tests/sim/test_hpcc.py`",
    missing="the curves, by size of flow; and hosts with two links, as some of the paper's have.",
    seconds=600,
)
