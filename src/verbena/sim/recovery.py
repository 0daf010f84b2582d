# SPDX-License-Identifier: Apache-2.0
"""Watches which flows stand still after a link or a switch died, and when they go on.

``Scenario.run`` makes a ``RecoveryWatch`` where routes are made anew, by a subnet manager or after
a set time. It only looks (``World.call_at``), so that it does not affect what is simulated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from verbena.sim.units import time_text

if TYPE_CHECKING:
    from verbena.sim._world import World

__all__ = ["Recovery", "RecoveryWatch"]

STEP = 20_000_000  # ps between two looks, at first
LOOKS = 2000  # after so many the step is doubled
STILL = 200_000_000  # ps without progress, after which a flow counts as interrupted


@dataclass(frozen=True)
class Recovery:
    """What became of the flows after an event at ``at``. Times are in ps.

    ``interrupted`` flows made no progress from about then on for a while, and went on later;
    ``longest`` is the longest of these pauses, and ``recovered`` when the last of them went on.
    ``dead`` flows made none from some time on until the end of the run.
    """

    at: int
    interrupted: int
    dead: int
    longest: int
    recovered: int | None

    def line(self) -> str:
        """Return a sentence about it."""
        if not self.interrupted and not self.dead:
            return f"after the event at {time_text(self.at)} no flow stood still"
        dead = f", and {self.dead} never went on" if self.dead else ""
        if self.recovered is None:
            return f"after the event at {time_text(self.at)} {self.dead} flows never went on"
        return (
            f"after the event at {time_text(self.at)} {self.interrupted} flows stood still, the "
            f"last until {time_text(self.recovered - self.at)} after it{dead}"
        )


class RecoveryWatch:
    """Looks at the first ``flows`` flows of a world from ``at`` on."""

    def __init__(self, world: World, flows: int, at: int) -> None:
        self._flows = flows
        self._every = np.arange(flows, dtype=np.uint32)
        self._at, self._step, self._looks = at, STEP, 0
        self._done = np.zeros(flows, np.uint64)
        self._moved = np.full(flows, at, np.int64)
        self._pause = np.zeros(flows, np.int64)
        self._resumed = np.zeros(flows, np.int64)
        world.call_at(at, self._begin, looks=True)

    def _begin(self, world: World) -> None:
        self._done = self._delivered(world)
        self._again(world)

    def _delivered(self, world: World) -> NDArray[np.uint64]:
        """Return what each of the watched flows has delivered; later ones are one more."""
        try:
            return world.delivered(self._every, self._flows + 1)[: self._flows]
        except ValueError:  # flows were added
            every = np.arange(len(world.flows()), dtype=np.uint32)
            self._every = np.minimum(every, self._flows)
            return world.delivered(self._every, self._flows + 1)[: self._flows]

    def _again(self, world: World) -> None:
        self._looks += 1
        if self._looks % LOOKS == 0:
            self._step *= 2
        world.call_at(world.now + self._step, self._look, looks=True)

    def _look(self, world: World) -> None:
        done = self._delivered(world)
        moved = done > self._done
        pause = world.now - self._moved
        # A pause that begins later is one of congestion, or of another loss.
        first = moved & (pause >= STILL) & (self._moved <= self._at + STILL) & (self._pause == 0)
        self._pause[first] = pause[first]
        self._resumed[first] = world.now
        self._moved[moved] = world.now
        self._done = done
        self._again(world)

    def result(self, world: World) -> Recovery | None:
        """Return what was seen, or None if the run ended before the event."""
        if world.now <= self._at:
            return None
        flows = world.flows()[: self._flows]
        begun = flows["start"].astype(np.int64) <= self._at
        still = begun & (self._pause > 0)
        left = np.isin(flows["state"], (0, 1, 3)) & begun  # waiting, running or failed
        dead = left & (world.now - self._moved >= STILL)
        return Recovery(
            self._at,
            int(still.sum()),
            int(dead.sum()),
            int(self._pause[still].max(initial=0)),
            int(self._resumed[still].max()) if still.any() else None,
        )
