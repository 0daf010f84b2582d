# SPDX-License-Identifier: Apache-2.0
"""The table [management] of a scenario: a subnet manager runs in the fabric.

``Scenario`` reads it after the switches, and has ``ManagedRun`` build the world. ``begin = "bare"``
is a fabric that has just been switched on; without it the manager takes over a fabric that has LIDs
and tables already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from verbena.manage.notices import TrapNumber
from verbena.manage.sm import SmSettings
from verbena.manage.sm.partitions import Partitions
from verbena.sim._world import World
from verbena.sim.document import ScenarioError, Section, toml_text
from verbena.sim.managed import SECOND, AgentTimes, ManagedWorld
from verbena.sim.managers import NotBroughtUpError, SimulatedManager, SweepRecord, bring_up
from verbena.sim.reroute import ENGINES
from verbena.sim.scenario_partitions import HostPartition, partitions_for
from verbena.sim.scenario_reserve import REFUSED, Asked, ReservationReport, negotiate
from verbena.sim.settings import TIME, Bytes, Settings
from verbena.sim.units import time_text

if TYPE_CHECKING:
    from verbena.fabrics import Fabric
    from verbena.sim.scenario_fabric import LinkEvent, Routing
    from verbena.sim.scenario_traffic import Traffic
    from verbena.sim.world_settings import Adapter

__all__ = ["ManagedRun", "Management", "ManagementReport", "read_management"]

MILLISECOND = 10**9
MOST_PROBLEMS = 3  # of which an error tells
MOST_SWEEPS = 4  # of which a summary has a line
ENGINES_OF_SM = tuple(engine for engine in ENGINES if engine != "ecmp")  # a table has one port
PATIENCE = 100 * SECOND
Whole = Annotated[int, Meta(ge=0, le=2**31)]
Time = Annotated[int, TIME]
DEFAULT = AgentTimes()


class _Table(Settings):
    manager: str | None = None
    begin: Literal["bare", "managed"] = "managed"
    engine: str | None = None
    most_smps: Annotated[int, Meta(ge=1, le=2**31)] = 32
    timeout: Time = 200 * MILLISECOND
    retries: Whole = 3
    sweep_interval: Time = 10 * SECOND
    answer: Time = DEFAULT.answer
    forward: Time = DEFAULT.forward
    program: Time = DEFAULT.program
    notice: Time = DEFAULT.notice
    enforce: bool = True
    vl15: Bytes = 8192
    reservations: Literal["at once", "hop by hop"] = "at once"
    share: Annotated[float, Meta(gt=0, le=1)] = 0.8


@dataclass(frozen=True)
class Management:
    """How the fabric of a scenario is managed. ``manager`` is the host of the subnet manager."""

    manager: str
    is_bare: bool
    settings: SmSettings
    times: AgentTimes
    vl15: int
    section: Section
    share: float | None = None  # of links that paths may reserve hop by hop; None: at once

    def switch(self, keywords: dict[str, Any]) -> dict[str, Any]:
        """Return the keywords of a switch with a queue for VL15, if it has lanes."""
        return {**keywords, "management": self.vl15} if keywords.get("lanes") else keywords


def read_management(
    section: Section,
    fabric: Fabric,
    routing: Routing,
    adapter: Adapter,
) -> Management | None:
    """Return the settings, or None without the table. Raises ScenarioError."""
    if not section.table:
        return None
    of = section.read(_Table)
    manager = fabric.hosts[0] if of.manager is None else of.manager
    if manager not in fabric.hosts:
        raise section.error("manager", f"= {toml_text(manager)}: there is no such host")
    engine = of.engine or routing.engine
    if engine not in ENGINES_OF_SM:
        key = "engine" if of.engine else None
        names = ", ".join(ENGINES_OF_SM)
        raise section.error(
            key, f"needs an engine whose tables have one port and no lanes: {names}"
        )
    if adapter.framing != "infiniband":
        raise section.error(None, 'is for InfiniBand: adapter.framing = "infiniband"')
    if routing.reroute is not None:
        raise section.error(None, "makes routes anew by itself: leave out routing.reroute")
    settings = SmSettings(
        engine=engine,
        most_smps=of.most_smps,
        timeout=of.timeout / SECOND,
        retries=of.retries,
        sweep_interval=of.sweep_interval / SECOND,
        enforce_partitions=of.enforce,
    )
    times = AgentTimes(of.answer, of.forward, of.program, of.notice)
    share = of.share if of.reservations == "hop by hop" else None
    return Management(manager, of.begin == "bare", settings, times, of.vl15, section, share)


@dataclass(frozen=True)
class ManagementReport:
    """What the subnet manager of a run did. Times are in ps.

    ``sweeps`` are the heavy sweeps, ``traps`` the numbers of traps with their times, and
    ``problems`` what the last sweep could not do. ``nodes`` were found by it. ``refused`` packets
    had a P_Key that a port's table lacks, at so many ports. ``reserved``: what became of paths that
    are reserved hop by hop.
    """

    nodes: int
    sweeps: tuple[SweepRecord, ...]
    traps: tuple[tuple[int, int], ...]
    problems: tuple[str, ...]
    refused: tuple[int, int] = (0, 0)
    reserved: ReservationReport | None = None

    def lines(self, events: Sequence[int]) -> list[str]:
        """Return a sentence for each of the first sweeps; ``events`` are the times of links'."""
        lines = [
            f"{self._begin(number, sweep, events)}: {_phases(sweep)}, {sweep.mads:,} SMPs"
            + (f", {sweep.repeated} of them repeated" if sweep.repeated else "")
            for number, sweep in enumerate(self.sweeps[:MOST_SWEEPS])
        ]
        more = len(self.sweeps) - MOST_SWEEPS
        lines += [f"and {more} more sweeps"] if more > 0 else []
        lines += list(self.problems[:2])
        if self.refused[0]:
            packets, ports = self.refused
            lines.append(f"partitions: {packets:,} packets were refused, at {ports} ports")
        return lines + ([] if self.reserved is None else self.reserved.lines())

    def _begin(self, number: int, sweep: SweepRecord, events: Sequence[int]) -> str:
        if not number:
            return f"subnet manager: {sweep.nodes or self.nodes} nodes"
        before = [at for at in events if at <= sweep.begin]
        since = f", {time_text(sweep.begin - max(before))} after the event" if before else ""
        trapped = any(
            at <= sweep.begin
            and (not before or at >= max(before))
            and kind == TrapNumber.LINK_STATE
            for at, kind in self.traps
        )
        return f"sweep at {time_text(sweep.begin)}{since}{' by a trap' if trapped else ''}"

    def measures(self) -> dict[str, float]:
        """Return what ``sweep`` keeps: of the first heavy sweep, and the number of all."""
        first = self.sweeps[0] if self.sweeps else None
        end = None if first is None or first.end is None else first.end - first.begin
        reserved = {} if self.reserved is None else self.reserved.measures()
        return reserved | {
            "swept": float("nan") if end is None else end / SECOND,
            "smps": 0 if first is None else first.mads,
            "smps_repeated": 0 if first is None else first.repeated,
            "sweeps": sum(sweep.end is not None for sweep in self.sweeps),
        }


def _phases(sweep: SweepRecord) -> str:
    marks = (
        ("nodes known", sweep.discovered),
        ("tables set", sweep.tables_set),
        ("done", sweep.end),
    )
    told = [f"{name} after {time_text(at - sweep.begin)}" for name, at in marks if at is not None]
    return ", ".join(told) or "not ended"


class ManagedRun:
    """The management of a world of a scenario. ``base`` is when its traffic begins, in ps.

    ``paced``: nothing runs yet, and ``manager`` is None unless ``add_manager`` adds one.
    """

    def __init__(
        self,
        world: World,
        fabric: Fabric,
        of: Management,
        *,
        paced: bool = False,
        partitions: tuple[HostPartition, ...] = (),
    ) -> None:
        self.managed = ManagedWorld(world, fabric, bare=of.is_bare, times=of.times)
        self._settings = of.settings
        if partitions:
            made = partitions_for(partitions, self._guid)
            self._settings = replace(self._settings, partitions=Partitions(made))
        self.manager: SimulatedManager | None = None
        self.base = 0
        self.reserved: ReservationReport | None = None
        self._of = of
        if paced:
            return
        manager = self.add_manager(of.manager)
        if of.is_bare:
            self._bring_up(manager)
        else:
            manager.start()

    def add_manager(self, name: str) -> SimulatedManager:
        """Put a subnet manager with the settings at a host. Raises ValueError and MadError."""
        self.manager = SimulatedManager(self.managed, name, self._settings)
        return self.manager

    def _guid(self, host: str) -> int:
        return self.managed.agent(host).end_ports()[0].guid

    def _bring_up(self, manager: SimulatedManager) -> None:
        try:
            bring_up(manager, PATIENCE)
        except NotBroughtUpError as error:
            raise self._of.section.error(None, f"cannot be: {error}") from None
        self.base = self.managed.world.now

    def not_up(self) -> ScenarioError | None:
        """Return why the subnet manager has not brought up a bare fabric; None if it has."""
        manager, world = self.manager, self.managed.world
        if manager is None or not self._of.is_bare:
            return None
        found, problems = len(manager.manager.subnet.nodes), manager.manager.problems
        there = len(self.managed.fabric.graph)
        if found >= there and not problems:
            return None
        told = f"the subnet manager at {self._of.manager} found {found} of {there} nodes"
        told += f" ({'; '.join(problems[:MOST_PROBLEMS])})" if problems else ""
        full = int(world.links()["dropped_full"].sum())
        if not full:
            return self._of.section.error(None, f"has not brought up the fabric: {told}")
        return self._of.section.error(
            "vl15",
            f"is {self._of.vl15} bytes, and {full} management packets did not fit into queues of"
            f" this size: the fabric was not brought up, since {told}",
        )

    def reserve(self, traffic: Traffic) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Reserve the paths of flows hop by hop, if that is wanted.

        Returns what each flow reserves when it starts, in bits/s, and how much later it starts, in
        ps. ``base`` is the time at which all requests were answered.
        """
        rate, later = traffic.reserve.copy(), np.zeros(len(traffic), np.int64)
        manager, share = self.manager, self._of.share
        if share is None or manager is None or not rate.any():
            return rate, later
        if not manager.is_up:
            self._bring_up(manager)
        names, flows = self.managed.fabric.hosts, traffic.work.flows
        report = self.reserved = negotiate(
            manager,
            share,
            (
                Asked(flow, names[flows["src"][flow]], names[flows["dst"][flow]], int(rate[flow]))
                for flow in np.flatnonzero(rate).tolist()
            ),
        )
        for flow, outcome in report.outcomes.items():
            rate[flow] = rate[flow] if outcome.granted else REFUSED
            later[flow] = round(outcome.seconds * SECOND)
        self.base = self.managed.world.now
        return rate, later

    def tell(self, events: Sequence[LinkEvent], base: int) -> None:
        """Have the agents notice the events of links, which the world has already."""
        for event in events:
            port = self.managed.agent(event.cable.a).ports[event.cable.a_port]
            self.managed.tell_link(port, event.up, base + event.at)

    def report(self) -> ManagementReport | None:
        """Return what the manager did."""
        manager = self.manager
        if manager is None:
            return None
        return ManagementReport(
            len(manager.manager.subnet.nodes),
            tuple(manager.sweeps),
            tuple((at, int(notice.trap_number)) for at, notice in manager.traps),
            tuple(manager.manager.problems),
            self.managed.ports.refused(),
            self.reserved,
        )
