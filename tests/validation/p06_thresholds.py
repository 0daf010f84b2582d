# SPDX-License-Identifier: Apache-2.0
"""P6: the thresholds of DCQCN in production, between lower and higher ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.validation.hpcc_fabric import (
    DCQCN,
    HOSTS,
    LANE,
    MARK,
    MILLISECOND,
    host_queues,
    run,
    slowdowns,
)
from tests.validation.row import Confidence, Figure, Row, Scope, at_least, equal
from verbena import fabrics

RATE_IN_25G = 4
SMALL, LARGE = 30_000, 1_000_000


def measure(scope: Scope) -> Iterator[Figure]:
    yield equal("Kmin at 100 Gb/s", MARK[0], 100_000 * RATE_IN_25G, "B")
    yield equal("Kmax at 100 Gb/s", MARK[1], 400_000 * RATE_IN_25G, "B")
    work = fabrics.poisson(
        HOSTS, 0.5, "websearch", link="100GbE", duration_ps=MILLISECOND // 2, seed=scope.seed
    )
    size = work.flows["bytes"]
    small, large, queue = {}, {}, {}
    for name, part in (("low", 0.12), ("production", 1.0), ("high", 4.0)):
        mark = (int(part * MARK[0]), int(part * MARK[1]), MARK[2])
        world = run(DCQCN, work, scope.seed, lane={**LANE, "mark": mark})
        slow = slowdowns(world, len(size))
        small[name] = float(np.quantile(slow[size <= SMALL], 0.99))
        large[name] = float(np.median(slow[size >= LARGE]))
        queue[name] = float(host_queues(world).mean())
    for less, more in (("low", "production"), ("production", "high")):
        yield at_least(f"queues: {more}, to {less}", queue[more] / queue[less], 1.2)
        ratio = small[more] / small[less]
        yield at_least(f"flows up to 30 KB, 99th percentile: {more}, to {less}", ratio, 1.2)
    ratio = large["low"] / large["high"]
    yield at_least("flows from 1 MB on, median: low, to high", ratio, 1.03)


ROW = Row(
    number="P6",
    title="DCQCN's thresholds in production (HPCC, SIGCOMM 2019, and its authors)",
    setup="The fabric of P5, WebSearch at 50 %, DCQCN, PFC; marks by Kmin = 100 KB and Kmax = "
    "400 KB for each 25 Gb/s, Pmax = 20 %; by 0.12 of these, and by four times as much.",
    expected="these are what its authors say that they used. Lower thresholds are better for "
    "short flows, whose packets wait behind others, and worse for long ones, which are cut more "
    "often; the ordering is from memory of the publication.",
    fails="packets are marked at another queue than that, or marks do not shorten it.",
    meaning="One pair of thresholds cannot be good for short and long flows. A switch has one pair "
    "for all of its ports here: that of 100 Gb/s, the rate of the ports at which queues are.",
    measure=measure,
    confidence=Confidence.TEXT,
    seconds=600,
)
