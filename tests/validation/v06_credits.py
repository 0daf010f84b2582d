# SPDX-License-Identifier: Apache-2.0
"""V6: credits bound the rate."""

from __future__ import annotations

from collections.abc import Iterator

from tests.sim.fabrics import MIB, CheckedWorld, credits, finish, star
from tests.validation.row import Confidence, Figure, Row, Scope, near

TABLE = {1: 12.338, 2: 24.67, 3: 36.98, 4: 49.31, 6: 73.88, 8: 98.41, 9: 99.68, 12: 99.68}


def rate(packets: int) -> float:
    world = CheckedWorld(framing="bare")
    star(world, 2, **credits(packets * 4096))
    world.add_flows(0, 1, 16 * MIB)
    finish(world)
    return 16 * MIB * 8000 / int(world.flows()["finish"][0])


def measure(scope: Scope) -> Iterator[Figure]:
    for packets, known in TABLE.items():
        yield near(f"{packets} packets of buffer", rate(packets), known, 0.004, "Gb/s")


ROW = Row(
    number="V6",
    title="Credits bound the rate",
    setup="16 MiB from a host over a switch to a host, 100 Gb/s, 1 µs a link, with room for n "
    "packets of 4096 bytes at the switch's input.",
    expected="min(C, n · packet / (2 packet times + 2 D)); the figures are those of a bare event "
    "loop without a protocol.",
    fails="a credit is lost, is back too early, or is rounded wrongly to blocks of 64 bytes.",
    meaning="Buffer is rate: each packet of it is worth 12.3 Gb/s at this distance.",
    measure=measure,
    confidence=Confidence.PROGRAM,
    tested="`tests/sim/test_laws.py`",
)
