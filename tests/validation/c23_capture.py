# SPDX-License-Identifier: Apache-2.0
"""C23: one of two busy stations captures an Ethernet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.validation.row import Confidence, Figure, Row, Scope, around, equal, near
from tests.validation.shared_medium import NEVER, saturated
from tests.validation.two_stations import exactly
from verbena.lan import Csma
from verbena.lan.medium import Outcome

TRIES = (2, 3, 4, 5, 8, 10, 11, 15)
"""For the k-th time the other station's frame collides; the range grows up to k = 10."""


@dataclass
class Races:
    """``counts`` of what followed collisions of a fresh frame with one that collided for the k-th
    time, by (k, what); and how often the frames had collided that were given up."""

    counts: Counter[tuple[int, str]] = field(default_factory=Counter)
    given_up: Counter[int] = field(default_factory=Counter)
    collided: list[tuple[int, int]] = field(default_factory=list)  # station, times; of the last one

    def add(self, outcome: Outcome, station: int, collisions: int) -> None:
        """Takes what became of a frame, in the order of time."""
        if outcome is Outcome.EXCESSIVE:
            self.given_up[collisions] += 1
        if outcome is Outcome.SENT:
            self._follows(station)
            self.collided = []
            return
        if len(self.collided) == 2:
            self._follows(None)
            self.collided = []
        self.collided.append((station, collisions))

    def _follows(self, winner: int | None) -> None:
        """A frame was sent, or (None) there was another collision."""
        if len(self.collided) < 2:
            return
        (fresh, first), (_, times) = sorted(self.collided, key=lambda each: each[1])
        if first == 1 and 1 < times < 16:
            what = "tie" if winner is None else "fresh" if winner == fresh else "other"
            self.counts[times, what] += 1


def races(frames: int, seed: int) -> Races:
    """Two stations that always have a frame of 1,518 bytes."""
    core = Csma().core([0, 0], seed=seed, log_collisions=True)
    for station in (0, 1):
        core.source(station, 0, 8 * 1518, 0)
    found = Races()
    while core.counters(0)[0] + core.counters(1)[0] < frames:
        for outcome, station, _, _, _, collisions in core.run(NEVER, 1000):
            found.add(Outcome(outcome), station, collisions)
    return found


def four_deviations(part: float, of: int) -> float:
    return 4.0 * float((part * (1 - part) / of) ** 0.5)


def measure(scope: Scope) -> Iterator[Figure]:
    found = races(scope.pick(150_000, 600_000), scope.seed)
    for k in scope.pick(TRIES[:4], TRIES):
        total = sum(found.counts[k, what] for what in ("fresh", "other", "tie"))
        law, tie = 1 - 3 / 2 ** (min(k, 10) + 1), 2.0 ** -min(k, 10)
        won, tied = found.counts[k, "fresh"] / total, found.counts[k, "tie"] / total
        text = f"k = {k}: the fresh frame wins"
        yield around(text, won, law, four_deviations(law, total))
        yield around("both collide again", tied, tie, four_deviations(tie, total))
    yield equal("collisions of each frame that was given up: least", min(found.given_up), 16)
    yield equal("most", max(found.given_up), 16)
    csma = Csma()
    for size in scope.pick((1518,), (64, 512, 1518)):
        got = saturated(csma, 2, 8 * size, scope.pick(1_000_000, 10_000_000), scope.seed)
        chain = exactly(csma, 8 * size).run
        yield near(f"{size} B: frames in a row", got.run, chain, scope.pick(0.1, 0.03))


ROW = Row(
    number="C23",
    title="The capture effect",
    setup="Two stations at one place that always have a frame, 10 Mb/s. After a collision of the "
    "last sender's fresh frame (its first) with the other one's (its k-th) both draw slots: of 2, "
    "and of 2^min(k, 10).",
    expected="the fresh frame wins with probability 1 - 3/2^(k + 1), and both collide again with "
    "2^-k; how many frames a station sends in a row follows from the chain of C22. Tolerances are "
    "four standard deviations.",
    fails="the range of the backoff is another one than 0 to 2^min(k, 10) - 1 slots, or is not "
    "evenly used, or a frame is tried another number of times than 16.",
    meaning="The loser waits longer each time, while the winner begins anew: one station sends "
    "hundreds of frames in a row, and the shorter they are, the more. After 16 collisions the "
    "other one's frame is lost, and its next one is as fresh as the winner's.",
    measure=measure,
    confidence=Confidence.EXACT,
    quick=True,
)
