# SPDX-License-Identifier: Apache-2.0
"""Two saturated stations without delay, worked out exactly as a Markov chain.

The rules are those of IEEE 802.3 clause 4. A step of the chain goes from one collision to the next;
its state is how often the frame of the last sender and that of the other station collided so far.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.validation.shared_medium import Saturation
from verbena.lan import Csma

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Race:
    """After a collision: probabilities that it is a tie, that the last sender or the other one
    wins, and how many frames and bit times there are on the average until the next collision."""

    tie: float
    stays: float
    changes: float
    frames: float
    time: float


def race(csma: Csma, bits: int, collision: int, own: int, other: int) -> Race:
    """Both draw their slots after so many doublings, the last sender first; 0: it draws none."""
    length = csma.header + bits + csma.gap
    slots = (np.arange(1 << n, dtype=np.int64) * csma.slot for n in (own, other))
    mine, its = np.meshgrid(*slots, indexing="ij")
    first = np.maximum(np.minimum(mine, its), csma.gap)
    late = np.maximum(mine, its)
    tie = np.maximum(mine, csma.gap) == np.maximum(its, csma.gap)
    # The winner sends frame after frame until the other one's time has come.
    frames = np.where(tie, 0, np.maximum(1, -(-(late - first) // length)))
    return Race(
        tie=float(tie.mean()),
        stays=float((~tie & (mine < its)).mean()),
        changes=float((~tie & (mine > its)).mean()),
        frames=float(frames.mean()),
        time=float((collision + first + frames * length).mean()),
    )


def exactly(csma: Csma, bits: int, collision: int = 96) -> Saturation:
    """What ``saturated`` measures with two stations at one place."""
    tries = csma.tries
    count = tries * tries
    step: Array = np.zeros((count, count))
    reward: Array = np.zeros((count, 4))  # frames, time, frames given up, changes of the sender
    races: dict[tuple[int, int], Race] = {}
    for own in range(tries):
        for other in range(tries):
            after = [(n + 1) % tries for n in (own, other)]  # at the last try it is given up
            draws = tuple(min(n, csma.doublings) for n in after)
            if draws not in races:
                races[draws[0], draws[1]] = race(csma, bits, collision, *draws)
            one, at = races[draws[0], draws[1]], own * tries + other
            step[at, after[0] * tries + after[1]] += one.tie
            step[at, after[1]] += one.stays
            step[at, after[0]] += one.changes
            reward[at] = one.frames, one.time, after.count(0), one.changes
    balance = np.vstack([step.T - np.eye(count), np.ones(count)])
    part = np.linalg.lstsq(balance, np.append(np.zeros(count), 1.0), rcond=None)[0]
    frames, time, lost, changes = part @ reward
    return Saturation(frames * bits / time, lost / (frames + lost), 1 / frames, frames / changes)
