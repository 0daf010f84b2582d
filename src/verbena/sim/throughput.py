# SPDX-License-Identifier: Apache-2.0
"""Records what each traffic has delivered as time passes, at some hundred times of a run.

``Scenario.run`` makes a Recorder before the run and asks for its rows afterwards. The recorder uses
``World.call_at`` with ``looks``, which does not affect what is simulated.
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
LATEST = 2**62  # ps, the latest time that World.call_at takes
FLOWS = 50_000  # with more flows there are fewer rows, since each row reads every flow


def rows_for(flows: int) -> int:
    """Return how many rows are recorded for so many flows: each row reads every flow."""
    return max(FEWEST, min(ROWS, ROWS * FLOWS // max(flows, 1)))


class Recorder:
    """``group`` [flows] is the traffic of each flow, of which there are ``groups``.

    ``interval``: ps between two rows at first. Once there are more than twice ``rows`` rows, every
    other one is dropped and the interval is doubled, so the duration need not be known before.
    """

    def __init__(
        self, world: World, group: NDArray[np.uint32], groups: int, interval: int, rows: int
    ) -> None:
        self._group, self._groups = group, groups
        self._interval, self._rows = max(1, interval), rows
        self._times = [world.now]
        self._delivered = [np.zeros(groups, np.uint64)]
        world.call_at(world.now + self._interval, self._record, looks=True)

    def _record(self, world: World) -> None:
        self._add(world)
        if len(self._times) > 2 * self._rows:
            del self._times[1::2], self._delivered[1::2]
            self._interval *= 2
        if self._times[-1] + self._interval <= LATEST:
            world.call_at(self._times[-1] + self._interval, self._record, looks=True)

    def _add(self, world: World) -> None:
        self._times.append(world.now)
        self._delivered.append(world.delivered(self._group, self._groups))

    def rows(self, world: World) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return the times [k] in ps, from 0 to now, and the bytes [k, groups] delivered by
        then."""
        if len(self._times) > 2 and world.now - self._times[-1] < self._interval // 2:
            # The rate of a short last step would be arbitrary.
            del self._times[-1], self._delivered[-1]
        if world.now > self._times[-1]:
            self._add(world)
        return np.array(self._times, np.uint64), np.array(self._delivered).reshape(-1, self._groups)
