# SPDX-License-Identifier: Apache-2.0
"""Bandwidth that is reserved hop by hop before a flow begins, in a managed simulated fabric.

``HopReservations`` gives each node of a ``ManagedWorld`` a ``ReservationAgent`` of
``verbena.manage.reservation``, whose messages are packets of QP 1 between neighbours, and the
subnet manager's budgets. ``flow`` reserves a path, and then begins a flow that keeps to its rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from verbena.manage.agents import MadPacket, NodePort
from verbena.manage.mad import MAD_BYTES
from verbena.manage.reservation import LinkBudgets, Outcome, ReservationAgent, ReservationKind
from verbena.sim._world import World
from verbena.sim.managed import SECOND, ManagedWorld
from verbena.sim.managers import SimulatedManager

__all__ = ["HopReservations", "ReservedFlow"]

RESERVATION_CLASS = 0x4A
MEGABIT = 10**6
NO_PATH = 255


@dataclass
class ReservedFlow:
    """A flow that has asked for its path. ``outcome`` is None until the answer has come.

    ``flow`` is its number in the world after a grant, and ``granted_at`` in ps when it came.
    """

    source: str
    target: str
    number: int
    outcome: Outcome | None = None
    flow: int | None = None
    granted_at: int | None = None


class _Station:
    """A reservation agent at an end port, with its timer."""

    def __init__(self, managed: ManagedWorld, port: NodePort, ended: Callable[[], None]) -> None:
        self.managed, self.port, self._ended = managed, port, ended
        output = self._output if port.node.is_switch else lambda lid: port.number
        self.agent = ReservationAgent(
            lambda: port.lid, lambda: port.master_sm_lid, output, port=port.number
        )
        self._timer: int | None = None
        managed.attach(port, self._receive)

    def _output(self, lid: int) -> int | None:
        tables = self.port.node.forwarding
        assert tables is not None
        found = tables.output_port(lid)
        return found if found not in (0, NO_PATH) else None

    def _receive(self, packet: MadPacket) -> bool:
        if len(packet.mad) != MAD_BYTES or packet.mad[1] != RESERVATION_CLASS:
            return False
        if packet.mad[3] & 0x80:
            return False  # an answer to the subnet manager
        self.follow(self.agent.receive(packet, self.managed.now))
        return True

    def follow(self, packets: list[MadPacket]) -> None:
        """Send what the agent returned, and arm its timer."""
        self.managed.send(self.port, packets)
        self._ended()
        due, world = self.agent.next_deadline(), self.managed.world
        if due is None or self.managed.rests():
            return
        at = max(world.now, math.ceil(due * SECOND))
        if self._timer is None or at < self._timer:
            self._timer = at
            world.call_at(at, partial(self._expired, at, due))

    def _expired(self, at: int, due: float, world: World) -> None:
        if self._timer == at:
            self._timer = None
            self.follow(self.agent.tick(max(self.managed.now, due)))


class HopReservations:
    """Reservation agents of all nodes, and the budgets of the subnet manager ``manager``.

    ``share`` of each link's rate may be reserved. ``start`` gives the nodes their budgets.
    ``flows`` are those that have asked, ``messages`` the MADs of all agents.
    """

    def __init__(self, manager: SimulatedManager, *, share: float = 0.8) -> None:
        self.managed, self._port = manager.managed, manager.port
        self.budgets = LinkBudgets(manager.manager, share=share)
        self.flows: list[ReservedFlow] = []
        self._starts: dict[tuple[str, int], Callable[[], int] | None] = {}
        self._lease = 60
        self._stations = {
            name: _Station(self.managed, port, self._look)
            for name, agent in self.managed.agents.items()
            for port in agent.end_ports()[:1]
        }
        self._agents = [each.agent for each in self._stations.values()]
        self.managed.attach(self._port, self._answered)

    @property
    def messages(self) -> int:
        """MADs that the agents have sent."""
        return sum(agent.sent for agent in self._agents)

    def start(self) -> None:
        """Give all nodes their budgets, now that the manager has swept."""
        self.managed.send(self._port, self.budgets.program(self.managed.now))
        self._repeat()

    def _answered(self, packet: MadPacket) -> bool:
        if len(packet.mad) != MAD_BYTES or packet.mad[1] != RESERVATION_CLASS:
            return False
        self.budgets.receive(packet, self.managed.now)
        return bool(packet.mad[3] & 0x80)

    def _repeat(self) -> None:
        due, world = self.budgets.next_deadline(), self.managed.world
        if due is not None:
            at = max(world.now, math.ceil(due * SECOND))
            world.call_at(at, partial(self._tick, due))

    def _tick(self, due: float, world: World) -> None:
        self.managed.send(self._port, self.budgets.tick(max(self.managed.now, due)))
        self._repeat()

    def flow(self, source: str, target: str, size: int, rate: int, **more: int) -> ReservedFlow:
        """Ask for ``rate`` bits/s of each link to ``target``; after the grant ``size`` bytes flow.

        ``more``: keywords of ``World.add_flows``, as ``level``. Raises MadError for a rate beyond
        4,294 Tb/s or below 1 Mb/s.
        """
        ends = self._stations[source].port, self._stations[target].port
        hosts = self.managed.node_of(ends[0]), self.managed.node_of(ends[1])

        def begin() -> int:
            world, whole = self.managed.world, rate // MEGABIT * MEGABIT
            return world.add_flows(*hosts, size, world.now, reserve=whole, **more)

        return self._ask(source, target, rate, begin)

    def path(self, source: str, target: str, rate: int) -> ReservedFlow:
        """Ask for ``rate`` bits/s of each link to ``target``, without a flow. Raises MadError."""
        return self._ask(source, target, rate, None)

    def _ask(
        self, source: str, target: str, rate: int, begin: Callable[[], int] | None
    ) -> ReservedFlow:
        station, lid = self._stations[source], self._stations[target].port.lid
        kind, lease = ReservationKind.BANDWIDTH, self._lease
        number, packets = station.agent.reserve(
            lid, kind, rate // MEGABIT, self.managed.now, lease=lease
        )
        asked = ReservedFlow(source, target, number)
        self.flows.append(asked)
        self._starts[source, number] = begin
        station.follow(packets)
        return asked

    def release(self, flow: ReservedFlow) -> None:
        """Give back what a flow holds."""
        station = self._stations[flow.source]
        station.follow(station.agent.release(flow.number, self.managed.now))

    def reserved(self, node: str, port: int) -> int:
        """Return the bits/s of a link that are reserved, by its sending end."""
        return self._stations[node].agent.used(port, ReservationKind.BANDWIDTH) * MEGABIT

    def _look(self) -> None:
        """Begin the flows whose paths were granted."""
        for asked in self.flows:
            key = asked.source, asked.number
            if key not in self._starts:
                continue
            outcome = self._stations[asked.source].agent.outcomes.get(asked.number)
            if outcome is None:
                continue
            begin = self._starts.pop(key)
            asked.outcome = outcome
            if outcome.granted:
                asked.granted_at = self.managed.world.now
                asked.flow = None if begin is None else begin()
