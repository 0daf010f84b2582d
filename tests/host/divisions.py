# SPDX-License-Identifier: Apache-2.0
"""Machine code that divides: DIV and IDIV of all sizes, with quotients that fit and that do not.

``random_programs.py`` takes those that fit; ``compared_divisions.py`` also those that raise #DE.
"""

from __future__ import annotations

import random
import struct

from tests.host.real_processor import DATA, DATA_SIZE

MIDDLE = DATA + DATA_SIZE // 2  # where R15 points
_RAX, _RDX = 0, 2
_DIVISORS = [1, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]  # registers beside those of the dividend
_HIGH = {1: 5, 3: 7}  # CH of RCX and BH of RBX, which an instruction without REX has


def load_constant(number: int, value: int) -> bytes:
    """MOV of 8 bytes to a register."""
    return bytes([0x48 | number >> 3, 0xB8 | number & 7]) + struct.pack("<Q", value)


def _chosen(choose: random.Random, bits: int) -> int:
    """A number of ``bits`` without a sign, often one at the borders of what they hold."""
    top = 1 << bits
    borders = [0, 1, 2, top - 1, top - 2, top // 2 - 1, top // 2, top // 2 + 1]
    return choose.choice([choose.getrandbits(bits), choose.getrandbits(bits // 2), *borders[:4],
                          choose.choice(borders)])  # fmt: skip


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def _dividend_that_fits(choose: random.Random, divisor: int, bits: int, signed: bool) -> int:
    """A dividend of twice the bits whose quotient by ``divisor`` has ``bits``."""
    quotient = _chosen(choose, bits)
    rest = choose.randrange(abs(divisor))
    if signed:
        quotient = _signed(quotient, bits)
        is_negative = (quotient < 0) != (divisor < 0) if quotient else choose.random() < 0.5
        rest = -rest if is_negative else rest
    return (quotient * divisor + rest) & (1 << 2 * bits) - 1


def _any_dividend(choose: random.Random, divisor: int, bits: int, signed: bool) -> int:
    """One that may not fit; some are near the first and the last quotients that do."""
    if not divisor or choose.random() < 0.2:
        return choose.getrandbits(2 * bits)
    if choose.random() < 0.4:
        return _dividend_that_fits(choose, divisor, bits, signed)
    ends = (-(1 << (bits - 1)), 1 << (bits - 1)) if signed else (1 << bits,)
    near = choose.choice(ends) * divisor + choose.choice([-2, -1, 0, 1, 2]) * choose.choice(
        [1, abs(divisor)]
    )
    return near & (1 << 2 * bits) - 1


def prepared_division(choose: random.Random, *, fits: bool) -> bytes:
    """A division behind moves that set its operands; without ``fits`` it may raise #DE."""
    size, signed = choose.choice([1, 2, 4, 8]), choose.random() < 0.5
    bits = 8 * size
    raw = _chosen(choose, bits)
    if fits:
        raw = raw or 1
    divisor = _signed(raw, bits) if signed else raw
    make = _dividend_that_fits if fits else _any_dividend
    dividend = make(choose, divisor, bits, signed)
    return _dividend(choose, dividend, size) + _divide(choose, raw, size, 7 if signed else 6)


def _dividend(choose: random.Random, dividend: int, size: int) -> bytes:
    """Into AX, or into DX:AX, EDX:EAX or RDX:RAX; the bits above are random."""
    bits = 16 if size == 1 else 8 * size
    junk = [choose.getrandbits(64) >> bits << bits for _ in range(2)]
    low, high = dividend & (1 << bits) - 1, dividend >> bits
    return load_constant(_RAX, junk[0] | low) + load_constant(_RDX, junk[1] | high)


def _divide(choose: random.Random, divisor: int, size: int, kind: int) -> bytes:
    """The instruction, by a register or by memory, behind the move of its divisor."""
    number, bits = choose.choice(_DIVISORS), 8 * size
    opcode = bytes([0xF6 + (size > 1)])
    value = choose.getrandbits(64) >> bits << bits | divisor
    if size == 1 and number in _HIGH and choose.random() < 0.5:
        swapped = value & ~0xFFFF | (value & 0xFF) << 8 | value >> 8 & 0xFF
        return load_constant(number, swapped) + opcode + bytes([0xC0 | kind << 3 | _HIGH[number]])
    head, rex = b"\x66" if size == 2 else b"", 0x40 | (8 if size == 8 else 0)
    load = load_constant(number, value)
    if choose.random() < 0.5:
        register = bytes([0xC0 | kind << 3 | number & 7])
        return load + head + bytes([rex | number >> 3]) + opcode + register
    at = struct.pack("<i", choose.randrange(-1500, 1500))
    store = bytes([0x49 | (number >> 3) << 2, 0x89, 0x87 | (number & 7) << 3]) + at
    return load + store + head + bytes([rex | 1]) + opcode + bytes([0x87 | kind << 3]) + at
