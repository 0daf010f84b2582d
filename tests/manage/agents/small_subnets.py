# SPDX-License-Identifier: Apache-2.0
"""Small subnets to test with, and a program that keeps what it receives."""

from __future__ import annotations

from typing import Any

from tests.manage.agents.managing import bring_up
from verbena.manage.agents import MadPacket, Subnet
from verbena.manage.attribute_ids import Method
from verbena.manage.mad import LidRoutedSmp, MadHeader, parse_mad
from verbena.manage.notices import Notice


class Program:
    """A receiver that keeps all packets."""

    def __init__(self, subnet: Subnet, host: str) -> None:
        self.subnet, self.host = subnet, host
        self.packets: list[MadPacket] = []
        subnet.attach(host, self.packets.append)

    @property
    def mads(self) -> list[MadHeader]:
        return [parse_mad(packet.mad) for packet in self.packets]

    def traps(self) -> list[Notice]:
        """The notices of the traps that have come since the last call."""
        found = [mad.attribute(Notice) for mad in self.mads if mad.method == Method.TRAP]
        self.packets.clear()
        return found

    def repress(self) -> None:
        """Answer every trap that is here with TrapRepress, and forget it."""
        kept, self.packets[:] = list(self.packets), []
        for packet in kept:
            trap = LidRoutedSmp.unpack(packet.mad)
            if trap.method == Method.TRAP:
                answer = trap.replace(method=Method.TRAP_REPRESS)
                self.subnet.inject(self.host, answer, dlid=packet.slid)


def two_switches(**options: Any) -> Subnet:
    """Hosts h1 and h2 at switch s1, h3 at s2, and a cable between the switches' ports 3."""
    subnet = Subnet()
    for name in ("s1", "s2"):
        subnet.add_switch(name, ports=4, **options)
    for number, (switch, port) in enumerate((("s1", 1), ("s1", 2), ("s2", 1)), 1):
        subnet.add_adapter(f"h{number}")
        subnet.connect(f"h{number}", 1, switch, port)
    subnet.connect("s1", 3, "s2", 3)
    return subnet


def managed(**options: Any) -> tuple[Subnet, dict[str, int], Program]:
    """``two_switches`` as h1 has configured it, the LIDs by name, and the program at h1."""
    subnet = two_switches(**options)
    program = Program(subnet, "h1")
    by_guid = bring_up(subnet, "h1")
    program.packets.clear()
    return subnet, {name: by_guid[node.guid] for name, node in subnet.nodes.items()}, program
