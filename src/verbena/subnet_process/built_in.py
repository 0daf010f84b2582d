# SPDX-License-Identifier: Apache-2.0
"""The subnet manager and the subnet administration of Verbena, at a port of a live fabric.

``running.py`` makes a ``BuiltInManager`` where `verbena fabric --sm builtin` asks for one; it is a
duty of the server. Its agents are registered as a program's are, so a second manager on the port
gets the errors that it would get beside OpenSM.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from verbena.manage.agents import MadPacket
from verbena.manage.codes import SmState
from verbena.manage.errors import MadError
from verbena.manage.sa import SubnetAdministration
from verbena.manage.sm import SmSettings, SubnetManager, read_partitions

from .mad_port import DIRECTED, LID_ROUTED, SUBN_ADM, MadAgent

if TYPE_CHECKING:
    from .live_subnet import LiveSubnet

__all__ = ["BuiltInManager", "settings_of"]

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
        priority = f", priority {manager.settings.priority}" if manager.settings.priority else ""
        where = f"at {self.port.node.name}, LID {self.port.port.lid}{priority}"
        found = [*manager.problems, *self._members_of_nobody()]
        problems = f", problems: {'; '.join(found)}" if found else ""
        return f"built in, {manager.state.name} {where}, {manager.sweeps} sweeps{problems}"

    def _members_of_nobody(self) -> list[str]:
        """Return a sentence for each partition whose file names GUIDs that no port has."""
        here = {
            port.guid for node in self.live.subnet.nodes.values() for port in node.ports.values()
        }
        found = []
        for partition in self.manager.settings.partitions.partitions:
            strangers = sorted(set(partition.members) - here)
            if strangers:
                guids = ", ".join(f"{each:#018x}" for each in strangers)
                found.append(
                    f"partition {partition.name} has {guids}, which is the GUID of no port here "
                    "(ibstat shows them)"
                )
        return found

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


SETTABLE = {
    each.name: getattr(SmSettings, each.name)
    for each in fields(SmSettings)
    if isinstance(getattr(SmSettings, each.name, None), int | float)
}
"""The settings that are numbers, or true or false, with their defaults."""


def settings_of(
    engine: str = "minhop", partitions: str | None = None, changes: Iterable[str] = ()
) -> SmSettings:
    """Return settings for an engine; OpenSM at another host has the same SM_Key and priority.

    ``partitions`` is the text of a file that OpenSM reads with -P, and ``changes`` are others,
    ``lmc=1`` for example. Raises MadError, which says what is wrong.
    """
    given: dict[str, Any] = {"engine": engine, "priority": 0}
    if partitions is not None:
        given["partitions"] = read_partitions(partitions)
    for change in changes:
        name, equals, text = change.partition("=")
        name = name.strip().replace("-", "_")
        if name in SETTABLE and not equals:
            raise MadError(f"{change!r} has no value: {name}={SETTABLE[name]} is its default")
        if name not in SETTABLE:
            near = difflib.get_close_matches(name, SETTABLE, 1)
            meant = f"; is {near[0]} meant?" if near else ""
            known = ", ".join(SETTABLE)
            raise MadError(
                f"{change!r} sets nothing{meant}; write NAME=VALUE with a setting of the "
                f"manager's, of: {known}"
            )
        given[name] = _setting(name, text.strip())
    return SmSettings(**given)


def _setting(name: str, text: str) -> float:
    default = SETTABLE[name]
    try:
        if isinstance(default, bool):
            return {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}[
                text.lower()
            ]
        return float(text) if isinstance(default, float) else int(text, 0)
    except (KeyError, ValueError):
        kind = "yes or no" if isinstance(default, bool) else "a number"
        raise MadError(f"{name}={text} is not {kind}") from None
