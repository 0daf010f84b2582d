# SPDX-License-Identifier: Apache-2.0
"""``Structure``: a dataclass whose fields have places in a block of bytes, as NVMe's tables have.

The modules of formats declare Identify data, log pages and the others with it; the hot path uses
``struct`` directly (``commands``). Numbers are little-endian. A field that leaves its structure, or
overlaps another one, is a TypeError when the class is first used.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from .errors import FormatError

__all__ = ["Structure", "number", "octets", "padded_text", "text"]


@dataclass(frozen=True)
class Place:
    """Where a field is, and what it is."""

    at: int
    size: int
    kind: str


def number(at: int, size: int, default: int = 0) -> Any:
    """Declare a number of ``size`` bytes."""
    return field(default=default, metadata={"place": Place(at, size, "number")})


def octets(at: int, size: int, default: bytes = b"") -> Any:
    """Declare bytes. A shorter value is filled up with zeros."""
    filled = default.ljust(size, b"\0")
    return field(default=filled, metadata={"place": Place(at, size, "octets")})


def text(at: int, size: int, default: str = "") -> Any:
    """Declare text that ends with a zero byte, or with spaces."""
    return field(default=default, metadata={"place": Place(at, size, "text")})


def padded_text(at: int, size: int, default: str = "") -> Any:
    """Declare ASCII text that is filled up with spaces, as serial numbers are."""
    return field(default=default, metadata={"place": Place(at, size, "padded")})


def places_of(kind: type[Structure]) -> tuple[tuple[str, Place], ...]:
    """Return the fields of a structure in the order of their bytes. Raises TypeError."""
    if "PLACES" not in kind.__dict__:
        kind.PLACES = _find_places(kind)
    return kind.PLACES


def _find_places(kind: type[Structure]) -> tuple[tuple[str, Place], ...]:
    found = sorted(
        ((each.name, each.metadata["place"]) for each in dataclasses.fields(kind)),
        key=lambda each: each[1].at,
    )
    end = 0
    for name, place in found:
        if place.at < end or place.at + place.size > kind.SIZE:
            raise TypeError(f"{kind.__name__}.{name} overlaps a field, or leaves the structure")
        end = place.at + place.size
    return tuple(found)


@dataclass
class Structure:
    """The base of the tables; ``SIZE`` is the length of the block in bytes."""

    SIZE: ClassVar[int] = 0
    PLACES: ClassVar[tuple[tuple[str, Place], ...]] = ()

    def pack(self) -> bytes:
        """Return the block. Raises FormatError for a value that its field cannot hold."""
        block = bytearray(self.SIZE)
        for name, place in places_of(type(self)):
            value = getattr(self, name)
            try:
                block[place.at : place.at + place.size] = _packed(place, value)
            except (OverflowError, UnicodeError, ValueError):
                raise FormatError(
                    f"{type(self).__name__}.{name}: {value!r} does not fit {place.size} bytes"
                ) from None
        return bytes(block)

    @classmethod
    def parse(cls, block: bytes | bytearray | memoryview) -> Self:
        """Return the structure at the start of a block. Raises FormatError if it is too short."""
        if len(block) < cls.SIZE:
            raise FormatError(
                f"{cls.__name__} has {cls.SIZE} bytes, and {len(block)} bytes have come"
            )
        values = {
            name: _parsed(place, bytes(block[place.at : place.at + place.size]))
            for name, place in places_of(cls)
        }
        return cls(**values)


def _packed(place: Place, value: Any) -> bytes:
    if place.kind == "number":
        return int(value).to_bytes(place.size, "little")
    if place.kind == "octets":
        made = bytes(value)
        fill = b"\0"
    else:
        made = value.encode("ascii" if place.kind == "padded" else "utf-8")
        fill = b" " if place.kind == "padded" else b"\0"
    if len(made) > place.size:
        raise ValueError
    return made.ljust(place.size, fill)


def _parsed(place: Place, value: bytes) -> int | bytes | str:
    if place.kind == "number":
        return int.from_bytes(value, "little")
    if place.kind == "octets":
        return value
    return value.partition(b"\0")[0].decode("utf-8", "replace").rstrip(" ")
