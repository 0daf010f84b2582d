# SPDX-License-Identifier: Apache-2.0
"""The tables of NVMe over Fabrics: each is packed and parsed, and refuses what is wrong."""

from __future__ import annotations

import dataclasses
import struct
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verbena.nvmeof import HostOptions, commands, fabrics, identify, logs, status
from verbena.nvmeof.commands import SGL_IN_CAPSULE, SGL_KEYED, Command, Sgl
from verbena.nvmeof.errors import CommandFailed, FormatError
from verbena.nvmeof.status import Status, status_of_wire, wire_status
from verbena.nvmeof.structure import Structure, number, octets, places_of

STRUCTURES = [
    fabrics.RequestData,
    fabrics.AcceptData,
    fabrics.RejectData,
    fabrics.ConnectData,
    identify.IdentifyController,
    identify.IdentifyNamespace,
    logs.DiscoveryHeader,
    logs.DiscoveryEntry,
    logs.Smart,
]
NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=8)


def value_of(kind: str, size: int) -> st.SearchStrategy[Any]:
    if kind == "number":
        return st.integers(0, (1 << 8 * size) - 1)
    if kind == "octets":
        return st.binary(min_size=size, max_size=size)
    return NAMES


@pytest.mark.parametrize("kind", STRUCTURES)
@given(data=st.data())
def test_packed_and_parsed(kind: type[Structure], data: st.DataObject) -> None:
    values = {n: data.draw(value_of(p.kind, p.size)) for n, p in places_of(kind)}
    made = kind(**values)
    block = made.pack()
    assert len(block) == kind.SIZE
    assert kind.parse(block) == made


@pytest.mark.parametrize("kind", STRUCTURES)
def test_too_short(kind: type[Structure]) -> None:
    with pytest.raises(FormatError, match=f"{kind.__name__} has {kind.SIZE} bytes"):
        kind.parse(bytes(kind.SIZE - 1))


def test_a_value_that_does_not_fit() -> None:
    with pytest.raises(FormatError, match="qid: 65536 does not fit 2 bytes"):
        fabrics.RequestData(qid=1 << 16).pack()
    with pytest.raises(FormatError, match="subsystem_nqn"):
        fabrics.ConnectData(subsystem_nqn="n" * 257).pack()


def test_fields_that_overlap() -> None:
    @dataclass
    class Wrong(Structure):
        SIZE: ClassVar[int] = 4
        one: int = number(0, 2)
        two: bytes = octets(1, 2)

    with pytest.raises(TypeError, match="overlaps"):
        Wrong().pack()


def test_known_places() -> None:
    """Offsets as in Linux' nvme.h."""
    block = identify.IdentifyController(
        cntlid=0x0102, sgls=0x11223344, command_capsule=260, max_descriptors=1, serial="ab"
    ).pack()
    assert struct.unpack_from("<H", block, 78) == (0x0102,)
    assert struct.unpack_from("<I", block, 536) == (0x11223344,)
    assert struct.unpack_from("<I", block, 1792) == (260,)
    assert block[1803] == 1
    assert block[4:24] == b"ab".ljust(20)


# ---- commands ------------------------------------------------------------------------------------


@given(
    st.integers(0, (1 << 64) - 1),
    st.integers(0, (1 << 24) - 1),
    st.integers(0, (1 << 32) - 1),
    st.sampled_from([0x40, 0x4F]),
)
def test_keyed_descriptors(address: int, length: int, key: int, kind: int) -> None:
    command = Command(2, 0x40, 7, 1, Sgl(kind, address, length, key), 1, 2, 3, 4, 5, 6)
    packed = commands.pack_command_capsule(command)
    assert commands.parse_command(packed) == command
    assert int.from_bytes(packed[24:32], "little") == address
    assert int.from_bytes(packed[32:35], "little") == length
    assert int.from_bytes(packed[35:39], "little") == key
    assert packed[39] == kind


def test_descriptors_of_capsules() -> None:
    sgl = Sgl(SGL_IN_CAPSULE, 16, 4096, 0)
    packed = commands.pack_command_capsule(Command(1, 0x40, 0, 1, sgl))
    assert packed[24:40] == struct.pack("<QI3xB", 16, 4096, 1)
    assert commands.parse_command(packed).sgl == sgl


def test_a_descriptor_that_is_too_long() -> None:
    with pytest.raises(FormatError, match="16777215"):
        commands.pack_command_capsule(Command(2, 0x40, 0, 1, Sgl(SGL_KEYED, 0, 1 << 24, 0)))


def test_a_capsule_that_is_too_short() -> None:
    with pytest.raises(FormatError, match="63"):
        commands.parse_command(bytes(63))


@pytest.mark.parametrize(
    ("opcode", "kind", "to_controller", "to_host"),
    [
        (0x01, 0, True, False),
        (0x02, 0, False, True),
        (0x05, 0, True, False),
        (0x06, 0, False, True),
        (0x08, 0, False, False),
        (0x0E, 0, False, True),
        (0x7F, 1, True, False),
        (0x7F, 4, False, False),
        (0x7F, 0, False, False),
    ],
)
def test_directions(opcode: int, kind: int, to_controller: bool, to_host: bool) -> None:
    command = Command(opcode, 0x40, 0, kind, Sgl(SGL_KEYED, 0, 0, 0))
    assert (command.to_controller, command.to_host) == (to_controller, to_host)


def test_the_words_of_both_structs_agree() -> None:
    packed = commands.READ_WRITE.pack(2, 0x40, 9, 1, 5, 6, 7, 0x1122334455667788, 3, 0x4000, 9)
    found = commands.parse_command(packed)
    assert found.cdw10 | found.cdw11 << 32 == 0x1122334455667788
    assert (found.cdw12 & 0xFFFF, found.cdw12 >> 16, found.cdw13) == (3, 0x4000, 9)


# ---- status --------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", list(Status))
def test_statuses(value: Status) -> None:
    assert status_of_wire(wire_status(value, False)) == (value, False)
    assert status_of_wire(wire_status(value, True)) == (value, value != Status.SUCCESS)
    if value is not Status.SUCCESS:
        error = CommandFailed("reading", value)
        assert error.errno == status.errno_of(value)
        assert f"{value & 255:#04x}" in str(error)


def test_a_status_without_a_name() -> None:
    error = CommandFailed("reading", 0x3FF)
    assert error.status == 0x3FF
    assert "0x3/0xff" in str(error)


# ---- lists ---------------------------------------------------------------------------------------


def test_lists_of_namespaces() -> None:
    block = identify.pack_namespace_list(range(1, 1500), 2)
    assert identify.parse_namespace_list(block) == list(range(3, 1027))
    assert identify.parse_namespace_list(identify.pack_namespace_list([5, 3], 0)) == [3, 5]


def test_identifiers() -> None:
    nguid, uuid = bytes(range(16)), bytes(range(16, 32))
    found = identify.parse_descriptors(identify.pack_descriptors(nguid, uuid))
    assert found == {2: nguid, 3: uuid, 4: b"\0"}
    with pytest.raises(FormatError):
        identify.parse_descriptors(b"\x02\x08\x00\x00" + bytes(12))


def test_parts_of_log_pages() -> None:
    assert logs.part_of(b"abcdef", 4, 4) == b"ef\0\0"
    assert logs.part_of(b"abcdef", 100, 4) == bytes(4)


def test_the_discovery_log() -> None:
    entries = [logs.DiscoveryEntry(nqn=f"nqn.test{n}") for n in range(3)]
    page = logs.pack_discovery(9, entries)
    assert len(page) == 4096
    head, found = logs.parse_discovery(page)
    assert (head.generation, head.records, found) == (9, 3, entries)
    assert logs.parse_discovery(page[:2048])[1] == entries[:1]


def test_more_changes_than_the_list_holds() -> None:
    assert logs.pack_changed([3, 1]) == struct.pack("<II", 1, 3).ljust(4096, b"\0")
    assert logs.pack_changed(range(1, 1100)) == struct.pack("<I", 0xFFFFFFFF).ljust(4096, b"\0")


def test_properties() -> None:
    made = fabrics.Capabilities(128, 15, True)
    assert made.pack() == 0x20_0F01_007F
    assert fabrics.Capabilities.parse(made.pack()) == made
    for value in (0x460000, 0x460001, 0x464001, 0x460060):
        assert fabrics.Configuration.parse(value).pack() == value
    assert fabrics.Configuration.parse(0x460001).is_valid
    assert not fabrics.Configuration.parse(0x460061).is_valid
    assert not fabrics.Configuration.parse(0x470001).is_valid


def test_every_structure_is_tested() -> None:
    modules = (fabrics, identify, logs)
    found = {
        each
        for module in modules
        for each in vars(module).values()
        if dataclasses.is_dataclass(each)
        and isinstance(each, type)
        and each is not Structure
        and issubclass(each, Structure)
    }
    assert found == set(STRUCTURES)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"host_nqn": "me"}, "'me' is no NQN"),
        ({"queues": 0}, "queues is a whole number from 1 to 64"),
        ({"entries": 1}, "entries is a whole number from 2 to 1024"),
        ({"timeout": -1}, "timeout is a number of seconds, 0 or more, .* and not -1"),
        ({"loss_timeout": float("nan")}, "loss_timeout is a number of seconds"),
        ({"keep_alive": -1}, "keep_alive is a number of seconds"),
        ({"keep_alive": 1e9}, "keep_alive is .* at most"),
        ({"keep_alive": 1e-4}, "keep_alive is 0.001 seconds or more, or 0 for never"),
        ({"keep_alive": float("nan")}, "keep_alive is a number of seconds"),
        ({"timeout": float("inf")}, "timeout is a number of seconds"),
        ({"spin": float("inf")}, "spin is a number of seconds, 0 or more, 1 at most, and not inf"),
        ({"queues": 1.5}, "queues is a whole number from 1 to 64, and not 1.5"),
        ({"queues": True}, "queues is a whole number"),
        ({"entries": "2"}, "entries is a whole number from 2 to 1024, and not '2'"),
        ({"host_id": "x"}, "host_id is a uuid.UUID, and not 'x'"),
        ({"host_nqn": 4}, "host_nqn must be a str, not int"),
        ({"host_nqn": "nqn.2026-01.org.example:a\0"}, "is no NQN"),
        ({"source": 5}, "source must be a str, not int"),
        ({"timeout": None}, "timeout is a number of seconds, 0 or more, .* and not None"),
    ],
)
def test_options_that_no_host_can_have(options: dict[str, Any], text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        HostOptions(**options)
