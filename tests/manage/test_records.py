# SPDX-License-Identifier: Apache-2.0
"""Records of bits: their tables, and that every field holds what it can hold."""

from __future__ import annotations

import contextlib
import inspect
import pickle
import typing
from typing import Any

import pytest
from hypothesis import given, settings, strategies

from tests.manage.every_record import every_record, instances
from verbena.manage import MadError
from verbena.manage.codes import IbMtu, NodeType, PortState
from verbena.manage.record import Record, bits, code, flag, lid_field, octets
from verbena.manage.record_code import FieldKind
from verbena.manage.smp_attributes import NodeDescription, NodeInfo, PortInfo, SlToVlTable, VlWeight

RECORDS = every_record()
of_each = pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)


def test_there_are_as_many_as_ever() -> None:
    assert len(RECORDS) >= 45


class TestEveryRecord:
    @of_each
    @settings(max_examples=15, deadline=None)
    @given(data=strategies.data())
    def test_fields_hold_their_values(self, record: type[Record], data: Any) -> None:
        made = data.draw(instances(record))
        again = record.unpack(made.pack())
        assert again == made
        assert hash(again) == hash(made)
        assert record(**again.values()) == made
        for name, value in made.values().items():
            assert record.get(made.pack(), name) == value
            assert record().replace(**{name: value}).values()[name] == value
        assert type(made).__name__ in repr(made)

    @of_each
    @settings(max_examples=15, deadline=None)
    @given(data=strategies.data())
    def test_any_bytes_survive(self, record: type[Record], data: Any) -> None:
        before, behind = data.draw(strategies.binary(max_size=9)), b"behind"
        raw = data.draw(strategies.binary(min_size=record.SIZE, max_size=record.SIZE))
        made = record.unpack(before + raw + behind, len(before))
        assert made.pack() == raw
        assert made.replace().pack() == raw
        for name, value in made.values().items():
            if record.FIELDS[name].kind is not FieldKind.TEXT:  # what is behind its end is lost
                assert made.replace(**{name: value}) == made
        assert repr(made)
        assert pickle.loads(pickle.dumps(made)) == made

    @of_each
    def test_a_change_leaves_other_fields_alone(self, record: type[Record]) -> None:
        for start in (bytes(record.SIZE), b"\xff" * record.SIZE):
            made = record.unpack(start)
            for name, field in record.FIELDS.items():
                other = record.unpack(bytes(each ^ 0xFF for each in start)).values()[name]
                if field.kind is FieldKind.TEXT:
                    continue
                changed = made.replace(**{name: other})
                differing = int.from_bytes(changed.pack(), "big") ^ int.from_bytes(start, "big")
                lowest = record.SIZE * 8 - field.at - field.bits
                assert differing == (1 << field.bits) - 1 << lowest, name

    @of_each
    def test_too_few_bytes(self, record: type[Record]) -> None:
        for length in {0, record.SIZE - 1}:
            with pytest.raises(MadError, match=f"{record.__name__} has {record.SIZE} bytes"):
                record.unpack(bytes(length))
            with pytest.raises(MadError, match=f"{record.SIZE} bytes"):
                record.get(bytes(length), next(iter(record.FIELDS)))
        with pytest.raises(MadError):
            record.unpack(bytes(record.SIZE), -1)

    @of_each
    def test_any_object_as_a_value(self, record: type[Record]) -> None:
        """It is taken, or MadError is raised."""
        odd = [None, -1, 1 << 2000, 1.5, "x", "\ud800", b"x", bytes(300), [], object(), (1, 2, "x")]
        for name in record.FIELDS:
            for value in odd:
                with contextlib.suppress(MadError):
                    assert len(record(**{name: value}).pack()) == record.SIZE

    @of_each
    def test_annotations_are_what_is_read(self, record: type[Record]) -> None:
        hints = typing.get_type_hints(record)
        for name, value in record().values().items():
            hint = hints[name]
            assert isinstance(value, typing.get_origin(hint) or hint), name
            if record.FIELDS[name].kind in (FieldKind.CODE, FieldKind.PART):
                assert hint is record.FIELDS[name].codes, name

    @of_each
    def test_every_field_has_a_sentence(self, record: type[Record]) -> None:
        assert record.__doc__
        for name, field in record.FIELDS.items():
            assert field.meaning.endswith("."), name
            assert field.meaning[0].isupper() or field.meaning[0].isdigit(), name


class TestTable:
    def test_fields_that_overlap(self) -> None:
        with pytest.raises(TypeError, match="second overlaps another"):

            class Overlapping(Record, size=4):
                first: int = bits(0, 0, 9, "First.")
                second: int = bits(1, 0, 8, "Second.")

    def test_a_field_beyond_the_end(self) -> None:
        with pytest.raises(TypeError, match="exceeds the 2 bytes"):

            class Exceeding(Record, size=2):
                number: int = bits(1, 4, 5, "A number.")

    def test_bytes_that_begin_within_a_byte(self) -> None:
        with pytest.raises(TypeError, match="does not begin and end with a byte"):

            class Odd(Record, size=4):
                data: bytes = octets(2, 2, "Bytes.")
                made: Any = _shifted()

    def test_numbers_of_every_place(self) -> None:
        for bit in range(8):
            for width in range(1, 33):

                class Placed(Record, size=8):
                    number: int = bits(1, bit, width, "A number.")

                for value in {0, 1, (1 << width) - 1, (1 << width) // 3}:
                    placed = Placed(number=value)
                    where = 64 - 8 - bit - width
                    assert int.from_bytes(placed.pack(), "big") == value << where
                    assert placed.number == value
                    with pytest.raises(MadError):
                        Placed(number=1 << width)


def _shifted() -> Any:
    field = octets(0, 1, "A byte.")
    return type(field)(FieldKind.OCTETS, 4, 8, field.meaning, default=b"\0")


class TestValues:
    def test_named_codes(self) -> None:
        info = PortInfo(port_state=PortState.ACTIVE, neighbor_mtu=IbMtu.BYTES_2048, lid=5)
        assert info.port_state is PortState.ACTIVE
        assert info.neighbor_mtu.payload == 2048
        assert repr(info) == "PortInfo(lid=5, port_state=ACTIVE, neighbor_mtu=BYTES_2048)"

    def test_a_code_without_a_name_survives(self) -> None:
        info = PortInfo.unpack(PortInfo(port_state=PortState(9)).pack())
        assert info.port_state == 9
        assert info.port_state.name == "UNKNOWN_9"
        assert pickle.loads(pickle.dumps(info.port_state)) == 9

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            ({"lid": 0x10000}, "PortInfo.lid is 65536, and may be 0 to 0xffff"),
            ({"lmc": -1}, "PortInfo.lmc is -1, and may be 0 to 0x7"),
            ({"lid": "3"}, "PortInfo.lid is '3', and not a whole number"),
            ({"lid": 3.0}, "not a whole number"),
            ({"lids": 3}, "PortInfo has no field 'lids'; it has m_key, "),
        ],
    )
    def test_refused(self, change: dict[str, Any], text: str) -> None:
        for call in (PortInfo, PortInfo().replace):
            with pytest.raises(MadError) as caught:
                call(**change)
            assert text in str(caught.value)

    def test_refused_leaves_a_buffer_alone(self) -> None:
        buffer = bytearray(64)
        with pytest.raises(MadError):
            PortInfo.put(buffer, 0, lmc=8)
        assert not any(buffer)

    def test_arrays(self) -> None:
        table = SlToVlTable(vls=tuple(range(16)))
        assert table.pack().hex() == "0123456789abcdef"
        with pytest.raises(MadError, match="has 15 elements, and needs 16"):
            table.replace(vls=range(15))
        with pytest.raises(MadError, match=r"an element of SlToVlTable\.vls is 16"):
            table.replace(vls=[16] * 16)
        with pytest.raises(MadError, match="and not 16 elements"):
            table.replace(vls=3)

    def test_text(self) -> None:
        assert NodeDescription(name="Knoten ä").name == "Knoten ä"
        assert NodeDescription.unpack(b"a\0b".ljust(64)).name == "a"
        assert NodeDescription.unpack(b"\xff" * 64).name.encode("utf-8", "surrogateescape")
        for name in ("ä" * 33, "a\0b", "\ud800", b"bytes"):
            with pytest.raises(MadError, match=r"NodeDescription\.name"):
                NodeDescription(name=name)  # type: ignore[arg-type]

    def test_immutable(self) -> None:
        with pytest.raises(AttributeError):
            PortInfo().lid = 3  # type: ignore[misc]
        with pytest.raises(AttributeError):
            PortInfo().lids = 3  # type: ignore[attr-defined]

    def test_signature(self) -> None:
        parameters = inspect.signature(PortInfo).parameters
        assert list(parameters) == list(PortInfo.FIELDS)
        assert parameters["lid"].default == 0

    def test_records_of_two_classes_differ(self) -> None:
        assert VlWeight() != b"\0\0"
        assert PortInfo() != NodeDescription()

    def test_put_and_get_within_a_buffer(self) -> None:
        buffer = bytearray(256)
        PortInfo.put(buffer, 64, lid=7, client_reregister=True)
        assert PortInfo.get(buffer, "lid", 64) == 7
        assert PortInfo.get(memoryview(buffer), "client_reregister", 64) is True
        assert PortInfo.unpack(buffer, 64).lid == 7
        with pytest.raises(MadError, match="there are 63"):
            PortInfo.put(buffer, 193, lid=7)

    def test_guids_are_shown_as_such(self) -> None:
        info = NodeInfo(node_type=NodeType.SWITCH, node_guid=0x2C9000100D0AA)
        assert "node_type=SWITCH, node_guid=0x0002c9000100d0aa" in repr(info)

    def test_declared_as_documented(self) -> None:
        class Example(Record, size=4):
            lid: int = lid_field(0, "The port's LID.")
            state: PortState = code(2, 4, 4, PortState, "State of the port.")
            up: bool = flag(3, 7, "It is up.")

        example = Example(lid=3, state=PortState.ACTIVE, up=True)
        assert example.pack().hex() == "00030401"
        assert repr(example) == "Example(lid=3, state=ACTIVE, up=True)"
