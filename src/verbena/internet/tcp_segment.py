# SPDX-License-Identifier: Apache-2.0
"""Segments of TCP, byte for byte (RFC 9293, section 3.1).

Connections exchange them in datagrams. Of the options there is the maximum segment size, which a
SYN has; others are skipped. Sequence numbers have 32 bits here and are ``unwrap``-ped by who counts
further.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntFlag
from ipaddress import IPv4Address

from verbena.internet.errors import PacketError
from verbena.internet.ipv4 import Protocol, checksum
from verbena.internet.udp import pseudo_header

TCP_HEADER = struct.Struct("!HHIIBBHHH")
OPTION_END, OPTION_NOTHING, OPTION_MSS = 0, 1, 2
SEQUENCES = 1 << 32
# RFC 9293, section 3.7.1: of a peer that does not say its maximum segment size.
DEFAULT_MSS = 536


class TcpFlag(IntFlag):
    """The control bits of a segment that are used here."""

    FIN = 1
    SYN = 2
    RST = 4
    PSH = 8
    ACK = 16


@dataclass(frozen=True, slots=True)
class TcpSegment:
    """``window`` is in bytes; ``mss`` is the option of that name, or None."""

    source_port: int
    destination_port: int
    sequence: int
    acknowledgement: int
    flags: TcpFlag
    window: int
    payload: bytes = b""
    mss: int | None = None

    @property
    def length(self) -> int:
        """How many sequence numbers it takes: SYN and FIN have one each."""
        return len(self.payload) + (TcpFlag.SYN in self.flags) + (TcpFlag.FIN in self.flags)

    def encode(self, source: IPv4Address, destination: IPv4Address) -> bytes:
        options = b"" if self.mss is None else struct.pack("!BBH", OPTION_MSS, 4, self.mss)
        head = TCP_HEADER.pack(
            self.source_port,
            self.destination_port,
            self.sequence % SEQUENCES,
            self.acknowledgement % SEQUENCES,
            (TCP_HEADER.size + len(options)) // 4 << 4,
            self.flags,
            self.window,
            0,
            0,
        )
        whole = head + options + self.payload
        pseudo = pseudo_header(source, destination, len(whole), Protocol.TCP)
        return whole[:16] + checksum(pseudo + whole).to_bytes(2, "big") + whole[18:]

    @classmethod
    def decode(cls, data: bytes, source: IPv4Address, destination: IPv4Address) -> TcpSegment:
        """Raises PacketError."""
        if len(data) < TCP_HEADER.size:
            raise PacketError(f"{len(data)} bytes are too few for a header of TCP")
        one, two, sequence, acknowledgement, offset, flags, window, _, _ = TCP_HEADER.unpack_from(
            data
        )
        size = (offset >> 4) * 4
        if not TCP_HEADER.size <= size <= len(data):
            raise PacketError(f"a header of TCP says that it has {size} of {len(data)} bytes")
        if checksum(pseudo_header(source, destination, len(data), Protocol.TCP) + data):
            raise PacketError("TCP's checksum is wrong")
        mss = _mss_option(data[TCP_HEADER.size : size])
        kept = TcpFlag(flags & 0x1F)
        return cls(one, two, sequence, acknowledgement, kept, window, data[size:], mss)


def _mss_option(options: bytes) -> int | None:
    at = 0
    while at < len(options) and options[at] != OPTION_END:
        if options[at] == OPTION_NOTHING:
            at += 1
            continue
        size = options[at + 1] if at + 1 < len(options) else 0
        if size < 2 or at + size > len(options):
            raise PacketError("an option of TCP ends behind the header")
        if options[at] == OPTION_MSS and size == 4:
            return int.from_bytes(options[at + 2 : at + 4], "big")
        at += size
    return None


def unwrap(sequence: int, near: int) -> int:
    """The number that has these low 32 bits and is nearest to ``near``."""
    ahead = (sequence - near) % SEQUENCES
    return near + (ahead if ahead < SEQUENCES // 2 else ahead - SEQUENCES)
