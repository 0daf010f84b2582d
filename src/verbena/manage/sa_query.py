# SPDX-License-Identifier: Apache-2.0
"""Queries of subnet administration: which components count (ComponentMask), and what matches.

A program makes ``SaQuery.of(PathRecord, sgid=..., dgid=...)``; the SA makes ``SaQuery.of_mad`` of a
request, and asks it of each record that it has. Component i of an attribute is bit i of the mask;
components are the rows of IBA's table, reserved rows among them (IBA 15.2.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from .codes import IbRate
from .errors import MadError
from .mad import SaMad
from .record import Record
from .record_code import BitField, FieldKind
from .sa_records import (
    GuidInfoRecord,
    McMemberRecord,
    MultiPathRecord,
    PathRecord,
    PortInfoRecord,
    Selector,
    ServiceRecord,
)

if TYPE_CHECKING:
    from typing import Self

__all__ = ["Component", "SaQuery", "components"]

_R = TypeVar("_R", bound=Record)

# Fields that are several rows of IBA's table: the bits of each.
_ROWS: dict[tuple[type[Record], str], tuple[int, ...]] = {
    (PathRecord, "service_id"): (8, 56),
    (GuidInfoRecord, "guids"): (64,) * 8,
    **{(ServiceRecord, f"data{width}"): (width,) * (128 // width) for width in (8, 16, 32, 64)},
}
# Reserved bits that are several rows, by the field behind them.
_RESERVED_ROWS: dict[tuple[type[Record], str], int] = {(GuidInfoRecord, "guids"): 2}
# Fields that are no components; those of PortInfo are newer than the numbers of the rows behind.
_WITHOUT: set[tuple[type[Record], str]] = {
    (MultiPathRecord, "gids"),
    (PortInfoRecord, "link_speed_ext_active2"),
    (PortInfoRecord, "link_speed_ext_supported2"),
    (PortInfoRecord, "link_speed_ext_enabled2"),
}
# Numbers that a selector compares: their order.
_SELECTED: dict[type[Record], dict[str, Callable[[Any], float]]] = {
    record: {"mtu": int, "rate": lambda code: IbRate(code).gbps, "packet_life_time": int}
    for record in (PathRecord, McMemberRecord)
}


@dataclass(frozen=True, slots=True)
class Component:
    """A field of an SA record, which is one row or several of IBA's table.

    Each row has its bit of the ComponentMask, and its bits of the record as one big-endian number.
    ``part`` is the field of the record that contains it, or None.
    """

    name: str
    rows: tuple[tuple[int, int], ...]
    part: str | None = None

    @property
    def mask(self) -> int:
        """All its bits of the ComponentMask."""
        return sum(bit for bit, _ in self.rows)


def _rows(record: type[Record], base: int = 0) -> Iterator[tuple[int, str, BitField, str | None]]:
    """Every field with its first bit; those of embedded records in their place."""
    for name, field in sorted(record.FIELDS.items(), key=lambda item: item[1].at):
        if field.kind is FieldKind.PART and field.codes is not None:
            for at, inner, within, _ in _rows(field.codes, base + field.at):
                yield at, inner, within, name
        else:
            yield base + field.at, name, field, None


def components(record: type[Record]) -> Mapping[str, Component]:
    """Return the components of an SA record by the names of their fields.

    The fields of an embedded attribute are there by their own names.
    """
    kind: Any = record  # mypy does not take a class with __hash__ for hashable
    return _components(kind)


@cache
def _components(record: type[Record]) -> Mapping[str, Component]:
    found: dict[str, Component] = {}
    number, end = 0, 0
    for at, name, field, part in _rows(record):
        if (record, name) in _WITHOUT:
            continue
        if at > end:
            number += _RESERVED_ROWS.get((record, name), 1)
        if name in found:
            raise TypeError(f"{record.__name__} has two components {name}")
        rows = []
        for width in _ROWS.get((record, name), (field.bits,)):
            at += width
            rows.append((1 << number, (1 << width) - 1 << record.SIZE * 8 - at))
            number += 1
        found[name] = Component(name, tuple(rows), part)
        end = at
    return MappingProxyType(found)


class _Plan(NamedTuple):
    """What ``matches`` looks at: bits of the record that have to be equal, and what is selected."""

    compared: int
    selected: tuple[tuple[str, Callable[[Any], float]], ...]


def _plan(record: type[Record], mask: int) -> _Plan:
    """What a ComponentMask asks for.

    Selectors and what they compare are not in ``compared``: a value without its selector does not
    count.
    """
    selected = _SELECTED.get(record, {})
    left_out = {*selected, *(f"{name}_selector" for name in selected)}
    table = components(record)
    compared = sum(
        bits
        for name, component in table.items()
        for bit, bits in component.rows
        if mask & bit and name not in left_out
    )
    both = {name: table[name].mask | table[f"{name}_selector"].mask for name in selected}
    return _Plan(
        compared,
        tuple((name, order) for name, order in selected.items() if mask & both[name] == both[name]),
    )


@dataclass(frozen=True)
class SaQuery(Generic[_R]):
    """A record with the components of it that count."""

    record: _R
    mask: int

    @classmethod
    def of(cls, kind: type[_R], **values: Any) -> Self:
        """Return the query for records with these values in their components.

        ``mtu``, ``rate`` and ``packet_life_time`` count with their selectors only, so a value
        without one gets EXACTLY. Raises MadError for a name that is no component.
        """
        table = components(kind)
        for name in _SELECTED.get(kind, {}):
            if name in values:
                values.setdefault(f"{name}_selector", Selector.EXACTLY)
        mask = 0
        parts: dict[str, dict[str, Any]] = {}
        direct: dict[str, Any] = {}
        for name, value in values.items():
            component = table.get(name)
            if component is None:
                raise MadError(
                    f"{kind.__name__} has no component {name!r}; it has {', '.join(table)}"
                )
            mask |= component.mask
            (parts.setdefault(component.part, {}) if component.part else direct)[name] = value
        for part, inner in parts.items():
            kind_of_part: Any = kind.FIELDS[part].codes
            direct[part] = kind_of_part(**inner)
        # Fields whose component is not selected are 0, whatever their default is.
        return cls(kind.unpack(bytes(kind.SIZE)).replace(**direct), mask)

    @classmethod
    def of_mad(cls, kind: type[_R], mad: SaMad) -> Self:
        """Return the query that a request carries. Raises MadError if it is too short."""
        return cls(mad.attribute(kind), mad.component_mask)

    def put_into(self, mad: SaMad) -> SaMad:
        """Return the request with this query's attribute and ComponentMask."""
        return mad.with_attribute(self.record).replace(component_mask=self.mask)

    def has(self, *names: str) -> bool:
        """Whether all these components count. Raises MadError for a name that is none."""
        table = components(type(self.record))
        try:
            return all(self.mask & table[name].mask == table[name].mask for name in names)
        except KeyError as error:
            raise MadError(f"{type(self.record).__name__} has no component {error}") from None

    def matches(self, record: _R) -> bool:
        """Whether a record equals the query in every component that counts.

        Of a value with a selector, both must be selected; LARGEST matches any, for the caller to
        choose among what matches. Nothing else is special: an attribute with a rule of its own
        (PortInfoRecord's options, a P_Key's membership bit) is the SA's to look at.
        """
        plan = self._plan
        wanted, found = self.record.pack(), record.pack()
        if wanted != found:
            differing = int.from_bytes(wanted, "big") ^ int.from_bytes(found, "big")
            if differing & plan.compared:
                return False
        return all(self._selects(name, order, record) for name, order in plan.selected)

    @cached_property
    def _plan(self) -> _Plan:
        return _plan(type(self.record), self.mask)

    def _selects(self, name: str, order: Callable[[Any], float], record: _R) -> bool:
        wanted, found = order(getattr(self.record, name)), order(getattr(record, name))
        match getattr(self.record, f"{name}_selector"):
            case Selector.GREATER_THAN:
                return found > wanted
            case Selector.LESS_THAN:
                return found < wanted
            case Selector.EXACTLY:
                return found == wanted
            case _:
                return True
