# SPDX-License-Identifier: Apache-2.0
"""A lesson's computers while they run: whose instructions are shown, and what else is seen.

programs.py builds scenes, and frames.py turns what they see into sentences.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from verbena.host.computer import Computer
from verbena.host.devices import Device
from verbena.host.hca.packets import Packet
from verbena.host.pcie import Tlp


@dataclass
class Scene:
    """``computer`` has the program. ``seen`` gets what crosses watched links and the wire: when,
    on which computer (empty: on the wire), and what."""

    computer: Computer
    seen: list[tuple[int, str, Tlp | Packet]] = field(default_factory=list)

    def watch(self, device: Device, where: str = "") -> None:
        """Sees every transaction of a device's link; ``where`` names its computer."""
        assert device.slot is not None
        device.slot.observers.append(lambda tlp: self.seen.append((tlp.at, where, tlp)))

    def see_packet(self, packet: Packet) -> bool:
        """Sees a packet of the wire, as ``drop`` of Wire; it is not lost."""
        self.seen.append((self.computer.now, "", packet))
        return False
