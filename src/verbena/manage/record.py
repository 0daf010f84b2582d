# SPDX-License-Identifier: Apache-2.0
"""Records of bits: a class with a table of fields is an attribute of management packets (MADs).

The modules of this package declare their formats as subclasses of ``Record``. A record is its
bytes: reading a field decodes these bits alone, so that reserved bits, and codes without a name,
survive ``unpack`` and ``pack``. ``record_code.py`` writes the accessors when the class is made, and
a class whose fields overlap or exceed its size is a TypeError at import.

    class Example(Record, size=4):
        lid: int = lid_field(0, "The port's LID.")
        state: PortState = code(2, 4, 4, PortState, "State of the port.")

    Example(lid=3, state=PortState.ACTIVE).pack()

Byte offsets are within the record, and bits count from the most significant bit of their byte, as
in the tables of the InfiniBand Architecture (IBA). Numbers are big-endian.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform

from .codes import gid_text, guid_text
from .errors import MadError
from .record_code import AccessorTable, BitField, FieldKind, FirstUse, check_bytes

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import Buffer

__all__ = [
    "Record",
    "bits",
    "code",
    "flag",
    "gid_field",
    "guid_field",
    "key",
    "lid_field",
    "numbers",
    "octets",
    "part",
    "parts",
    "table",
    "text",
]


def bits(byte: int, bit: int, width: int, meaning: str, default: int = 0, show: str = "") -> Any:
    """Declare a number of ``width`` bits. ``show`` formats it in ``repr``, as ``format`` does."""
    return BitField(FieldKind.NUMBER, byte * 8 + bit, width, meaning, default=default, show=show)


def flag(byte: int, bit: int, meaning: str, default: bool = False) -> Any:
    """Declare a single bit, read as a bool."""
    return BitField(FieldKind.FLAG, byte * 8 + bit, 1, meaning, default=default)


def code(byte: int, bit: int, width: int, codes: type[int], meaning: str, default: int = 0) -> Any:
    """Declare a number whose values have names: ``codes`` is an IntEnum or an IntFlag."""
    return BitField(FieldKind.CODE, byte * 8 + bit, width, meaning, default=default, codes=codes)


def lid_field(byte: int, meaning: str, default: int = 0) -> Any:
    """Declare a LID, 16 bits."""
    return BitField(FieldKind.NUMBER, byte * 8, 16, meaning, default=default)


def guid_field(byte: int, meaning: str, default: int = 0) -> Any:
    """Declare a GUID, a number of 64 bits."""
    return BitField(FieldKind.NUMBER, byte * 8, 64, meaning, default=default, show="guid")


def key(byte: int, width: int, meaning: str, default: int = 0) -> Any:
    """Declare a key or an identifier, which is read in hexadecimal."""
    return BitField(FieldKind.NUMBER, byte * 8, width, meaning, default=default, show="#x")


def gid_field(byte: int, meaning: str) -> Any:
    """Declare a GID: 16 bytes."""
    return BitField(FieldKind.EXACT, byte * 8, 128, meaning, default=bytes(16), show="gid")


def table(byte: int, size: int, meaning: str, fill: int = 0) -> Any:
    """Declare a table with one byte for each entry, read as bytes; its length is ``size``."""
    default = bytes([fill]) * size
    return BitField(FieldKind.EXACT, byte * 8, size * 8, meaning, default=default)


def octets(byte: int, size: int, meaning: str) -> Any:
    """Declare bytes. A shorter value is filled up with zeros."""
    return BitField(FieldKind.OCTETS, byte * 8, size * 8, meaning, default=bytes(size))


def text(byte: int, size: int, meaning: str) -> Any:
    """Declare UTF-8 text, filled up with zeros. Reading ends at the first zero byte."""
    return BitField(FieldKind.TEXT, byte * 8, size * 8, meaning, default="")


def numbers(byte: int, width: int, count: int, meaning: str, show: str = "") -> Any:
    """Declare ``count`` numbers of ``width`` bits, read as a tuple."""
    default = (0,) * count
    return BitField(FieldKind.NUMBERS, byte * 8, width, meaning, count, default=default, show=show)


def part(byte: int, record: type[Record], meaning: str) -> Any:
    """Declare another record at this byte."""
    default = record()
    return BitField(
        FieldKind.PART, byte * 8, record.SIZE * 8, meaning, default=default, codes=record
    )


def parts(byte: int, record: type[Record], count: int, meaning: str) -> Any:
    """Declare ``count`` records behind each other, read as a tuple."""
    default = (record(),) * count
    return BitField(
        FieldKind.PARTS, byte * 8, record.SIZE * 8, meaning, count, default, codes=record
    )


class RecordType(type):
    """The class of records' classes: their instances have the slots of ``Record`` alone."""

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> Any:
        namespace.setdefault("__slots__", ())
        return super().__new__(cls, name, bases, namespace, **options)

    @property
    def __signature__(cls) -> Any:
        """The fields as keywords, for ``help`` and ``inspect.signature``."""
        import inspect  # takes 7 ms, and few ask

        fields: Mapping[str, BitField] = getattr(cls, "FIELDS", {})
        return inspect.Signature(
            [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.default)
                for name, field in fields.items()
            ]
        )


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Record(metaclass=RecordType):
    """A record of ``SIZE`` bytes with the fields of its class, as IBA's tables have them.

    Records are immutable; two are equal if their class and all their bytes are. ``FIELDS`` has the
    table. The constructor takes fields as keywords; every field has a default, and reserved bits
    are zero. It raises MadError for a value that its field cannot hold.
    """

    __slots__ = ("_raw",)

    SIZE: ClassVar[int] = 0
    ATTRIBUTE: ClassVar[int] = 0  # its AttributeID, for one that is an attribute or a message
    FIELDS: ClassVar[Mapping[str, BitField]] = MappingProxyType({})
    _start: ClassVar[bytes] = b""  # every field has its default
    _table: ClassVar[AccessorTable]

    if TYPE_CHECKING:
        _raw: ClassVar[bytes]  # of the instance: a slot, and no field

    def __init_subclass__(cls, *, size: int | None = None, attribute: int | None = None) -> None:
        cls.SIZE = cls.SIZE if size is None else size
        cls.ATTRIBUTE = cls.ATTRIBUTE if attribute is None else attribute
        found = {name: value for name, value in vars(cls).items() if isinstance(value, BitField)}
        fields = {**cls.FIELDS, **found}
        _check_table(cls, fields)
        cls.FIELDS = MappingProxyType(fields)
        cls._table = AccessorTable(cls.__name__, cls.FIELDS)
        for name, field in found.items():
            check_bytes(cls.__name__, name, field)
            setattr(cls, name, FirstUse(name, cls._table, field.meaning))
        start = bytearray(cls.SIZE)
        for name, field in fields.items():
            if field.is_set(field.default):
                cls._table[name].write(start, 0, field.default)
        cls._start = bytes(start)

    def __init__(self, **values: Any) -> None:
        raw = self._start
        if values:
            together = self._table.writers.get(tuple(values))
            if together is None:
                raw = self._changed(raw, values)
            else:  # as _changed, without its calls: messages of connections are made so
                changed = bytearray(raw)
                together(changed, 0, values)
                raw = bytes(changed)
        self._raw = raw  # type: ignore[misc]

    @classmethod
    def _changed(cls, raw: bytes, values: dict[str, Any]) -> bytes:
        changed = bytearray(raw)
        cls._write(changed, 0, values)
        return bytes(changed)

    @classmethod
    def unpack(cls, data: Buffer, at: int = 0) -> Self:
        """Return the record that begins at byte ``at``; what follows it is not read.

        Raises MadError if there are fewer than ``SIZE`` bytes.
        """
        size = cls.SIZE
        if data.__class__ is bytes:
            raw = data[at : at + size]
        else:
            raw = bytes(memoryview(data)[at : at + size])
        if len(raw) != size or at < 0:
            raise MadError(f"{cls.__name__} has {cls.SIZE} bytes, and there are {len(raw)}")
        made = cls.__new__(cls)
        made._raw = raw  # type: ignore[misc]
        return made

    def pack(self) -> bytes:
        """Return the bytes of the record."""
        return self._raw

    __bytes__ = pack

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values in these fields. Raises MadError."""
        made = self.__new__(self.__class__)
        made._raw = self._changed(self._raw, changes)  # type: ignore[misc]
        return made

    __replace__ = replace

    @classmethod
    def get(cls, data: Any, name: str, at: int = 0) -> Any:
        """Return one field of the record that begins at byte ``at`` of ``data``.

        ``data`` is bytes, a bytearray or a memoryview. Raises MadError if it is too short, or if
        there is no such field.
        """
        if at < 0 or len(data) < at + cls.SIZE:
            raise MadError(f"{cls.__name__} has {cls.SIZE} bytes, and there are {len(data) - at}")
        try:
            return cls._table[name].read(data, at)
        except KeyError:
            raise cls._no_field(name) from None

    @classmethod
    def put(cls, data: Any, at: int = 0, /, **changes: Any) -> None:
        """Write fields of the record that begins at byte ``at`` of a bytearray.

        Raises MadError as ``get`` does, and for a value that its field cannot hold: then the fields
        before it are written.
        """
        if at < 0 or len(data) < at + cls.SIZE:
            raise MadError(f"{cls.__name__} has {cls.SIZE} bytes, and there are {len(data) - at}")
        cls._write(data, at, changes)

    @classmethod
    def _write(cls, data: Any, at: int, changes: dict[str, Any]) -> None:
        table = cls._table
        names = tuple(changes)
        together = table.writers.get(names) or table.writer(names)
        if together is not None:
            together(data, at, changes)
            return
        for name, value in changes.items():
            try:
                writer = table[name].write
            except KeyError:
                raise cls._no_field(name) from None
            writer(data, at, value)

    @classmethod
    def _no_field(cls, name: str) -> MadError:
        return MadError(f"{cls.__name__} has no field {name!r}; it has {', '.join(cls.FIELDS)}")

    def values(self) -> dict[str, Any]:
        """Return every field by name."""
        return {name: getattr(self, name) for name in self.FIELDS}

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return self._raw == other._raw

    def __hash__(self) -> int:
        return hash((self.__class__, self._raw))

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self).unpack, (self._raw,))

    def __repr__(self) -> str:
        """Name the fields that are not zero."""
        shown = []
        for name, field in self.FIELDS.items():
            value = getattr(self, name)
            if field.is_set(value):
                shown.append(f"{name}={_shown(field, value)}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _shown(field: BitField, value: Any) -> str:
    if field.kind is FieldKind.CODE:
        return str(value.name or int(value))
    if field.show == "gid":
        return gid_text(value)
    if field.kind in (FieldKind.OCTETS, FieldKind.EXACT):
        return value.rstrip(b"\0").hex() or "0"
    if field.kind is FieldKind.NUMBERS:
        return f"[{' '.join(_number(field, each) for each in value)}]"
    return _number(field, value) if field.kind is FieldKind.NUMBER else repr(value)


def _number(field: BitField, value: int) -> str:
    return guid_text(value) if field.show == "guid" else format(value, field.show)


def _check_table(cls: type[Record], fields: Mapping[str, BitField]) -> None:
    """Raise TypeError for fields that overlap or that exceed the record."""
    taken = 0
    for name, field in fields.items():
        behind = cls.SIZE * 8 - field.at - field.bits
        if behind < 0:
            raise TypeError(f"{cls.__name__}.{name} exceeds the {cls.SIZE} bytes of its record")
        mask = (1 << field.bits) - 1 << behind
        if taken & mask:
            raise TypeError(f"{cls.__name__}.{name} overlaps another field")
        taken |= mask
