# SPDX-License-Identifier: Apache-2.0
"""The progress of simulations on stderr, as verbena.progress prints it.

``verbena sim`` uses this. Nothing is printed for a run that ends soon, nor with --quiet.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verbena.progress import Line

if TYPE_CHECKING:
    from verbena.sim import Scenario, World

__all__ = ["Line", "Report", "expected", "span", "watcher"]

REPORTS = 0.2  # s between two reports of a run
HOPS_PER_SECOND = 2e6  # on a common machine: for estimates
LONG = 30.0  # s: a run that is expected to take longer is announced


@dataclass(frozen=True)
class Report:
    """The progress of a run: the fraction ``part`` is done after ``wall`` seconds, at ``now``
    ps."""

    name: str
    now: int
    part: float
    wall: float
    flows_left: int
    events: int

    def text(self, duration: int | None) -> str:
        """Return simulated and wall time, and an estimate of the rest."""
        from verbena.sim.units import time_text

        until = f" of {time_text(duration)}" if duration else ""
        left = f", about {span(self.wall * (1 / self.part - 1))} to go" if self.part > 0.001 else ""
        pace = self.events / max(self.wall, 1e-9) / 1e6
        return (
            f"{self.name}: {time_text(self.now)}{until} simulated in {span(self.wall)}{left}; "
            f"{self.flows_left} flows left, {pace:.1f} M events/s"
        )


def span(seconds: float) -> str:
    """Return a wall time as text: "4.2 s", "3 min", "2.5 h"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def watcher(scenario: Scenario, tell: Callable[[Report], object]) -> Callable[[World], None]:
    """Return a function for World.run that reports the run's progress every REPORTS seconds."""
    import numpy as np

    begin = shown = time.monotonic()
    total = float(scenario.traffic.work.bytes)
    group = np.zeros(len(scenario.traffic), np.uint32)

    def look(world: World) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown < REPORTS:
            return
        shown = now
        part = world.now / scenario.duration if scenario.duration else 0.0
        part = max(part, float(world.delivered(group, 1)[0]) / total)
        tell(Report(scenario.name, world.now, part, now - begin, world.flows_left, world.events))

    return look


def expected(scenario: Scenario, together: int = 1) -> str:
    """Return a sentence about a simulation that will take long, or an empty string."""
    hops = scenario.hops() * together
    seconds = hops / HOPS_PER_SECOND
    if seconds < LONG:
        return ""
    return (
        f"{hops:.2g} packets cross a link, and 2 million in a second are usual: "
        f"this may take {span(seconds)}"
    )
