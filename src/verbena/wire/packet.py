# SPDX-License-Identifier: Apache-2.0
"""A packet and its headers as dataclasses; names are the specifications' abbreviations.

Programs call ``parse`` and ``Packet.to_bytes``. Numbers are in host byte order; addresses and
payload are bytes as on the wire.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from . import _wire
from .errors import FieldError
from .opcodes import opcode_info, opcode_name

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "Aeth",
    "AtomicAckEth",
    "AtomicEth",
    "Deth",
    "Ethernet",
    "Feth",
    "Grh",
    "Ieth",
    "Ipv4",
    "Layer",
    "Lrh",
    "Packet",
    "Rdeth",
    "Reth",
    "Udp",
    "Vlan",
    "Xrceth",
    "icrc",
    "parse",
    "unseen_id",
    "vcrc",
]


class Layer(StrEnum):
    """The layer with which the bytes of a packet begin."""

    ETHERNET = "ethernet"  # without the frame check sequence
    IB = "ib-lrh"  # up to the VCRC


_LAYERS = {Layer.ETHERNET: 0, Layer.IB: 1}
_STACKS = ("IB local", "IB global", "RoCEv1", "RoCEv2/IPv4", "RoCEv2/IPv6")
_CARRIERS = {
    "IB local": ("lrh",),
    "IB global": ("lrh", "grh"),
    "RoCEv1": ("eth", "grh"),
    "RoCEv2/IPv4": ("eth", "ipv4", "udp"),
    "RoCEv2/IPv6": ("eth", "ipv6", "udp"),
}


def _bits(width: int, **more: Any) -> Any:
    return dataclasses.field(metadata={"bits": width}, **more)


def _size(length: int, **more: Any) -> Any:
    return dataclasses.field(metadata={"size": length}, **more)


@dataclass(slots=True)
class Vlan:
    """An IEEE 802.1Q tag: its Ethernet type; priority, drop eligible and VLAN number."""

    type: int = _bits(16)
    tag: int = _bits(16)


@dataclass(slots=True)
class Ethernet:
    dst: bytes = _size(6)
    src: bytes = _size(6)
    type: int = _bits(16)
    vlans: tuple[Vlan, ...] = ()


@dataclass(slots=True)
class Lrh:
    """The local route header; ``pktlen`` counts words of four bytes, to the ICRC."""

    vl: int = _bits(4)
    lver: int = _bits(4)
    sl: int = _bits(4)
    lnh: int = _bits(2)
    dlid: int = _bits(16)
    pktlen: int = _bits(11)
    slid: int = _bits(16)
    rsv2: int = _bits(2, default=0)
    rsv5: int = _bits(5, default=0)


@dataclass(slots=True)
class Grh:
    """A global route header, or an IPv6 header, which has the same fields."""

    ipver: int = _bits(4)
    tclass: int = _bits(8)
    flow: int = _bits(20)
    paylen: int = _bits(16)
    nxthdr: int = _bits(8)
    hoplmt: int = _bits(8)
    sgid: bytes = _size(16)
    dgid: bytes = _size(16)


@dataclass(slots=True)
class Ipv4:
    """``frag`` has the flags in its upper three bits."""

    tos: int = _bits(8)
    len: int = _bits(16)
    id: int = _bits(16)
    frag: int = _bits(16)
    ttl: int = _bits(8)
    proto: int = _bits(8)
    csum: int = _bits(16)
    src: bytes = _size(4)
    dst: bytes = _size(4)
    options: bytes = b""


@dataclass(slots=True)
class Udp:
    sport: int = _bits(16)
    dport: int = _bits(16)
    len: int = _bits(16)
    csum: int = _bits(16)


@dataclass(slots=True)
class Rdeth:
    eec: int = _bits(24)
    rsv: int = _bits(8, default=0)


@dataclass(slots=True)
class Deth:
    qkey: int = _bits(32)
    src_qp: int = _bits(24)
    rsv: int = _bits(8, default=0)


@dataclass(slots=True)
class Xrceth:
    srq: int = _bits(24)
    rsv: int = _bits(8, default=0)


@dataclass(slots=True)
class Feth:
    """FLUSH: placement type and selectivity."""

    plt: int = _bits(4)
    sel: int = _bits(2)
    rsv: int = _bits(26, default=0)


@dataclass(slots=True)
class Reth:
    va: int = _bits(64)
    rkey: int = _bits(32)
    dmalen: int = _bits(32)


@dataclass(slots=True)
class AtomicEth:
    va: int = _bits(64)
    rkey: int = _bits(32)
    swap_add: int = _bits(64)
    compare: int = _bits(64)


@dataclass(slots=True)
class Aeth:
    syndrome: int = _bits(8)
    msn: int = _bits(24)


@dataclass(slots=True)
class AtomicAckEth:
    orig: int = _bits(64)


@dataclass(slots=True)
class Ieth:
    rkey: int = _bits(32)


_HEADERS: dict[str, type] = {
    "eth": Ethernet,
    "lrh": Lrh,
    "grh": Grh,
    "ipv4": Ipv4,
    "ipv6": Grh,
    "udp": Udp,
    "rdeth": Rdeth,
    "deth": Deth,
    "xrceth": Xrceth,
    "feth": Feth,
    "reth": Reth,
    "atomiceth": AtomicEth,
    "aeth": Aeth,
    "atomicacketh": AtomicAckEth,
    "ieth": Ieth,
}
_BTH = (
    *("opcode", "se", "m", "pad", "tver", "pkey", "fecn", "becn", "dest_qp", "ack_req", "psn"),
    *("rsv6", "rsv7"),
)


@dataclass(slots=True, kw_only=True)
class Packet:
    """A packet of InfiniBand's transport: the BTH's fields, then each header or None.

    ``encap`` and ``opcode`` decide which headers there are. ``to_bytes`` writes every field
    unchanged, including lengths and checksums; ``icrc`` and ``vcrc`` compute correct checksums.
    """

    encap: str
    opcode: int = _bits(8)
    se: int = _bits(1, default=0)
    m: int = _bits(1, default=0)
    pad: int = _bits(2, default=0)
    tver: int = _bits(4, default=0)
    pkey: int = _bits(16, default=0xFFFF)
    fecn: int = _bits(1, default=0)
    becn: int = _bits(1, default=0)
    dest_qp: int = _bits(24)
    ack_req: int = _bits(1, default=0)
    psn: int = _bits(24)
    rsv6: int = _bits(6, default=0)
    rsv7: int = _bits(7, default=0)

    eth: Ethernet | None = None
    lrh: Lrh | None = None
    grh: Grh | None = None
    ipv4: Ipv4 | None = None
    ipv6: Grh | None = None
    udp: Udp | None = None

    rdeth: Rdeth | None = None
    deth: Deth | None = None
    xrceth: Xrceth | None = None
    feth: Feth | None = None
    reth: Reth | None = None
    atomiceth: AtomicEth | None = None
    aeth: Aeth | None = None
    atomicacketh: AtomicAckEth | None = None
    immdt: bytes | None = None
    ieth: Ieth | None = None

    payload: bytes = b""
    pad_bytes: bytes = b""
    icrc: bytes = _size(4, default=b"\0\0\0\0")
    vcrc: bytes | None = None
    trailer: bytes = b""

    @property
    def layer(self) -> Layer:
        """The layer for ``parse`` to read the result of ``to_bytes``."""
        return Layer.IB if self.encap.startswith("IB") else Layer.ETHERNET

    @property
    def opcode_name(self) -> str:
        """Its BTH's opcode by name."""
        return opcode_name(self.opcode)

    @property
    def hdr_len(self) -> int:
        """Bytes of the BTH and the extended headers."""
        info = opcode_info(self.opcode)
        if info is None:
            raise FieldError("opcode", f"there is no opcode {self.opcode:#04x}")
        return info.length

    @property
    def payload_len(self) -> int:
        """Bytes of payload."""
        return len(self.payload)

    @property
    def bth_offset(self) -> int:
        """The byte at which the BTH begins."""
        sizes = {"lrh": 8, "grh": 40, "ipv6": 40, "udp": 8}
        sizes["eth"] = 14 + 4 * len(self.eth.vlans) if self.eth else 0
        sizes["ipv4"] = 20 + len(self.ipv4.options) if self.ipv4 else 0
        return sum(sizes[name] for name in _CARRIERS[self.encap])

    @property
    def roce_end(self) -> int:
        """The byte behind the ICRC."""
        return self.bth_offset + self.hdr_len + len(self.payload) + len(self.pad_bytes) + 4

    @property
    def trailing_eth_pad(self) -> int:
        """Bytes behind the packet that fill up an Ethernet frame."""
        return len(self.trailer)

    def to_bytes(self) -> bytes:
        """Return the packet's bytes.

        Raises FieldError when a field is missing, is not of this packet, or is too large.
        """
        return _wire.assemble(*_to_raw(self))


def parse(data: Buffer, layer: str = Layer.ETHERNET) -> Packet:
    """The packet in ``data``, from ``layer`` on.

    ``layer`` is "ethernet" (RoCE, without the frame check sequence) or "ib-lrh" (InfiniBand, with
    its VCRC). Raises PacketError, which names the check that failed and the byte. Checksums are not
    checked.
    """
    stack, bth, headers, rest = _wire.dissect(bytes(data), _LAYERS[Layer(layer)])
    made = {name: _header(name, fields) for name, fields in headers.items()}
    return Packet(encap=_STACKS[stack], **bth, **made, **rest)  # type: ignore[arg-type]


def icrc(data: Buffer, layer: str = Layer.ETHERNET) -> bytes:
    """The ICRC that the packet in ``data`` should have, its four bytes as on the wire."""
    return _wire.icrc(bytes(data), _LAYERS[Layer(layer)])


def vcrc(data: Buffer) -> bytes:
    """The VCRC over ``data``, which is an InfiniBand packet up to its ICRC; two bytes."""
    return _wire.vcrc(bytes(data))


def unseen_id(data: Buffer, guess: tuple[int, bool] = (0, True)) -> tuple[int, bool]:
    """Find the IPv4 fields of a RoCE v2 frame that a UDP socket does not show, by the ICRC.

    Returns the identification and "don't fragment" that make the ICRC right, starting from
    ``guess``. Raises UnseenError when none do: the packet is damaged. (A damaged packet is detected
    with a probability of 1 - 2^-15.)
    """
    packet = parse(data)
    if packet.ipv4 is None or packet.udp is None:
        raise FieldError("encap", f"{packet.encap} has no IPv4 header")
    mapped = bytes(10) + b"\xff\xff"
    transport = bytes(data)[packet.bth_offset : packet.roce_end]
    addresses = mapped + packet.ipv4.src, mapped + packet.ipv4.dst
    return _wire.unseen(*addresses, packet.udp.sport, transport, guess)


# ---- between the classes and the binding's dictionaries -------------------------------------


def _header(name: str, fields: dict[str, Any]) -> Any:
    if name == "eth":
        fields = fields | {"vlans": tuple(Vlan(*vlan) for vlan in fields["vlans"])}
    return _HEADERS[name](**fields)


def _to_raw(
    packet: Packet,
) -> tuple[int, dict[str, int], dict[str, dict[str, Any]], dict[str, bytes]]:
    if packet.encap not in _STACKS:
        raise FieldError("encap", f"{packet.encap!r} is none of {', '.join(_STACKS)}")
    _check(packet, "")
    expected = _expected_headers(packet)
    headers = {name: _raw_header(name, getattr(packet, name)) for name in expected}
    return (
        _STACKS.index(packet.encap),
        {name: getattr(packet, name) for name in _BTH},
        headers,
        _raw_rest(packet),
    )


def _expected_headers(packet: Packet) -> list[str]:
    """Return the names of the packet's headers. Raises FieldError for a missing or other one."""
    info = opcode_info(packet.opcode)
    if info is None:
        raise FieldError("opcode", f"there is no opcode {packet.opcode:#04x}")
    needed = {*_CARRIERS[packet.encap], *info.headers}
    for name in (*_HEADERS, "immdt"):
        value = getattr(packet, name)
        if name in needed and value is None:
            raise FieldError(name, f"{opcode_name(packet.opcode)} in {packet.encap} has one")
        if name not in needed and value is not None:
            raise FieldError(name, f"{opcode_name(packet.opcode)} in {packet.encap} has none")
    return [name for name in _HEADERS if name in needed]


def _raw_header(name: str, header: Any) -> dict[str, Any]:
    right: bool = isinstance(header, _HEADERS[name])
    if not right:
        raise FieldError(name, f"must be a {_HEADERS[name].__name__}")
    _check(header, name + ".")
    raw = {field.name: getattr(header, field.name) for field in dataclasses.fields(header)}
    if name == "eth":
        raw["vlans"] = _raw_vlans(raw["vlans"])
    if name == "ipv4" and (len(raw["options"]) % 4 or len(raw["options"]) > 40):
        raise FieldError("ipv4.options", "a multiple of four bytes, at most 40")
    return raw


def _raw_vlans(vlans: tuple[Vlan, ...]) -> list[tuple[int, int]]:
    if len(vlans) > 2:
        raise FieldError("eth.vlans", "at most two")
    for vlan in vlans:
        _check(vlan, "eth.vlans.")
    return [(vlan.type, vlan.tag) for vlan in vlans]


def _raw_rest(packet: Packet) -> dict[str, bytes]:
    rest = {"payload": packet.payload, "pad_bytes": packet.pad_bytes, "icrc": packet.icrc}
    if len(packet.pad_bytes) != packet.pad:
        raise FieldError("pad", f"{packet.pad}, but {len(packet.pad_bytes)} pad_bytes")
    if packet.immdt is not None:
        rest["immdt"] = _of_size("immdt", packet.immdt, 4)
    if packet.layer is Layer.IB:
        rest["vcrc"] = _of_size("vcrc", packet.vcrc, 2)
        if packet.trailer:
            raise FieldError("trailer", "an InfiniBand packet has none")
    else:
        rest["trailer"] = packet.trailer
        if packet.vcrc is not None:
            raise FieldError("vcrc", "RoCE has none")
    return rest


def _of_size(name: str, value: object, size: int) -> bytes:
    if not isinstance(value, bytes) or len(value) != size:
        raise FieldError(name, f"must be {size} bytes")
    return value


def _check(header: Any, prefix: str) -> None:
    for field in dataclasses.fields(header):
        value, name = getattr(header, field.name), prefix + field.name
        if bits := field.metadata.get("bits"):
            if not isinstance(value, int) or not 0 <= value < 1 << bits:
                raise FieldError(name, f"{value!r} is not a number of {bits} bits")
        elif size := field.metadata.get("size"):
            _of_size(name, value, size)
        elif field.name in ("payload", "pad_bytes", "trailer", "options") and not isinstance(
            value, bytes
        ):
            raise FieldError(name, "must be bytes")
