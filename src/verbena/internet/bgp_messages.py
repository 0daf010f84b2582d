# SPDX-License-Identifier: Apache-2.0
"""Messages of BGP-4 (RFC 4271, section 4), byte for byte.

Sessions encode and decode them, and ``MessageReader`` cuts a stream of TCP into them. Numbers of
autonomous systems have 16 bits. A message that is not understood is a BgpError, whose code and
subcode the peer is told in a NOTIFICATION.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from ipaddress import IPv4Address, IPv4Network

from verbena.internet.errors import PacketError

BGP_HEADER = struct.Struct("!16sHB")
OPEN_BODY = struct.Struct("!BHH4sB")
MARKER = b"\xff" * 16
BGP_VERSION = 4
MOST_BYTES = 4096
SEQUENCE_SEGMENT = 2
OPTIONAL, TRANSITIVE, EXTENDED = 0x80, 0x40, 0x10


class BgpKind(IntEnum):
    OPEN = 1
    UPDATE = 2
    NOTIFICATION = 3
    KEEPALIVE = 4


class BgpFailure(IntEnum):
    """Codes of NOTIFICATION (section 4.5)."""

    HEADER = 1
    OPEN = 2
    UPDATE = 3
    HOLD_TIMER = 4
    STATE_MACHINE = 5
    CEASE = 6


class PathOrigin(IntEnum):
    """How a network came into BGP (section 5.1.1)."""

    INTERIOR = 0
    EXTERIOR = 1
    INCOMPLETE = 2


class Attribute(IntEnum):
    """Types of path attributes; COMMUNITIES are those of RFC 1997."""

    ORIGIN = 1
    AS_PATH = 2
    NEXT_HOP = 3
    LOCAL_PREF = 5
    COMMUNITIES = 8


class BgpError(PacketError):
    """A message that ends its session: ``code`` and ``subcode`` are those of the NOTIFICATION."""

    def __init__(self, text: str, code: BgpFailure, subcode: int = 0) -> None:
        super().__init__(text)
        self.code = code
        self.subcode = subcode


@dataclass(frozen=True, slots=True)
class BgpOpen:
    """``hold_s`` is 0, for no timer, or at least 3 s."""

    system: int
    hold_s: int
    router: IPv4Address


@dataclass(frozen=True, slots=True)
class PathAttributes:
    """What a route says of its path. ``path`` begins with the nearest system. A session between
    systems carries no ``local_preference``; ``communities`` are pairs of 16 bits."""

    path: tuple[int, ...]
    next_hop: IPv4Address
    origin: PathOrigin = PathOrigin.INTERIOR
    local_preference: int | None = None
    communities: tuple[tuple[int, int], ...] = ()

    def encode(self) -> bytes:
        whole = _attribute(Attribute.ORIGIN, bytes([self.origin]))
        whole += _attribute(Attribute.AS_PATH, _encode_path(self.path))
        whole += _attribute(Attribute.NEXT_HOP, self.next_hop.packed)
        if self.local_preference is not None:
            whole += _attribute(Attribute.LOCAL_PREF, self.local_preference.to_bytes(4, "big"))
        if self.communities:
            pairs = b"".join(struct.pack("!HH", *pair) for pair in self.communities)
            whole += _attribute(Attribute.COMMUNITIES, pairs, OPTIONAL | TRANSITIVE)
        return whole


@dataclass(frozen=True, slots=True)
class BgpUpdate:
    """Networks that are no longer reachable, and networks that are, all by one path."""

    withdrawn: tuple[IPv4Network, ...] = ()
    attributes: PathAttributes | None = None
    networks: tuple[IPv4Network, ...] = ()


@dataclass(frozen=True, slots=True)
class BgpNotification:
    code: int
    subcode: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class BgpKeepalive:
    pass


BgpMessage = BgpOpen | BgpUpdate | BgpNotification | BgpKeepalive


def _attribute(kind: Attribute, value: bytes, flags: int = TRANSITIVE) -> bytes:
    if len(value) > 255:
        return struct.pack("!BBH", flags | EXTENDED, kind, len(value)) + value
    return struct.pack("!BBB", flags, kind, len(value)) + value


def _encode_path(path: tuple[int, ...]) -> bytes:
    """One AS_SEQUENCE for each 255 systems; nothing for a path within a system."""
    pieces = (path[at : at + 255] for at in range(0, len(path), 255))
    return b"".join(
        struct.pack(f"!BB{len(piece)}H", SEQUENCE_SEGMENT, len(piece), *piece) for piece in pieces
    )


def _encode_networks(networks: Iterable[IPv4Network]) -> bytes:
    """Each with its length in bits and as many bytes as those need."""
    return b"".join(
        bytes([one.prefixlen]) + one.network_address.packed[: (one.prefixlen + 7) // 8]
        for one in networks
    )


def encode_message(message: BgpMessage) -> bytes:
    """Raises PacketError for an update of more than 4,096 bytes: see ``updates``."""
    match message:
        case BgpOpen():
            kind = BgpKind.OPEN
            fields = (BGP_VERSION, message.system, message.hold_s, message.router.packed, 0)
            body = OPEN_BODY.pack(*fields)
        case BgpUpdate():
            kind = BgpKind.UPDATE
            gone = _encode_networks(message.withdrawn)
            known = b"" if message.attributes is None else message.attributes.encode()
            lengths = len(gone).to_bytes(2, "big"), len(known).to_bytes(2, "big")
            body = lengths[0] + gone + lengths[1] + known + _encode_networks(message.networks)
        case BgpNotification():
            kind = BgpKind.NOTIFICATION
            body = bytes([message.code, message.subcode]) + message.data
        case BgpKeepalive():
            kind, body = BgpKind.KEEPALIVE, b""
    size = BGP_HEADER.size + len(body)
    if size > MOST_BYTES:
        raise PacketError(f"a message of BGP has at most {MOST_BYTES} bytes, and not {size}")
    return BGP_HEADER.pack(MARKER, size, kind) + body


def updates(
    withdrawn: Iterable[IPv4Network], reached: dict[PathAttributes, list[IPv4Network]]
) -> Iterator[BgpUpdate]:
    """Updates for all of these networks, none longer than a message may be."""
    group = 600  # networks of 5 bytes, and a path of 500 systems
    gone = list(withdrawn)
    for at in range(0, len(gone), group):
        yield BgpUpdate(tuple(gone[at : at + group]))
    for attributes, networks in reached.items():
        for at in range(0, len(networks), group):
            yield BgpUpdate((), attributes, tuple(networks[at : at + group]))


class MessageReader:
    """Cuts a stream into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[BgpMessage]:
        """The messages that are whole with these bytes. Raises BgpError."""
        self._buffer += data
        while len(self._buffer) >= BGP_HEADER.size:
            marker, size, kind = BGP_HEADER.unpack_from(self._buffer)
            if marker != MARKER:
                raise BgpError("a message does not begin with 16 bytes 0xff", BgpFailure.HEADER, 1)
            if not BGP_HEADER.size <= size <= MOST_BYTES:
                raise BgpError(f"a message of {size} bytes", BgpFailure.HEADER, 2)
            if len(self._buffer) < size:
                return
            body = bytes(self._buffer[BGP_HEADER.size : size])
            del self._buffer[:size]
            yield decode_message(kind, body)


def decode_message(kind: int, body: bytes) -> BgpMessage:
    """Raises BgpError."""
    if kind == BgpKind.OPEN:
        return _decode_open(body)
    if kind == BgpKind.UPDATE:
        return _decode_update(body)
    if kind == BgpKind.NOTIFICATION and len(body) >= 2:
        return BgpNotification(body[0], body[1], body[2:])
    if kind == BgpKind.KEEPALIVE and not body:
        return BgpKeepalive()
    known = kind in (BgpKind.NOTIFICATION, BgpKind.KEEPALIVE)
    text = f"a message of type {kind} with {len(body)} bytes behind its header"
    raise BgpError(text, BgpFailure.HEADER, 2 if known else 3)


def _decode_open(body: bytes) -> BgpOpen:
    if len(body) < OPEN_BODY.size:
        raise BgpError(f"an OPEN of {len(body)} bytes", BgpFailure.HEADER, 2)
    version, system, hold, router, options = OPEN_BODY.unpack_from(body)
    if version != BGP_VERSION:
        raise BgpError(f"version {version} of BGP, and not {BGP_VERSION}", BgpFailure.OPEN, 1)
    if system == 0:
        raise BgpError("0 is no autonomous system", BgpFailure.OPEN, 2)
    if hold in (1, 2):
        raise BgpError(f"a hold time of {hold} s: it is 0 or at least 3 s", BgpFailure.OPEN, 6)
    if options != len(body) - OPEN_BODY.size:
        raise BgpError("the options of an OPEN end elsewhere", BgpFailure.OPEN)
    return BgpOpen(system, hold, IPv4Address(router))


def _malformed(text: str, subcode: int = 1) -> BgpError:
    return BgpError(text, BgpFailure.UPDATE, subcode)


def _decode_update(body: bytes) -> BgpUpdate:
    gone, rest = _part(body)
    known, networks = _part(rest)
    withdrawn, reached = _decode_networks(gone), _decode_networks(networks)
    attributes = _decode_attributes(known) if known else None
    if reached and attributes is None:
        raise _malformed("an update has networks and no attributes", 3)
    return BgpUpdate(withdrawn, attributes, reached)


def _part(data: bytes) -> tuple[bytes, bytes]:
    """What the two bytes in front say is a part, and what follows it."""
    size = int.from_bytes(data[:2], "big") + 2
    if len(data) < max(2, size):
        raise _malformed("a part of an update ends behind it")
    return data[2:size], data[size:]


def _decode_networks(data: bytes) -> tuple[IPv4Network, ...]:
    found, at = [], 0
    while at < len(data):
        bits = data[at]
        end = at + 1 + (bits + 7) // 8
        if bits > 32 or end > len(data):
            raise _malformed(f"a network with {bits} bits", 10)
        address = int.from_bytes(data[at + 1 : end].ljust(4, b"\0"), "big")
        found.append(IPv4Network((address >> (32 - bits) << (32 - bits), bits)))
        at = end
    return tuple(found)


def _decode_attributes(data: bytes) -> PathAttributes:
    values: dict[int, bytes] = {}
    while data:
        flags, kind = data[0], data[1] if len(data) > 1 else 0
        wide = 2 if flags & EXTENDED else 1
        start = 2 + wide
        end = start + int.from_bytes(data[2:start], "big")
        if len(data) < max(start, end) or kind in values:
            raise _malformed(f"an attribute of type {kind} is twice there, or is cut off")
        if kind not in set(Attribute) and not flags & OPTIONAL:
            raise _malformed(f"an attribute of type {kind} is not known", 2)
        values[kind], data = data[start:end], data[end:]
    return _attributes(values)


def _attributes(values: dict[int, bytes]) -> PathAttributes:
    for kind, size in ((Attribute.ORIGIN, 1), (Attribute.NEXT_HOP, 4), (Attribute.LOCAL_PREF, 4)):
        if kind in values and len(values[kind]) != size:
            raise _malformed(f"{kind.name} has {len(values[kind])} bytes", 5)
    for kind in (Attribute.ORIGIN, Attribute.AS_PATH, Attribute.NEXT_HOP):
        if kind not in values:
            raise _malformed(f"an update has no {kind.name}", 3)
    origin = values[Attribute.ORIGIN][0]
    if origin not in set(PathOrigin):
        raise _malformed(f"an origin of {origin}", 6)
    made = PathAttributes(
        _decode_path(values[Attribute.AS_PATH]),
        IPv4Address(values[Attribute.NEXT_HOP]),
        PathOrigin(origin),
    )
    preference = values.get(Attribute.LOCAL_PREF)
    communities = values.get(Attribute.COMMUNITIES, b"")
    if len(communities) % 4:
        raise _malformed(f"communities of {len(communities)} bytes", 9)
    return replace(
        made,
        local_preference=None if preference is None else int.from_bytes(preference, "big"),
        communities=tuple(struct.iter_unpack("!HH", communities)),
    )


def _decode_path(data: bytes) -> tuple[int, ...]:
    path: list[int] = []
    while data:
        count = data[1] if len(data) > 1 else 0
        end = 2 + 2 * count
        if data[0] != SEQUENCE_SEGMENT or count == 0 or len(data) < end:
            raise _malformed("a path has a part that is no sequence of systems", 11)
        path += struct.unpack_from(f"!{count}H", data, 2)
        data = data[end:]
    return tuple(path)
