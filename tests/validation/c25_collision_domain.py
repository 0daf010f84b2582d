# SPDX-License-Identifier: Apache-2.0
"""C25: how long a cable may be for its rate."""

from __future__ import annotations

from collections.abc import Iterator

from tests.validation.row import Confidence, Figure, Row, Scope, around, equal, holds
from verbena.host.clock import Agenda
from verbena.lan import Cable, Csma, LanError
from verbena.lan.medium import PS_PER_M, Outcome

SETS = ((10, 512), (100, 512), (1000, 512), (1000, 4096))  # Mb/s, slot in bits
STEP = 100  # mm


def outcomes(csma: Csma, length_mm: int, bits: int) -> set[Outcome]:
    """Of two frames at the ends of a cable, where the second one begins as the first arrives."""
    way = length_mm * PS_PER_M // 1000
    core = csma.core([0, way], seed=1, log_collisions=True)
    core.offer(0, 0, 0, bits, 0)
    core.offer(1, way, way, bits, 0)
    at = core.next_at
    assert at is not None
    return {Outcome(entry[0]) for entry in core.run(at)}


def longest(csma: Csma, bits: int, without: set[Outcome]) -> float:
    """The longest cable in metres on which none of these becomes of a frame, to the step."""
    low, high = 0, round(4000 * csma.longest_m) // STEP
    while high - low > 1:
        middle = (low + high) // 2
        if without & outcomes(csma, middle * STEP, bits):
            high = middle
        else:
            low = middle
    return low * STEP / 1000


def is_refused(rate: float, length_m: float) -> bool:
    try:
        Cable(Agenda(), length_m, rate_mbps=rate)
    except LanError:
        return True
    return False


def measure(scope: Scope) -> Iterator[Figure]:
    del scope
    for rate, slot in SETS:
        csma, metres = Csma(rate_mbps=rate, slot=slot), 100 / rate  # of a bit, there and back
        got = longest(csma, slot, {Outcome.LATE, Outcome.CROSSED})
        text = f"{rate} Mb/s, slot of {slot}: longest without late collisions"
        yield equal(text, got, round(slot * metres, 1), "m")
        got = longest(csma, slot, {Outcome.CROSSED})
        text = "longest on which each sender notices"
        yield around(text, got, (slot + csma.header) * metres, STEP / 1000, "m")
    for rate, most in ((10, 5120), (100, 512), (1000, 51.2)):
        refuses = is_refused(rate, most + 0.1) and not is_refused(rate, most)
        yield holds(f"{rate} Mb/s: a cable of more than {most} m is refused", refuses)


ROW = Row(
    number="C25",
    title="The size of a collision domain (IEEE 802.3, clause 4)",
    setup="Two stations at the ends of a cable, signals at 2e8 m/s, the shortest frames. The "
    "second station begins in the instant in which the first one's signal arrives. The length is "
    "found by bisection, to 10 cm.",
    expected="there and back in a slot of 512 bits: 5,120, 512 and 51.2 m at 10, 100 and 1,000 "
    "Mb/s, and 409.6 m with the slot of 4,096 bits of half-duplex gigabit. A sender notices "
    "nothing any more when its frame with 64 bits of preamble is over: 64 bits later.",
    fails="the window of collisions does not begin with the preamble, or a signal takes another "
    "time.",
    meaning="Ten times the rate makes the cable ten times shorter. The standard wants the jam of "
    "32 bits within the slot, too, which leaves 4,800 m at 10 Mb/s, and its limits of 2.5 km and "
    "205 m count repeaters and transceivers (manuals of Bay Networks and D-Link have both).",
    measure=measure,
    confidence=Confidence.EXACT,
    quick=True,
)
