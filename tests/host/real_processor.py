# SPDX-License-Identifier: Apache-2.0
"""Runs machine code on the processor of this machine, as the oracle of the interpreter's tests.

``RealProcessor`` maps pages at fixed low addresses, which the interpreter's memory has at the same
place, loads all registers, runs the code, and gives registers, flags and memory back. A program
that faults kills the process, so that random programs have only addresses inside ``DATA``.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
from dataclasses import dataclass, field
from pathlib import Path

CODE = 0x10000000
DATA = 0x10010000
DATA_SIZE = 0x1000
STATE = 0x10020000
BASE, SIZE = CODE, 0x30000
END = CODE + 0x8000  # where the code jumps at its end

_MAP_FIXED_NOREPLACE = 0x100000
_RSP = 4


def is_available() -> bool:
    """Is this an x86-64 machine whose programs may run code that they made, and which has LZCNT?
    A processor without it runs BSR, as the manuals say."""
    if platform.machine() != "x86_64":
        return False
    lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    return any(line.startswith("flags") and "abm" in line.split() for line in lines)


def processor_name() -> str:
    """What Linux calls the processor."""
    for line in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "an x86-64 processor"


@dataclass
class State:
    """Registers by number, RFLAGS, XMM registers, and the bytes of ``DATA``."""

    registers: list[int] = field(default_factory=lambda: [0] * 16)
    flags: int = 2
    wide: list[int] = field(default_factory=lambda: [0] * 16)
    data: bytes = bytes(DATA_SIZE)


def _load(number: int, at: int, store: bool = False) -> bytes:
    """MOV between a general register and an absolute address."""
    rex = 0x48 | (number >> 3) << 2
    return bytes([rex, 0x89 if store else 0x8B, (number & 7) << 3 | 4, 0x25]) + struct.pack(
        "<i", at
    )


def _load_wide(number: int, at: int, store: bool = False) -> bytes:
    """MOVUPS between an XMM register and an absolute address."""
    rex = 0x40 | (number >> 3) << 2
    return bytes([rex, 0x0F, 0x11 if store else 0x10, (number & 7) << 3 | 4, 0x25]) + struct.pack(
        "<i", at
    )


def _jump(at: int, to: int) -> bytes:
    return b"\xe9" + struct.pack("<i", to - at - 5)


_IN, _OUT = STATE, STATE + 0x400
_FLAGS, _WIDE, _STACK = 0x80, 0x100, STATE + 0x800
_PUSHED = bytes.fromhex("53 55 4154 4155 4156 4157 9c")  # rbx rbp r12 to r15, flags
_POPPED = bytes.fromhex("9d 415f 415e 415d 415c 5d 5b c3")


def _enter() -> bytes:
    code = _PUSHED + _load(_RSP, _STACK, store=True)
    code += bytes.fromhex("ff3425") + struct.pack("<i", _IN + _FLAGS) + b"\x9d"  # push [], popf
    for number in range(16):
        code += _load_wide(number, _IN + _WIDE + 16 * number)
    for number in range(16):
        code += _load(number, _IN + 8 * number)
    return code


def _leave() -> bytes:
    code = b"".join(_load(number, _OUT + 8 * number, store=True) for number in range(16))
    code += _load(_RSP, _STACK) + b"\x9c"
    code += bytes.fromhex("8f0425") + struct.pack("<i", _OUT + _FLAGS)  # pop []
    code += b"".join(
        _load_wide(number, _OUT + _WIDE + 16 * number, store=True) for number in range(16)
    )
    return code + _POPPED


class RealProcessor:
    """The pages, once per process."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = (
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_long,
        )
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED_NOREPLACE
        got = libc.mmap(BASE, SIZE, 7, flags, -1, 0)
        if got != BASE:
            raise OSError(ctypes.get_errno(), "the fixed pages cannot be mapped")
        self._memory = (ctypes.c_uint8 * SIZE).from_address(BASE)
        self._enter_at = CODE + 0x9000
        enter = _enter()
        self._put(self._enter_at, enter + _jump(self._enter_at + len(enter), CODE))
        self._put(END, _leave())
        self._call = ctypes.CFUNCTYPE(None)(self._enter_at)

    def _put(self, at: int, data: bytes) -> None:
        ctypes.memmove(at, data, len(data))

    def run(self, code: bytes, before: State) -> State:
        """Runs ``code``, at most 28 KiB, from ``CODE``; what the state is behind it."""
        self._put(CODE, code + _jump(CODE + len(code), END))
        self._put(DATA, before.data)
        self._put(_IN, struct.pack("<16QQ", *before.registers, before.flags))
        for number, value in enumerate(before.wide):
            self._put(_IN + _WIDE + 16 * number, value.to_bytes(16, "little"))
        self._call()
        out = bytes(self._memory[_OUT - BASE : _OUT - BASE + 0x200])
        *registers, flags = struct.unpack_from("<17Q", out)
        wide = [
            int.from_bytes(out[_WIDE + 16 * n : _WIDE + 16 * n + 16], "little") for n in range(16)
        ]
        data = bytes(self._memory[DATA - BASE : DATA - BASE + DATA_SIZE])
        return State(registers, flags, wide, data)
