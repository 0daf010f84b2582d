# SPDX-License-Identifier: Apache-2.0
"""Paths of a scenario's flows that are reserved hop by hop before the flows begin.

With [management] reservations = "hop by hop" ``ManagedRun`` asks for a path for each flow that
reserves bandwidth, once the subnet is up: all at one time, by the messages of
``HopReservations``. A granted flow begins as much later as its answer took.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from verbena.sim.managed import SECOND
from verbena.sim.reservations import HopReservations
from verbena.sim.units import time_text

if TYPE_CHECKING:
    from verbena.manage.reservation import Outcome
    from verbena.sim.managers import SimulatedManager

__all__ = ["REFUSED", "Asked", "ReservationReport", "negotiate"]

REFUSED = 10**15
"""A rate in bits/s that no link has: a flow that reserves it is refused when it starts."""
SLICE = 10**9  # ps of the world between two looks at the answers
MOST_SLICES = 20_000


class Asked(NamedTuple):
    """A flow that wants a path: its number and hosts, and the rate in bits/s."""

    flow: int
    source: str
    target: str
    rate: int


@dataclass(frozen=True)
class ReservationReport:
    """What became of the requests. ``outcomes`` are by the number of the flow.

    ``messages`` were sent by all agents, and ``set_up`` are the ps in which the budgets of all
    links were given to the nodes.
    """

    outcomes: dict[int, Outcome]
    messages: int
    set_up: int

    def lines(self) -> list[str]:
        """Return a sentence about all, one for each number of links, and one about refusals."""
        granted = [each for each in self.outcomes.values() if each.granted]
        lines = [
            f"reservations: {len(granted)} of {len(self.outcomes)} paths granted, "
            f"{self.messages:,} messages; budgets given in {time_text(self.set_up)}"
        ]
        for links in sorted({each.links for each in granted}):
            some = [each for each in granted if each.links == links]
            seconds = float(np.median([each.seconds for each in some]))
            lines.append(
                f"paths of {links} links: {some[0].messages} messages, median "
                f"{time_text(round(seconds * SECOND))}, "
                f"{time_text(round(seconds * SECOND / links))} a hop"
            )
        refused = [each for each in self.outcomes.values() if not each.granted]
        reasons = sorted({f"{each.reason.name} at LID {each.lid}" for each in refused})
        return lines + [f"{len(refused)} refused: {', '.join(reasons)}"] * bool(refused)

    def measures(self) -> dict[str, float]:
        """Return what ``sweep`` keeps."""
        granted = [each.seconds for each in self.outcomes.values() if each.granted]
        return {
            "granted": len(granted),
            "refused": len(self.outcomes) - len(granted),
            "reserve_messages": self.messages,
            "reserve_median": float(np.median(granted)) if granted else float("nan"),
        }


def negotiate(
    manager: SimulatedManager, share: float, wanted: Iterable[Asked]
) -> ReservationReport:
    """Give the nodes their budgets, ask for all paths at one time, and run the world until all are
    answered."""
    world, begin = manager.managed.world, manager.managed.world.now
    reservations = HopReservations(manager, share=share)
    reservations.start()
    while not reservations.budgets.is_done:
        world.run(world.now + SLICE // 100)
    set_up = world.now - begin
    asked = {one.flow: reservations.path(one.source, one.target, one.rate) for one in wanted}
    for _ in range(MOST_SLICES):
        if all(each.outcome is not None for each in asked.values()):
            break
        world.run(world.now + SLICE // 100)
    outcomes = {flow: each.outcome for flow, each in asked.items() if each.outcome is not None}
    return ReservationReport(outcomes, reservations.messages, set_up)
