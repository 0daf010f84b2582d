# SPDX-License-Identifier: Apache-2.0
"""Messages of ICMP (RFC 792; next-hop MTU of RFC 1191) and the rules of when errors are sent.

A node makes an error about a datagram that it cannot deliver. There is never an error about an
error, about a fragment but the first, or about what went to several hosts (RFC 1122, 3.2.2).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address

from verbena.internet.errors import PacketError
from verbena.internet.ipv4 import Datagram, Protocol, checksum

MESSAGE = struct.Struct("!BBHHH")
LIMITED_BROADCAST = IPv4Address("255.255.255.255")
UNSPECIFIED = IPv4Address(0)
# Bytes of the payload that an error quotes behind the header (RFC 792).
QUOTED = 8


class Kind(IntEnum):
    """Types of messages."""

    ECHO_REPLY = 0
    UNREACHABLE = 3
    REDIRECT = 5
    ECHO = 8
    TIME_EXCEEDED = 11
    PARAMETER_PROBLEM = 12


class Unreachable(IntEnum):
    """Codes of UNREACHABLE."""

    NETWORK = 0
    HOST = 1
    PROTOCOL = 2
    PORT = 3
    FRAGMENTATION_NEEDED = 4


class Exceeded(IntEnum):
    """Codes of TIME_EXCEEDED."""

    TTL = 0
    REASSEMBLY = 1


ERRORS = {Kind.UNREACHABLE, Kind.REDIRECT, 4, Kind.TIME_EXCEEDED, Kind.PARAMETER_PROBLEM}


@dataclass(frozen=True, slots=True)
class Message:
    """A message: an echo has ``identifier`` and ``sequence``; an error of type 3 code 4 has the
    next link's MTU in ``sequence``, and 0 if its sender is older than RFC 1191."""

    kind: int
    code: int = 0
    identifier: int = 0
    sequence: int = 0
    body: bytes = b""

    @property
    def is_error(self) -> bool:
        return self.kind in ERRORS

    @property
    def text(self) -> str:
        """The message in words, as ping and traceroute show it."""
        known: dict[tuple[int, int], str] = {
            (Kind.TIME_EXCEEDED, Exceeded.TTL): "time to live exceeded",
            (Kind.TIME_EXCEEDED, Exceeded.REASSEMBLY): "reassembly time exceeded",
            (Kind.UNREACHABLE, Unreachable.NETWORK): "network unreachable",
            (Kind.UNREACHABLE, Unreachable.HOST): "host unreachable",
            (Kind.UNREACHABLE, Unreachable.PROTOCOL): "protocol unreachable",
            (Kind.UNREACHABLE, Unreachable.PORT): "port unreachable",
            (Kind.UNREACHABLE, Unreachable.FRAGMENTATION_NEEDED): (
                f"fragmentation needed, MTU {self.sequence}"
            ),
        }
        return known.get((self.kind, self.code), f"ICMP type {self.kind} code {self.code}")

    def encode(self) -> bytes:
        head = MESSAGE.pack(self.kind, self.code, 0, self.identifier, self.sequence)
        whole = head + self.body
        return whole[:2] + checksum(whole).to_bytes(2, "big") + whole[4:]

    @classmethod
    def decode(cls, data: bytes) -> Message:
        """Raises PacketError."""
        if len(data) < MESSAGE.size or checksum(data):
            raise PacketError("an ICMP message is too short, or its checksum is wrong")
        kind, code, _, identifier, sequence = MESSAGE.unpack_from(data)
        return cls(kind, code, identifier, sequence, data[MESSAGE.size :])

    def quoted(self) -> Datagram:
        """The header, and the first bytes of the payload, of what an error is about.

        ``length`` of the result is that of the quotation; ``quoted_length`` has the original's.
        Raises PacketError when the body quotes nothing of IPv4.
        """
        body = self.body
        if len(body) < 20:
            raise PacketError("an ICMP error quotes fewer than 20 bytes")
        header = (body[0] & 15) * 4
        if body[0] >> 4 != 4 or header < 20 or len(body) < header:
            raise PacketError("an ICMP error quotes no header of IPv4")
        total = min(len(body), max(quoted_length(self), header))
        shown = body[:2] + total.to_bytes(2, "big") + body[4:10] + b"\0\0" + body[12:header]
        mended = shown[:10] + checksum(shown).to_bytes(2, "big") + shown[12:]
        return Datagram.decode(mended + body[header:])


def quoted_length(error: Message) -> int:
    """Bytes of the datagram that an error is about, header included."""
    return int.from_bytes(error.body[2:4], "big")


def is_group(address: IPv4Address) -> bool:
    """A multicast address or the limited broadcast."""
    return address.is_multicast or address == LIMITED_BROADCAST


def may_complain(about: Datagram, to_several: bool) -> bool:
    """Whether an error about a datagram may be sent; ``to_several``: it came by a broadcast."""
    if to_several or about.offset or is_group(about.destination):
        return False
    if is_group(about.source) or about.source == UNSPECIFIED or about.source.is_loopback:
        return False
    if about.protocol != Protocol.ICMP:
        return True
    return bool(about.payload) and about.payload[0] not in ERRORS


def error_about(about: Datagram, kind: Kind, code: int, mtu: int = 0) -> Message:
    """The message that quotes a datagram's header and the first 8 bytes behind it."""
    quotation = about.encode()[: about.header_length + QUOTED]
    return Message(kind, code, 0, mtu, quotation)
