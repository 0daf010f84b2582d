# SPDX-License-Identifier: Apache-2.0
"""V16: lanes and classes share by weight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tests.sim.fabrics import MIB, MICROSECOND, CheckedWorld, credits, star
from tests.validation.row import Figure, Row, Scope, around

PAUSES = {"flow": "pauses", "stop": 128 << 10, "go": 64 << 10, "spare": 64 << 10}


def shares(levels: Sequence[int], **switch: Any) -> np.ndarray:
    """Of senders that always have something to send, on those lanes, into one port."""
    world = CheckedWorld(framing="bare")
    center = star(world, len(levels) + 1, **switch)
    world.add_flows(np.arange(len(levels)), len(levels), 256 * MIB, level=levels)
    sent = []
    for until in (500, 5500):
        world.run(until=until * MICROSECOND)
        links = world.links()
        ends = links[links["node"] != center]
        sent.append(ends["bytes"][np.argsort(ends["node"])][: len(levels)].astype(float))
    got: np.ndarray = sent[1] - sent[0]
    return got / got.sum()


def measure(scope: Scope) -> Iterator[Figure]:
    two = credits(64 << 10, lanes=2)
    cases: list[tuple[str, dict[str, Any], tuple[float, ...]]] = [
        ("VL weights 64 : 192", {**two, "low": [(0, 64), (1, 192)]}, (0.25, 0.75)),
        ("VL weights 16 : 240", {**two, "low": [(0, 16), (1, 240)]}, (0.2, 0.8)),
        (
            "high limit 255",
            {**two, "high": [(1, 64)], "low": [(0, 64)], "high_limit": 255},
            (0.0, 1.0),
        ),
        (
            "high limit 3 (12 KiB before each low packet)",
            {**two, "high": [(1, 64)], "low": [(0, 64)], "high_limit": 3},
            (0.25, 0.75),
        ),
        (
            "ETS 10 : 30 : 60",
            {"lanes": [PAUSES] * 3, "low": [(0, 10), (1, 30), (2, 60)], "remembers": True},
            (0.1, 0.3, 0.6),
        ),
    ]
    for name, switch, expected in cases:
        found = shares(range(len(expected)), **switch)
        for lane, (got, law) in enumerate(zip(found, expected, strict=True)):
            yield around(f"{name}: lane {lane}", float(got), law, 0.01)


ROW = Row(
    number="V16",
    title="Lanes share by weight",
    setup="Senders on lanes of their own, with 4096-byte packets and always something to send, "
    "into one port.",
    expected="shares as the weights (IBA 7.6.9; IEEE 802.1Qaz). A weight counts 64 bytes and is "
    "rounded up to whole packets: 16 is one packet, 240 four. With the high limit 255 the high "
    "table has everything, with 3 it has 3 packets for each of the low one.",
    fails="a weight is taken in other units, or what a packet exceeded its weight by is forgotten "
    "under ETS.",
    meaning="Arbitration is InfiniBand's tables, and ETS is one of them that remembers.",
    measure=measure,
    tested="`tests/sim/test_laws.py`, `tests/native/test_arbiter.c`",
)
