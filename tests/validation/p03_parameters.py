# SPDX-License-Identifier: Apache-2.0
"""P3: DCQCN with the paper's parameters."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.sim.fabrics import CheckedWorld, star
from tests.validation.row import Confidence, Figure, Row, Scope, at_least, equal, near
from tests.validation.testbed import jain

MILLISECOND = 10**9
PAPER = {
    "alpha_interval": 55_000_000,
    "raise_interval": 55_000_000,
    "raise_bytes": 10_000_000,
    "gain": 1 / 256,
    "add_rate": 40e6,
    "notice_interval": 50_000_000,
}


def senders(count: int, seed: int, end: int, **parameters: float) -> tuple[float, float, bytes]:
    """Gb/s through one port, fairness of its flows, and all that was counted."""
    congestion = {"kind": "dcqcn", "set": "paper", **parameters}
    world = CheckedWorld(
        seed, framing="bare", mtu=1024, window=1 << 20, timeout=0, congestion=congestion
    )
    link = {"rate": 40 * 10**9, "delay": 1_000_000}
    star(world, count + 1, link, mark=(5_000, 200_000, 0.01))
    world.add_flows(np.arange(1, count + 1), 0, 1 << 40, message=1 << 14, depth=32)
    done = []
    for until in (end // 2, end):
        world.run(until=until * MILLISECOND)
        done.append(world.flows()["done"].astype(float))
    rates = (done[1] - done[0]) * 8 / ((end - end // 2) * 1e6)
    return float(rates.sum()), jain(rates), world.links().tobytes()


def measure(scope: Scope) -> Iterator[Figure]:
    throughput, fairness, counted = senders(50, scope.seed, 200)
    yield near("50 senders: together", throughput, 36.97, 0.08, "Gb/s")
    yield at_least("50 senders: fairness (Jain)", fairness, 0.95)
    given = senders(50, scope.seed, 200, **PAPER)[2]
    yield equal("bytes that differ when the table is given by hand", given != counted, 0)


ROW = Row(
    number="P3",
    title="DCQCN's parameters",
    setup="50 senders into one port of 40 Gb/s without end, Kmin 5 KB, Kmax 200 KB, Pmax 1 %, and "
    "the paper's parameters, by name and by hand: timer 55 µs, byte counter 10 MB, g 1/256, R_AI "
    "40 Mb/s, a notification each 50 µs at most.",
    expected="the set `paper` is that table; a toy model with the same parameters (DCQCN_SIM) had "
    "36.97 Gb/s in the mean and a fairness of 0.998.",
    fails="a parameter of the set is another one, or the rates sink together or part.",
    meaning="With the paper's own parameters a port of 50 flows is nearly full and fair.",
    measure=measure,
    confidence=Confidence.TEXT,
    tested="`tests/native/test_rates.c`, step by step",
    seconds=600,
)
