# SPDX-License-Identifier: Apache-2.0
"""The subnet manager and the subnet administration of Verbena, at a port of a live fabric.

``running.py`` makes a ``BuiltInManager`` where `verbena fabric --sm builtin` asks for one; it is a
duty of the server. Its agents are registered as a program's are, so a second manager on the port
gets the errors that it would get beside OpenSM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from verbena.manage.agents import MadPacket
from verbena.manage.codes import SmState
from verbena.manage.sa import SubnetAdministration
from verbena.manage.sm import SmSettings, SubnetManager

from .mad_port import DIRECTED, LID_ROUTED, SUBN_ADM, MadAgent

if TYPE_CHECKING:
    from .live_subnet import LiveSubnet

__all__ = ["BuiltInManager"]

GET, SET, TRAP, TRAP_REPRESS = 0x01, 0x02, 0x05, 0x07
SMP_METHODS = 1 << GET | 1 << SET | 1 << TRAP | 1 << TRAP_REPRESS
SA_METHODS = 1 << GET | 1 << SET | 1 << 0x12 | 1 << 0x13 | 1 << 0x14 | 1 << 0x15


class BuiltInManager:
    """A subnet manager at the end port ``number`` of a node, or at port 0 of a switch."""

    def __init__(self, live: LiveSubnet, name: str, settings: SmSettings, number: int = 1) -> None:
        self.live = live
        node = live.subnet.node(name)
        self.port = live.mad_port(node, number)
        self.manager = SubnetManager(self.port.port.guid, settings, self.port.port.number)
        self.administration = SubnetAdministration(self.manager, most_records=1 << 20)
        self._agents = [
            MadAgent(self.port, 0, self._smp, mgmt_class=LID_ROUTED, methods=SMP_METHODS),
            MadAgent(self.port, 0, self._smp, mgmt_class=DIRECTED, methods=SMP_METHODS),
            MadAgent(
                self.port, 1, self._query, mgmt_class=SUBN_ADM, version=2, methods=SA_METHODS,
                whole=True,
            ),
        ]  # fmt: skip
        for agent in self._agents:
            self.port.register(agent)
        node.set_is_sm(self.port.port.number, self.manager)
        live.responses[self.port] = self._response
        self._send(self.manager.start(live.subnet.now))

    def describe(self) -> str:
        """Return what it is doing, in a sentence."""
        manager = self.manager
        where = f"at {self.port.node.name}, LID {self.port.port.lid}"
        problems = f", problems: {'; '.join(manager.problems)}" if manager.problems else ""
        return f"built in, {manager.state.name} {where}, {manager.sweeps} sweeps{problems}"

    # ---- packets -------------------------------------------------------------------------------

    def _send(self, packets: list[MadPacket]) -> None:
        for packet in packets:
            self.live.send(self.port, packet)

    def _smp(self, message: bytes, packet: MadPacket) -> None:
        self._send(self.manager.receive(packet, self.live.subnet.now))

    def _response(self, packet: MadPacket) -> bool:
        """Take a response that no agent has asked for: the manager's requests have own numbers."""
        now = self.live.subnet.now
        if packet.mad[1] == SUBN_ADM:
            self._send(self.administration.receive(packet, now))
        else:
            self._send(self.manager.receive(packet, now))
        return True

    def _query(self, message: bytes, packet: MadPacket) -> None:
        now = self.live.subnet.now
        answer = self.administration.answer(message, packet, now)
        if answer is not None:
            self.live.send_answer(self.port, packet, answer)
        self._send(self.administration.tick(now))
        self.tick_manager(now)

    # ---- time (Duty) ---------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return when ``tick`` is due, in seconds of the server's clock."""
        times = self.manager.next_deadline(), self.administration.next_deadline()
        return min((self.live.begun + time for time in times if time is not None), default=None)

    def tick(self, now: float) -> None:
        """Do what is due."""
        here = self.live.subnet.now
        due = self.administration.next_deadline()
        if due is not None and due <= here:
            self._send(self.administration.tick(here))
        self.tick_manager(here)

    def tick_manager(self, here: float) -> None:
        """Let the manager do what is due."""
        due = self.manager.next_deadline()
        if due is not None and due <= here:
            self._send(self.manager.tick(here))

    @property
    def is_up(self) -> bool:
        """Whether the subnet has been swept by a master."""
        state = self.manager.state
        return (state == SmState.MASTER and self.manager.sweeps > 0) or state == SmState.STANDBY


def settings_of(engine: str) -> SmSettings:
    """Return settings for an engine; OpenSM at another host has the same SM_Key and priority."""
    return SmSettings(engine=engine, priority=0)
