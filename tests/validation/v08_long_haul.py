# SPDX-License-Identifier: Apache-2.0
"""V8: the buffer of a long-haul link."""

from __future__ import annotations

from collections.abc import Iterator

from tests.sim.fabrics import CheckedWorld, credits, finish
from tests.validation.pausing import headroom
from tests.validation.row import Figure, Row, Scope, at_least, equal, near

PS_PER_KM = 5_000_000
ORNL_PS = 13_840 * PS_PER_KM  # 8,600 miles
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


def extended(ps: int, gbps: int, buffer: int, megabytes: int) -> float:
    """Of the line, between two switches with a pair of range extenders of that buffer."""
    world = CheckedWorld(framing="bare", window=1 << 30, timeout=0)
    rate = gbps * 10**9
    ends = [world.add_switch(2, **credits(128 << 10)) for _ in range(2)]
    for end in ends:
        world.connect(world.add_host(), 0, end, 0, rate=rate, delay=0)
    world.connect(ends[0], 1, ends[1], 1, rate=rate, delay=ps, extender=buffer)
    for end, row in zip(ends, ([0, 1], [1, 0]), strict=True):
        world.set_routes(end, row)
    size = megabytes * 10**6
    world.add_flows(0, 1, size)
    finish(world)
    return size * 8e12 / rate / (int(world.flows()["finish"][0]) - 2 * ps)


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
    for (km, gbps), megabytes in TABLE.items():
        if scope.quick and km * gbps > 4000:
            continue
        where, need, delay = f"{km} km, {gbps} Gb/s", int(megabytes * 1e6), km * PS_PER_KM
        size = int(16 * megabytes)
        for what, buffer, part in (("so much", need + 4 * 4096, 1.0), ("half", need // 2, 0.5)):
            got = extended(delay, gbps, buffer, size)
            yield near(f"{where}: extenders with {what}", got, part, 0.04, "of the line")
    if not scope.quick:
        got = 8 * extended(ORNL_PS, 8, 140_000_000, 1000)
        yield at_least("8,600 miles of 4xSDR, extenders with 140 MB", got, 7.43, "Gb/s")


ROW = Row(
    number="V8",
    title="The buffer of a long-haul link",
    setup="A sender 10 or 80 km away (5 µs a km) is paused while it sends at full rate; and one "
    "connection over 10 km with windows of the same size and of half of it. Then pairs of range "
    "extenders for InfiniBand's credits, with so much buffer and half of it.",
    expected="2 · 5 µs/km · km · C bytes are on their way: 1.25 and 5 MB at 10 km, 10 and 40 MB "
    "at 80 km, for 100 and 400 Gb/s. ORNL's extenders carried 7.43 of 8 Gb/s over 8,600 miles.",
    fails="a pause takes effect too early or too late, or a link holds more than its length.",
    meaning="What a range extender must hold, and what a connection must have outstanding, is the "
    "link's round trip.",
    measure=measure,
    quick=True,
    tested="`tests/sim/test_extender.py`",
)
