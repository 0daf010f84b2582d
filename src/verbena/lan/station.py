# SPDX-License-Identifier: Apache-2.0
"""A station: a host's end of a LAN, which sends and receives frames of bytes.

It is a link layer for what is above it, as IP: ``send(frame)``, ``on_frame`` and ``mtu``.
"""

from __future__ import annotations

from collections.abc import Callable

from verbena._arguments import checked_class
from verbena.lan.bpdu import is_link_local
from verbena.lan.errors import LanTypeError
from verbena.lan.frame import MTU, Frame, mac_address, mac_text
from verbena.lan.port import Port, PortCounters


@checked_class(LanTypeError)
class Station:
    """A port with a name and a MAC address. ``mtu`` is of the payload, in bytes."""

    mtu = MTU

    def __init__(self, name: str, mac: str | bytes, port: Port) -> None:
        self.name = name
        self.mac = mac_address(mac)
        self.port = port
        port.mac = self.mac
        port.on_frame = self._arrived
        self.on_frame: Callable[[bytes], None] | None = None
        """Called with each frame to this station or to a group, padded to 60 bytes."""
        self._promiscuous = False

    def __repr__(self) -> str:
        return f"Station({self.name!r}, {mac_text(self.mac)})"

    @property
    def promiscuous(self) -> bool:
        """Whether frames to others arrive, too, and those that only switches take."""
        return self._promiscuous

    @promiscuous.setter
    def promiscuous(self, on: bool) -> None:
        self._promiscuous = on
        self.port.mac = None if on else self.mac

    @property
    def counters(self) -> PortCounters:
        """What the station has done so far."""
        return self.port.counters

    def _arrived(self, frame: bytes) -> None:
        if self.on_frame is None or (is_link_local(frame) and not self._promiscuous):
            return
        self.on_frame(frame)

    def send(self, frame: bytes) -> None:
        """Queues a frame: destination, source, type, payload. Raises LanError."""
        self.port.send(frame)

    def send_to(self, destination: bytes, payload: bytes, ethertype: int = 0x88B5) -> None:
        """Sends a payload; the type is one for experiments (IEEE 802). Raises LanError."""
        self.send(Frame(destination, self.mac, ethertype, payload).pack())
