# SPDX-License-Identifier: Apache-2.0
"""V12: what a loss costs."""

from __future__ import annotations

from collections.abc import Iterator

from tests.sim.fabrics import MIB, CheckedWorld, finish
from tests.validation.row import Figure, Row, Scope, around

TABLE = {
    (1e-3, 8): 0.992,
    (1e-3, 64): 0.940,
    (1e-3, 256): 0.796,
    (1e-2, 8): 0.925,
    (1e-2, 64): 0.607,
    (1e-2, 256): 0.279,
}
PACKET, SER = 4096, 4096 * 80


def goodput(loss: float, window: int, size: int, seed: int) -> float:
    """Of the line, where so many packets go to a round trip and each may be lost."""
    per_bit = 1 - (1 - loss) ** (1 / (8 * PACKET))
    # A packet that is lost once more costs a timeout: the shortest that is more than a round trip.
    timeout = 3 if window < 100 else 5
    world = CheckedWorld(seed=seed, framing="bare", window=64 * MIB, timeout=timeout)
    link = {"rate": 10**11, "delay": (window - 1) * SER // 2, "bit_error_rate": per_bit}
    world.connect(world.add_host(), 0, world.add_host(), 0, **link)
    world.add_flows(0, 1, size)
    finish(world)
    return size * 80 / int(world.flows()["finish"][0])


def measure(scope: Scope) -> Iterator[Figure]:
    for (loss, window), law in TABLE.items():
        share = goodput(loss, window, 1 << 30, scope.seed)
        # Less than half of what a loss costs: without it the line would be as good as full.
        off = round(min(0.08 * law, 0.5 * (1 - law)), 4)
        yield around(f"p = {loss:g}, w = {window}", share, law, off, "of the line")


ROW = Row(
    number="V12",
    title="What a loss costs with go-back-N",
    setup="1 GiB over a link on which each packet is lost with the probability p and of which w "
    "packets fill a round trip.",
    expected="a goodput of (1 − p)/(1 + (w − 1) p).",
    fails="more or less than a round trip is sent again for a loss, or a loss waits for a timer.",
    meaning="Each loss costs a round trip of packets. A packet that is lost again before the peer "
    "has seen its place costs a timeout besides, which the formula does not know: at p = 0.01 and "
    "many packets it is what is missing.",
    measure=measure,
    tested="`tests/sim/test_laws.py`; `docs/goodput.md` has the engine's own table",
    missing="selective repeat: adapters here go back, as RC does.",
)
