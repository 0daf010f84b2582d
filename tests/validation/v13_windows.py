# SPDX-License-Identifier: Apache-2.0
"""V13: one message, a window, or so many READs for each round trip."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.sim.fabrics import MIB, CheckedWorld, finish
from tests.validation.row import Figure, Row, Scope, near

ACK = 64 * 80
TABLE = {2: 72.4, 10: 34.4, 100: 4.98}  # µs: Gb/s


def rate(round_trip: int, size: int, flow: dict[str, Any], **world: Any) -> float:
    """Gb/s between two hosts on a cable of that round trip, in µs, with the acknowledgement."""
    made = CheckedWorld(framing="bare", timeout=0, **world)
    delay = (round_trip * 10**6 - ACK) // 2
    made.connect(made.add_host(), 0, made.add_host(), 0, rate=10**11, delay=delay)
    made.add_flows(0, 1, size, **flow)
    finish(made)
    return size * 8000 / int(made.flows()["finish"][0])


def measure(scope: Scope) -> Iterator[Figure]:
    one = {"message": 65_536, "depth": 1}
    for micros, gbps in TABLE.items():
        got = rate(micros, 64 * 65_536, one)
        law = 65_536 * 8 / (65_536 * 8 / 100 + micros * 1000)
        yield near(f"64 KiB at a time, {micros} µs", got, law, 1e-5, "Gb/s")
        yield near(f"64 KiB at a time, {micros} µs, of the table", got, gbps, 0.002, "Gb/s")
    got = rate(100, 16 * MIB, {}, window=64 * 4096)
    yield near("a window of 64 packets, 100 µs", got, 64 * 4096 * 8 / 100_328, 0.01, "Gb/s")
    reads = {"message": 4096, "depth": 32, "read": True}
    got = rate(100, 1024 * 4096, reads, rd_atomic=16)
    yield near("16 READs of 4096 B, 100 µs", got, 16 * 4096 * 8 / 100_328, 0.02, "Gb/s")


ROW = Row(
    number="V13",
    title="What a round trip allows",
    setup="Two hosts on one cable of 100 Gb/s: messages of 64 KiB one at a time, a window of 64 "
    "packets, 16 READs outstanding.",
    expected="S/(S/C + RTT), which is 72.4, 34.4 and 4.98 Gb/s at 2, 10 and 100 µs; W · MTU/RTT; "
    "max_rd_atomic · S/RTT.",
    fails="a request waits for more than its acknowledgement, or a limit is off by one.",
    meaning="Far away it is not the line that limits, but what may be outstanding.",
    measure=measure,
    tested="`tests/sim/test_laws.py`",
)
