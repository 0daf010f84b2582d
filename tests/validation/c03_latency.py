# SPDX-License-Identifier: Apache-2.0
"""C3: how long it takes until a request's payload is in the adapter, by the way it was posted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.sim.inside_pair import FREE, pair
from tests.validation.row import Figure, Row, Scope, near
from verbena.host.pcie import Pcie

WAYS: tuple[tuple[str, dict[str, Any], float, int], ...] = (
    # way, hca, round trips until the payload is there, bytes of transactions before that
    ("BlueFlame and inline", {"inline": 64}, 0.5, 2 * 88),
    ("BlueFlame", {}, 1.5, 88 + 24 + 84),
    ("doorbell", {"blueflame": False}, 2.5, 32 + 24 + 84 + 24 + 84),
)


def left_at(hca: dict[str, Any], trip: int) -> float:
    """When the only packet leaves, in ns: the start of its slice on the wire."""
    world = pair(cpu=FREE, pcie={"round_trip": trip * 1000}, hca=hca, slices=100)
    world.add_flows(0, 1, 64)
    world.run()
    slices = world.insides[0].slices()
    return float(slices[slices["row"] == 255]["at"][0]) / 1000


def measure(scope: Scope) -> Iterator[Figure]:
    nanoseconds = 8 / Pcie().usable_gbps
    for trip in (900, 400):
        for way, hca, trips, size in WAYS:
            expected = trips * trip
            measured = left_at(hca, trip) - size * nanoseconds
            yield near(f"{way}, round trip {trip} ns", measured, expected, 0.001, "ns")


ROW = Row(
    number="C3",
    title="Half a round trip, or five",
    setup="a WRITE of 64 B on an idle host, link of generation 3 with 8 lanes; the time until the "
    "packet leaves, without the bytes of the transactions.",
    expected="BlueFlame with inline data 1/2, BlueFlame 3/2, doorbell 5/2 of the PCIe round trip: "
    "450, 1350 and 2250 ns at 900 ns; 200, 600 and 1000 at 400 ns.",
    fails="the adapter reads something twice, or what it has already.",
    meaning="What the way of posting costs before the first bit is on the wire.",
    measure=measure,
    quick=True,
)
