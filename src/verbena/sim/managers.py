# SPDX-License-Identifier: Apache-2.0
"""Subnet managers in a simulated fabric, in virtual time.

``SimulatedManager`` runs a ``SubnetManager`` and its ``SubnetAdministration`` at a port of a
``ManagedWorld``. It records when each sweep and each of its phases began, and which traps came.
``bring_up`` runs the world until the subnet is up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from verbena.manage.agents import MadPacket
from verbena.manage.attribute_ids import Method, MgmtClass
from verbena.manage.mad import MAD_BYTES
from verbena.manage.notices import Notice
from verbena.manage.sa import SubnetAdministration
from verbena.manage.sm import SmSettings, SubnetManager
from verbena.manage.sm.sweep import SweepPhase
from verbena.sim._world import World
from verbena.sim.managed import SECOND, ManagedWorld

__all__ = ["NotBroughtUpError", "SimulatedManager", "SweepRecord", "bring_up"]

SMPS = (int(MgmtClass.SUBN_LID_ROUTED), int(MgmtClass.SUBN_DIRECTED_ROUTE))
RESPONSES = range(0x80, 0x100)


class NotBroughtUpError(RuntimeError):
    """A subnet manager has not brought up its subnet in the time that it had."""


class _SweptError(Exception):
    """Ends a run."""


@dataclass
class SweepRecord:
    """A heavy sweep: when it began, in ps, when each phase began, and how many MADs it took.

    ``end`` is None while it goes on. ``repeated`` counts requests that had no answer in time.
    """

    begin: int
    phases: dict[SweepPhase, int] = field(default_factory=dict)
    end: int | None = None
    mads: int = 0
    repeated: int = 0

    @property
    def discovered(self) -> int | None:
        """When all nodes were known, and settings began."""
        return self.phases.get(SweepPhase.CLEAR)

    @property
    def tables_set(self) -> int | None:
        """When all forwarding tables were set."""
        return self.phases.get(SweepPhase.LANES)


class SimulatedManager:
    """A subnet manager at an end port of a node, with its subnet administration.

    ``traps`` are the notices of traps that came, with their times in ps. ``sweeps`` are the heavy
    sweeps, the present one included. ``on_query``, if set, answers what is asked of subnet
    administration in place of its own packets. Raises ValueError for a node that does not exist,
    and MadError.
    """

    def __init__(
        self,
        managed: ManagedWorld,
        name: str,
        settings: SmSettings | None = None,
        port: int | None = None,
    ) -> None:
        agent = managed.agent(name)
        self.managed = managed
        self.port = agent.end_port(min(agent.ports) if port is None else port)
        self.manager = SubnetManager(self.port.guid, settings, self.port.number)
        self.administration = SubnetAdministration(self.manager)
        self.traps: list[tuple[int, Notice]] = []
        self.sweeps: list[SweepRecord] = []
        self.on_query: Callable[[MadPacket], None] | None = None
        self._phase: SweepPhase | None = None
        self._sent = self._repeated = 0
        self._timer: int | None = None
        self._noticed = self.manager.on_notice
        self.manager.on_notice = self._notice
        agent.set_is_sm(self.port.number, self.manager)
        managed.attach(self.port, self._receive)

    def start(self, at: int | None = None) -> None:
        """Begin at a time in ps, by default now."""
        world = self.managed.world
        begin = world.now if at is None else at
        world.call_at(begin, lambda world: self._follow(self.manager.start(self.managed.now)))

    @property
    def is_up(self) -> bool:
        """A heavy sweep was completed, and none goes on or is due."""
        return bool(self.manager.sweeps) and not self.manager.is_sweeping

    def request_sweep(self) -> None:
        """Have the manager make a heavy sweep now."""
        self.manager.request_sweep()
        self._arm()

    # ---- packets and timers ----------------------------------------------------------------------

    def _receive(self, packet: MadPacket) -> bool:
        mad, now = packet.mad, self.managed.now
        if len(mad) != MAD_BYTES:
            return False
        if mad[1] in SMPS:
            self._follow(self.manager.receive(packet, now))
        elif mad[1] == MgmtClass.SUBN_ADM and mad[3] != Method.GET_RESP:  # that is a program's
            if self.on_query is None or mad[3] in RESPONSES:
                self._follow(self.administration.receive(packet, now))
            else:
                self.on_query(packet)
                self._follow(self.manager.tick(now))
        else:
            return False
        return True

    def _follow(self, packets: list[MadPacket]) -> None:
        """Send what the manager returned, note what it does now, and arm its timer."""
        self._note_phase()
        self.managed.send(self.port, packets)
        self._arm()

    def _arm(self) -> None:
        due, world = self._due(), self.managed.world
        if due is None or (self.managed.rests() and not self.manager.is_sweeping):
            return
        at = max(world.now, math.ceil(due * SECOND))
        if self._timer is None or at < self._timer:
            self._timer = at
            world.call_at(at, partial(self._expired, at))

    def _due(self) -> float | None:
        times = self.manager.next_deadline(), self.administration.next_deadline()
        return min((each for each in times if each is not None), default=None)

    def _expired(self, at: int, world: World) -> None:
        if self._timer != at:
            return
        self._timer, due = None, self._due()
        now = self.managed.now
        if due is not None and math.ceil(due * SECOND) <= at:
            now = max(now, due)  # a time in ps as a float may be less than the time it was made of
        packets = self.manager.tick(now)
        self._follow(packets + self.administration.tick(now))

    # ---- records ---------------------------------------------------------------------------------

    def _notice(self, notice: Notice, packet: MadPacket) -> None:
        self.traps.append((self.managed.world.now, notice))
        self._noticed(notice, packet)

    def _note_phase(self) -> None:
        manager, now = self.manager, self.managed.world.now
        phase = manager.phase
        if phase is self._phase:
            return
        before, self._phase = self._phase, phase
        if phase is None or (before is not None and phase.value < before.value):
            self._close(now)
        if phase is None:
            return
        if not self.sweeps or self.sweeps[-1].end is not None:
            self.sweeps.append(SweepRecord(now))
            self._sent, self._repeated = manager.mads_sent, manager.mads_repeated
        record = self.sweeps[-1]
        for each in SweepPhase:
            if each.value <= phase.value:
                record.phases.setdefault(each, now)

    def _close(self, now: int) -> None:
        if not self.sweeps or self.sweeps[-1].end is not None:
            return
        record = self.sweeps[-1]
        record.end = now
        for each in SweepPhase:  # those that had nothing to do
            record.phases.setdefault(each, now)
        record.mads = self.manager.mads_sent - self._sent
        record.repeated = self.manager.mads_repeated - self._repeated


def bring_up(manager: SimulatedManager, until: int | None = None) -> SweepRecord:
    """Start a subnet manager, and run the world until it has brought up the subnet.

    Returns the sweep that did it. Raises NotBroughtUpError at ``until`` in ps, or when nothing is
    left to happen.
    """
    world, inner = manager.managed.world, manager.manager
    swept = inner.on_sweep

    def ended(before: object) -> None:
        swept(before)  # type: ignore[arg-type]
        inner.on_sweep = swept
        world.call_at(world.now, _stop)

    inner.on_sweep = ended
    manager.start()
    try:
        end = world.run(until)
    except _SweptError:
        return manager.sweeps[-1] if manager.sweeps[-1].end is not None else manager.sweeps[-2]
    inner.on_sweep = swept
    problems = "; ".join(inner.problems) or "no problem"
    raise NotBroughtUpError(
        f"the subnet is not up at {world.now / SECOND} s ({end}): {inner.state.name}, "
        f"{inner.mads_sent} MADs sent; {problems}"
    )


def _stop(world: World) -> None:
    raise _SweptError
