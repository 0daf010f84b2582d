# SPDX-License-Identifier: Apache-2.0
"""C21: the efficiency of the first Ethernet, by the formula of its publication."""

from __future__ import annotations

from collections.abc import Iterator

from tests.validation.row import Confidence, Figure, Row, Scope, at_most, near
from tests.validation.shared_medium import saturated
from verbena.lan import Csma

SLOT = 48  # bits: 16 us at 3 Mb/s
STATIONS = (1, 2, 5, 10, 64, 256)
PACKETS = (4096, 1024, 512, 48)  # bits

# Table I of the publication: by P, for the numbers of STATIONS.
TABLE = {
    4096: (1.0000, 0.9884, 0.9834, 0.9818, 0.9805, 0.9803),
    1024: (1.0000, 0.9552, 0.9367, 0.9310, 0.9263, 0.9257),
    512: (1.0000, 0.9143, 0.8810, 0.8709, 0.8627, 0.8616),
    48: (1.0000, 0.5000, 0.4096, 0.3874, 0.3708, 0.3686),
}

# Without preamble and gap, and a collision costs a slot.
CSMA = Csma(rate_mbps=3, slot=SLOT, gap=0, header=0, jam=SLOT, fragment=SLOT)


def efficiency(stations: int, bits: int) -> float:
    """E = (P/C) / (P/C + W T) with W = (1 - A) / A and A = (1 - 1/Q)^(Q - 1)."""
    acquisition = (1 - 1 / stations) ** (stations - 1)
    return bits / (bits + (1 - acquisition) / acquisition * SLOT)


def farthest() -> float:
    """How far the formula is from the table at most."""
    return max(
        abs(efficiency(stations, bits) - printed)
        for bits, row in TABLE.items()
        for stations, printed in zip(STATIONS, row, strict=True)
    )


def measure(scope: Scope) -> Iterator[Figure]:
    yield at_most("the formula's farthest value from the printed table", farthest(), 0.00005)
    for bits in PACKETS:
        for stations in scope.pick(STATIONS[:4], STATIONS):
            frames = scope.pick(20_000, 1_000_000 if stations <= 10 else 100_000)
            got = saturated(CSMA, stations, bits, frames, scope.seed, ideal=True)
            text = f"{stations} stations, {bits} bits"
            yield near(text, got.share, efficiency(stations, bits), scope.pick(0.02, 0.006))


ROW = Row(
    number="C21",
    title="Efficiency of a saturated Ethernet (Metcalfe and Boggs, CACM 1976)",
    setup="The analysis's own assumptions: 3 Mb/s, a slot of 16 us, no preamble and no gap; of Q "
    "stations that always have a packet each begins in a slot with probability 1/Q, and a "
    "collision costs that slot.",
    expected="E = (P/C) / (P/C + W T), W = (1 - A) / A, A = (1 - 1/Q)^(Q - 1): the formula of the "
    "publication, whose table I has the same values to its four digits.",
    fails="a slot of contention takes another time, or stations do not begin with probability 1/Q.",
    meaning="Packets of 512 bytes leave 2 % of the cable for contention however many stations "
    "there are; packets as short as a slot leave only 1/e of it for data.",
    measure=measure,
    confidence=Confidence.EXACT,
    quick=True,
)
