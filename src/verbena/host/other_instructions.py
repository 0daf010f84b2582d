# SPDX-License-Identifier: Apache-2.0
"""Names and lengths of x86-64's instructions that the processor's subset lacks.

Errors name with it what a program wanted. The decoder of the processor stops at such bytes, and a
length is found here by the rules of Intel's manual (SDM volume 2, chapter 2): prefixes, opcode,
ModRM and SIB, displacement, immediate.
"""

from __future__ import annotations

from dataclasses import dataclass

from verbena.host._cpu import instruction_length
from verbena.host.other_opcodes import (
    IMMEDIATES,
    INVALID_ONE_BYTE,
    MAP_3A,
    MAP_38,
    MMX,
    OF_REGISTERS,
    ONE_BYTE,
    ONE_BYTE_GROUPS,
    SSE,
    SYSTEM,
    TWO_BYTE_GROUPS,
    TWO_BYTES,
    VEX_0F,
    VEX_3A,
    VEX_38,
    VEX_BY_PREFIX,
    VEX_GROUP,
    WITH_IMMEDIATE,
    WITH_PREFIX,
    WITHOUT_MODRM,
    X87_MEMORY,
    X87_REGISTERS,
    X87_WHOLE,
)

_LEGACY = (0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x66, 0x67, 0xF0, 0xF2, 0xF3)
_WIDE, _NARROW, _LOCK = 0x66, 0x67, 0xF0
_ORDER = {0: 0, 0x66: 1, 0xF3: 2, 0xF2: 3}  # of the names of one opcode
_OF_VEX = (0, 0x66, 0xF3, 0xF2)  # the prefix that a field of VEX and EVEX stands for
_SSE_FROM_MEMORY = {0x12: "movhlps", 0x16: "movlhps"}  # the operand is a register


@dataclass(frozen=True)
class OtherInstruction:
    """What an instruction is called, its bytes, and the part of x86-64 that it belongs to."""

    name: str
    code: bytes
    kind: str

    def __str__(self) -> str:
        return f"{self.name} ({self.code.hex(' ')})"


class _CutOffError(Exception):
    """The bytes end within the instruction."""


class _Reader:
    """The bytes of an instruction, of which ``at`` are read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.prefixes: set[int] = set()
        self.mandatory = 0  # the last of F3 and F2, or 66
        self.rex = 0
        while self._peek() in _LEGACY:
            self.prefixes.add(self.take())
        if self._peek() & 0xF0 == 0x40:
            self.rex = self.take()
        repeats = [one for one in data[: self.at] if one in (0xF2, 0xF3)]
        self.mandatory = repeats[-1] if repeats else _WIDE if _WIDE in self.prefixes else 0
        self.modrm = 0

    def _peek(self) -> int:
        if self.at >= len(self.data):
            raise _CutOffError
        return self.data[self.at]

    def take(self) -> int:
        """The next byte."""
        byte = self._peek()
        self.at += 1
        return byte

    def skip(self, size: int) -> None:
        """Passes over bytes."""
        self.at += size
        if self.at > len(self.data):
            raise _CutOffError

    def take_modrm(self) -> None:
        """ModRM, SIB and the displacement."""
        self.modrm = self.take()
        mod, rm = self.modrm >> 6, self.modrm & 7
        if mod == 3:
            return
        base = self.take() & 7 if rm == 4 else rm
        self.skip(1 if mod == 1 else 4 if mod == 2 or base == 5 else 0)

    @property
    def reg(self) -> int:
        """The field of ModRM."""
        return self.modrm >> 3 & 7

    @property
    def is_register(self) -> bool:
        """Whether the operand of ModRM is a register."""
        return self.modrm >= 0xC0


def other_instruction(data: bytes) -> OtherInstruction | None:
    """The instruction with which ``data`` begins, if it is known and the subset lacks it.

    Also a byte that is none in 64-bit mode, and one of the subset with a LOCK that it cannot have.
    """
    if instruction_length(data[:15]):
        return None
    try:
        reader = _Reader(data[:15])
        found = _of_opcode(reader)
    except _CutOffError:
        return None
    if found is None or not found[0]:
        return _locked(data)
    return OtherInstruction(found[0], data[: reader.at], found[1])


def not_of_subset(data: bytes) -> str:
    """Why the instruction with which ``data`` begins is an invalid opcode."""
    found = other_instruction(data)
    which = "" if found is None else f": {found.name}, {found.kind}"
    return f"the instruction is not one of the subset{which}"


def _locked(data: bytes) -> OtherInstruction | None:
    """An instruction of the subset that cannot have its LOCK."""
    place = data.find(bytes([_LOCK]), 0, 4)
    rest = data[:place] + data[place + 1 :]
    length = instruction_length(rest[:14]) if place >= 0 else 0
    if not length:
        return None
    kind = "a prefix that this instruction cannot have"
    return OtherInstruction("lock", data[: length + 1], kind)


def _of_opcode(reader: _Reader) -> tuple[str, str] | None:
    first = reader.take()
    if first in INVALID_ONE_BYTE:
        return f"byte {first:#04x}", "which is no instruction in 64-bit mode"
    if first == 0x0F:
        return _two_bytes(reader)
    if first in (0xC4, 0xC5):
        return _vex(reader, first)
    if first == 0x62:
        return _evex(reader)
    if 0xD8 <= first <= 0xDF:
        return _x87(reader, first)
    name = ONE_BYTE.get(first, "")
    if first in ONE_BYTE_GROUPS:
        reader.take_modrm()
        name = _of_group(ONE_BYTE_GROUPS[first], reader.reg)
    elif first in (0x8C, 0x8E):
        reader.take_modrm()
    reader.skip(_immediate(reader, first))
    return name, "a general instruction"


def _immediate(reader: _Reader, first: int) -> int:
    if 0xA0 <= first <= 0xA3:
        return 4 if _NARROW in reader.prefixes else 8
    if first == 0xC7 and _WIDE in reader.prefixes:
        return 2
    return IMMEDIATES.get(first, 0)


def _of_group(text: str, reg: int) -> str:
    name = text.split()[reg]
    return "" if name == "-" else name


def _by_prefix(text: str, mandatory: int) -> str:
    """The name that a prefix chooses; an opcode with one name has it with all."""
    choices = text.split("/")
    place = _ORDER[mandatory]
    if place < len(choices):
        return choices[place]
    return choices[0] if mandatory == _WIDE or len(choices) == 1 else ""


def _x87(reader: _Reader, first: int) -> tuple[str, str]:
    reader.take_modrm()
    if not reader.is_register:
        name = _of_group(X87_MEMORY[first], reader.reg)
    else:
        whole = first << 8 | reader.modrm
        name = X87_WHOLE.get(whole) or _of_group(X87_REGISTERS[first], reader.reg)
    return name, "an x87 instruction"


def _two_bytes(reader: _Reader) -> tuple[str, str] | None:
    second = reader.take()
    if second in (0x38, 0x3A):
        return _three_bytes(reader, second)
    if 0x20 <= second <= 0x23:  # a control or debug register: both operands are registers
        reader.take()
    elif second not in WITHOUT_MODRM:
        reader.take_modrm()
    if second == 0x0F:
        reader.skip(1)
        return "3DNow!", "an instruction of AMD's 3DNow!"
    if second in WITH_IMMEDIATE:
        reader.skip(1)
    if second == 0x78 and reader.mandatory in (_WIDE, 0xF2):
        reader.skip(2)
    if second == 0xFF:  # UD0 has a ModRM on some processors, and none on others
        return None
    return _name_of_two(reader, second), _kind_of_two(reader, second)


def _name_of_two(reader: _Reader, second: int) -> str:
    if second == 0x01 and reader.is_register and reader.modrm in SYSTEM:
        return SYSTEM[reader.modrm]
    if (second, reader.mandatory) in WITH_PREFIX:
        found = _of_group(WITH_PREFIX[second, reader.mandatory], reader.reg)
        if found:
            return found
    if second in OF_REGISTERS and reader.is_register:
        return _of_group(OF_REGISTERS[second], reader.reg)
    if second in TWO_BYTE_GROUPS:
        return _of_group(TWO_BYTE_GROUPS[second], reader.reg)
    if second in _SSE_FROM_MEMORY and reader.is_register and not reader.mandatory:
        return _SSE_FROM_MEMORY[second]
    text = TWO_BYTES.get(second, "")
    if second in MMX and reader.mandatory in (0xF2, 0xF3) and "/" not in text:
        return ""
    name = _by_prefix(text, reader.mandatory)
    wide = {"movd": "movq"} if second in (0x6E, 0x7E) and reader.rex & 8 else {}
    return wide.get(name, name)


def _kind_of_two(reader: _Reader, second: int) -> str:
    if second in (0x0B, 0xB9):
        return "which is invalid on every processor"
    if second in MMX and not reader.mandatory:
        return "an MMX instruction"
    if second in (0x78, 0x79):
        return "an SSE instruction" if reader.mandatory else "a system instruction"
    return "an SSE instruction" if second in SSE else "a system instruction"


def _three_bytes(reader: _Reader, second: int) -> tuple[str, str]:
    third = reader.take()
    reader.take_modrm()
    table = MAP_38
    if second == 0x3A:
        reader.skip(1)
        table = MAP_3A
    text = table.get(third, "")
    name = _by_prefix(text, reader.mandatory)
    if second == 0x38 and third in (0xF0, 0xF1) and reader.prefixes >= {0x66, 0xF2}:
        name = "crc32"
    if reader.rex & 8 and name in ("pextrd", "pinsrd"):
        name = name[:-1] + "q"
    if reader.rex & 8 and name in ("wrssd", "wrussd"):
        name = name[:-1] + "q"
    if second == 0x38 and third >= 0xF0:
        return name, "an extended instruction"
    return name, "an SSE instruction"


def _vex(reader: _Reader, first: int) -> tuple[str, str] | None:
    """AVX, BMI, and operations on masks: VEX has the prefix and the map in fields."""
    if reader.rex or reader.prefixes & {_WIDE, _LOCK, 0xF2, 0xF3}:
        return None
    map_, wide, field = 1, 0, reader.take()
    if first == 0xC4:
        map_, field = field & 31, reader.take()
        wide = field >> 7
    reader.mandatory = _OF_VEX[field & 3]
    opcode = reader.take()
    if (map_, opcode) != (1, 0x77):
        reader.take_modrm()
    if map_ == 3 or (map_ == 1 and opcode in WITH_IMMEDIATE):
        reader.skip(1)
    name = _vex_name(reader, map_, opcode, wide)
    if (map_, opcode) == (1, 0x77) and field & 4:
        name = "vzeroall"
    kind = "an AVX instruction" if name[:1] == "v" else "a BMI instruction"
    return name, "an AVX-512 instruction" if name[:1] == "k" else kind


def _vex_name(reader: _Reader, map_: int, opcode: int, wide: int) -> str:
    if map_ not in (1, 2, 3):
        return ""
    own = {1: VEX_0F, 2: VEX_38, 3: VEX_3A}[map_]
    if opcode in own:
        choices = own[opcode].split(",")
        return choices[wide] if wide < len(choices) else choices[0]
    if map_ == 2 and opcode in VEX_BY_PREFIX:
        choices = VEX_BY_PREFIX[opcode].split("/")
        place = _ORDER[reader.mandatory]
        return choices[place] if place < len(choices) else ""
    if map_ == 2 and opcode == 0xF3:
        return _of_group(VEX_GROUP, reader.reg)
    return _of_sse(reader, map_, opcode, wide)


def _of_sse(reader: _Reader, map_: int, opcode: int, wide: int) -> str:
    """The name of the SSE instruction with the same opcode, behind a v."""
    if map_ == 1 and opcode not in SSE:
        return ""
    if map_ == 1 and opcode in MMX and not reader.mandatory:
        return ""
    if map_ == 1:
        reader.rex = wide << 3
        name = _name_of_two(reader, opcode)
    else:
        table = MAP_38 if map_ == 2 else MAP_3A
        name = _by_prefix(table.get(opcode, ""), reader.mandatory)
        if wide and name in ("pextrd", "pinsrd"):
            name = name[:-1] + "q"
    return f"v{name}" if name else ""


def _evex(reader: _Reader) -> tuple[str, str]:
    """AVX-512: the name where it is that of AVX, else the map and the opcode."""
    map_ = reader.take() & 7
    field = reader.take()
    reader.skip(1)
    opcode = reader.take()
    reader.mandatory = _OF_VEX[field & 3]
    reader.take_modrm()
    if map_ == 3 or (map_ == 1 and opcode in WITH_IMMEDIATE):
        reader.skip(1)
    floats = map_ == 1 and (0x10 <= opcode <= 0x17 or 0x51 <= opcode <= 0x5F)
    is_fma = map_ == 2 and opcode in VEX_38 and opcode >= 0x96
    name = _vex_name(reader, map_, opcode, field >> 7) if floats or is_fma else ""
    where = {1: "0F", 2: "0F 38", 3: "0F 3A"}.get(map_, str(map_))
    return name or f"opcode {where} {opcode:02X} of EVEX", "an AVX-512 instruction"
