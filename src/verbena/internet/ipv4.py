# SPDX-License-Identifier: Apache-2.0
"""IPv4 datagrams, byte for byte (RFC 791), and the checksum of the internet (RFC 1071).

Interfaces encode what a node sends and decode what a link brings. A datagram that is decoded has a
good header checksum and as many bytes as its header says.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address

from verbena.internet.errors import InternetError, PacketError

HEADER = struct.Struct("!BBHHHBBH4s4s")
MAX_DATAGRAM = 65535
# RFC 791: every link carries 68 bytes, a header of 60 and a fragment of 8.
MIN_MTU = 68
DONT_FRAGMENT = 0x4000
MORE_FRAGMENTS = 0x2000
COPIED = 0x80

FragmentKey = tuple[IPv4Address, IPv4Address, int, int]


class Protocol(IntEnum):
    """Numbers of the protocol field that this room uses (assigned by IANA)."""

    ICMP = 1
    TCP = 6
    UDP = 17
    LINK_STATE = 89


def check_ttl(ttl: int) -> None:
    """Raises InternetError; no host sends a datagram with a TTL of 0 (RFC 1122, 3.2.1.7)."""
    if not 1 <= ttl <= 255:
        raise InternetError(f"a TTL of {ttl}: a host sends 1 to 255 (RFC 1122, 3.2.1.7)")


def checksum(data: bytes) -> int:
    """The complement of the one's-complement sum of 16-bit words; of data with a good one, 0.

    A number's remainder by 65535 is the one's-complement sum of its 16-bit digits. That sum is
    0xffff, and not 0, for any digits but zeros.
    """
    if len(data) % 2:
        data += b"\0"
    number = int.from_bytes(data, "big")
    return 0xFFFF if number == 0 else (0xFFFF - number % 0xFFFF) % 0xFFFF


@dataclass(frozen=True, slots=True)
class Datagram:
    """A datagram or a fragment of one; ``offset`` is in bytes, a multiple of 8.

    ``options`` are the bytes behind the fixed header, a multiple of 4, at most 40.
    """

    protocol: int
    source: IPv4Address
    destination: IPv4Address
    payload: bytes
    ttl: int = 64
    identification: int = 0
    dont_fragment: bool = False
    more_fragments: bool = False
    offset: int = 0
    tos: int = 0
    options: bytes = b""

    @property
    def header_length(self) -> int:
        return HEADER.size + len(self.options)

    @property
    def length(self) -> int:
        """Bytes of header and payload."""
        return self.header_length + len(self.payload)

    @property
    def is_fragment(self) -> bool:
        return self.more_fragments or self.offset > 0

    @property
    def fragment_key(self) -> FragmentKey:
        """What fragments of one datagram have in common (RFC 791, section 3.2)."""
        return self.source, self.destination, self.protocol, self.identification

    def encode(self) -> bytes:
        """Raises PacketError for a datagram that no header can describe."""
        if self.length > MAX_DATAGRAM:
            raise PacketError(f"a datagram has at most {MAX_DATAGRAM} bytes, and not {self.length}")
        if len(self.options) % 4 or len(self.options) > 40:
            raise PacketError(f"options have 0, 4, … or 40 bytes, and not {len(self.options)}")
        flags = DONT_FRAGMENT * self.dont_fragment | MORE_FRAGMENTS * self.more_fragments
        fixed = HEADER.pack(
            0x40 | self.header_length // 4,
            self.tos,
            self.length,
            self.identification,
            flags | self.offset // 8,
            self.ttl,
            self.protocol,
            0,
            self.source.packed,
            self.destination.packed,
        )
        header = fixed + self.options
        return header[:10] + checksum(header).to_bytes(2, "big") + header[12:] + self.payload

    @classmethod
    def decode(cls, data: bytes) -> Datagram:
        """Ignores bytes behind the datagram, as a link's padding. Raises PacketError."""
        if len(data) < HEADER.size:
            raise PacketError(f"{len(data)} bytes are too few for a header of IPv4")
        first, tos, total, identification, part, ttl, protocol, _, source, destination = (
            HEADER.unpack_from(data)
        )
        header = (first & 15) * 4
        if first >> 4 != 4 or header < HEADER.size or not header <= total <= len(data):
            raise PacketError(
                f"version {first >> 4}, a header of {header} bytes, {total} bytes in all: "
                f"this is no datagram of IPv4 in {len(data)} bytes"
            )
        if checksum(data[:header]):
            raise PacketError("the header's checksum is wrong")
        return cls(
            protocol,
            IPv4Address(source),
            IPv4Address(destination),
            data[header:total],
            ttl,
            identification,
            bool(part & DONT_FRAGMENT),
            bool(part & MORE_FRAGMENTS),
            (part & 0x1FFF) * 8,
            tos,
            data[HEADER.size : header],
        )


def copied_options(options: bytes) -> bytes:
    """The options that every fragment repeats: those with the copied flag, padded with zeros."""
    kept, at = b"", 0
    while at < len(options) and options[at] != 0:
        size = 1 if options[at] == 1 else options[at + 1] if at + 1 < len(options) else 0
        if size == 0:
            break
        if options[at] & COPIED:
            kept += options[at : at + size]
        at += size
    return kept + bytes(-len(kept) % 4)
