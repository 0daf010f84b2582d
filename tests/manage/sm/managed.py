# SPDX-License-Identifier: Apache-2.0
"""Subnets in memory with subnet managers on their hosts, for the tests of ``verbena.manage.sm``.

A ``ManagedSubnet`` gives packets to the managers, keeps the time, and loses packets if a test wants
that. ``problems_of`` compares a subnet with what its master should have made of it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from random import Random
from typing import Any

from verbena.fabrics import Fabric
from verbena.manage.agents import MadPacket, NodeAgent, Subnet, subnet_of_fabric
from verbena.manage.codes import PortState, SmState
from verbena.manage.sa import SubnetAdministration
from verbena.manage.sm import SmSettings, SubnetManager

SMPS = (0x01, 0x81)
STEP = 0.001  # seconds: what is due within it is done at once


class ManagedSubnet:
    """A subnet with managers by the name of their host.

    ``lose(packet)`` says whether a packet is lost; ``inboxes`` has what came to hosts without a
    manager.
    """

    def __init__(self, fabric: Fabric | Subnet, seed: int = 1) -> None:
        self.subnet = fabric if isinstance(fabric, Subnet) else subnet_of_fabric(fabric)
        self.now = 0.0
        self.random = Random(seed)
        self.managers: dict[str, SubnetManager] = {}
        self.administrations: dict[str, SubnetAdministration] = {}
        self.lose: Callable[[MadPacket], bool] = lambda packet: False
        self.others: dict[str, Callable[[MadPacket], None]] = {}  # programs beside a manager
        self.sent: list[tuple[str, MadPacket]] = []
        self.keep = False

    def port_guid(self, host: str, port: int = 1) -> int:
        node = self.subnet.node(host)
        return int.from_bytes(node.ports[0 if node.is_switch else port].guids[:8], "big")

    def add(self, host: str, settings: SmSettings | None = None, **more: Any) -> SubnetManager:
        """Start a manager at the first port of a host, or at a switch."""
        node = self.subnet.node(host)
        port = 0 if node.is_switch else 1
        manager = SubnetManager(self.port_guid(host), settings or SmSettings(**more), port)
        self.managers[host] = manager
        self.administrations[host] = SubnetAdministration(manager)
        self.subnet.attach(host, lambda packet: self._arrived(host, packet))
        node.set_is_sm(port, manager)
        self._send(host, manager.start(self.now))
        return manager

    def stop(self, host: str) -> None:
        """Let a manager die."""
        node = self.subnet.node(host)
        del self.managers[host], self.administrations[host]
        self.subnet.attach(host, None)
        node.set_is_sm(0 if node.is_switch else 1, None)

    def _arrived(self, host: str, packet: MadPacket) -> None:
        if self.lose(packet):
            return
        other = self.others.get(host)
        if other is not None and packet.mad[1] == 3 and _is_answer(packet.mad):
            other(packet)
        elif packet.mad[1] in SMPS:
            self._send(host, self.managers[host].receive(packet, self.now))
        else:
            self._send(host, self.administrations[host].receive(packet, self.now))

    def _send(self, host: str, packets: list[MadPacket]) -> None:
        for packet in packets:
            if self.keep:
                self.sent.append((host, packet))
            if not self.lose(packet):
                self.subnet.inject(host, packet)

    def run(self, seconds: float = 0.0) -> None:
        """Let time pass, at least until nothing is due now."""
        end = self.now + seconds
        for _ in range(100_000):
            times = [each.next_deadline() for each in self.managers.values()]
            times += [each.next_deadline() for each in self.administrations.values()]
            times.append(self.subnet.next_due)
            first = min((time for time in times if time is not None), default=end + 1)
            if first > end:
                break
            self.now = max(self.now, min(first + STEP, end))
            self.subnet.advance(self.now)
            for host in list(self.managers):
                self._send(host, self.managers[host].tick(self.now))
                self._send(host, self.administrations[host].tick(self.now))
        else:
            raise AssertionError("the managers do not come to rest")
        self.now = max(self.now, end)
        self.subnet.advance(self.now)

    @property
    def masters(self) -> list[SubnetManager]:
        return [each for each in self.managers.values() if each.state == SmState.MASTER]


def _is_answer(mad: bytes) -> bool:
    """Whether a MAD of the SA's class is for a client: not a request, and no ACK of a client's."""
    is_control = bool(mad[26] & 1) and mad[25] != 1
    return ((bool(mad[3] & 0x80) and mad[3] != 0x86) or mad[3] == 6) and not is_control


def linked_hosts(subnet: Subnet) -> list[NodeAgent]:
    """Hosts with a link."""
    hosts = [node for node in subnet.nodes.values() if not node.is_switch]
    return [node for node in hosts if any(port.is_up for port in node.ports.values())]


def problems_of(managed: ManagedSubnet, *, between_switches: bool = True) -> list[str]:
    """What is wrong in a subnet that has one master: states, LIDs, and the way of every pair.

    Up and down again, as some engines do, leads from no root to another one: then ways
    ``between_switches`` are not looked at.
    """
    found: list[str] = []
    subnet = managed.subnet
    if len(managed.masters) != 1:
        return [f"{len(managed.masters)} masters"]
    master = managed.masters[0]
    for node in subnet.nodes.values():
        for port in node.ports.values():
            if port.number and port.is_up and port.state != PortState.ACTIVE:
                found.append(f"{node.name} port {port.number} is {port.state!r}")
    ends = []
    for node in linked_hosts(subnet):
        ends += [port for port in node.end_ports() if port.is_up or not port.number]
    ends += [node.ports[0] for node in subnet.nodes.values() if node.is_switch]
    lids: dict[int, str] = {}
    for port in ends:
        name = f"{port.node.name} port {port.number}"
        if not port.lids:
            found.append(f"{name} has no LID")
        for lid in port.lids:
            if lid in lids:
                found.append(f"LID {lid} is of {name} and of {lids[lid]}")
            lids[lid] = name
    for one, other in combinations(ends, 2):
        if not between_switches and not one.number and not other.number:
            continue
        for source, target in ((one, other), (other, one)):
            for dlid in target.lids:
                way = subnet.path(source.lid, dlid, smp=False)
                if way.problem is not None:
                    found.append(f"{source.lid} to {dlid}: {way.problem} at {way.at}")
    if master.subnet.own_port is None:
        found.append("the master does not know its own port")
    return found
