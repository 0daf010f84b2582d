# SPDX-License-Identifier: Apache-2.0
"""P1: PFC shares by port, and not by flow."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.validation.row import Confidence, Figure, Row, Scope, at_least, between, near
from tests.validation.testbed import Testbed, jain

RACKS = (0, 1, 2, 3, 3)  # H1, H2, H3; H4 and R
TO_R = tuple((host, 4) for host in range(4))


def measure(scope: Scope) -> Iterator[Figure]:
    seeds = range(scope.seed, scope.seed + 12)
    only_pfc = np.array([Testbed(RACKS, seed).rates(TO_R, 2, 12) for seed in seeds])
    near_one, far = only_pfc[:, 3], only_pfc[:, :3]
    yield near("PFC: all together", float(only_pfc.sum(axis=1).mean()), 40.0, 0.03, "Gb/s")
    yield between("PFC: H4, median", float(np.median(near_one)), 10.5, 20.5, "Gb/s")
    yield at_least("PFC: H4, at most", float(near_one.max()), 16.0, "Gb/s")
    yield between("PFC: H1 to H3, median", float(np.median(far)), 5.0, 10.0, "Gb/s")
    dcqcn = Testbed(RACKS, scope.seed, {"kind": "dcqcn"}).rates(TO_R, 100, 200)
    for host, rate in enumerate(dcqcn):
        yield near(f"DCQCN: H{host + 1}", float(rate), 10.0, 0.25, "Gb/s")
    yield at_least("DCQCN: fairness (Jain)", jain(dcqcn), 0.97)


ROW = Row(
    number="P1",
    title="Unfairness of PFC (DCQCN, SIGCOMM 2015, figure 3)",
    setup="Three tiers at 40 Gb/s. H1, H2 and H3 in other racks and H4 in the receiver's own "
    "rack send to it without end. Twelve choices of ways with PFC alone (24.47 KB for each "
    "input); then DCQCN with dynamic thresholds (V11).",
    expected="PFC alone: the receiver's switch pauses ports, and H4 has one for itself: more than "
    "10 Gb/s, up to 20, and 5 to 10 for each of the others. With DCQCN 10 Gb/s each.",
    fails="pauses do not act by input port, or DCQCN's rates do not converge.",
    meaning="Who shares a port suffers for it, until senders are told one by one.",
    measure=measure,
    confidence=Confidence.MEMORY,
    missing="the paper's bars for minimum, median and maximum of its testbed.",
    seconds=600,
)
