# SPDX-License-Identifier: Apache-2.0
"""Ethernet frames as links carry them: without preamble and frame check sequence.

Interfaces with a MAC address encode and decode them. A frame has at least 60 bytes here, which are
64 with the check sequence; what is missing is padded with zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address

from verbena.internet.errors import AddressError, PacketError

HEADER_BYTES = 14
MIN_FRAME = 60
BROADCAST = b"\xff" * 6


class EtherType(IntEnum):
    IPV4 = 0x0800
    ARP = 0x0806


@dataclass(frozen=True, slots=True)
class Frame:
    """``kind`` is the EtherType; ``payload`` may end with padding when it was decoded."""

    destination: bytes
    source: bytes
    kind: int
    payload: bytes

    def encode(self) -> bytes:
        whole = self.destination + self.source + self.kind.to_bytes(2, "big") + self.payload
        return whole.ljust(MIN_FRAME, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> Frame:
        """Raises PacketError."""
        if len(data) < HEADER_BYTES:
            raise PacketError(f"{len(data)} bytes are too few for an Ethernet frame")
        return cls(data[:6], data[6:12], int.from_bytes(data[12:14], "big"), data[14:])


def is_group_mac(mac: bytes) -> bool:
    """Whether frames for this address go to several stations."""
    return bool(mac[0] & 1)


def multicast_mac(group: IPv4Address) -> bytes:
    """RFC 1112, section 6.4: the low 23 bits of a group's address."""
    return b"\x01\x00\x5e" + (int(group) & 0x7FFFFF).to_bytes(3, "big")


def mac_text(mac: bytes) -> str:
    return mac.hex(":")


def parse_mac(text: str | bytes) -> bytes:
    """Six bytes. Raises AddressError, also for an address of several stations."""
    try:
        mac = text if isinstance(text, bytes) else bytes.fromhex(text.replace(":", ""))
    except ValueError:
        mac = b""
    if len(mac) != 6 or is_group_mac(mac):
        raise AddressError(f"{text!r} is no MAC address of one station, as 02:00:00:00:00:01 is")
    return mac
