# SPDX-License-Identifier: Apache-2.0
"""A small assembler in Intel syntax, for the instructions that the processor of a host has.

    start:  mov rcx, 10            ; a comment, or # a comment
    again:  dec rcx
            jnz again
            hlt
    table:  dq start, 0x10, 'A'

Labels, ``name equ value``, ``org``, ``align``, ``times n`` and ``db``, ``dw``, ``dd``, ``dq`` are
known; ``$`` is the line's own address. Jumps are as short as they can be.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from verbena._arguments import checked_class
from verbena.host.encoding import immediate
from verbena.host.errors import AssemblyError, HostError, HostTypeError
from verbena.host.instructions import PREFIXES, TRANSLATORS, Place
from verbena.host.operands import Expression, Operand, expression, operand

_DATA = {"db": 1, "dw": 2, "dd": 4, "dq": 8}
_MOST_ROUNDS = 50


@checked_class(HostTypeError)
@dataclass(frozen=True)
class Program:
    """Machine code: its bytes, the address of the first, labels, and the line of each address."""

    code: bytes
    origin: int = 0
    labels: dict[str, int] = field(default_factory=dict)
    lines: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.origin < 1 << 64:
            raise HostError(f"origin is an address, 0 to 2^64 - 1, and not {self.origin:#x}")

    @classmethod
    def assemble(cls, text: str, origin: int = 0) -> Program:
        """Translates lines of assembly; AssemblyError names the line that cannot be.

        ``origin`` is the address of the first byte. ``org`` fills up to an address with zeros, as
        that of GNU as does; before the first instruction, use ``origin``.
        """
        if not 0 <= origin < 1 << 64:
            raise AssemblyError(f"origin is an address, 0 to 2^64 - 1, and not {origin:#x}")
        return _assemble(text, origin)


@dataclass
class _Line:
    number: int
    text: str
    label: str | None
    prefix: bytes
    name: str  # of an instruction or directive; or empty
    operands: list[Operand]
    strings: list[bytes | Expression] = field(default_factory=list)
    near: bool = False  # its jump needed 4 bytes in an earlier round


def _split(text: str) -> list[str]:
    """Operands at commas that are not in quotes or brackets."""
    parts, depth, quote, start = [], 0, "", 0
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    return parts if text.strip() else []


def _without_comment(text: str) -> str:
    quote = ""
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in ";#":
            return text[:at]
    return text


def _data(text: str) -> bytes | Expression:
    text = text.strip()
    if len(text) > 3 and text[0] in "'\"" and text[-1] == text[0]:
        return text[1:-1].encode()
    return expression(text)


def _name(label: str) -> str:
    return "local_" + label[1:] if label.startswith(".") else label


def _parse(number: int, text: str) -> Iterator[_Line]:
    rest = _without_comment(text).strip()
    while match := re.match(r"(\.?[A-Za-z_]\w*)\s*:(?!:)", rest):
        if match[1].lower() in ("fs", "gs"):
            break
        yield _Line(number, text, _name(match[1]), b"", "", [])
        rest = rest[match.end() :].strip()
    if match := re.match(r"(\.?\w+)\s+equ\s+(.*)", rest, re.IGNORECASE):
        yield _Line(number, text, _name(match[1]), b"", "equ", [expression(match[2])])
        return
    prefix = b""
    while rest:
        word, _, tail = rest.partition(" ")
        if word.lower() not in PREFIXES:
            break
        prefix += PREFIXES[word.lower()]
        rest = tail.strip()
    if not rest:
        if prefix:
            raise AssemblyError("a prefix stands before an instruction")
        return
    word, *more = rest.split(None, 1)
    name, after = word.lower(), more[0] if more else ""
    if name in _DATA:
        yield _Line(number, text, None, b"", name, [], [_data(part) for part in _split(after)])
    elif name == "times":
        count, _, what = after.partition(" ")
        value = expression(count).value({})
        if not 0 <= value <= 1 << 20:
            raise AssemblyError("times takes a number of repetitions up to 1,048,576")
        inner = list(_parse(number, what))
        for _ in range(value):
            yield from inner
    elif name in ("org", "align") or name in TRANSLATORS:
        yield _Line(number, text, None, prefix, name, [operand(part) for part in _split(after)])
    else:
        raise AssemblyError(f"there is no instruction {name!r} in the subset")


def _bytes_of(line: _Line, labels: dict[str, int], at: int, origin: int) -> bytes:
    known = {**labels, "here_": at}
    if line.name in _DATA:
        size = _DATA[line.name]
        return b"".join(
            part if isinstance(part, bytes) else immediate(part.value(known), size)
            for part in line.strings
        )
    if line.name in ("align", "org"):
        if len(line.operands) != 1 or not isinstance(line.operands[0], Expression):
            raise AssemblyError(f"{line.name} takes a number")
        value = line.operands[0].value(known)
        if line.name == "org" and value < at:
            raise AssemblyError(f"org {value:#x} is before {at:#x}, where the program already is")
        if line.name == "align" and (value < 1 or value & (value - 1)):
            raise AssemblyError("align takes a power of two")
        gap = value - at if line.name == "org" else -at % value
        if gap > 1 << 24:
            raise AssemblyError(f"{line.name} leaves a gap of {gap} bytes: at most 16 MiB")
        return (b"\0" if line.name == "org" else b"\x90") * gap
    place = Place(known, at, short=not line.near)
    code = TRANSLATORS[line.name](line.operands, place)
    if line.prefix and code[:1] == b"\x66":  # GNU as puts it first
        return b"\x66" + line.prefix + code[1:]
    return line.prefix + code


def _assemble(text: str, origin: int) -> Program:
    lines: list[_Line] = []
    for number, one in enumerate(text.splitlines(), 1):
        try:
            lines += _parse(number, one)
        except AssemblyError as error:
            raise AssemblyError(str(error), number, one) from None
    names = [line.label for line in lines if line.label]
    for line in lines:
        if line.label and names.count(line.label) > 1:
            raise AssemblyError(f"the label {line.label!r} stands twice", line.number, line.text)
    _check_circles([line for line in lines if line.name == "equ"])
    labels = before = dict.fromkeys(names, origin)
    for _ in range(_MOST_ROUNDS):
        code, found, where = _round(lines, labels, origin)
        if found == labels:
            shown = {k: v for k, v in found.items() if not k.startswith("local_")}
            return Program(code, origin, shown, where)
        before, labels = labels, found
    moving = next(line for line in lines if line.label and found[line.label] != before[line.label])
    raise AssemblyError(
        f"no address of {moving.label} fits all lines: it moves what it depends on",
        moving.number,
        moving.text,
    )


def _check_circles(equs: list[_Line]) -> None:
    """AssemblyError for an EQU whose value needs itself."""
    needs: dict[str | None, set[str]] = {}
    for line in equs:
        (value,) = line.operands
        assert isinstance(value, Expression)
        needs[line.label] = value.names
    for line in equs:
        reached: set[str] = set()
        ahead = list(needs[line.label])
        while ahead:
            name = ahead.pop()
            if name not in reached:
                reached.add(name)
                ahead += needs.get(name, ())
        if line.label in reached:
            raise AssemblyError(
                f"{line.label} depends on itself, perhaps by way of others", line.number, line.text
            )


def _round(
    lines: list[_Line], labels: dict[str, int], origin: int
) -> tuple[bytes, dict[str, int], dict[int, str]]:
    """One pass: the code with the labels of the last one, and where the labels are now."""
    code, found = bytearray(), dict(labels)
    where: dict[int, str] = {}
    for line in lines:
        at = origin + len(code)
        try:
            if line.name == "equ":
                assert line.label is not None
                assert isinstance(line.operands[0], Expression)
                found[line.label] = line.operands[0].value({**labels, "here_": at})
            elif line.label is not None:
                found[line.label] = at
            else:
                made = _bytes_of(line, labels, at, origin)
                line.near = line.near or _is_near(line, made)
                where.setdefault(at, line.text.strip())
                code += made
        except AssemblyError as error:
            raise AssemblyError(str(error), line.number, line.text) from None
    return bytes(code), found, where


def _is_near(line: _Line, made: bytes) -> bool:
    """A jump that was long once stays long, so that the rounds come to an end."""
    return line.name.startswith("j") and len(made) >= 5 and line.name != "jrcxz"
