# SPDX-License-Identifier: Apache-2.0
"""Packets of the link-state protocol, in the formats of OSPF version 2 (RFC 2328, appendix A).

There are three kinds: hello, update (link state advertisements, LSAs) and acknowledgement. Every
LSA here is a router-LSA: the links and networks of one router.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from enum import IntEnum
from ipaddress import IPv4Address, IPv4Network

from verbena.internet.errors import PacketError
from verbena.internet.ipv4 import checksum

OSPF_HEADER = struct.Struct("!BBH4s4sHH8s")
HELLO_BODY = struct.Struct("!4sHBBI4s4s")
LSA_HEADER = struct.Struct("!HBB4s4siHH")
LSA_LINK = struct.Struct("!4s4sBBH")
OSPF_VERSION = 2
OPTIONS_EXTERNAL = 2
ROUTER_LSA = 1
INITIAL_SEQUENCE, LAST_SEQUENCE = -0x7FFFFFFF, 0x7FFFFFFF
MOST_COST = 65535
MAX_AGE = 3600  # seconds


class OspfPacket(IntEnum):
    HELLO = 1
    UPDATE = 4
    ACKNOWLEDGEMENT = 5


class LsaLinkKind(IntEnum):
    ROUTER = 1
    STUB = 3


@dataclass(frozen=True, slots=True)
class LsaLink:
    """To another router (``identity`` is its identifier, ``data`` the own interface's address), or
    to a network (its address and its mask)."""

    kind: LsaLinkKind
    identity: IPv4Address
    data: IPv4Address
    cost: int

    @property
    def network(self) -> IPv4Network:
        return IPv4Network((self.identity, str(self.data)))


def network_link(network: IPv4Network, cost: int) -> LsaLink:
    return LsaLink(LsaLinkKind.STUB, network.network_address, network.netmask, cost)


@dataclass(frozen=True, slots=True)
class Lsa:
    """What a router says of itself. ``age`` is in seconds; of two instances that with the higher
    sequence number is newer, and of the same number that with the higher checksum."""

    router: IPv4Address
    sequence: int
    links: tuple[LsaLink, ...] = ()
    age: int = 0

    def at_age(self, age: int) -> Lsa:
        return replace(self, age=min(age, MAX_AGE))

    def encode(self) -> bytes:
        body = struct.pack("!BBH", 0, 0, len(self.links)) + b"".join(
            LSA_LINK.pack(one.identity.packed, one.data.packed, one.kind, 0, one.cost)
            for one in self.links
        )
        identity = self.router.packed
        head = LSA_HEADER.pack(
            self.age,
            OPTIONS_EXTERNAL,
            ROUTER_LSA,
            identity,
            identity,
            self.sequence,
            0,
            LSA_HEADER.size + len(body),
        )
        whole = head + body
        return whole[:16] + fletcher(whole[2:], 14) + whole[18:]

    @property
    def checksum(self) -> int:
        return int.from_bytes(self.encode()[16:18], "big")

    @property
    def header(self) -> bytes:
        return self.encode()[: LSA_HEADER.size]


def is_newer(lsa: Lsa, known: Lsa | None) -> bool:
    """RFC 2328, section 13.1: by sequence number, then by checksum, which differs between routers
    with one identifier. An LSA of the greatest age removes that instance, and is nothing new to who
    has none."""
    if known is None:
        return lsa.age < MAX_AGE
    if lsa.sequence != known.sequence:
        return lsa.sequence > known.sequence
    if lsa.links != known.links:
        return lsa.checksum > known.checksum
    return lsa.age == MAX_AGE != known.age


def is_older(lsa: Lsa, known: Lsa) -> bool:
    """Whether the database's instance goes back to who sent this one; age alone is no reason."""
    return lsa.sequence < known.sequence or (
        lsa.sequence == known.sequence and lsa.links != known.links and is_newer(known, lsa)
    )


def contradicts(lsa: Lsa, own: Lsa | None) -> bool:
    """Whether an LSA that should be a router's own is another router's, or of its former life."""
    if own is None or lsa.age == MAX_AGE:
        return False
    return lsa.sequence >= own.sequence and lsa.links != own.links


def fletcher(data: bytes, at: int) -> bytes:
    """The two bytes at ``at`` that make Fletcher's checksum of the data good (RFC 905, annex B).

    The age is not covered, so that it may change on the way.
    """
    first = second = 0
    for byte in data:
        first = (first + byte) % 255
        second = (second + first) % 255
    left = len(data) - at - 1
    x = (left * first - second) % 255
    y = (second - (left + 1) * first) % 255
    return bytes([x or 255, y or 255])


def fletcher_is_good(data: bytes) -> bool:
    first = second = 0
    for byte in data:
        first = (first + byte) % 255
        second = (second + first) % 255
    return first == second == 0


def decode_lsas(data: bytes, count: int) -> list[Lsa]:
    """Raises PacketError."""
    found = []
    for _ in range(count):
        if len(data) < LSA_HEADER.size:
            raise PacketError("an update ends within an LSA")
        age, _, kind, identity, router, sequence, _, length = LSA_HEADER.unpack_from(data)
        if kind != ROUTER_LSA or identity != router or not 24 <= length <= len(data):
            raise PacketError(f"an LSA of type {kind} with {length} bytes is not understood")
        if not fletcher_is_good(data[2:length]):
            raise PacketError("an LSA's checksum is wrong")
        found.append(Lsa(IPv4Address(router), sequence, _links(data[20:length]), min(age, MAX_AGE)))
        data = data[length:]
    return found


def _links(body: bytes) -> tuple[LsaLink, ...]:
    (count,) = struct.unpack_from("!H", body, 2)
    if len(body) != 4 + count * LSA_LINK.size:
        raise PacketError(f"{count} links in {len(body)} bytes of an LSA")
    try:
        links = tuple(
            LsaLink(LsaLinkKind(kind), IPv4Address(identity), IPv4Address(data), cost)
            for identity, data, kind, _, cost in LSA_LINK.iter_unpack(body[4:])
        )
        for link in links:
            if link.kind is LsaLinkKind.STUB:
                _ = link.network
        return links
    except ValueError as error:
        raise PacketError(f"an LSA has a link that is not understood: {error}") from None


def encode_packet(kind: OspfPacket, router: IPv4Address, body: bytes) -> bytes:
    """With the header of area 0, without authentication; its checksum leaves out that field."""
    length = OSPF_HEADER.size + len(body)
    area = bytes(4)
    head = OSPF_HEADER.pack(OSPF_VERSION, kind, length, router.packed, area, 0, 0, bytes(8))
    total = checksum(head[:16] + body)
    return head[:12] + total.to_bytes(2, "big") + head[14:] + body


def decode_packet(data: bytes) -> tuple[OspfPacket, IPv4Address, bytes]:
    """Kind, router and body. Raises PacketError."""
    if len(data) < OSPF_HEADER.size:
        raise PacketError(f"{len(data)} bytes are no packet of OSPF")
    version, kind, length, router, *_ = OSPF_HEADER.unpack_from(data)
    if version != OSPF_VERSION or length != len(data) or kind not in set(OspfPacket):
        raise PacketError(f"version {version}, type {kind}: this packet of OSPF is not understood")
    if checksum(data[:16] + data[24:]):
        raise PacketError("a checksum of OSPF is wrong")
    return OspfPacket(kind), IPv4Address(router), data[OSPF_HEADER.size :]


def encode_hello(
    network: IPv4Network, hello_s: int, dead_s: int, neighbours: list[IPv4Address]
) -> bytes:
    body = HELLO_BODY.pack(
        network.netmask.packed, hello_s, OPTIONS_EXTERNAL, 1, dead_s, bytes(4), bytes(4)
    )
    return body + b"".join(one.packed for one in neighbours)


def decode_hello(body: bytes) -> tuple[int, int, list[IPv4Address]]:
    """Hello and dead interval in seconds, and the routers that the sender hears."""
    if len(body) < HELLO_BODY.size or len(body) % 4:
        raise PacketError(f"{len(body)} bytes are no hello")
    _, hello, _, _, dead, _, _ = HELLO_BODY.unpack_from(body)
    rest = body[HELLO_BODY.size :]
    heard = [IPv4Address(rest[at : at + 4]) for at in range(0, len(rest), 4)]
    return hello, dead, heard


def encode_update(lsas: list[Lsa]) -> bytes:
    return len(lsas).to_bytes(4, "big") + b"".join(one.encode() for one in lsas)


def decode_update(body: bytes) -> list[Lsa]:
    if len(body) < 4:
        raise PacketError("an update has no count")
    return decode_lsas(body[4:], int.from_bytes(body[:4], "big"))


def encode_acknowledgement(lsas: list[Lsa]) -> bytes:
    return b"".join(one.header for one in lsas)


def decode_acknowledgement(body: bytes) -> list[tuple[IPv4Address, int]]:
    """Routers and sequence numbers."""
    if len(body) % LSA_HEADER.size:
        raise PacketError(f"{len(body)} bytes are no acknowledgement")
    return [
        (IPv4Address(router), sequence)
        for _, _, _, _, router, sequence, _, _ in LSA_HEADER.iter_unpack(body)
    ]
