# SPDX-License-Identifier: Apache-2.0
"""C22: a saturated Ethernet with the backoff of IEEE 802.3."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from tests.validation.c21_metcalfe_boggs import efficiency
from tests.validation.row import Confidence, Figure, Row, Scope, around, holds, near
from tests.validation.shared_medium import NEVER, by_the_rules, saturated
from tests.validation.two_stations import exactly
from verbena.lan import Csma
from verbena.lan.medium import Outcome

STATIONS = (5, 10, 32, 128, 256)
SIZES = (64, 512, 1518)  # bytes from the destination address to the check sequence


@dataclass
class Intervals:
    """In bit times: how long frames and collisions take, and what is between the end of one and
    the next start."""

    frames: set[int] = field(default_factory=set)
    collisions: set[int] = field(default_factory=set)
    after_frame: set[int] = field(default_factory=set)
    after_collision: set[int] = field(default_factory=set)


def intervals(count: int, seed: int) -> Intervals:
    """Of two stations that always have a frame of 64 bytes."""
    csma, found = Csma(), Intervals()
    core = csma.core([0, 0], seed=seed, log_collisions=True)
    for station in (0, 1):
        core.source(station, 0, 8 * 64, 0)
    last_start = last_end = 0
    waits: set[int] | None = None
    for outcome, _, start, end, _, _ in core.run(NEVER, count):
        if waits is not None and start != last_start:
            waits.add((start - last_end) // csma.bit_ps)
        is_sent = outcome == Outcome.SENT
        taken = found.frames if is_sent else found.collisions
        taken.add((end - start) // csma.bit_ps)
        waits = found.after_frame if is_sent else found.after_collision
        last_start, last_end = start, end
    return found


def rules(scope: Scope) -> Iterator[Figure]:
    found = intervals(500, scope.seed)
    yield holds("a frame of 64 bytes takes 64 + 512 bits", found.frames == {576})
    yield holds("a collision takes 64 + 32 bits", found.collisions == {96})
    yield holds("from a frame to the next one: a gap of 96 bits", found.after_frame == {96})
    waits = found.after_collision
    slots = all(wait == 96 or wait % 512 == 0 for wait in waits)
    yield holds("from a jam: the gap, or whole slots of 512 bits", slots)
    yield holds("both occur", {96, 512} <= waits)


def two(size: int, scope: Scope) -> Iterator[Figure]:
    csma, bits = Csma(), 8 * size
    law = exactly(csma, bits)
    got = saturated(csma, 2, bits, scope.pick(1_000_000, 10_000_000), scope.seed)
    wide = scope.pick(0.15, 0.05)
    yield near(f"2 stations, {size} B: share", got.share, law.share, scope.pick(1e-3, 1e-4))
    yield near("frames given up", 100 * got.given_up, 100 * law.given_up, wide, "%")
    yield near("collisions for a frame", got.collisions, law.collisions, wide)


def many(size: int, scope: Scope) -> Iterator[Figure]:
    csma, bits = Csma(), 8 * size
    for stations in scope.pick((10, 256), STATIONS):
        # Few stations have long runs of one sender's frames, so that more frames are needed.
        is_few, random = stations <= 32, Random(scope.seed + 100)
        count = scope.pick(4_000, 100_000 if is_few else 30_000)
        law = by_the_rules(csma, stations, bits, count, random)
        count = scope.pick(40_000, 1_000_000 if is_few else 300_000)
        got = saturated(csma, stations, bits, count, scope.seed)
        text = f"{stations} stations, {size} B: share"
        yield near(text, got.share, law.share, scope.pick(0.03, 0.01))
        off = scope.pick(4.0, 1.0)
        yield around("frames given up", 100 * got.given_up, 100 * law.given_up, off, "%")
        near_by = scope.pick(0.2, 0.05)
        yield near("collisions for a frame", got.collisions, law.collisions, near_by)


def measure(scope: Scope) -> Iterator[Figure]:
    yield from rules(scope)
    for size in scope.pick((1518,), SIZES):
        yield from two(size, scope)
        yield from many(size, scope)
    few, lots = (longest(stations, scope) for stations in (2, 256))
    yield holds("2 stations: more than Metcalfe and Boggs's formula", few[0] > few[1])
    yield holds("256 stations: less", lots[0] < lots[1])


def longest(stations: int, scope: Scope) -> tuple[float, float]:
    """The share with collisions of a whole slot, and what the formula has for it."""
    csma, bits = Csma(fragment=416), 64 * 8  # 416 bits, and the gap
    got = saturated(csma, stations, bits, scope.pick(100_000, 1_000_000), scope.seed)
    waits = (1 / efficiency(stations, 48) - 1) * 512  # W slots
    return got.share, bits / (bits + csma.header + csma.gap + waits)


ROW = Row(
    number="C22",
    title="Truncated binary exponential backoff (IEEE 802.3, clause 4)",
    setup="Stations at one place that always have a frame: 10 Mb/s, frames of 64, 512 and 1,518 "
    "bytes behind 64 bits of preamble, a gap of 96 bits. Share: the part of the time for bits "
    "behind the preamble.",
    expected="two stations: a Markov chain over the tries of both frames "
    "(`tests/validation/two_stations.py`), solved exactly. More: a second, independent program of "
    "the rules (`tests/validation/shared_medium.py`).",
    fails="backoff, gap, preamble or jam take other times than the standard has, or the number of "
    "tries or doublings is another one.",
    meaning="The rules, as decided from the standard's procedures: without delay a collision takes "
    "96 bits, since preamble and start delimiter are always sent to their end and the jam of 32 "
    "bits follows; backoff is counted from the jam's end, while the gap of 96 bits passes, so that "
    "0 slots end with the gap and 1 slot ends 512 bits after the jam; the collision window of 512 "
    "bits begins with the preamble. Studies in which a collision takes a whole slot, and the slots "
    "begin behind it, find less: 0.32 in place of 0.50 for 128 stations with 64 bytes. Few "
    "stations use more of the cable than the formula of 1976 says, since one of them captures it, "
    "and many use less, since new frames begin at 0 slots.",
    measure=measure,
    confidence=Confidence.EXACT,
    quick=True,
)
