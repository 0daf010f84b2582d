# SPDX-License-Identifier: Apache-2.0
"""Every record of verbena.manage, and values for its fields: from hypothesis."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from hypothesis import strategies

import verbena.manage
from verbena.manage.record import Record
from verbena.manage.record_code import BitField, FieldKind


def every_record() -> list[type[Record]]:
    """All classes of records with fields, by name."""
    for module in pkgutil.walk_packages(verbena.manage.__path__, "verbena.manage."):
        importlib.import_module(module.name)
    found: dict[str, type[Record]] = {}
    left: list[type[Record]] = [Record]
    while left:
        record = left.pop()
        left += record.__subclasses__()
        if record.FIELDS and record.__module__.startswith("verbena."):
            assert found.setdefault(record.__name__, record) is record, record.__name__
    return [found[name] for name in sorted(found)]


def values(field: BitField) -> strategies.SearchStrategy[Any]:
    """What a field can hold."""
    number = strategies.integers(0, (1 << field.width) - 1)
    octets = field.width * field.count // 8
    match field.kind:
        case FieldKind.NUMBER | FieldKind.CODE:
            return number
        case FieldKind.FLAG:
            return strategies.booleans()
        case FieldKind.EXACT | FieldKind.OCTETS:
            return strategies.binary(min_size=octets, max_size=octets)
        case FieldKind.TEXT:
            return strategies.text(max_size=octets).map(
                lambda text: fitting(text.replace("\0", ""), octets)
            )
        case FieldKind.NUMBERS:
            return strategies.tuples(*[number] * field.count)
        case FieldKind.PART:
            return instances(field.codes)
        case FieldKind.PARTS:
            return strategies.tuples(*[instances(field.codes)] * field.count)


def fitting(text: str, octets: int) -> str:
    """The beginning of a text whose UTF-8 has room; lone surrogates are left out."""
    return text.encode("utf-8", "ignore")[:octets].decode("utf-8", "ignore")


def instances(record: Any) -> strategies.SearchStrategy[Any]:
    """Records with arbitrary values in every field; reserved bits are zero."""
    return strategies.builds(
        lambda kwargs: record(**kwargs),
        strategies.fixed_dictionaries({n: values(f) for n, f in record.FIELDS.items()}),
    )
