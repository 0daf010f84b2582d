# SPDX-License-Identifier: Apache-2.0
"""P4: how DCQCN's rates and queue swing with the number of flows and the delay."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.sim.fabrics import CheckedWorld, star
from tests.validation.row import Confidence, Figure, Row, Scope, at_least, between
from tests.validation.testbed import jain

MICROSECOND, MILLISECOND = 10**6, 10**9
COUNTS = (2, 4, 10, 20, 40, 64)


def swing(flows: int, round_trip: int, seed: int, end: int) -> tuple[float, float]:
    """Of one port's queue the deviation, as a part of its mean; and the flows' fairness (Jain).

    Flows begin one after the other, so that all of them start from another point. The last two
    thirds of the time count; ``round_trip`` in us, ``end`` in ms.
    """
    congestion = {"kind": "dcqcn", "set": "paper"}
    world = CheckedWorld(
        seed, framing="bare", mtu=1024, window=4 << 20, timeout=0, congestion=congestion
    )
    link = {"rate": 40 * 10**9, "delay": round_trip * MICROSECOND // 4}
    center = star(world, flows + 1, link, mark=(5_000, 200_000, 0.01))
    starts = np.arange(flows) * (end * MILLISECOND // 6 // flows)
    world.add_flows(np.arange(1, flows + 1), 0, 1 << 44, starts, message=1 << 16, depth=64)
    samples = world.sample(10 * MICROSECOND, [(center, 0)])
    done = []
    for until in (end // 3, end):
        world.run(until=until * MILLISECOND)
        done.append(world.flows()["done"].astype(float))
    queue = samples.data["bytes"][len(samples) // 3 :, 0].astype(float)
    return float(queue.std() / queue.mean()), jain(done[1] - done[0])


def measure(scope: Scope) -> Iterator[Figure]:
    near, far = (
        {n: swing(n, trip, scope.seed, 150) for n in counts}
        for trip, counts in ((4, (2, 10, 64)), (85, COUNTS))
    )
    deviation = {n: far[n][0] for n in COUNTS}
    worst = max(COUNTS, key=lambda n: deviation[n])
    yield between("85 µs: flows of which the queue swings most", worst, 7, 20)
    yield at_least(
        "85 µs: how much more with 10 flows than with 2", deviation[10] / deviation[2], 1.3
    )
    ratio = deviation[10] / deviation[64]
    yield at_least("85 µs: how much more with 10 flows than with 64", ratio, 1.15)
    yield at_least(
        "10 flows: how much more at 85 µs than at 4 µs", deviation[10] / near[10][0], 1.2
    )
    for trip, results in ((4, near), (85, far)):
        least = min(fairness for _, fairness in results.values())
        yield at_least(f"{trip} µs: fairness (Jain), the least of {len(results)}", least, 0.98)


ROW = Row(
    number="P4",
    title="DCQCN's stability (ECN or Delay, CoNEXT 2016)",
    setup="N flows that begin one after the other through one port of 40 Gb/s, with the paper's "
    "parameters and thresholds, and round trips of 4 and 85 µs; the standard deviation of the "
    "port's queue, as a part of its mean, over 100 ms.",
    expected="the stability is not monotonic in N: at 85 µs it is worst at about 10 flows and "
    "better with fewer and with more; at 4 µs it is better than at 85. The fixed point is the "
    "fair one, from wherever the flows come.",
    fails="marks, notifications or cuts are late or too many, or the rates have several ends.",
    meaning="What is stable with few flows and with many need not be so in between.",
    measure=measure,
    confidence=Confidence.MEMORY,
    missing="the phase margins of the fluid model, which are curves.",
)
