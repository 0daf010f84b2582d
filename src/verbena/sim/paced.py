# SPDX-License-Identifier: Apache-2.0
"""A scenario whose virtual time follows a clock, for programs that manage its fabric from outside.

`verbena fabric SCENARIO --simulated` makes a ``PacedScenario``, and calls ``advance`` whenever it
has to send or to look. The traffic and the events of the scenario begin when every port with a
cable is ACTIVE. Virtual time never runs ahead of the clock, and what the machine is too slow for
is left out, so that it goes on at its pace.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from verbena.manage.codes import PortState
from verbena.sim.managed import SECOND
from verbena.sim.recovery import RecoveryWatch
from verbena.sim.result import DONE
from verbena.sim.scenario import Prepared
from verbena.sim.units import time_text

if TYPE_CHECKING:
    from verbena.manage.agents import NodePort
    from verbena.sim._world import World
    from verbena.sim.result import ScenarioResult
    from verbena.sim.scenario import Scenario
    from verbena.sim.throughput import Recorder

__all__ = ["PacedScenario"]

TURN = 0.005  # seconds of running the world, before programs have their turn
MOST_BEHIND = 0.05  # seconds of the clock that are caught up with


class _TurnOverError(Exception):
    """Ends a run of the world, which goes on later."""


class PacedScenario:
    """The world of a scenario with [management], ``pace`` virtual seconds for each of ``clock``.

    With ``manager`` a subnet manager runs at that host. Raises ValueError for a scenario without
    [management], or with [inside], and for a pace that is not above 0.
    """

    def __init__(
        self,
        scenario: Scenario,
        pace: float = 1.0,
        *,
        manager: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if scenario.management is None:
            raise ValueError(
                f"{scenario.name} has no table [management], by which its fabric has agents"
            )
        if scenario.inside is not None:
            raise ValueError(
                f"{scenario.name} has a table [inside]: what a host costs inside is for runs in "
                "virtual time (verbena sim), so remove it"
            )
        if not pace > 0:
            raise ValueError(f"the pace is {pace!r}, and not above 0")
        self.scenario, self.pace = scenario, pace
        self.world = scenario.network()
        self.run = scenario.manage(self.world, scenario.management, paced=True)
        self.managed = self.run.managed
        self.began: int | None = None
        """When the traffic began, in ps."""
        self.is_idle = False
        """Nothing is left to happen until somebody sends."""
        self._clock = clock
        self._begun = self._origin = clock()
        self._virtual_origin = 0
        self._turn_ends = 0.0
        self._all_ports = [
            port
            for agent in self.managed.agents.values()
            for port in agent.ports.values()
            if port.peer is not None
        ]
        self._waits_at = 0
        self._prepared: Prepared | None = None
        self._recorder: Recorder | None = None
        self._watch: RecoveryWatch | None = None
        if manager is not None:
            self.run.add_manager(manager).start()

    # ---- time ------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Let virtual time go on to where the clock is, or for a turn if that is far."""
        world, begin = self.world, self._clock()
        target = self._virtual_origin + int((begin - self._origin) * self.pace * SECOND)
        if target <= world.now:
            return
        self._turn_ends = begin + TURN
        try:
            self.is_idle = world.run(target, self._look) in ("done", "stalled")
        except _TurnOverError:
            self.is_idle = False
        if world.now < target - int(MOST_BEHIND * self.pace * SECOND):
            self._origin, self._virtual_origin = self._clock(), world.now
        if self.began is None and self._is_up():
            self._begin_traffic()

    def _look(self, world: World) -> None:
        if self._clock() >= self._turn_ends:
            raise _TurnOverError

    def _is_up(self) -> bool:
        """Whether all ports are ACTIVE, except those whose link is down; one waits for one."""
        ports = self._all_ports
        for place in range(self._waits_at, len(ports)):
            if not _is_ready(ports[place]):
                self._waits_at = place
                return False
        self._waits_at = 0
        return all(map(_is_ready, ports)) and any(port.is_up for port in ports)

    def _begin_traffic(self) -> None:
        world, scenario = self.world, self.scenario
        self.began = base = world.now
        storms = scenario.fill(world, self.run, base)
        self.managed.stops = False  # links are cut after the last flow, too
        self._prepared = Prepared(world, self.run, base, storms)
        self._watch = scenario.watch_recovery(world, base)
        self._recorder = scenario.recorder(world)
        self.is_idle = False

    # ---- links -----------------------------------------------------------------------------------

    def set_link(self, name: str, port: int, *, up: bool) -> None:
        """A link goes down or comes back now. The first that goes down has its recovery watched."""
        world = self.world
        self.managed.set_link(name, port, up, world.now)
        if not up and self.began is not None and self._watch is None:
            self._watch = RecoveryWatch(world, len(self.scenario.traffic), world.now)
        self.is_idle = False

    # ---- what was measured -----------------------------------------------------------------------

    def describe(self) -> list[str]:
        """Return sentences about the time and the traffic."""
        world, passed = self.world, self._clock() - self._begun
        lines = [f"virtual time: {time_text(world.now)}, of {passed:.1f} s of the clock"]
        if self.began is None:
            return [*lines, "traffic: begins when all ports are ACTIVE"]
        flows = world.flows()
        done = int((flows["state"] == DONE).sum())
        return [
            *lines,
            f"traffic: since {time_text(self.began)}, {done} of {len(flows)} flows are done",
        ]

    def report(self) -> list[str]:
        """Return the lines of the report at the end."""
        result = self.result()
        return self.describe() if result is None else result.summary().splitlines()

    def result(self) -> ScenarioResult | None:
        """Return what was measured until now; None before the traffic began."""
        run, recorder = self._prepared, self._recorder
        if run is None or recorder is None:
            return None
        passed = self._clock() - self._begun
        made = self.scenario.measured(run, recorder, self._watch, "interrupted", passed)
        return made if self.world.flows_left else replace(made, end="done")


def _is_ready(port: NodePort) -> bool:
    return not port.is_up or port.state == PortState.ACTIVE
