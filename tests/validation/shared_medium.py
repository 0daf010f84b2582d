# SPDX-License-Identifier: Apache-2.0
"""Stations that always have a frame, on one cable or hub: what the rows about CSMA/CD measure.

``saturated`` runs the core of ``verbena.lan``; ``by_the_rules`` is a second, independent program of
the same rules (IEEE 802.3 clause 4) for a medium without delay, with which it is compared.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from verbena.lan import Csma
from verbena.lan._cable import CableState

NEVER = (1 << 63) - 1


@dataclass(frozen=True)
class Saturation:
    """``share`` is the part of the time in which bits behind the preamble are sent; ``given_up``
    the part of frames lost after too many collisions; ``collisions`` are for each frame sent, and
    ``run`` is how many frames one station sends before another one does."""

    share: float
    given_up: float
    collisions: float
    run: float
    least: float = 0.0  # of the stations' parts of all frames, over the mean
    most: float = 0.0


@dataclass(frozen=True)
class _Totals:
    sent: tuple[int, ...]
    excessive: int
    collisions: int
    runs: int
    end: int


def _totals(core: CableState, stations: int) -> _Totals:
    each = [core.counters(i) for i in range(stations)]
    sent = tuple(one[0] for one in each)
    return _Totals(sent, sum(one[4] for one in each), core.collisions, core.runs, core.last_end)


def saturated(
    csma: Csma,
    stations: int,
    bits: int,
    frames: int,
    seed: int,
    *,
    places: Sequence[int] | None = None,
    ideal: bool = False,
) -> Saturation:
    """Of ``frames`` frames of ``bits`` (behind the preamble), after a tenth as many to settle.

    ``places`` are delays along the cable in ps; all stations are at one place by default.
    """
    core = csma.core(places or [0] * stations, seed=seed, ideal=ideal)
    for station in range(stations):
        assert core.source(station, 0, bits, 0)
    core.run_counting(NEVER, frames // 10)
    before = _totals(core, stations)
    core.run_counting(NEVER, frames)
    after = _totals(core, stations)
    own = [b - a for a, b in zip(before.sent, after.sent, strict=True)]
    sent, lost = sum(own), after.excessive - before.excessive
    assert sent == frames
    return Saturation(
        share=sent * bits * csma.bit_ps / (after.end - before.end),
        given_up=lost / (sent + lost),
        collisions=(after.collisions - before.collisions) / sent,
        run=sent / max(1, after.runs - before.runs),
        least=min(own) * stations / sent,
        most=max(own) * stations / sent,
    )


def by_the_rules(
    csma: Csma, stations: int, bits: int, frames: int, random: Random, *, collision: int = 96
) -> Saturation:
    """The same without delay, in bit times.

    A collision takes ``collision`` bits: preamble and jam. The gap begins at the end of a signal,
    and backoff, too: they run side by side, so that 0 slots end with the gap.
    """
    wants = [(0, station) for station in range(stations)]
    tries = [0] * stations
    sent = lost = collided = runs = now = 0
    last = -1
    free = -csma.gap
    while sent < frames:
        start = max(wants[0][0], free + csma.gap)
        talkers = []
        while wants and wants[0][0] <= start:
            talkers.append(heapq.heappop(wants)[1])
        if len(talkers) == 1:
            (station,) = talkers
            now = free = start + csma.header + bits
            tries[station] = 0
            sent, runs, last = sent + 1, runs + (station != last), station
            heapq.heappush(wants, (free, station))
            continue
        collided += 1
        free = start + collision
        for station in talkers:
            tries[station] += 1
            wait = 0
            if tries[station] == csma.tries:
                tries[station] = 0
                lost += 1
            else:
                wait = random.randrange(1 << min(tries[station], csma.doublings)) * csma.slot
            heapq.heappush(wants, (free + wait, station))
    return Saturation(sent * bits / now, lost / (sent + lost), collided / sent, sent / runs)
