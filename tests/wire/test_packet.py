# SPDX-License-Identifier: Apache-2.0
"""Packets made, written, read again; damaged; and what an error says."""

from __future__ import annotations

import dataclasses
import random
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.shared import CAPTURES, PATH_HEADERS, frames, refusal
from verbena import wire
from verbena.wire import _wire

OPCODES = [opcode for opcode in range(256) if wire.opcode_info(opcode)]
ENCAPS = {
    "IB local": ["lrh"],
    "IB global": ["lrh", "grh"],
    "RoCEv1": ["eth", "grh"],
    "RoCEv2/IPv4": ["eth", "ipv4", "udp"],
    "RoCEv2/IPv6": ["eth", "ipv6", "udp"],
}
CLASSES: dict[str, type] = {
    "eth": wire.Ethernet,
    "lrh": wire.Lrh,
    "grh": wire.Grh,
    "ipv4": wire.Ipv4,
    "ipv6": wire.Grh,
    "udp": wire.Udp,
    "rdeth": wire.Rdeth,
    "deth": wire.Deth,
    "xrceth": wire.Xrceth,
    "feth": wire.Feth,
    "reth": wire.Reth,
    "atomiceth": wire.AtomicEth,
    "aeth": wire.Aeth,
    "atomicacketh": wire.AtomicAckEth,
    "ieth": wire.Ieth,
}
SAMPLE = next(frames(CAPTURES[0]))


def values(draw: st.DrawFn, kind: type) -> dict[str, Any]:
    """Any values for the fields of a dataclass that say how large they are."""
    made: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if bits := field.metadata.get("bits"):
            made[field.name] = draw(st.integers(0, (1 << bits) - 1))
        elif size := field.metadata.get("size"):
            made[field.name] = draw(st.binary(min_size=size, max_size=size))
    return made


def delimit(packet: wire.Packet) -> None:
    """Make lengths and types of the carrying headers say what they carry."""
    transport = packet.hdr_len + len(packet.payload) + packet.pad + 4
    udp = transport + (8 if packet.udp else 0)
    if packet.eth:
        types = {"RoCEv1": 0x8915, "RoCEv2/IPv4": 0x0800, "RoCEv2/IPv6": 0x86DD}
        packet.eth.type = types[packet.encap]
    if packet.ipv4:
        packet.ipv4.len = 20 + len(packet.ipv4.options) + udp
        packet.ipv4.frag &= 0xC000
        packet.ipv4.proto = 17
    for header in (packet.grh, packet.ipv6):
        if header:
            header.ipver, header.paylen = 6, udp
            header.nxthdr = 17 if packet.udp else 0x1B
    if packet.udp:
        packet.udp.dport, packet.udp.len = 4791, udp
    if packet.lrh:
        packet.lrh.lnh = 3 if packet.grh else 2
        packet.lrh.pktlen = (8 + (40 if packet.grh else 0) + transport) // 4


@st.composite
def packets(draw: st.DrawFn) -> wire.Packet:
    opcode, encap = draw(st.sampled_from(OPCODES)), draw(st.sampled_from(list(ENCAPS)))
    info = wire.opcode_info(opcode)
    assert info is not None
    headers = {
        name: CLASSES[name](**values(draw, CLASSES[name]))
        for name in (*ENCAPS[encap], *info.headers)
        if name != "immdt"
    }
    fields = values(draw, wire.Packet) | {"opcode": opcode, "encap": encap}
    fields["payload"] = payload = draw(st.binary(max_size=70))
    fields["pad"] = -len(payload) % 4 if encap.startswith("IB") else draw(st.integers(0, 3))
    fields["pad_bytes"] = draw(st.binary(min_size=fields["pad"], max_size=fields["pad"]))
    if "immdt" in info.headers:
        fields["immdt"] = draw(st.binary(min_size=4, max_size=4))
    if encap.startswith("IB"):
        fields["vcrc"] = draw(st.binary(min_size=2, max_size=2))
    else:
        fields["trailer"] = draw(st.binary(max_size=20))
        tags = st.builds(wire.Vlan, st.sampled_from([0x8100, 0x88A8]), st.integers(0, 0xFFFF))
        headers["eth"].vlans = tuple(draw(st.lists(tags, max_size=2)))
    if "ipv4" in headers:
        headers["ipv4"].options = bytes(4 * draw(st.integers(0, 10)))
    packet = wire.Packet(**fields, **headers)
    delimit(packet)
    return packet


@settings(max_examples=400, deadline=None)
@given(packets())
def test_any_packet_is_read_as_it_was_written(packet: wire.Packet) -> None:
    data = packet.to_bytes()
    again = wire.parse(data, packet.layer)
    assert again == packet
    assert again.to_bytes() == data
    assert data[packet.roce_end - 4 : packet.roce_end] == packet.icrc


# ---- the ICRC once more, in Python and byte by byte ------------------------------------------


def masked(packet: wire.Packet, data: bytes) -> bytes:
    """What zlib's crc32 sums, by the table in the specification's digest."""
    covered = bytearray(data)
    start = packet.bth_offset - sum(
        8 if name == "udp" else 20 + len(packet.ipv4.options) if packet.ipv4 else 40
        for name in ENCAPS[packet.encap]
        if name not in ("eth", "lrh")
    )
    if packet.encap == "IB local":
        covered[0] |= 0xF0
        start = 0
    elif packet.ipv4:
        for at in (1, 8, 10, 11):
            covered[start + at] = 0xFF
    else:
        covered[start] |= 0x0F
        for at in (1, 2, 3, 7):
            covered[start + at] = 0xFF
    if packet.udp:
        covered[packet.bth_offset - 2 : packet.bth_offset] = b"\xff\xff"
    covered[packet.bth_offset + 4] = 0xFF
    dummy = b"" if packet.encap == "IB local" else b"\xff" * 8
    return dummy + bytes(covered[start : packet.roce_end - 4])


@settings(max_examples=400, deadline=None)
@given(packets())
def test_icrc_is_zlibs_crc32_of_the_masked_bytes(packet: wire.Packet) -> None:
    data = packet.to_bytes()
    expected = zlib.crc32(masked(packet, data)).to_bytes(4, "little")
    assert wire.icrc(data, packet.layer) == expected


@given(st.binary(max_size=5000), st.integers(0, 0xFFFFFFFF))
def test_crc32_is_zlibs(data: bytes, before: int) -> None:
    register = _wire.crc32(data, before ^ 0xFFFFFFFF)
    assert register ^ 0xFFFFFFFF == zlib.crc32(data, before)


def test_vcrc_of_the_nine_digits() -> None:
    assert wire.vcrc(b"123456789") == bytes.fromhex("3d0a")


# ---- damage ----------------------------------------------------------------------------------


def another_or_refused(data: bytes, layer: str = "ethernet") -> wire.Packet | None:
    if error := refusal(data, layer):
        assert 0 <= error.offset <= len(data)
        assert str(error).startswith(f"byte {error.offset}: ")
        assert error.name in str(error)
        return None
    packet = wire.parse(data, layer)
    assert packet.to_bytes() == data
    return packet


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_a_flipped_bit_shows_in_the_icrc_unless_it_may_change(capture: Any) -> None:
    for frame in [frame for frame in frames(capture) if not refusal(frame)][:4]:
        right = wire.parse(frame)
        for at in range(min(len(frame), 300)):
            for bit in range(8):
                data = frame[:at] + bytes([frame[at] ^ 1 << bit]) + frame[at + 1 :]
                packet = another_or_refused(data)
                if packet is None or (packet.hdr_len, packet.encap) != (right.hdr_len, right.encap):
                    continue
                unchanged = masked(packet, data) == masked(right, frame)
                unchanged &= packet.icrc == right.icrc
                assert (wire.icrc(data) == packet.icrc) == unchanged


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_a_frame_cut_off_is_refused(capture: Any) -> None:
    for frame in frames(capture):
        for length in {*range(min(len(frame), 120)), len(frame) - 1}:
            with pytest.raises(wire.PacketError):
                wire.parse(frame[:length])


@settings(max_examples=300, deadline=None)
@given(packets(), st.randoms(use_true_random=False))
def test_damage_is_refused_or_another_packet(packet: wire.Packet, chance: random.Random) -> None:
    data = bytearray(packet.to_bytes())
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    another_or_refused(bytes(data), packet.layer)


@given(st.binary(max_size=200), st.sampled_from(list(wire.Layer)))
def test_noise(data: bytes, layer: str) -> None:
    another_or_refused(data, layer)


# ---- what an error says ----------------------------------------------------------------------


def changed(at: int, value: bytes) -> bytes:
    return SAMPLE[:at] + value + SAMPLE[at + len(value) :]


@pytest.mark.parametrize(
    ("data", "name", "offset"),
    [
        (b"", "ETHERNET_SHORT", 0),
        (SAMPLE[:13], "ETHERNET_SHORT", 0),
        (changed(12, b"\x81\0\0\x05\x08\x06"), "ETHERNET_TYPE", 16),
        (changed(12, b"\x81\0\0\x05\x81\0\0\x05\x88\xa8\0\0\0\0"), "ETHERNET_VLANS", 22),
        (changed(12, b"\x08\x06"), "ETHERNET_TYPE", 12),
        (SAMPLE[:33], "IPV4_SHORT", 14),
        (changed(14, b"\x65"), "IPV4_VERSION", 14),
        (changed(14, b"\x44"), "IPV4_HEADER_LENGTH", 14),
        (SAMPLE + b"!", None, 0),
        (SAMPLE[:-1], "IPV4_LENGTH", 16),
        (changed(16, b"\0\x13"), "IPV4_LENGTH", 16),
        (changed(20, b"\x20\0"), "IPV4_FRAGMENT", 20),
        (changed(20, b"\0\x01"), "IPV4_FRAGMENT", 20),
        (changed(23, b"\x06"), "IPV4_PROTOCOL", 23),
        (changed(16, b"\0\x14"), "UDP_SHORT", 34),
        (changed(36, b"\x12\xb6"), "UDP_PORT", 36),
        (changed(38, b"\0\x08"), "UDP_LENGTH", 38),
        (changed(42, b"\xff"), "BTH_OPCODE", 42),
        (changed(42, b"\x15"), "BTH_OPCODE", 42),
    ],
)
def test_the_check_and_the_byte(data: bytes, name: str | None, offset: int) -> None:
    if name is None:
        assert wire.parse(data).trailer == b"!"
        return
    with pytest.raises(wire.PacketError) as caught:
        wire.parse(data)
    assert (caught.value.name, caught.value.offset) == (name, offset)


def of_transport(transport: bytes) -> bytes:
    """The sample's Ethernet, IPv4 and UDP headers around other bytes."""
    frame = bytearray(SAMPLE[:42]) + transport
    frame[16:18] = (28 + len(transport)).to_bytes(2, "big")
    frame[38:40] = (8 + len(transport)).to_bytes(2, "big")
    return bytes(frame)


@pytest.mark.parametrize(
    ("transport", "name", "offset"),
    [
        (b"", "BTH_SHORT", 42),
        (bytes(11), "BTH_SHORT", 42),
        (b"\x11" + bytes(14), "EXTENDED_SHORT", 54),
        (b"\x11" + bytes(18), "ICRC_SHORT", 58),
        (b"\x04\x30" + bytes(16), "PAD", 43),
    ],
)
def test_a_short_transport(transport: bytes, name: str, offset: int) -> None:
    with pytest.raises(wire.PacketError) as caught:
        wire.parse(of_transport(transport))
    assert (caught.value.name, caught.value.offset) == (name, offset)


LRH = bytes.fromhex("0002000100060002")


@pytest.mark.parametrize(
    ("data", "name", "offset"),
    [
        (LRH[:7], "LRH_SHORT", 0),
        (b"\0\0" + LRH[2:] + bytes(18), "LRH_NEXT", 1),
        (LRH + bytes(17), "LRH_LENGTH", 4),
        (LRH + bytes(19), "LRH_LENGTH", 4),
        (b"\0\x03" + LRH[2:] + bytes(18), "GRH_SHORT", 8),
        (b"\0\x03\0\x01\0\x10" + LRH[6:] + bytes(58), "GRH_VERSION", 8),
    ],
)
def test_infiniband(data: bytes, name: str, offset: int) -> None:
    with pytest.raises(wire.PacketError) as caught:
        wire.parse(data, "ib-lrh")
    assert (caught.value.name, caught.value.offset) == (name, offset)


def test_a_native_cnp() -> None:
    cnp = wire.parse(LRH + b"\x80\0\xff\xff\x40" + bytes(7) + bytes(6), "ib-lrh")
    assert (cnp.opcode_name, cnp.becn, cnp.payload) == ("CNP_IB", 1, b"")


def test_no_such_layer() -> None:
    with pytest.raises(ValueError, match="ppp"):
        wire.parse(SAMPLE, "ppp")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("psn", 1 << 24),
        ("psn", -1),
        ("psn", "7"),
        ("pad", 1),
        ("opcode", 0xFF),
        ("encap", "RoCEv3"),
        ("icrc", b"\0"),
        ("payload", "text"),
        ("deth", wire.Deth(1, 2)),
        ("immdt", bytes(4)),
        ("atomiceth", None),
        ("atomiceth", wire.Reth(1, 2, 3)),
        ("vcrc", bytes(2)),
        ("lrh", wire.Lrh(0, 0, 0, 2, 1, 7, 1)),
        ("udp", None),
    ],
)
def test_a_field_that_does_not_fit(field: str, value: object) -> None:
    packet = wire.parse(SAMPLE)
    setattr(packet, field, value)
    with pytest.raises(wire.FieldError, match=field) as caught:
        packet.to_bytes()
    assert caught.value.field == field


@pytest.mark.parametrize("header", PATH_HEADERS)
def test_fields_of_headers_are_checked(header: str) -> None:
    encap = next(encap for encap, headers in ENCAPS.items() if header in headers)
    rest = {name: made(name) for name in ENCAPS[encap]}
    vcrc = bytes(2) if encap.startswith("IB") else None
    packet = wire.Packet(encap=encap, opcode=4, dest_qp=1, psn=2, vcrc=vcrc, **rest)
    packet.to_bytes()
    for field in dataclasses.fields(CLASSES[header]):
        if bits := field.metadata.get("bits"):
            setattr(getattr(packet, header), field.name, 1 << bits)
            with pytest.raises(wire.FieldError, match=f"{header}.{field.name}"):
                packet.to_bytes()
            setattr(getattr(packet, header), field.name, (1 << bits) - 1)
            packet.to_bytes()


def made(name: str) -> Any:
    """A header of zeros."""
    sizes = {field.name: field.metadata for field in dataclasses.fields(CLASSES[name])}
    return CLASSES[name](
        **{field: 0 if "bits" in how else bytes(how["size"]) for field, how in sizes.items() if how}
    )


def test_vlans_and_options_are_checked() -> None:
    packet = wire.parse(SAMPLE)
    assert packet.eth is not None
    assert packet.ipv4 is not None
    packet.eth.vlans = (wire.Vlan(0x8100, 5),) * 3
    with pytest.raises(wire.FieldError, match=r"eth\.vlans"):
        packet.to_bytes()
    packet.eth.vlans = (wire.Vlan(0x8100, 1 << 16),)
    with pytest.raises(wire.FieldError, match=r"eth\.vlans\.tag"):
        packet.to_bytes()
    packet.eth.vlans = ()
    for options in (bytes(3), bytes(44)):
        packet.ipv4.options = options
        with pytest.raises(wire.FieldError, match=r"ipv4\.options"):
            packet.to_bytes()


def test_damage_of_a_datagram_is_told_by_the_byte() -> None:
    packet = wire.parse(SAMPLE)
    with pytest.raises(wire.UnseenError) as caught:
        wire.unseen_id(changed(packet.bth_offset + 11, bytes([SAMPLE[packet.bth_offset + 11] ^ 1])))
    assert caught.value.offset == packet.roce_end - packet.bth_offset - 4


def test_only_ipv4_has_an_identification() -> None:
    header = made("ipv6"), made("udp"), made("eth")
    packet = wire.Packet(
        encap="RoCEv2/IPv6",
        opcode=4,
        dest_qp=1,
        psn=2,
        ipv6=header[0],
        udp=header[1],
        eth=header[2],
    )
    delimit(packet)
    with pytest.raises(wire.FieldError, match="IPv4"):
        wire.unseen_id(packet.to_bytes())
