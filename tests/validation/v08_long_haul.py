# SPDX-License-Identifier: Apache-2.0
"""V8: the buffer of a long-haul link."""

from __future__ import annotations

from collections.abc import Iterator

from tests.sim.fabrics import CheckedWorld, finish
from tests.validation.pausing import headroom
from tests.validation.row import Figure, Row, Scope, at_least, equal, near

PS_PER_KM = 5_000_000
TABLE = {(10, 100): 1.25, (10, 400): 5.0, (80, 100): 10.0, (80, 400): 40.0}  # km, Gb/s: MB


def goodput(km: int, gbps: int, window: int) -> float:
    """Of the line, between two hosts on such a link."""
    world = CheckedWorld(framing="bare", window=window, timeout=0)
    rate, delay = gbps * 10**9, km * PS_PER_KM
    world.connect(world.add_host(), 0, world.add_host(), 0, rate=rate, delay=delay)
    size = 40 * window
    world.add_flows(0, 1, size)
    finish(world)
    return size * 8e12 / rate / (int(world.flows()["finish"][0]) - 2 * delay)


def measure(scope: Scope) -> Iterator[Figure]:
    for (km, gbps), megabytes in TABLE.items():
        if scope.quick and km * gbps > 4000:
            continue
        rate, delay = gbps * 10**9, km * PS_PER_KM
        where, need = f"{km} km, {gbps} Gb/s", int(megabytes * 1e6)
        enough = headroom(rate, delay, need + 3 * 4096)
        yield near(f"{where}: comes after a pause", enough.need / 1e6, megabytes, 0.012, "MB")
        yield equal(f"{where}: lost with so much buffer", enough.lost, 0)
        yield at_least(
            f"{where}: lost with 3 % less", headroom(rate, delay, need * 97 // 100).lost, 1
        )
    window = int(TABLE[10, 100] * 1e6)
    yield near("10 km, 100 Gb/s: a window of so much", goodput(10, 100, window + 8192), 1.0, 0.02)
    yield near("10 km, 100 Gb/s: of half as much", goodput(10, 100, window // 2), 0.5, 0.02)


ROW = Row(
    number="V8",
    title="The buffer of a long-haul link",
    setup="A sender 10 or 80 km away (5 µs a km) is paused while it sends at full rate; and one "
    "connection over 10 km with windows of the same size and of half of it.",
    expected="2 · 5 µs/km · km · C bytes are on their way: 1.25 and 5 MB at 10 km, 10 and 40 MB at "
    "80 km, for 100 and 400 Gb/s.",
    fails="a pause takes effect too early or too late, or a link holds more than its length.",
    meaning="What a range extender must hold, and what a connection must have outstanding, is the "
    "link's round trip.",
    measure=measure,
    quick=True,
    missing="ORNL's 7.43 Gb/s over 8,600 miles: there is no range extender for InfiniBand's "
    "credits here (V7 shows what they do without one).",
)
