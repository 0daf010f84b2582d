# SPDX-License-Identifier: Apache-2.0
"""How far simulations are, on stderr: one line of a terminal that is kept up to date, or, where
stderr is no terminal, a line after ten seconds and after twice as long each time.

``verbena sim`` uses this. Nothing is said of a run that is over soon, nor with --quiet.
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

REPORTS = 0.2  # s between two looks at a run
HOPS_PER_SECOND = 2e6  # of a common machine: for estimates
LONG = 30.0  # s: what is expected to take longer is said beforehand


@dataclass(frozen=True)
class Report:
    """How far a run is: ``part`` of it is over after ``wall`` seconds, at ``now`` ps."""

    name: str
    now: int
    part: float
    wall: float
    flows_left: int
    events: int

    def text(self, duration: int | None) -> str:
        """Simulated and wall time, and how much there is left."""
        from verbena.sim.units import time_text

        until = f" of {time_text(duration)}" if duration else ""
        left = f", about {span(self.wall * (1 / self.part - 1))} to go" if self.part > 0.001 else ""
        pace = self.events / max(self.wall, 1e-9) / 1e6
        return (
            f"{self.name}: {time_text(self.now)}{until} simulated in {span(self.wall)}{left}; "
            f"{self.flows_left} flows left, {pace:.1f} M events/s"
        )


def span(seconds: float) -> str:
    """Of wall time: "4.2 s", "3 min", "2.5 h"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def watcher(scenario: Scenario, tell: Callable[[Report], object]) -> Callable[[World], None]:
    """A function for World.run that tells now and then how far the run is."""
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
    """A sentence about a simulation that will take long, or nothing."""
    hops = scenario.hops() * together
    seconds = hops / HOPS_PER_SECOND
    if seconds < LONG:
        return ""
    return (
        f"{hops:.2g} packets cross a link, and 2 million in a second are usual: "
        f"this may take {span(seconds)}"
    )
