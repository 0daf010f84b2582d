# SPDX-License-Identifier: Apache-2.0
"""The bytes of an instruction: prefixes, ModRM, SIB, displacement and immediate.

``instructions.py`` chooses the opcode and the place of each operand and calls this; the choice
among several encodings is that of GNU as.
"""

from __future__ import annotations

from collections.abc import Mapping

from verbena.host.errors import AssemblyError
from verbena.host.operands import Address, Register


def fits(value: int, size: int) -> bool:
    """Has ``value`` a sign-extended form of ``size`` bytes?"""
    return -(1 << (8 * size - 1)) <= value < 1 << (8 * size - 1)


def immediate(value: int, size: int, of: int | None = None) -> bytes:
    """An immediate of ``size`` bytes for an operation of ``of`` bytes; signed or unsigned."""
    width = of or size
    if not -(1 << (8 * width - 1)) <= value < 1 << (8 * width):
        raise AssemblyError(f"{value} does not fit {width} bytes")
    if size < width:
        value = (value + (1 << (8 * width - 1))) % (1 << (8 * width)) - (1 << (8 * width - 1))
        if not fits(value, size):
            raise AssemblyError(f"{value} does not fit a sign-extended {size} bytes")
    return (value & ((1 << (8 * size)) - 1)).to_bytes(size, "little")


def _memory(
    address: Address, reg: int, labels: Mapping[str, int], behind: int
) -> tuple[int, bytes]:
    """REX bits, and ModRM, SIB and displacement; ``behind`` is the next instruction's address."""
    displacement = address.displacement.value(labels)
    base, index = address.base, address.index
    field = (reg & 7) << 3
    if address.relative:
        distance = displacement if address.is_distance else displacement - behind
        return 0, bytes([field | 5]) + immediate(distance, 4)
    rex = (0 if base is None else base.number >> 3) | (
        0 if index is None else index.number >> 3 << 1
    )
    scale = {1: 0, 2: 0x40, 4: 0x80, 8: 0xC0}[address.scale]
    index_field = (4 if index is None else index.number & 7) << 3
    if base is None:
        if not fits(displacement, 4) and not (address.is_narrow and 0 <= displacement < 1 << 32):
            raise AssemblyError(f"the address {displacement:#x} needs a register")
        tail = (displacement & 0xFFFFFFFF).to_bytes(4, "little")
        return rex, bytes([field | 4, scale | index_field | 5]) + tail
    if not address.displacement.is_constant:
        mod, tail = 0x80, immediate(displacement, 4)
    elif displacement == 0 and base.number & 7 != 5:
        mod, tail = 0, b""
    elif fits(displacement, 1):
        mod, tail = 0x40, immediate(displacement, 1)
    else:
        mod, tail = 0x80, immediate(displacement, 4)
    if index is None and base.number & 7 != 4:
        return rex, bytes([mod | field | base.number & 7]) + tail
    return rex, bytes([mod | field | 4, scale | index_field | base.number & 7]) + tail


def encode(
    opcode: bytes,
    reg: Register | int,
    rm: Register | Address | None,
    size: int,
    labels: Mapping[str, int],
    at: int,
    *,
    mandatory: bytes = b"",
    tail: bytes = b"",
) -> bytes:
    """An instruction with ModRM (``rm`` given), or with the register in the opcode's last bits.

    ``size`` is the operation's: 2 gives a prefix 66, 8 gives REX.W; 0 gives neither. ``mandatory``
    is a prefix that is part of the opcode, ``tail`` the immediate, ``at`` the address of the
    instruction.
    """
    number = reg if isinstance(reg, int) else reg.number
    rex = 8 if size == 8 else 0
    named = [r for r in (reg, rm) if isinstance(r, Register)]
    forced = any(r.needs_rex for r in named)
    prefix = b""
    if isinstance(rm, Address):
        prefix += {"fs": b"\x64", "gs": b"\x65", None: b""}[rm.segment]
        prefix += b"\x67" if rm.is_narrow else b""
    prefix += (b"\x66" if size == 2 else b"") + mandatory

    def whole(length: int) -> bytes:
        bits, rest = rex, b""
        code = opcode
        if rm is None:
            bits |= number >> 3 if isinstance(reg, Register) else 0
            if isinstance(reg, Register):
                code = opcode[:-1] + bytes([opcode[-1] | number & 7])
        else:
            bits |= number >> 3 << 2
            if isinstance(rm, Address):
                more, rest = _memory(rm, number, labels, at + length)
                bits |= more
            else:
                bits |= rm.number >> 3
                rest = bytes([0xC0 | (number & 7) << 3 | rm.number & 7])
        if (bits or forced) and any(r.is_high for r in named):
            raise AssemblyError("AH, BH, CH and DH cannot be used beside a register that needs REX")
        return prefix + (bytes([0x40 | bits]) if bits or forced else b"") + code + rest + tail

    relative = isinstance(rm, Address) and bool(rm.relative)
    return whole(len(whole(0))) if relative else whole(0)
