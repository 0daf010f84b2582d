# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of docs/management-formats.md from the records of verbena.manage.

python docs/generate/management_formats.py
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from enum import IntEnum, IntFlag
from pathlib import Path
from types import ModuleType
from typing import Any

import marks

from verbena.manage.record import Record
from verbena.manage.record_code import BitField, FieldKind

PAGE = Path(__file__).parent.parent / "management-formats.md"
BEGIN = "<!-- formats: made by generate/management_formats.py -->\n"
END = "<!-- end of formats -->"
# The modules in the order of the page, with the heading of each.
CHAPTERS = (
    ("mad", "MADs"),
    ("smp_attributes", "Subnet management"),
    ("notices", "Notices and traps"),
    ("class_port_info", "ClassPortInfo"),
    ("sa_records", "Subnet administration"),
    ("pma_counters", "Performance management"),
    ("cm_messages", "Communication management"),
    ("ip_cm", "RDMA IP CM service"),
    ("congestion_attributes", "Congestion control"),
    ("vendor_ping", "ibping"),
)
CODES = ("attribute_ids", "codes", *(name for name, _ in CHAPTERS), "rmpp")
FORMAT = "| Byte | Bits | Field | Meaning |\n|---|---|---|---|\n"
RESERVED = "| {} | {} | | Reserved. |\n"


def module_of(name: str) -> ModuleType:
    return importlib.import_module(f"verbena.manage.{name}")


def classes(module: ModuleType, kind: type) -> list[Any]:
    """The classes of a kind that a module defines, in their order there."""
    return [
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, kind) and each.__module__ == module.__name__
    ]


def text_of(each: type) -> str:
    """A class's docstring as Markdown."""
    return (inspect.getdoc(each) or "").replace("``", "`")


def place(at: int) -> str:
    """A byte, and behind a point the bit of it, if the field does not begin with the byte."""
    byte, bit = divmod(at, 8)
    return f"{byte}.{bit}" if bit else str(byte)


def width(field: BitField) -> str:
    return f"{field.count} of {field.width}" if field.count > 1 else str(field.bits)


def meaning(field: BitField) -> str:
    if field.kind in (FieldKind.CODE, FieldKind.PART, FieldKind.PARTS) and field.codes:
        return f"{field.meaning} [{field.codes.__name__}](#{field.codes.__name__.lower()})"
    return field.meaning


def rows(record: type[Record]) -> Iterator[str]:
    """The rows of a record's table, with one for each gap."""
    at = 0
    for name, field in sorted(record.FIELDS.items(), key=lambda item: item[1].at):
        if field.at > at:
            yield RESERVED.format(place(at), field.at - at)
        yield f"| {place(field.at)} | {width(field)} | `{name}` | {meaning(field)} |\n"
        at = field.at + field.bits
    if at < record.SIZE * 8:
        yield RESERVED.format(place(at), record.SIZE * 8 - at)


def own_rows(record: type[Record], base: type[Record]) -> Iterator[str]:
    """The rows of a record's table that its base has not."""
    of_base = set(rows(base))
    yield from (row for row in rows(record) if row not in of_base and "Reserved." not in row)


def section(record: type[Record]) -> str:
    """Heading, text and table of a record; of one that extends another, what it adds."""
    number = f", AttributeID {record.ATTRIBUTE:#06x}" if record.ATTRIBUTE else ""
    base = record.__mro__[1]
    extends = issubclass(base, Record) and bool(base.FIELDS)
    begins = f" It has the fields of [{base.__name__}](#{base.__name__.lower()})."
    said = f"{record.SIZE} bytes{number}.{begins if extends else ''}\n"
    table = "".join(own_rows(record, base) if extends else rows(record))
    shown = f"\n{FORMAT}{table}" if table else ""
    return f"### {record.__name__}\n\n{text_of(record)}\n\n{said}{shown}"


def code_section(codes: Any) -> str:
    """The names of an enumeration; the sentences, if it has any."""
    members = list(codes)
    meanings = [getattr(member, "meaning", "") for member in members]
    head = (
        "| Value | Name | Meaning |\n|---|---|---|\n"
        if any(meanings)
        else ("| Value | Name |\n|---|---|\n")
    )
    form = "#x" if issubclass(codes, IntFlag) or max(map(int, members)) > 255 else "d"
    lines = [
        f"| {int(member):{form}} | `{member.name}` |{f' {said} |' if any(meanings) else ''}\n"
        for member, said in zip(members, meanings, strict=True)
    ]
    return f"### {codes.__name__}\n\n{text_of(codes)}\n\n{head}{''.join(lines)}"


def made() -> str:
    """What docs/management-formats.md has between its marks."""
    chapters = []
    for name, heading in CHAPTERS:
        records = [each for each in classes(module_of(name), Record) if each.FIELDS]
        chapters.append(f"## {heading}\n\n" + "\n".join(section(each) for each in records))
    enumerations = [
        each
        for name in CODES
        for kind in (IntEnum, IntFlag)
        for each in classes(module_of(name), kind)
        if len(each)
    ]
    codes = "\n".join(code_section(each) for each in enumerations)
    return "\n".join([*chapters, f"## Codes\n\n{codes}"])


def replaced(page: str, new: str) -> str:
    return marks.replaced(page, BEGIN, END, new)


def main() -> None:
    PAGE.write_text(replaced(PAGE.read_text(), made()))


if __name__ == "__main__":
    main()
