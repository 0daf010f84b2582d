# SPDX-License-Identifier: Apache-2.0
"""Machine code as text: the instructions of the processor's subset, in the assembler's syntax.

    for line in disassemble(code, origin=0x1000):
        print(line)

Errors, steps and listings show it for code that came as bytes. ``Program.assemble`` translates the
text back. Which bytes are an instruction is what the processor's own decoder says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from verbena._arguments import checked_arguments
from verbena.host._cpu import instruction_length
from verbena.host.errors import HostTypeError
from verbena.host.opcode_names import (
    BY_SIZE,
    GROUPS,
    ONE_BYTE,
    STRINGS,
    TWO_BYTES,
    WIDE,
    WITH_REPEAT,
)
from verbena.host.operands import REGISTERS

_SEGMENTS = {0x64: "fs:", 0x65: "gs:"}
_POINTERS = {1: "byte", 2: "word", 4: "dword", 8: "qword", 16: "xmmword"}
_NAMES = {
    (register.size, register.number): register.name
    for register in REGISTERS.values()
    if register.kind == "general" and not register.is_high
}
_HIGH = ("ah", "ch", "dh", "bh")
_FENCES = {5: "lfence", 6: "mfence", 7: "sfence"}
_LONGEST = 15


def _number(value: int) -> str:
    sign = "-" if value < 0 else ""
    return f"{sign}{abs(value):#x}" if abs(value) > 9 else f"{sign}{abs(value)}"


@dataclass
class _Bytes:
    """The bytes of one instruction, of which ``at`` are read, and what its prefixes said."""

    data: bytes
    address: int
    at: int = 0
    rex: int = 0
    is_word: bool = False
    repeat: int = 0
    has_lock: bool = False
    is_narrow: bool = False
    segment: str = ""
    modrm: int | None = None
    memory: str = ""  # the text of the operand in memory, once ModRM was read

    def take(self, size: int, *, signed: bool = False) -> int:
        """The next bytes as a number."""
        value = int.from_bytes(self.data[self.at : self.at + size], "little", signed=signed)
        self.at += size
        return value

    def take_prefixes(self) -> int:
        """The opcode's first byte."""
        while True:
            byte = self.take(1)
            if byte & 0xF0 == 0x40:
                self.rex = byte
                continue
            if byte in _SEGMENTS:
                self.segment = _SEGMENTS[byte]
            elif byte == 0x66:
                self.is_word = True
            elif byte == 0x67:
                self.is_narrow = True
            elif byte == 0xF0:
                self.has_lock = True
            elif byte in (0xF2, 0xF3):
                self.repeat = byte
            elif byte not in (0x26, 0x2E, 0x36, 0x3E):
                return byte
            self.rex = 0  # one that does not stand before the opcode has no effect

    @property
    def size(self) -> int:
        """Of the operation, where it is not of bytes."""
        return 8 if self.rex & 8 else 2 if self.is_word else 4

    def take_modrm(self) -> int:
        """ModRM, and the text of an operand in memory; the reg field without REX is returned."""
        if self.modrm is None:
            self.modrm = self.take(1)
            if self.modrm < 0xC0:
                self.memory = self._memory(self.modrm >> 6, self.modrm & 7)
        return self.modrm >> 3 & 7

    def _memory(self, mod: int, rm: int) -> str:
        width = 4 if self.is_narrow else 8
        parts, base = [], rm | (self.rex & 1) << 3
        is_relative = rm == 5 and mod == 0
        if rm == 4:
            sib = self.take(1)
            base, index = sib & 7 | (self.rex & 1) << 3, sib >> 3 & 7 | (self.rex & 2) << 2
            has_base = sib & 7 != 5 or mod != 0
            if has_base:
                parts.append(_NAMES[width, base])
            if index != 4:
                scale = 1 << (sib >> 6)
                parts.append(
                    _NAMES[width, index] + (f"*{scale}" if scale > 1 or not has_base else "")
                )
            mod = mod if has_base else 2
        elif not is_relative:
            parts.append(_NAMES[width, base])
        size = {0: 4 if is_relative else 0, 1: 1, 2: 4}[mod]
        displacement = self.take(size, signed=True)
        if is_relative:
            behind = self.address + len(self.data)
            return f"{self.segment}[rel {_number(behind + displacement & (1 << 64) - 1)}]"
        text = "+".join(parts)
        if not parts:
            return f"{self.segment}[{_number(displacement)}]"
        if displacement:
            text += f"{'+' if displacement > 0 else ''}{_number(displacement)}"
        return f"{self.segment}[{text}]"

    def register(self, number: int, size: int) -> str:
        """Its name; without REX the upper numbers of bytes are AH to BH."""
        if size == 1 and not self.rex and 4 <= number < 8:
            return _HIGH[number - 4]
        return _NAMES[size, number]


def _size_of(code: _Bytes, letter: str) -> int:
    if letter == "s":
        return 2 if code.is_word and not code.rex & 8 else 8
    return {"b": 1, "w": 2, "d": 4, "q": 8, "x": 16, "v": code.size, "z": min(code.size, 4),
            "u": min(code.size, 4)}[letter]  # fmt: skip


def _operand(code: _Bytes, form: str, opcode: int) -> str:
    """The text of one operand."""
    if form in ("AL", "CL", "DX", "1"):
        return form.lower()
    if form in ("A", "P"):  # the accumulator; of ports it has at most 4 bytes
        return _NAMES[min(code.size, 4) if form == "P" else code.size, 0]
    kind, size = form[0], _size_of(code, form[1]) if len(form) > 1 else 0
    if kind == "J":
        distance = code.take(size, signed=True)
        return _number(code.address + len(code.data) + distance & (1 << 64) - 1)
    if kind == "I":
        return _immediate(code, form[1], size)
    if kind == "Z":
        return code.register(opcode & 7 | (code.rex & 1) << 3, size)
    reg = code.take_modrm() | (code.rex & 4) << 1
    assert code.modrm is not None
    rm = code.modrm & 7 | (code.rex & 1) << 3
    if kind in "GVC":
        return {"G": lambda: code.register(reg, size), "V": lambda: f"xmm{reg}",
                "C": lambda: f"cr{reg}"}[kind]()  # fmt: skip
    if kind == "R":
        return _NAMES[8, rm]
    if code.memory:
        return f"{_POINTERS[size]} ptr {code.memory}" if size else code.memory
    return f"xmm{rm}" if kind == "W" else code.register(rm, size)


def _immediate(code: _Bytes, letter: str, size: int) -> str:
    is_signed = letter not in "wv" and not (letter == "u" and code.size < 8)
    return _number(code.take(size if letter == "v" else min(size, 4), signed=is_signed))


def _form(code: _Bytes, first: int) -> tuple[str, int]:
    """Name and operands in the notation of ``opcode_names``, and the opcode's last byte."""
    if first == 0x0F:
        return _form_of_two(code)
    if first & 0xFE in STRINGS:
        suffix = {1: "b", 2: "w", 4: "d", 8: "q"}[code.size if first & 1 else 1]
        return STRINGS[first & 0xFE] + suffix, first
    if first in BY_SIZE:
        return BY_SIZE[first][code.size], first
    if first == 0x90 and not code.rex & 1:
        return "pause" if code.repeat == 0xF3 else "nop", first
    if first == 0x90:
        return "xchg Zv,A", first
    if first & 0xF8 == 0xB8 and code.rex & 8:
        return "movabs Zv,Iv", first
    if first in GROUPS:
        return GROUPS[first][code.take_modrm()], first
    return ONE_BYTE[first], first


def _form_of_two(code: _Bytes) -> tuple[str, int]:
    second = code.take(1)
    prefix = code.repeat or (0x66 if code.is_word else 0)
    if (second, prefix) in WIDE:
        return WIDE[second, prefix], second
    if code.repeat == 0xF3 and second in WITH_REPEAT:
        return WITH_REPEAT[second], second
    following = code.data[code.at] if code.at < len(code.data) else 0
    if (second, following) == (0x01, 0xF8):
        return "swapgs", second
    if code.repeat == 0xF3 and (second, following) == (0x1E, 0xFA):
        return "endbr64", second
    if second == 0xAE:
        kind = code.take_modrm()
        return _FENCES[kind] if not code.memory else "clflush M", second
    if second == 0x07:
        return "sysretq" if code.rex & 8 else "sysret", second
    if second == 0xC7 and code.rex & 8:
        return "cmpxchg16b M", second
    if 0x0F00 | second in GROUPS:
        return GROUPS[0x0F00 | second][code.take_modrm()], second
    return TWO_BYTES[second], second


def _repeat(code: _Bytes, name: str) -> str:
    if not code.repeat or name[:-1] not in STRINGS.values():
        return ""
    compares = name[:-1] in ("cmps", "scas")
    return "repne " if code.repeat == 0xF2 else "repe " if compares else "rep "


@checked_arguments(HostTypeError)
def instruction_text(data: bytes, address: int = 0) -> str | None:
    """The first instruction of ``data`` as text; None if it is not one of the subset.

    ``address`` is where it stands, for jumps and addresses that are relative to it.
    """
    length = instruction_length(data[:_LONGEST])
    if not length:
        return None
    code = _Bytes(data[:length], address)
    form, opcode = _form(code, code.take_prefixes())
    name, _, operands = form.partition(" ")
    texts = [_operand(code, one, opcode) for one in operands.split(",") if one]
    lock = "lock " if code.has_lock else ""
    return f"{lock}{_repeat(code, name)}{name} {', '.join(texts)}".rstrip()


@dataclass(frozen=True)
class DisassembledLine:
    """An instruction of machine code; ``text`` of bytes that are none is ``db`` with the byte."""

    address: int
    code: bytes
    text: str

    def __str__(self) -> str:
        return f"{self.address:#x}  {self.code.hex(' '):<24}  {self.text}"


@checked_arguments(HostTypeError)
def disassemble(code: bytes, origin: int = 0) -> Iterator[DisassembledLine]:
    """The instructions of ``code``, whose first byte is at ``origin``, one after the other.

    A byte with which no instruction of the subset begins is a line of its own.
    """
    at = 0
    while at < len(code):
        text = instruction_text(code[at : at + _LONGEST], origin + at)
        length = 1 if text is None else instruction_length(code[at : at + _LONGEST])
        part = code[at : at + length]
        yield DisassembledLine(origin + at, part, text or f"db {part[0]:#x}")
        at += length
