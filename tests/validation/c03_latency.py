# SPDX-License-Identifier: Apache-2.0
"""C3: how long it takes until a request's payload is in the adapter, by the way it was posted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.sim.fabrics import GIGABIT
from tests.sim.inside_pair import FREE, pair
from tests.validation.row import Figure, Row, Scope, between, near
from verbena.host.pcie import Pcie

WAYS: tuple[tuple[str, dict[str, Any], float, int], ...] = (
    # way, hca, round trips until the payload is there, bytes of transactions before that
    ("BlueFlame and inline", {"inline": 64}, 0.5, 2 * 88),
    ("BlueFlame", {}, 1.5, 88 + 24 + 84),
    ("doorbell", {"blueflame": False}, 2.5, 32 + 24 + 84 + 24 + 84),
)


def left_at(hca: dict[str, Any], trip: int, *, ddio: bool = True) -> float:
    """When the only packet leaves, in ns: the start of its slice on the wire."""
    link = {"round_trip": trip * 1000}
    world = pair(cpu=FREE, pcie=link, hca=hca, cache={"ddio": ddio}, slices=100)
    world.add_flows(0, 1, 64)
    world.run()
    slices = world.insides[0].slices()
    return float(slices[slices["row"] == 255]["at"][0]) / 1000


def loop(trip: int) -> float:
    """From a store of 128 B in lines to the payload in memory behind a wire of 1 m, in ns."""
    link = {"round_trip": trip * 1000}
    world = pair(10 * GIGABIT, 5000, cpu=FREE, pcie=link, hca={"inline": 128}, slices=100)
    world.add_flows(0, 1, 128)
    world.run()
    slices = world.insides[1].slices()
    return float(slices[slices["row"] == 252]["end"][0]) / 1000 + trip / 2


def measure(scope: Scope) -> Iterator[Figure]:
    nanoseconds = 8 / Pcie().usable_gbps
    for trip in (900, 400):
        for way, hca, trips, size in WAYS:
            expected = trips * trip
            measured = left_at(hca, trip) - size * nanoseconds
            yield near(f"{way}, round trip {trip} ns", measured, expected, 0.001, "ns")
    for (way, hca, *_), reads in zip(WAYS, (0, 1, 2), strict=True):
        later = left_at(hca, 900, ddio=False) - left_at(hca, 900)
        yield near(f"{way}, without DDIO: so much later", later, 70 * reads, 1e-6, "ns")
    share = (loop(900) - loop(0)) / loop(900)
    yield between("the round trip's share of 128 B from a store to memory", share, 0.77, 0.90)


ROW = Row(
    number="C3",
    title="Half a round trip, or five",
    setup="a WRITE of 64 B on an idle host, link of generation 3 with 8 lanes; the time until the "
    "packet leaves, without the bytes of the transactions. Then a WRITE of 128 B by lines of "
    "stores, over 1 m of Ethernet of 10 Gb/s, until it is in the other host's memory.",
    expected="BlueFlame with inline data 1/2, BlueFlame 3/2, doorbell 5/2 of the PCIe round trip: "
    "450, 1350 and 2250 ns at 900 ns; 200, 600 and 1000 at 400 ns. Each read of memory that is "
    "not answered from the cache takes 70 ns longer, the default of `cache.beyond`: the authors' "
    "measurements (github.com/pcie-bench/data) have 54 to 75 ns. The link has 77 to 90 % of the "
    "time of a packet, as of the ExaNIC in pcie-bench by a reader's notes "
    "(github.com/Icarus603/network-from-scratch).",
    fails="the adapter reads something twice, or what it has already.",
    meaning="What the way of posting costs before the first bit is on the wire.",
    measure=measure,
    quick=True,
    tested="`tests/sim/test_inside.py`",
    missing="a round trip itself: it is a parameter, since published ones differ by a factor of "
    "ten. 900 of 1000 ns are of an ExaNIC (pcie-bench, by a reader's notes), a DMA read of 64 B "
    "took 546 ns on a NFP-6000 at a Haswell (the authors' measurements), a load from a 10 Gb/s "
    "adapter 5.5 µs on a Xeon E5 (a forum). Nor what the other socket adds, 105 to 112 ns in these "
    "measurements: simulated hosts have one socket.",
)
