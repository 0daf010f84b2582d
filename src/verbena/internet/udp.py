# SPDX-License-Identifier: Apache-2.0
"""UDP (RFC 768): ports and checksums, and a socket for each port of a node.

Routing protocols and traceroute use it; programs may. A datagram for a port without a socket is
answered with port unreachable by the node.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address

from verbena.internet.errors import PacketError
from verbena.internet.ipv4 import Protocol, checksum

UDP_HEADER = struct.Struct("!HHHH")
EPHEMERAL = range(49152, 65536)
MAX_UDP_PAYLOAD = 65535 - 20 - UDP_HEADER.size


def pseudo_header(
    source: IPv4Address, destination: IPv4Address, length: int, protocol: int = Protocol.UDP
) -> bytes:
    """What the checksums of UDP and TCP cover besides their own bytes (RFC 768, RFC 9293)."""
    return source.packed + destination.packed + struct.pack("!BBH", 0, protocol, length)


@dataclass(frozen=True, slots=True)
class UdpPacket:
    source_port: int
    destination_port: int
    payload: bytes

    def encode(self, source: IPv4Address, destination: IPv4Address) -> bytes:
        """With the checksum over the addresses too; a sum of 0 is sent as 0xffff."""
        length = UDP_HEADER.size + len(self.payload)
        head = (self.source_port, self.destination_port, length)
        pseudo = pseudo_header(source, destination, length)
        total = checksum(pseudo + UDP_HEADER.pack(*head, 0) + self.payload) or 0xFFFF
        return UDP_HEADER.pack(*head, total) + self.payload

    @classmethod
    def decode(cls, data: bytes, source: IPv4Address, destination: IPv4Address) -> UdpPacket:
        """Raises PacketError. A checksum of 0 says that there is none."""
        if len(data) < UDP_HEADER.size:
            raise PacketError(f"{len(data)} bytes are too few for a header of UDP")
        source_port, destination_port, length, total = UDP_HEADER.unpack_from(data)
        if not UDP_HEADER.size <= length <= len(data):
            raise PacketError(f"UDP's length of {length} is wrong in {len(data)} bytes")
        if total and checksum(pseudo_header(source, destination, length) + data[:length]):
            raise PacketError("UDP's checksum is wrong")
        return cls(source_port, destination_port, data[UDP_HEADER.size : length])


# payload, the sender's address and port
UdpReceiver = Callable[[bytes, IPv4Address, int], None]
