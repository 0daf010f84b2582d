# SPDX-License-Identifier: Apache-2.0
"""The assembler's instructions: which opcode a mnemonic with its operands has.

``TRANSLATORS`` maps a mnemonic to a function that gives the bytes for operands, the labels'
addresses, and the instruction's own address. The interpreter (src/native/cpu/decode.c) has the same
instructions; ``tests/host`` compares both with each other and with GNU as.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from verbena.host.encoding import encode, fits, immediate
from verbena.host.errors import AssemblyError
from verbena.host.operands import Address, Expression, Operand, Register


@dataclass(frozen=True)
class Place:
    """Where an instruction stands: the labels, its address, and whether jumps may be short."""

    labels: Mapping[str, int]
    at: int
    short: bool = True


Translator = Callable[[list[Operand], Place], bytes]
_CONDITION_NAMES = (
    "o", "no", "b c nae", "ae nb nc", "e z", "ne nz", "be na", "a nbe", "s", "ns", "p pe", "np po",
    "l nge", "ge nl", "le ng", "g nle",
)  # fmt: skip
CONDITIONS = {name: code for code, names in enumerate(_CONDITION_NAMES) for name in names.split()}


def _wants(what: str) -> AssemblyError:
    return AssemblyError(f"it takes {what}")


def _size(*operands: Operand) -> int:
    """The size that registers say, or the address; they must not contradict each other."""
    sizes = {o.size for o in operands if isinstance(o, Register)}
    sizes |= {o.size for o in operands if isinstance(o, Address) and o.size}
    if len(sizes) > 1:
        raise AssemblyError("the operands have different sizes")
    if not sizes:
        raise AssemblyError("say the size: byte, word, dword or qword ptr")
    return sizes.pop()


def _pair(operands: list[Operand], what: str) -> tuple[Operand, Operand]:
    if len(operands) != 2:
        raise _wants(what)
    return operands[0], operands[1]


def _rm(operand: Operand, what: str) -> Register | Address:
    if isinstance(operand, Expression) or (
        isinstance(operand, Register) and operand.kind != "general"
    ):
        raise _wants(what)
    return operand


def _code(opcode: int, size: int) -> bytes:
    """The opcode for bytes is even, the one for the other sizes odd."""
    return bytes([opcode | (size > 1)])


def _put(
    opcode: bytes,
    reg: Register | int,
    rm: Register | Address | None,
    size: int,
    place: Place,
    tail: bytes = b"",
    mandatory: bytes = b"",
) -> bytes:
    return encode(opcode, reg, rm, size, place.labels, place.at, mandatory=mandatory, tail=tail)


# ---- arithmetic --------------------------------------------------------------------------------


def _alu(op: int, operands: list[Operand], place: Place) -> bytes:
    what = "a register or address, and a register, address or number"
    to, source = _pair(operands, what)
    rm = _rm(to, what)
    if isinstance(source, Address):
        if not isinstance(rm, Register):
            raise _wants("at most one address")
        size = _size(to, source)
        return _put(_code(op * 8 | 2, size), rm, source, size, place)
    size = _size(to, source) if isinstance(source, Register) else _size(to)
    if isinstance(source, Register):
        return _put(_code(op * 8, size), source, rm, size, place)
    value = source.value(place.labels)
    signed = (value + (1 << (8 * size - 1))) % (1 << (8 * size)) - (1 << (8 * size - 1))
    if size > 1 and source.is_constant and fits(signed, 1):
        immediate(value, 1, size)
        return _put(b"\x83", op, rm, size, place, immediate(value, 1, size))
    tail = immediate(value, min(size, 4), size)
    if isinstance(rm, Register) and rm.number == 0 and not rm.is_high:
        return _put(_code(op * 8 | 4, size), 0, None, size, place, tail)
    return _put(_code(0x80, size), op, rm, size, place, tail)


def _test(operands: list[Operand], place: Place) -> bytes:
    what = "a register or address, and a register or number"
    to, source = _pair(operands, what)
    if isinstance(source, Address):
        to, source = source, to
    rm = _rm(to, what)
    if isinstance(source, Register):
        size = _size(to, source)
        return _put(_code(0x84, size), source, rm, size, place)
    if not isinstance(source, Expression):
        raise _wants(what)
    size = _size(to)
    tail = immediate(source.value(place.labels), min(size, 4), size)
    if isinstance(rm, Register) and rm.number == 0 and not rm.is_high:
        return _put(_code(0xA8, size), 0, None, size, place, tail)
    return _put(_code(0xF6, size), 0, rm, size, place, tail)


def _unary(opcode: int, digit: int, operands: list[Operand], place: Place) -> bytes:
    if len(operands) != 1:
        raise _wants("one register or address")
    rm = _rm(operands[0], "a register or address")
    size = _size(rm)
    return _put(_code(opcode, size), digit, rm, size, place)


def _shift(digit: int, operands: list[Operand], place: Place) -> bytes:
    what = "a register or address, and a number or CL"
    to, by = _pair(operands, what)
    rm = _rm(to, what)
    size = _size(rm)
    if isinstance(by, Register) and by.name == "cl":
        return _put(_code(0xD2, size), digit, rm, size, place)
    if not isinstance(by, Expression):
        raise _wants(what)
    count = by.value(place.labels)
    if count == 1:
        return _put(_code(0xD0, size), digit, rm, size, place)
    return _put(_code(0xC0, size), digit, rm, size, place, immediate(count, 1))


def _imul(operands: list[Operand], place: Place) -> bytes:
    if len(operands) == 1:
        return _unary(0xF6, 5, operands, place)
    to = operands[0]
    if not isinstance(to, Register) or to.size == 1 or len(operands) > 3:
        raise _wants("one to three operands, the first of two and three being a register")
    if len(operands) == 2 and not isinstance(operands[1], Expression):
        rm = _rm(operands[1], "a register or address")
        return _put(b"\x0f\xaf", to, rm, _size(to, rm), place)
    source, by = (to, operands[1]) if len(operands) == 2 else (operands[1], operands[2])
    rm = _rm(source, "a register or address")
    size = _size(to, rm)
    if not isinstance(by, Expression):
        raise _wants("a number as the last operand")
    value = by.value(place.labels)
    if by.is_constant and fits(value, 1):
        return _put(b"\x6b", to, rm, size, place, immediate(value, 1))
    return _put(b"\x69", to, rm, size, place, immediate(value, min(size, 4), size))


def _store_form(opcode: bytes, sized: bool, operands: list[Operand], place: Place) -> bytes:
    """A register or address, and a register: XADD, CMPXCHG, BT with a register, MOVNTI."""
    what = "a register or address, and a register"
    to, source = _pair(operands, what)
    rm = _rm(to, what)
    if not isinstance(source, Register):
        raise _wants(what)
    size = _size(to, source)
    code = opcode[:-1] + bytes([opcode[-1] | (size > 1)]) if sized else opcode
    return _put(code, source, rm, size, place)


def _bit(digit: int, operands: list[Operand], place: Place) -> bytes:
    to, number = _pair(operands, "a register or address, and a register or number")
    if isinstance(number, Register):
        return _store_form(bytes([0x0F, 0x83 | digit << 3]), False, operands, place)
    rm = _rm(to, "a register or address")
    if not isinstance(number, Expression):
        raise _wants("a register or number as the second operand")
    tail = immediate(number.value(place.labels), 1)
    return _put(b"\x0f\xba", digit, rm, _size(rm), place, tail)


def _load_form(
    opcode: bytes, operands: list[Operand], place: Place, mandatory: bytes = b""
) -> bytes:
    """A register, and a register or address of the same size: CMOVcc, BSF, BSR, TZCNT."""
    what = "a register, and a register or address"
    to, source = _pair(operands, what)
    if not isinstance(to, Register):
        raise _wants(what)
    rm = _rm(source, what)
    return _put(opcode, to, rm, _size(to, rm), place, mandatory=mandatory)


def _shift_double(opcode: int, operands: list[Operand], place: Place) -> bytes:
    """SHLD (A4) and SHRD (AC); the opcode behind each takes its count from CL."""
    what = "a register or address, a register, and a number or CL"
    if len(operands) != 3:
        raise _wants(what)
    to, source, by = operands
    rm = _rm(to, what)
    if not isinstance(source, Register) or source.size == 1:
        raise _wants(what)
    size = _size(to, source)
    if isinstance(by, Register) and by.name == "cl":
        return _put(bytes([0x0F, opcode + 1]), source, rm, size, place)
    if not isinstance(by, Expression):
        raise _wants(what)
    tail = immediate(by.value(place.labels), 1)
    return _put(bytes([0x0F, opcode]), source, rm, size, place, tail)


# ---- moves ----------------------------------------------------------------------------------


def _move(operands: list[Operand], place: Place) -> bytes:
    what = "a register or address, and a register, address or number"
    to, source = _pair(operands, what)
    for digit, register, other in ((0x22, to, source), (0x20, source, to)):
        if isinstance(register, Register) and register.kind == "control":
            if not isinstance(other, Register) or other.size != 8:
                raise _wants("a control register and a register of 8 bytes")
            return _put(bytes([0x0F, digit]), register, other, 0, place)
    rm = _rm(to, what)
    if isinstance(source, Address):
        if not isinstance(rm, Register):
            raise _wants("at most one address")
        size = _size(to, source)
        return _put(_code(0x8A, size), rm, source, size, place)
    if isinstance(source, Register):
        size = _size(to, source)
        return _put(_code(0x88, size), source, rm, size, place)
    return _move_number(rm, source, place)


def _move_number(rm: Register | Address, source: Expression, place: Place) -> bytes:
    size, value = _size(rm), source.value(place.labels)
    if isinstance(rm, Address):
        tail = immediate(value, min(size, 4), size)
        return _put(_code(0xC6, size), 0, rm, size, place, tail)
    if size == 8 and fits(value, 4):
        return _put(b"\xc7", 0, rm, size, place, immediate(value, 4))
    tail = immediate(value, size)
    return _put(bytes([0xB0 if size == 1 else 0xB8]), rm, None, size, place, tail)


def _move_absolute(operands: list[Operand], place: Place) -> bytes:
    to, source = _pair(operands, "a register of 8 bytes and a number")
    if not isinstance(to, Register) or to.size != 8 or not isinstance(source, Expression):
        raise _wants("a register of 8 bytes and a number")
    return _put(b"\xb8", to, None, 8, place, immediate(source.value(place.labels), 8))


def _extend(opcode: int, operands: list[Operand], place: Place) -> bytes:
    """MOVZX, MOVSX; of 4 bytes MOVSXD."""
    what = "a register, and a smaller register or address"
    to, source = _pair(operands, what)
    if not isinstance(to, Register):
        raise _wants(what)
    rm = _rm(source, what)
    size = _size(rm)
    if size == 4 and opcode == 0xBE and to.size == 8:
        return _put(b"\x63", to, rm, 8, place)
    if size not in (1, 2) or size >= to.size:
        raise _wants(what)
    return _put(bytes([0x0F, opcode | (size == 2)]), to, rm, to.size, place)


def _sign_extend_double(operands: list[Operand], place: Place) -> bytes:
    to, source = _pair(operands, "a register of 8 bytes, and a register or address of 4")
    if not isinstance(to, Register) or to.size != 8:
        raise _wants("a register of 8 bytes, and a register or address of 4")
    return _put(b"\x63", to, _rm(source, "a register or address of 4 bytes"), 8, place)


def _lea(operands: list[Operand], place: Place) -> bytes:
    to, source = _pair(operands, "a register and an address")
    if not isinstance(to, Register) or not isinstance(source, Address) or to.size == 1:
        raise _wants("a register and an address")
    return _put(b"\x8d", to, source, to.size, place)


def _exchange(operands: list[Operand], place: Place) -> bytes:
    what = "a register or address, and a register"
    to, source = _pair(operands, what)
    if isinstance(source, Address):
        to, source = source, to
    if not isinstance(source, Register):
        raise _wants(what)
    rm = _rm(to, what)
    size = _size(rm, source)
    if isinstance(rm, Register) and size > 1:
        for one, other in ((rm, source), (source, rm)):
            if one.number == 0 and not (size == 4 and other.number == 0):
                return _put(b"\x90", other, None, size, place)
    return _put(_code(0x86, size), source, rm, size, place)


_ON_STACK = "a register of 8 bytes or of 2, an address of such (qword or word ptr)"


def _stack_size(what: Register | Address) -> int:
    """The size to encode: 0 for 8 bytes, which need no prefix, and 2."""
    size = what.size or 8
    if size not in (2, 8) or (isinstance(what, Register) and what.kind != "general"):
        raise _wants(_ON_STACK)
    return 0 if size == 8 else 2


def _push(operands: list[Operand], place: Place) -> bytes:
    if len(operands) != 1:
        raise _wants(f"{_ON_STACK}, or a number")
    what = operands[0]
    if isinstance(what, Expression):
        value = what.value(place.labels)
        if what.is_constant and fits(value, 1):
            return b"\x6a" + immediate(value, 1)
        return b"\x68" + immediate(value, 4, 8)
    if isinstance(what, Register):
        return _put(b"\x50", what, None, _stack_size(what), place)
    return _put(b"\xff", 6, what, _stack_size(what), place)


def _pop(operands: list[Operand], place: Place) -> bytes:
    if len(operands) != 1 or isinstance(operands[0], Expression):
        raise _wants(_ON_STACK)
    what = operands[0]
    if isinstance(what, Register):
        return _put(b"\x58", what, None, _stack_size(what), place)
    return _put(b"\x8f", 0, what, _stack_size(what), place)


def _swap(operands: list[Operand], place: Place) -> bytes:
    if len(operands) != 1 or not isinstance(operands[0], Register) or operands[0].size < 4:
        raise _wants("a register of 4 or 8 bytes")
    return _put(b"\x0f\xc8", operands[0], None, operands[0].size, place)


def _set(code: int, operands: list[Operand], place: Place) -> bytes:
    if len(operands) != 1:
        raise _wants("a register or address of one byte")
    rm = _rm(operands[0], "a register or address of one byte")
    if rm.size > 1:
        raise _wants("a register or address of one byte")
    return _put(bytes([0x0F, 0x90 | code]), 0, rm, 0, place)


def _wide(load: str, store: str, operands: list[Operand], place: Place) -> bytes:
    """A move of 16 bytes: a mandatory prefix and an opcode for each direction, in hexadecimal."""
    what = "an XMM register, and another or an address"
    to, source = _pair(operands, what)
    text, reg, rm = (load, to, source) if isinstance(to, Register) else (store, source, to)
    if not isinstance(reg, Register) or reg.kind != "xmm" or isinstance(rm, Expression) or not text:
        raise _wants(what)
    if isinstance(rm, Register) and rm.kind != "xmm":
        raise _wants(what)
    code = bytes.fromhex(text)
    at = code.index(0x0F)
    return _put(code[at:], reg, rm, 0, place, mandatory=code[:at])


# ---- jumps ----------------------------------------------------------------------------------


def _relative(short: bytes, near: bytes, operands: list[Operand], place: Place) -> bytes:
    if len(operands) != 1 or not isinstance(operands[0], Expression):
        raise _wants("a label")
    to = operands[0].value(place.labels)
    if short and place.short:
        distance = to - place.at - len(short) - 1
        if fits(distance, 1):
            return short + immediate(distance, 1)
        if not near:
            raise AssemblyError(f"the label is {distance} bytes away: at most 127 are possible")
    return near + immediate(to - place.at - len(near) - 4, 4)


def _jump(operands: list[Operand], place: Place) -> bytes:
    if len(operands) == 1 and not isinstance(operands[0], Expression):
        return _put(b"\xff", 4, _rm(operands[0], "a label, register or address"), 0, place)
    return _relative(b"\xeb", b"\xe9", operands, place)


def _call(operands: list[Operand], place: Place) -> bytes:
    if len(operands) == 1 and not isinstance(operands[0], Expression):
        return _put(b"\xff", 2, _rm(operands[0], "a label, register or address"), 0, place)
    return _relative(b"", b"\xe8", operands, place)


def _return(operands: list[Operand], place: Place) -> bytes:
    if not operands:
        return b"\xc3"
    if len(operands) != 1 or not isinstance(operands[0], Expression):
        raise _wants("no operand, or a number")
    return b"\xc2" + immediate(operands[0].value(place.labels), 2)


# ---- the rest ---------------------------------------------------------------------------------


def _bare(text: str, operands: list[Operand], place: Place) -> bytes:
    if operands:
        raise _wants("no operand")
    return bytes.fromhex(text)


def _on_memory(text: str, digit: int, operands: list[Operand], place: Place) -> bytes:
    if len(operands) != 1 or not isinstance(operands[0], Address):
        raise _wants("an address")
    size = 8 if text.endswith("+w") else 0
    code = bytes.fromhex(text.removesuffix("+w"))
    return _put(code, digit, operands[0], size, place)


def _interrupt(operands: list[Operand], place: Place) -> bytes:
    if len(operands) != 1 or not isinstance(operands[0], Expression):
        raise _wants("a vector, 0 to 255")
    return b"\xcd" + immediate(operands[0].value(place.labels), 1)


def _port(opcode: int, operands: list[Operand], place: Place) -> bytes:
    """IN (E4) and OUT (E6): AL, AX or EAX, and a port's number or DX."""
    what = "AL, AX or EAX, and the number of a port or DX"
    first, second = _pair(operands, what)
    data, port = (first, second) if opcode == 0xE4 else (second, first)
    if not isinstance(data, Register) or data.number != 0 or data.size == 8 or data.is_high:
        raise _wants(what)
    head = b"\x66" if data.size == 2 else b""
    if isinstance(port, Register) and port.name == "dx":
        return head + _code(opcode | 8, data.size)
    if not isinstance(port, Expression):
        raise _wants(what)
    return head + _code(opcode, data.size) + immediate(port.value(place.labels), 1)


_BARE = {
    "nop": "90", "pause": "f390", "hlt": "f4", "cli": "fa", "sti": "fb", "cld": "fc", "std": "fd",
    "clc": "f8", "stc": "f9", "cmc": "f5", "int3": "cc", "iretq": "48cf", "syscall": "0f05",
    "sysretq": "480f07", "rdtsc": "0f31", "rdmsr": "0f32", "wrmsr": "0f30", "cpuid": "0fa2",
    "lfence": "0faee8", "mfence": "0faef0", "sfence": "0faef8", "swapgs": "0f01f8",
    "leave": "c9", "pushfq": "9c", "popfq": "9d", "pushfw": "669c", "popfw": "669d",
    "cbw": "6698", "cwde": "98", "cdqe": "4898",
    "cwd": "6699", "cdq": "99", "cqo": "4899", "ud2": "0f0b", "endbr64": "f30f1efa",
    **{
        name + end: prefix + f"{code + (end != 'b'):02x}"
        for name, code in {"movs": 0xA4, "cmps": 0xA6, "stos": 0xAA, "lods": 0xAC,
                           "scas": 0xAE}.items()
        for end, prefix in {"b": "", "w": "66", "d": "", "q": "48"}.items()
    },
}  # fmt: skip

_WIDE = {
    "movups": ("0f10", "0f11"), "movaps": ("0f28", "0f29"), "movntps": ("", "0f2b"),
    "movdqa": ("660f6f", "660f7f"), "movdqu": ("f30f6f", "f30f7f"), "movntdq": ("", "660fe7"),
    "pxor": ("660fef", ""), "xorps": ("0f57", ""),
    "movupd": ("660f10", "660f11"), "movapd": ("660f28", "660f29"), "movntpd": ("", "660f2b"),
}  # fmt: skip

PREFIXES = {"lock": b"\xf0", "rep": b"\xf3", "repe": b"\xf3", "repz": b"\xf3", "repne": b"\xf2",
            "repnz": b"\xf2"}  # fmt: skip

TRANSLATORS: dict[str, Translator] = {
    **{
        name: partial(_alu, op)
        for op, name in enumerate(["add", "or", "adc", "sbb", "and", "sub", "xor", "cmp"])
    },
    **{
        name: partial(_shift, digit)
        for name, digit in {"rol": 0, "ror": 1, "shl": 4, "sal": 4, "shr": 5, "sar": 7}.items()
    },
    **{
        name: partial(_unary, 0xF6, digit)
        for name, digit in {"not": 2, "neg": 3, "mul": 4, "div": 6, "idiv": 7}.items()
    },
    **{name: partial(_bit, 4 + i) for i, name in enumerate(["bt", "bts", "btr", "btc"])},
    **{"cmov" + c: partial(_load_form, bytes([0x0F, 0x40 | n])) for c, n in CONDITIONS.items()},
    **{"set" + c: partial(_set, n) for c, n in CONDITIONS.items()},
    **{
        "j" + c: partial(_relative, bytes([0x70 | n]), bytes([0x0F, 0x80 | n]))
        for c, n in CONDITIONS.items()
    },
    **{name: partial(_bare, text) for name, text in _BARE.items()},
    **{name: partial(_wide, *texts) for name, texts in _WIDE.items()},
    "inc": partial(_unary, 0xFE, 0),
    "dec": partial(_unary, 0xFE, 1),
    "imul": _imul,
    "test": _test,
    "mov": _move,
    "movabs": _move_absolute,
    "movzx": partial(_extend, 0xB6),
    "movsx": partial(_extend, 0xBE),
    "movsxd": _sign_extend_double,
    "movnti": partial(_store_form, b"\x0f\xc3", False),
    "lea": _lea,
    "xchg": _exchange,
    "xadd": partial(_store_form, b"\x0f\xc0", True),
    "cmpxchg": partial(_store_form, b"\x0f\xb0", True),
    "cmpxchg8b": partial(_on_memory, "0fc7", 1),
    "cmpxchg16b": partial(_on_memory, "0fc7+w", 1),
    "bsf": partial(_load_form, b"\x0f\xbc"),
    "bsr": partial(_load_form, b"\x0f\xbd"),
    "tzcnt": partial(_load_form, b"\x0f\xbc", mandatory=b"\xf3"),
    "lzcnt": partial(_load_form, b"\x0f\xbd", mandatory=b"\xf3"),
    "popcnt": partial(_load_form, b"\x0f\xb8", mandatory=b"\xf3"),
    "shld": partial(_shift_double, 0xA4),
    "shrd": partial(_shift_double, 0xAC),
    "bswap": _swap,
    "push": _push,
    "pop": _pop,
    "jmp": _jump,
    "call": _call,
    "ret": _return,
    "loop": partial(_relative, b"\xe2", b""),
    "loope": partial(_relative, b"\xe1", b""),
    "loopne": partial(_relative, b"\xe0", b""),
    "jrcxz": partial(_relative, b"\xe3", b""),
    "int": _interrupt,
    "in": partial(_port, 0xE4),
    "out": partial(_port, 0xE6),
    "lidt": partial(_on_memory, "0f01", 3),
    "invlpg": partial(_on_memory, "0f01", 7),
    "clflush": partial(_on_memory, "0fae", 7),
}
