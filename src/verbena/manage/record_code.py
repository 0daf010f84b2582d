# SPDX-License-Identifier: Apache-2.0
"""Accessors of a record's fields, written as Python source and compiled when a field is first used.

``Record`` has an ``AccessorTable`` for each class, and a ``FirstUse`` for each field. Compiling all
fields when their classes are made would take a tenth of a second. To unpack PortInfo, change three
fields and pack it takes 3 µs (Python 3.11, two busy processors). PyPI's ``construct`` 2.10, whose
fields have no types, takes 460 µs for two fields, compiled or not.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple

from .errors import MadError

__all__ = ["AccessorTable", "Accessors", "BitField", "FieldKind", "FirstUse", "check_bytes"]


class FieldKind(Enum):
    """What a field holds, and so the type of its value."""

    NUMBER = auto()
    FLAG = auto()
    CODE = auto()
    EXACT = auto()
    OCTETS = auto()
    TEXT = auto()
    NUMBERS = auto()
    PART = auto()
    PARTS = auto()


@dataclass(frozen=True, slots=True)
class BitField:
    """A row of a record's table: ``at`` is its first bit, ``width`` the bits of one element."""

    kind: FieldKind
    at: int
    width: int
    meaning: str
    count: int = 1
    default: Any = 0
    codes: type | None = None
    show: str = ""

    @property
    def bits(self) -> int:
        """Bits of all its elements."""
        return self.width * self.count

    def is_set(self, value: Any) -> bool:
        """Whether a value is not all zeros."""
        match self.kind:
            case FieldKind.PART:
                return any(value.pack())
            case FieldKind.PARTS:
                return any(any(each.pack()) for each in value)
            case FieldKind.EXACT | FieldKind.OCTETS | FieldKind.NUMBERS:
                return any(value)
            case _:
                return bool(value)


class Accessors(NamedTuple):
    """Functions of a field: of a record, and of a buffer with the record's offset in it."""

    get: Callable[[Any], Any]
    read: Callable[[Any, int], Any]
    write: Callable[[Any, int, Any], None]


class _Members(dict[int, Any]):
    """Members of an enumeration by value; a value without a name is made by the enumeration."""

    def __init__(self, codes: Any) -> None:
        super().__init__({int(member): member for member in codes})
        self.codes = codes

    def __missing__(self, value: int) -> Any:
        made = self[value] = self.codes(value)
        return made


def _whole(where: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise MadError(f"{where} is {value!r}, and not a whole number") from None


def _range(where: str, value: Any, most: int) -> MadError:
    return MadError(f"{where} is {value}, and may be 0 to {most:#x}")


def _filled(where: str, value: Any, size: int, least: int) -> bytes:
    try:
        data = bytes(memoryview(value))
    except TypeError:
        raise MadError(f"{where} is {value!r}, and not bytes") from None
    if not least <= len(data) <= size:
        wanted = f"{size}" if least == size else f"at most {size}"
        raise MadError(f"{where} has {len(data)} bytes, and may have {wanted}")
    return data.ljust(size, b"\0")


def _encoded(where: str, value: Any, size: int) -> bytes:
    if not isinstance(value, str):
        raise MadError(f"{where} is {value!r}, and not a str")
    if "\0" in value:
        raise MadError(f"{where} has a zero character, which ends it")
    try:
        data = value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise MadError(f"{where} cannot be written in UTF-8: {error}") from None
    return _filled(where, data, size, 0)


def _elements(where: str, value: Any, count: int) -> tuple[Any, ...]:
    try:
        found = tuple(value)
    except TypeError:
        raise MadError(f"{where} is {value!r}, and not {count} elements") from None
    if len(found) != count:
        raise MadError(f"{where} has {len(found)} elements, and needs {count}")
    return found


def _array(where: str, value: Any, width: int, count: int) -> bytes:
    """The bytes of ``count`` numbers, the first in the most significant bits."""
    number, most = 0, (1 << width) - 1
    for each in _elements(where, value, count):
        each = _whole(where, each)
        if not 0 <= each <= most:
            raise _range(f"an element of {where}", each, most)
        number = number << width | each
    return number.to_bytes(width * count // 8, "big")


def _packed(where: str, value: Any, codes: Any) -> bytes:
    if not isinstance(value, codes):
        raise MadError(f"{where} is {value!r}, and not a {codes.__name__}")
    packed: bytes = value.pack()
    return packed


def _packed_all(where: str, value: Any, codes: Any, count: int) -> bytes:
    return b"".join(_packed(where, each, codes) for each in _elements(where, value, count))


def _unpacked(codes: Any, raw: Any) -> Any:
    return codes.unpack(raw)


def _split(raw: Any, size: int, codes: Any) -> tuple[Any, ...]:
    return tuple(codes.unpack(raw[i : i + size]) for i in range(0, len(raw), size))


def _divided(number: int, width: int, count: int) -> tuple[int, ...]:
    mask = (1 << width) - 1
    return tuple(number >> shift & mask for shift in range(width * (count - 1), -1, -width))


def _number_source(field: BitField, base: str) -> str:
    """Return the expression that reads a number of a buffer ``b``; it is an int."""
    byte, bit = divmod(field.at, 8)
    span = (bit + field.bits + 7) // 8
    shift = span * 8 - bit - field.bits
    if span == 1:
        source = f"b[{base}{byte}]"
    elif span == 2:
        source = f"(b[{base}{byte}]<<8|b[{base}{byte + 1}])"
    else:
        source = f"from_bytes(b[{base}{byte}:{base}{byte + span}],'big')"
    source = f"{source}>>{shift}" if shift else source
    return f"{source}&{(1 << field.bits) - 1}" if bit else source


def _read_source(field: BitField, base: str) -> str:
    byte, size = field.at // 8, field.bits // 8
    raw = f"b[{base}{byte}:{base}{byte + size}]"
    match field.kind:
        case FieldKind.NUMBER:
            return _number_source(field, base)
        case FieldKind.FLAG:
            return f"{_number_source(field, base)}!=0"
        case FieldKind.CODE:
            return f"members[{_number_source(field, base)}]"
        case FieldKind.EXACT | FieldKind.OCTETS:
            return f"bytes({raw})"
        case FieldKind.TEXT:
            return f"bytes({raw}).partition(b'\\0')[0].decode('utf-8','surrogateescape')"
        case FieldKind.NUMBERS if field.width == 8:
            return f"tuple({raw})"
        case FieldKind.NUMBERS:
            return f"divided({_number_source(field, base)},{field.width},{field.count})"
        case FieldKind.PART:
            return f"unpacked(codes,{raw})"
        case FieldKind.PARTS:
            return f"split({raw},{field.width // 8},codes)"


def _write_number_source(field: BitField) -> str:
    byte, bit = divmod(field.at, 8)
    span = (bit + field.bits + 7) // 8
    shift = span * 8 - bit - field.bits
    most = (1 << field.bits) - 1
    lines = [
        "if v.__class__ is not int: v=whole(where,v)",
        f"if not 0<=v<={most}: raise out_of_range(where,v,{most})",
    ]
    if bit or shift:
        keep = (1 << span * 8) - 1 ^ most << shift
        if span == 1:
            lines.append(f"b[at+{byte}]=b[at+{byte}]&{keep}|v<<{shift}")
        else:
            place = f"b[at+{byte}:at+{byte + span}]"
            lines.append(f"v=from_bytes({place},'big')&{keep}|v<<{shift}")
            lines.append(f"{place}=v.to_bytes({span},'big')")
    elif span == 1:
        lines.append(f"b[at+{byte}]=v")
    else:
        lines.append(f"b[at+{byte}:at+{byte + span}]=v.to_bytes({span},'big')")
    return "\n ".join(lines)


def _write_source(field: BitField) -> str:
    byte, size = field.at // 8, field.bits // 8
    place = f"b[at+{byte}:at+{byte + size}]"
    match field.kind:
        case FieldKind.NUMBER | FieldKind.FLAG | FieldKind.CODE:
            return _write_number_source(field)
        case FieldKind.EXACT:
            return f"{place}=filled(where,v,{size},{size})"
        case FieldKind.OCTETS:
            usual = f"v.__class__ is bytes and len(v)<={size}"
            return f"{place}=v.ljust({size},b'\\0') if {usual} else filled(where,v,{size},0)"
        case FieldKind.TEXT:
            return f"{place}=encoded(where,v,{size})"
        case FieldKind.NUMBERS:
            return f"{place}=array(where,v,{field.width},{field.count})"
        case FieldKind.PART:
            return f"{place}=packed(where,v,codes)"
        case FieldKind.PARTS:
            return f"{place}=packed_all(where,v,codes,{field.count})"


def check_bytes(record: str, name: str, field: BitField) -> None:
    """Raise TypeError for a field of bytes that does not begin and end with a byte."""
    of_bits = field.kind in (FieldKind.NUMBER, FieldKind.FLAG, FieldKind.CODE)
    if not of_bits and (field.at | field.bits) & 7:
        raise TypeError(f"{record}.{name} does not begin and end with a byte")


_NAMES: dict[str, Any] = {
    "from_bytes": int.from_bytes,
    "whole": _whole,
    "out_of_range": _range,
    "filled": _filled,
    "encoded": _encoded,
    "array": _array,
    "divided": _divided,
    "packed": _packed,
    "packed_all": _packed_all,
    "unpacked": _unpacked,
    "split": _split,
}


def _accessors(record: str, name: str, field: BitField) -> Accessors:
    names: dict[str, Any] = _NAMES | {
        "where": f"{record}.{name}",
        "members": _Members(field.codes) if field.kind is FieldKind.CODE else None,
        "codes": field.codes,
    }
    source = (
        f"def get(self):\n b=self._raw\n return {_read_source(field, '')}\n"
        f"def read(b,at):\n return {_read_source(field, 'at+')}\n"
        f"def write(b,at,v):\n {_write_source(field)}\n"
    )
    exec(compile(source, f"<{record}.{name}>", "exec"), names)
    return Accessors(names["get"], names["read"], names["write"])


Writer = Callable[[Any, int, Mapping[str, Any]], None]


def _common_writer(record: str, fields: Mapping[str, BitField]) -> Writer:
    """Return the function that writes these fields in their order, from values by name."""
    names: dict[str, Any] = dict(_NAMES)
    lines = ["def write(b,at,values):"]
    for number, (name, field) in enumerate(fields.items()):
        names[f"where{number}"], names[f"codes{number}"] = f"{record}.{name}", field.codes
        source = re.sub(r"\b(where|codes)\b", rf"\g<1>{number}", _write_source(field))
        lines += [f" v=values[{name!r}]", f" {source}"]
    exec(compile("\n".join(lines), f"<{record}>", "exec"), names)
    made: Writer = names["write"]
    return made


class AccessorTable(dict[str, Accessors]):
    """The accessors of a record's fields by name; KeyError for a name that is none.

    ``writers`` has a function for fields that are often written together, which costs less than one
    for each; ``writer`` makes it when it is worth it.
    """

    OFTEN = 16

    def __init__(self, record: str, fields: Mapping[str, BitField]) -> None:
        super().__init__()
        self._record = record
        self._fields = fields
        self._uses: dict[tuple[str, ...], int] = {}
        self.writers: dict[tuple[str, ...], Writer] = {}

    def writer(self, names: tuple[str, ...]) -> Writer | None:
        """Return the function that writes these fields, or None: they are written one by one."""
        uses = self._uses[names] = self._uses.get(names, 0) + 1
        if uses < self.OFTEN or not names or not self._fields.keys() >= set(names):
            return None
        found = {name: self._fields[name] for name in names}
        made = self.writers[names] = _common_writer(self._record, found)
        return made

    def __missing__(self, name: str) -> Accessors:
        made = self[name] = _accessors(self._record, name, self._fields[name])
        return made


class FirstUse:
    """The attribute of a record's class for a field, until it is read: then a property."""

    def __init__(self, name: str, table: AccessorTable, meaning: str) -> None:
        self.name = name
        self.table = table
        self.__doc__ = meaning

    def __get__(self, record: Any, owner: type) -> Any:
        if record is None:
            return self
        get = self.table[self.name].get
        for each in owner.__mro__:
            if vars(each).get(self.name) is self:
                setattr(each, self.name, property(get, doc=self.__doc__))
        return get(record)

    def __set__(self, record: Any, value: Any) -> None:
        raise AttributeError(f"records are immutable: use replace({self.name}=...)")
