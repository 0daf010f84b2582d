# SPDX-License-Identifier: Apache-2.0
"""Settings as typed structures, which msgspec checks once, so that later code need not.

Scenarios (``document``), World (``world_settings``) and the functions of ``arguments`` call
``read`` with what a user gave. They get a structure, or ``Refused`` with the place of the mistake
and what is allowed there. The ``Meta`` of a field has the range of its values, and the unit in
which scenarios write them.

msgspec was chosen over pydantic. Both have structures, ranges, unions by a key, errors with the
path of the mistake, a permissive licence (BSD, MIT) and wheels for Python 3.11 to 3.14. msgspec
needs no other package and 0.7 MB; pydantic is four packages of 10 MB. With NumPy loaded, msgspec
takes 3 ms to import, pydantic 45. msgspec stops at the first mistake, which suffices here. Its
texts are not shown: ``Refused`` is made from the path and from the type that is required there,
since users write units and not "int".
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, TypeVar, cast

import msgspec
from msgspec import Meta, inspect

from verbena.sim.units import time_text

__all__ = [
    "MANY", "SIZE", "TIME", "Bytes", "Key", "Refused", "Settings", "Units", "fields_of", "given",
    "meant", "read", "unit",
]  # fmt: skip

Key = tuple[str | int, ...]
Units = Mapping[str, Callable[[Any], Any]]
T = TypeVar("T")


def unit(name: str) -> Meta:
    """Mark a field: ``read`` converts its value with the function of that name."""
    return Meta(extra={"unit": name})


SIZE, TIME = unit("size"), unit("time")  # their values are in bytes and ps
MANY = unit("many")  # a list, for which one element may stand
Bytes = Annotated[int, SIZE, Meta(ge=0, le=2**32 - 1)]
_NOUNS = {"size": "a number of bytes", "time": "a time"}  # in a scenario, which writes units
_UNITS = {  # in Python, which has plain numbers
    "size": " of bytes", "time": " of ps", "bits": " of bits per second", "seconds": " of seconds",
}  # fmt: skip
# A bound from here on only fits the computer's numbers, and is shown to who is beyond it alone.
_NO_LIMIT = 2**62
_PATH = re.compile(r"(.*?)(?: - at `(key` in `)?\$(.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]|\[\.\.\.\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")


class Settings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The base of all structures of settings: fields are keywords, and unknown keys are refused."""


@dataclass(eq=False)
class Refused(ValueError):
    """A setting is not allowed. ``key`` is its place in what was given, and ``value`` what stands
    there.

    One of the following gives the reason. ``unknown``: a key that does not exist; ``names`` are
    those that do, and ``needed`` the required ones that are absent. ``missing``: a required key;
    ``choices`` are its values, if they have names. ``says``: a sentence about the value. Otherwise
    the value has to be one of ``names`` or ``wanted``, which is a noun.
    """

    key: Key
    value: Any
    says: str = ""
    wanted: str = ""
    unknown: str | None = None
    missing: str = ""
    names: Collection[str] = ()
    needed: Collection[str] = ()
    choices: Collection[str] = ()

    def __str__(self) -> str:
        return self.says or self.wanted


def read(value: Any, kind: type[T], units: Units) -> T:
    """Return the structure. Raises Refused for the first setting that is not allowed."""
    found: T = _read(value, kind, _info(cast(Hashable, kind)), (), units)
    return found


def given(settings: msgspec.Struct) -> dict[str, Any]:
    """Return the fields that have a value: None stands for a key that was not given."""
    fields = msgspec.structs.asdict(settings)
    return {name: value for name, value in fields.items() if value is not None}


def meant(value: object, names: Collection[str]) -> str:
    """Return "is 'incast' meant? " if one of the names is similar to the value; otherwise ""."""
    close = difflib.get_close_matches(value, names, 1) if isinstance(value, str) else []
    return f"is {close[0]!r} meant? " if close else ""


@cache
def _info(kind: Hashable) -> inspect.Type:
    return inspect.type_info(kind)


def _read(value: Any, kind: Any, info: inspect.Type, key: Key, units: Units) -> Any:
    based = _in_base_units(value, info, key, units)
    try:
        return msgspec.convert(based, kind)
    except msgspec.ValidationError as error:
        raise _refused(error, (value, based), info, key, units) from None


# ---- before the check: conversion of units -------------------------------------------------------


def _in_base_units(value: Any, info: inspect.Type, key: Key, units: Units) -> Any:
    """Return the same settings in ps, bytes and so on."""
    if isinstance(info, inspect.Metadata):
        if info.extra and (change := units.get(info.extra.get("unit", ""))) and value is not None:
            value = _changed(value, change, key)
        return _in_base_units(value, info.type, key, units)
    if isinstance(info, inspect.UnionType):
        chosen = _chosen(info, value)
        return value if chosen is None else _in_base_units(value, chosen, key, units)
    if isinstance(info, inspect.StructType) and isinstance(value, Mapping):
        fields = _fields(info)
        return {
            name: _in_base_units(item, fields[name].type, (*key, name), units)
            if name in fields
            else item
            for name, item in value.items()
        }
    if isinstance(info, inspect.ListType) and isinstance(value, list | tuple):
        return [_in_base_units(v, info.item_type, (*key, n), units) for n, v in enumerate(value)]
    if isinstance(info, inspect.DictType) and isinstance(value, Mapping):
        return _by_number(value, info.value_type, key, units)
    whole = isinstance(info, inspect.IntType | inspect.LiteralType)
    if whole and isinstance(value, float) and value.is_integer():
        return _changed(value, units.get("whole", lambda number: number), key)
    return value


def _changed(value: Any, change: Callable[[Any], Any], key: Key) -> Any:
    try:
        return change(value)
    except ValueError as error:
        raise Refused(key, value, says=str(error)) from None


def _by_number(
    value: Mapping[Any, Any], info: inspect.Type, key: Key, units: Units
) -> Mapping[Any, Any]:
    """Return structures by number, which is text in TOML's keys; other dictionaries are
    unchanged."""
    if not isinstance(info, inspect.StructType):
        return value
    return {
        int(number) if isinstance(number, str) and number.isdecimal() else number: _read(
            item, info.cls, info, (*key, number), units
        )
        for number, item in value.items()
    }


# ---- after the check: what was wrong, and where --------------------------------------------------


def _refused(
    error: msgspec.ValidationError,
    both: tuple[Any, Any],
    info: inspect.Type,
    key: Key,
    units: Units,
) -> Refused:
    """Return the error. Of msgspec's text only the path and the kind of mistake are used.

    ``both``: the value as it was given, which is shown, and the same in base units, in which
    msgspec found the mistake.
    """
    found = _PATH.fullmatch(str(error))
    assert found is not None
    value, based = both
    for match in _STEP.finditer(found[3] or ""):
        step = match[1] or (int(match[2]) if match[2] else _first_wrong(based))
        info = _inner(info, based, step)
        based = based[step]
        key = (*key, step)
        value = _part(value, step, based)
    if found[2]:  # the mistake is a key of this table
        wrong = next(name for name in value if not isinstance(name, str))
        return Refused(key, value, says=f"a key is {wrong!r}: it is to be text")
    fields = _fields(info, value)
    if unknown := _UNKNOWN.fullmatch(found[1]):
        needed = [name for name, field in fields.items() if field.required and name not in value]
        return Refused(key, value, unknown=unknown[1], names=_keys(info, value), needed=needed)
    if missing := _MISSING.fullmatch(found[1]):
        choices, _ = _wanted(_inner(info, value, missing[1]), units)
        names = _keys(info, value)
        return Refused(key, value, missing=missing[1], names=names, choices=choices)
    if isinstance(error.__cause__, ValueError):
        return Refused(key, value, says=str(error.__cause__))
    names, wanted = _wanted(info, units, based)
    return Refused(key, value, names=names, wanted=wanted)


def _first_wrong(tables: Mapping[str, Any]) -> str:
    """Return the key of the first value that is not a table, in a table of tables."""
    return next(name for name, value in tables.items() if not isinstance(value, Mapping))


def _part(value: Any, step: str | int, based: Any) -> Any:
    """Return a part of a value. One value that stands for a list, or a table's shorthand, has no
    parts."""
    if isinstance(step, str):
        return value[step] if isinstance(value, Mapping) else based
    return value[step] if isinstance(value, list) else value


def fields_of(kind: type[msgspec.Struct]) -> dict[str, inspect.Field]:
    """Return the fields of a structure by the name of their key."""
    return _fields(_info(kind))


def _fields(info: inspect.Type, value: Any = None) -> dict[str, inspect.Field]:
    info = _bare(info)
    if isinstance(info, inspect.UnionType):
        info = _chosen(info, value) or info
    found = info.fields if isinstance(info, inspect.StructType) else ()
    return {field.encode_name: field for field in found}


def _keys(info: inspect.Type, value: Any) -> list[str]:
    """Return the keys that a table may have."""
    info = _bare(info)
    tagged = _structures(info)[0].tag_field if _structures(info) else None
    return [*([tagged] if tagged else []), *_fields(info, value)]


def _bare(info: inspect.Type) -> inspect.Type:
    return _bare(info.type) if isinstance(info, inspect.Metadata) else info


def _structures(info: inspect.Type) -> list[inspect.StructType]:
    types = info.types if isinstance(info, inspect.UnionType) else (info,)
    return [one for one in map(_bare, types) if isinstance(one, inspect.StructType)]


def _chosen(info: inspect.UnionType, value: Any) -> inspect.Type | None:
    """Return the type of a union that a value belongs to."""
    types = [one for one in info.types if not isinstance(_bare(one), inspect.NoneType)]
    if len(types) == 1:
        return None if value is None else types[0]
    if structures := _structures(info):
        tag = value.get(structures[0].tag_field) if isinstance(value, Mapping) else None
        return next((one for one in structures if one.tag == tag), None)
    lists = [one for one in types if isinstance(_bare(one), inspect.ListType)]
    return lists[0] if lists and isinstance(value, list | tuple) else None


def _inner(info: inspect.Type, value: Any, step: str | int) -> inspect.Type:
    """Return the type of a part."""
    info = _bare(info)
    structures = _structures(info)
    if structures and step == structures[0].tag_field:
        return inspect.LiteralType(tuple(one.tag for one in structures if one.tag is not None))
    if isinstance(info, inspect.UnionType):
        info = _bare(_chosen(info, value) or info)
    if isinstance(info, inspect.ListType):
        return info.item_type
    if isinstance(info, inspect.DictType):
        return info.value_type
    if isinstance(info, inspect.TupleType) and isinstance(step, int):
        return info.item_types[step]
    return _fields(info)[str(step)].type


def _wanted(info: inspect.Type, units: Units, value: Any = None) -> tuple[list[str], str]:
    """Return the names that a value may be, and a noun for what else it may be.

    ``value``: the one that was refused, in base units.
    """
    noun = of = ""
    while isinstance(info, inspect.Metadata):
        name = str((info.extra or {}).get("unit"))
        noun = noun or (_NOUNS.get(name, "") if name in units else "")
        of = of or _UNITS.get(name, "")
        info = info.type
    if isinstance(info, inspect.UnionType):
        types = [one for one in info.types if not isinstance(one, inspect.NoneType)]
        found = [_wanted(one, units, value) for one in types]
        return [one for names, _ in found for one in names], next((n for _, n in found if n), "")
    if isinstance(info, inspect.LiteralType):
        return [str(value) for value in info.values], ""
    if isinstance(info, inspect.IntType | inspect.FloatType):
        whole = "a whole number" if isinstance(info, inspect.IntType) else "a number"
        shown = time_text if noun == _NOUNS["time"] else _number
        return [], (noun or whole + of) + _range(info, shown, value)
    if isinstance(info, inspect.ListType):
        most = "" if info.max_length is None else f", at most {info.max_length}"
        return [], f"a list{_of_what(info.item_type, units)}{most}"
    if isinstance(info, inspect.TupleType):
        parts = [_wanted(one, units)[1] for one in info.item_types]
        return [], f"a list of {len(parts)}, {' and '.join(parts)}"
    simple = {inspect.StrType: "text, in quotes", inspect.BoolType: "true or false"}
    return [], simple.get(type(info), "a table" if _of_tables(info) else "something else")


def _of_what(item: inspect.Type, units: Units) -> str:
    """Return " of tables" and the like for the elements of a list."""
    if _of_tables(item):
        return " of tables"
    if isinstance(_bare(item), inspect.StrType):
        return " of texts"
    return " of lists" if isinstance(_bare(item), inspect.TupleType) else ""


def _of_tables(info: inspect.Type) -> bool:
    return isinstance(_bare(info), inspect.DictType | inspect.StructType)


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.16g}"


def _range(
    info: inspect.IntType | inspect.FloatType, shown: Callable[[float], str], value: Any
) -> str:
    """Return " from 1 to 5", or the part of it that is limited."""
    text = "" if info.ge is None else f" from {shown(info.ge)}"
    text = text if info.gt is None else f" above {shown(info.gt)}"
    if info.lt is not None:
        return f"{text}, below {shown(info.lt)}"
    if info.le is None:
        return text
    is_beyond = isinstance(value, int | float) and value > info.le
    return f"{text} to {shown(info.le)}" if info.le < _NO_LIMIT or is_beyond else text
