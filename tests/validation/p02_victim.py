# SPDX-License-Identifier: Apache-2.0
"""P2: PFC's victim flow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.validation.row import Confidence, Figure, Row, Scope, at_least, at_most, between
from tests.validation.testbed import Testbed

# H11 to H14 and VS; VR; two senders; R.
RACKS = (0, 0, 0, 0, 0, 1, 2, 2, 3)
VICTIM, RECEIVER = (4, 5), 8


def victim(
    more: int, seed: int, congestion: dict[str, Any] | None = None, span: tuple[int, int] = (2, 12)
) -> float:
    """Gb/s of VS to VR, with so many senders in rack 3 besides."""
    pairs = [(host, RECEIVER) for host in (0, 1, 2, 3, 6, 7)[: 4 + more]]
    return float(Testbed(RACKS, seed, congestion).rates([VICTIM, *pairs], *span)[0])


def measure(scope: Scope) -> Iterator[Figure]:
    seeds = range(scope.seed, scope.seed + 15)
    median = [float(np.median([victim(more, seed) for seed in seeds])) for more in (0, 1, 2)]
    for more, got in enumerate(median):
        yield at_most(f"PFC, {more} senders in rack 3: VS, median", got, 16.0, "Gb/s")
    yield between("PFC: median with 2 senders / with none", median[2] / median[0], 0.2, 0.95)
    dcqcn = [
        float(np.median([victim(more, seed, {"kind": "dcqcn"}, (60, 100)) for seed in seeds[:5]]))
        for more in (0, 2)
    ]
    for more, got in zip((0, 2), dcqcn, strict=True):
        yield at_least(f"DCQCN, {more} senders in rack 3: VS, median", got, 18.0, "Gb/s")
    yield at_least("DCQCN: with 2 senders / with none", dcqcn[1] / dcqcn[0], 0.85)


ROW = Row(
    number="P2",
    title="PFC's victim flow (DCQCN, SIGCOMM 2015, figure 4)",
    setup="H11 to H14 in rack 1, and 0, 1 or 2 hosts of rack 3, send to R in rack 4; VS in rack "
    "1 sends to VR in rack 2, over no link that is short. Fifteen choices of ways with PFC "
    "alone, then five with DCQCN and dynamic thresholds.",
    expected="VS could have 20 Gb/s; with PFC alone its median is about 10, and falls (to about "
    "4.5) with the senders in rack 3, whose way it shares nothing with; with DCQCN it is not "
    "affected.",
    fails="pauses do not spread from port to port, or DCQCN does not keep them away.",
    meaning="A congestion that a flow has no part in takes its bandwidth away, hop by hop.",
    measure=measure,
    confidence=Confidence.MEMORY,
    seconds=600,
)
