# SPDX-License-Identifier: Apache-2.0
"""What each traffic has delivered as time goes by: a run of a scenario is looked at some hundred
times, whatever its length.

``Scenario.run`` makes a Recorder before the run and asks for its rows afterwards. It calls itself
by ``World.call_at``, which changes nothing of what is simulated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from verbena.sim._world import World

__all__ = ["Recorder", "rows_for"]

ROWS = 100
FEWEST = 50
LATEST = 2**62  # ps, for which World.call_at may be asked
FLOWS = 50_000  # of more, there are fewer rows: each looks at every flow


def rows_for(flows: int) -> int:
    """How many rows a run of so many flows is worth."""
    return max(FEWEST, min(ROWS, ROWS * FLOWS // max(flows, 1)))


class Recorder:
    """``group`` [flows]: the traffic of each flow, of which there are ``groups``.

    ``interval``: ps between rows at first. When there are twice as many rows as ``rows``, every
    other one is forgotten, and the interval is twice as long from then on.
    """

    def __init__(
        self, world: World, group: NDArray[np.uint32], groups: int, interval: int, rows: int
    ) -> None:
        self._group, self._groups = group, groups
        self._interval, self._rows = max(1, interval), rows
        self._times = [world.now]
        self._delivered = [np.zeros(groups, np.uint64)]
        world.call_at(world.now + self._interval, self._look, looks=True)

    def _look(self, world: World) -> None:
        self._add(world)
        if len(self._times) > 2 * self._rows:
            del self._times[1::2], self._delivered[1::2]
            self._interval *= 2
        if self._times[-1] + self._interval <= LATEST:
            world.call_at(self._times[-1] + self._interval, self._look, looks=True)

    def _add(self, world: World) -> None:
        self._times.append(world.now)
        self._delivered.append(world.delivered(self._group, self._groups))

    def rows(self, world: World) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """[k] times in ps, from 0 to now, and [k, groups] bytes that were delivered by then."""
        if len(self._times) > 2 and world.now - self._times[-1] < self._interval // 2:
            del self._times[-1], self._delivered[-1]  # a short last step has a rate by chance
        if world.now > self._times[-1]:
            self._add(world)
        return np.array(self._times, np.uint64), np.array(self._delivered).reshape(-1, self._groups)
