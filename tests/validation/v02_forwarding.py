# SPDX-License-Identifier: Apache-2.0
"""V2: store-and-forward and cut-through."""

from __future__ import annotations

from collections.abc import Iterator

from tests.sim.fabrics import CheckedWorld, chain, finish
from tests.validation.row import Figure, Row, Scope, around


def latency(header: int) -> float:
    """ns from the first bit sent to the last bit received, over six links."""
    world = CheckedWorld(framing="bare")
    chain(world, [1, 0, 0, 0, 1], cut_through=header)
    world.add_flows(0, 1, 4096)
    finish(world)
    back = 6 * (1_000_000 + 64 * 80)
    return (int(world.flows()["finish"][0]) - back) / 1000


def measure(scope: Scope) -> Iterator[Figure]:
    yield around("store and forward", latency(0), 7966.1, 0.05, "ns")
    yield around("cut-through, 64 bytes", latency(64), 6353.3, 0.05, "ns")


ROW = Row(
    number="V2",
    title="Store-and-forward and cut-through",
    setup="One packet of 4096 bytes over six links of 100 Gb/s and 1 µs, through five switches.",
    expected="h (L/C + D), and L/C + h D + (h − 1) · header/C.",
    fails="a switch waits for more or less of a packet than it says.",
    meaning="Each switch adds a packet's time, or a header's, and nothing else.",
    measure=measure,
    tested="`tests/sim/test_laws.py`",
)
