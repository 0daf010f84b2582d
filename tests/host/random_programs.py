# SPDX-License-Identifier: Apache-2.0
"""Random machine code of the interpreter's subset, for comparison with the real processor.

Each instruction has addresses inside ``DATA``: R15 points at its middle, and RSP into it. Where
an instruction leaves flags undefined, one that defines all of them follows, so that what comes next
may depend on flags.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from tests.host.divisions import load_constant, prepared_division
from tests.host.real_processor import DATA, DATA_SIZE, State

# Numbers of registers that a program may change: all but RSP and R15.
FREE = [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
MIDDLE = DATA + DATA_SIZE // 2
_DEFINE_FLAGS = bytes.fromhex("4809c0")  # or rax, rax
_CARRY = bytes.fromhex("0f92c2")  # setc dl


class Maker:
    """Makes instructions by one source of random numbers."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    # ---- operands ----

    def _size(self) -> int:
        return self.random.choice([1, 2, 4, 8])

    def _modrm(self, reg: int, memory: bool | None = None) -> tuple[int, bytes]:
        """REX bits, and ModRM with what follows: a register, or an address about R15."""
        rex = (reg >> 3) << 2
        if memory is None:
            memory = self.random.random() < 0.4
        if not memory:
            rm = self.random.choice(FREE)
            return rex | rm >> 3, bytes([0xC0 | (reg & 7) << 3 | rm & 7])
        if self.random.random() < 0.5:
            displacement = self.random.randrange(-120, 100)
            return rex | 1, bytes([0x47 | (reg & 7) << 3, displacement & 0xFF])
        displacement = self.random.randrange(-1500, 1500)
        return rex | 1, bytes([0x87 | (reg & 7) << 3]) + struct.pack("<i", displacement)

    def _encode(
        self,
        opcode: bytes,
        reg: int,
        size: int,
        *,
        memory: bool | None = None,
        prefix: bytes = b"",
    ) -> bytes:
        rex, rest = self._modrm(reg, memory)
        if size == 8:
            rex |= 8
        head = prefix + (b"\x66" if size == 2 else b"")
        if rex or self.random.random() < 0.3:
            head += bytes([0x40 | rex])
        return head + opcode + rest

    def _reg(self) -> int:
        return self.random.choice(FREE)

    def _imm(self, size: int) -> bytes:
        value = self.random.choice([self.random.getrandbits(32), self.random.randrange(-3, 4)])
        return struct.pack("<q", value)[: min(size, 4)]

    # ---- instructions ----

    def alu(self) -> bytes:
        """The eight operations in their six forms."""
        size, op = self._size(), self.random.randrange(8)
        form = self.random.randrange(4)
        if form < 2:
            code = op * 8 + form * 2 + (size > 1)
            lock = b"\xf0" if form == 0 and op != 7 and self.random.random() < 0.1 else b""
            return self._encode(
                bytes([code]), self._reg(), size, prefix=lock, memory=True if lock else None
            )
        if form == 2 and size > 1:
            return self._encode(b"\x83", op, size) + self._imm(1)
        return self._encode(bytes([0x81 if size > 1 else 0x80]), op, size) + self._imm(size)

    def move(self) -> bytes:
        """MOV, MOVZX, MOVSX, MOVSXD, LEA, XCHG, BSWAP."""
        size = self._size()
        kind = self.random.randrange(8)
        if kind < 2:
            return self._encode(bytes([0x88 + (size > 1) + 2 * kind]), self._reg(), size)
        if kind == 2:
            return self._encode(bytes([0xC6 + (size > 1)]), 0, size) + self._imm(size)
        if kind == 3:
            wide = self.random.choice([2, 4, 8])
            code = self.random.choice([0xB6, 0xB7, 0xBE, 0xBF])
            return self._encode(bytes([0x0F, code]), self._reg(), wide)
        if kind == 4:
            return self._encode(b"\x63", self._reg(), self.random.choice([4, 8]))
        if kind == 5:
            return self._encode(b"\x8d", self._reg(), max(size, 2), memory=True)
        if kind == 6:
            return self._encode(bytes([0x86 + (size > 1)]), self._reg(), size)
        number, wide = self._reg(), self.random.choice([4, 8])
        return bytes([0x40 | (8 if wide == 8 else 0) | number >> 3, 0x0F, 0xC8 | number & 7])

    def constant(self) -> bytes:
        """MOV of an immediate of the whole size."""
        number, size = self._reg(), self._size()
        head = (b"\x66" if size == 2 else b"") + bytes(
            [0x40 | (8 if size == 8 else 0) | number >> 3]
        )
        code = (0xB0 if size == 1 else 0xB8) | number & 7
        return head + bytes([code]) + struct.pack("<Q", self.random.getrandbits(64))[:size]

    def one_operand(self) -> bytes:
        """INC, DEC, NOT, NEG, TEST."""
        size, kind = self._size(), self.random.randrange(5)
        if kind < 2:
            return self._encode(bytes([0xFE + (size > 1)]), kind, size)
        if kind < 4:
            return self._encode(bytes([0xF6 + (size > 1)]), kind, size)
        return self._encode(bytes([0xF6 + (size > 1)]), 0, size) + self._imm(size)

    def shift(self) -> bytes:
        """ROL, ROR, SHL, SHR, SAR by 1, by a number, and by CL."""
        size, op = self._size(), self.random.choice([0, 1, 4, 5, 7])
        form = self.random.randrange(3)
        if form == 0:
            return self._encode(bytes([0xD0 + (size > 1)]), op, size)
        if form == 1:
            code = self._encode(bytes([0xC0 + (size > 1)]), op, size)
            return code + bytes([self.random.getrandbits(8)]) + _DEFINE_FLAGS
        return self._encode(bytes([0xD2 + (size > 1)]), op, size) + _DEFINE_FLAGS

    def product(self) -> bytes:
        """MUL, IMUL in three forms."""
        size, form = self._size(), self.random.randrange(4)
        if form == 0:
            code = self._encode(bytes([0xF6 + (size > 1)]), self.random.choice([4, 5]), size)
        elif form == 1:
            code = self._encode(b"\x0f\xaf", self._reg(), max(size, 2))
        elif form == 2:
            code = self._encode(b"\x6b", self._reg(), max(size, 2)) + self._imm(1)
        else:
            code = self._encode(b"\x69", self._reg(), max(size, 2)) + self._imm(max(size, 2))
        return code + _DEFINE_FLAGS

    def quotient_that_fits(self) -> bytes:
        """DIV and IDIV of all sizes and signs, by a register or memory."""
        return prepared_division(self.random, fits=True) + _DEFINE_FLAGS

    def quotient(self) -> bytes:
        """DIV and IDIV of 64 bits by a divisor that is positive."""
        signed = self.random.random() < 0.5
        number = self.random.choice([n for n in FREE if n not in (0, 2)])
        prepare = bytes([0x48 | number >> 3, 0x83, 0xC8 | number & 7, 3])  # or reg, 3
        prepare += bytes([0x48 | number >> 3, 0x0F, 0xBA, 0xF0 | number & 7, 63])  # btr reg, 63
        extend = bytes.fromhex("4899") if signed else bytes.fromhex("4831d2")  # cqo; xor rdx,rdx
        code = bytes([0x48 | number >> 3, 0xF7, 0xC0 | (7 if signed else 6) << 3 | number & 7])
        return prepare + extend + code + _DEFINE_FLAGS

    def bit(self) -> bytes:
        """BT, BTS, BTR, BTC, BSF, BSR."""
        size, kind = self.random.choice([2, 4, 8]), self.random.randrange(6)
        if kind < 4:
            if self.random.random() < 0.5:
                code = self._encode(b"\x0f\xba", 4 + kind, size)
                return code + bytes([self.random.getrandbits(8)]) + _DEFINE_FLAGS
            code = self._encode(bytes([0x0F, 0xA3 + 8 * kind]), self._reg(), size, memory=False)
            return code + _DEFINE_FLAGS
        number = self._reg()  # not 0, since BSF of 0 leaves the destination undefined by the book
        source = self._reg()
        prepare = bytes([0x48 | source >> 3, 0x83, 0xC8 | source & 7, 8])
        rex = (8 if size == 8 else 0) | (number >> 3) << 2 | source >> 3
        code = (b"\x66" if size == 2 else b"") + bytes(
            [0x40 | rex, 0x0F, 0xB8 + kind, 0xC0 | (number & 7) << 3 | source & 7]
        )
        return prepare + code + _DEFINE_FLAGS

    def bit_of_string(self) -> bytes:
        """BT, BTS, BTR and BTC of memory by a register, which reaches bits far from the address,
        and by a number; with LOCK and without. CF goes into DL."""
        size, kind = self.random.choice([2, 4, 8]), self.random.randrange(4)
        lock = b"\xf0" if kind and self.random.random() < 0.5 else b""
        if self.random.random() < 0.3:
            code = self._encode(b"\x0f\xba", 4 + kind, size, memory=True, prefix=lock)
            return code + bytes([self.random.getrandbits(8)]) + _CARRY + _DEFINE_FLAGS
        number = self._reg()
        index, bits = self.random.randrange(-10_000, 10_000), 8 * size
        value = self.random.getrandbits(64) >> bits << bits | index & (1 << bits) - 1
        head = lock + (b"\x66" if size == 2 else b"")
        rex = 0x41 | (8 if size == 8 else 0) | (number >> 3) << 2
        code = bytes([rex, 0x0F, 0xA3 + 8 * kind, 0x87 | (number & 7) << 3])
        at = struct.pack("<i", self.random.randrange(-200, 200))
        return load_constant(number, value) + head + code + at + _CARRY + _DEFINE_FLAGS

    def locked(self) -> bytes:
        """INC, DEC, NOT and NEG of memory with LOCK."""
        size, kind = self._size(), self.random.randrange(4)
        opcode = (0xFE, 0xFE, 0xF6, 0xF6)[kind] + (size > 1)
        return self._encode(bytes([opcode]), kind, size, memory=True, prefix=b"\xf0")

    def double_shift(self) -> bytes:
        """SHLD and SHRD by a number up to the operand's bits, and by CL of 4 and 8 bytes."""
        size, code = self.random.choice([2, 4, 8]), self.random.choice([0xA4, 0xAC])
        if size > 2 and self.random.random() < 0.5:
            return self._encode(bytes([0x0F, code + 1]), self._reg(), size) + _DEFINE_FLAGS
        shift = self._encode(bytes([0x0F, code]), self._reg(), size)
        count = self.random.choice([0, 1, self.random.randrange(8 * size)])
        return shift + bytes([count]) + _DEFINE_FLAGS

    def count(self) -> bytes:
        """POPCNT, LZCNT and TZCNT. The source of the last is not 0, since older processors run BSF.

        LZCNT leaves all flags but CF and ZF undefined, so that these two go into registers.
        """
        kind = self.random.randrange(3)
        if kind == 0:
            size = self.random.choice([2, 4, 8])
            return self._encode(b"\x0f\xb8", self._reg(), size, prefix=b"\xf3")
        if kind == 1:
            size = self.random.choice([2, 4, 8])
            code = self._encode(b"\x0f\xbd", self._reg(), size, prefix=b"\xf3")
            if self.random.random() < 0.2:  # of 0: xor ecx, ecx, and lzcnt ebx, ecx
                code = bytes.fromhex("31c9 f30fbdd9")
            return code + bytes.fromhex("0f92c2 410f94c0") + _DEFINE_FLAGS  # setc dl, setz r8b
        number, source = self._reg(), self._reg()
        prepare = bytes([0x48 | source >> 3, 0x83, 0xC8 | source & 7, 8])  # or source, 8
        rex = self.random.choice([0x40, 0x48]) | (number >> 3) << 2 | source >> 3
        code = bytes([0xF3, rex, 0x0F, 0xBC, 0xC0 | (number & 7) << 3 | source & 7])
        return prepare + code + _DEFINE_FLAGS

    def atomic(self) -> bytes:
        """XADD, CMPXCHG, with and without LOCK."""
        size = self._size()
        code = self.random.choice([0xC0, 0xB0]) + (size > 1)
        locked = self.random.random() < 0.5
        return self._encode(
            bytes([0x0F, code]),
            self._reg(),
            size,
            memory=True if locked else None,
            prefix=b"\xf0" if locked else b"",
        )

    def by_condition(self) -> bytes:
        """SETcc, CMOVcc, Jcc over an instruction, CLC, STC, CMC."""
        kind, condition = self.random.randrange(5), self.random.randrange(16)
        if kind == 0:
            return self._encode(bytes([0x0F, 0x90 + condition]), 0, 1)
        if kind == 1:
            size = self.random.choice([2, 4, 8])
            return self._encode(bytes([0x0F, 0x40 + condition]), self._reg(), size)
        if kind == 2:
            inner = self.alu()
            return bytes([0x70 + condition, len(inner)]) + inner
        if kind == 3:
            inner = self.move()
            return bytes([0x0F, 0x80 + condition]) + struct.pack("<i", len(inner)) + inner
        return self.random.choice([b"\xf8", b"\xf9", b"\xf5"])

    def extend(self) -> bytes:
        """CBW, CWDE and CDQE; CWD, CDQ and CQO."""
        prefix = self.random.choice([b"\x66", b"", b"\x48"])
        return prefix + self.random.choice([b"\x98", b"\x99"])

    def loop(self) -> bytes:
        """LOOPNE, LOOPE, LOOP over an operation of two registers, and JRCXZ; also of ECX."""
        narrow = self.random.choice([b"", b"\x67"])
        code = self.random.choice([0xE0, 0xE1, 0xE2, 0xE3])
        if code == 0xE3:
            count = self.random.choice([0, 1, 1 << 32])
            inner = self.alu()
            return (
                b"\x48\xb9" + struct.pack("<Q", count) + narrow + bytes([0xE3, len(inner)]) + inner
            )
        count = self.random.randrange(1, 8)
        source, target = self._reg(), self.random.choice([n for n in FREE if n != 1])
        rex = 0x48 | (source >> 3) << 2 | target >> 3
        operation = self.random.randrange(8) * 8 + 1
        inner = bytes([rex, operation, 0xC0 | (source & 7) << 3 | target & 7]) + narrow
        return b"\xb9" + struct.pack("<I", count) + inner + bytes([code, -len(inner) - 2 & 0xFF])

    def pair(self) -> bytes:
        """CMPXCHG8B and CMPXCHG16B, with and without LOCK, of which half find what they expect."""
        half = self.random.choice([4, 8])
        rex = 0x41 | (8 if half == 8 else 0)
        at = 16 * self.random.randrange(-90, 90)
        lock = self.random.choice([b"", b"\xf0"])
        code = lock + bytes([rex, 0x0F, 0xC7, 0x8F]) + struct.pack("<i", at)
        if self.random.random() < 0.5:
            return code
        loads = [  # mov rax, [r15 + at]; mov rdx, [r15 + at + half]
            bytes([rex, 0x8B, 0x87 | number << 3]) + struct.pack("<i", at + offset)
            for number, offset in ((0, 0), (2, half))
        ]
        return b"".join(loads) + code

    def unordered(self) -> bytes:
        """MOVNTI, CLFLUSH, PAUSE, LFENCE, MFENCE, SFENCE."""
        kind = self.random.randrange(3)
        if kind == 0:
            size = self.random.choice([4, 8])
            return self._encode(b"\x0f\xc3", self._reg(), size, memory=True)
        if kind == 1:
            return self._encode(b"\x0f\xae", 7, 4, memory=True)
        return self.random.choice([b"\xf3\x90", b"\x0f\xae\xe8", b"\x0f\xae\xf0", b"\x0f\xae\xf8"])

    def stack(self) -> bytes:
        """PUSH and POP in pairs, also of 2 bytes and of flags, and CALL and RET."""
        kind, number, other = self.random.randrange(4), self._reg(), self._reg()
        if self.random.random() < 0.3:
            return self._short_stack(number, other)
        if self.random.random() < 0.2:
            return self._flags_on_stack(number)
        pop = (b"\x41" if other > 7 else b"") + bytes([0x58 | other & 7])
        if kind == 0:
            return (b"\x41" if number > 7 else b"") + bytes([0x50 | number & 7]) + pop
        if kind == 1:
            return b"\x68" + struct.pack("<i", self.random.getrandbits(31)) + pop
        if kind == 2:
            inner = self.alu()  # call over a jump; the subroutine is `inner` and ret
            return b"\xe8\x02\0\0\0" + bytes([0xEB, len(inner) + 1]) + inner + b"\xc3"
        return b"\x6a" + bytes([self.random.getrandbits(8)]) + pop

    def _flags_on_stack(self, number: int) -> bytes:
        """PUSHFQ, of which the flags that are defined stay, and POPFQ."""
        pushed = bytes.fromhex("9c 48812424c5080000")  # pushfq; and qword ptr [rsp], 0x8c5
        pop = (b"\x41" if number > 7 else b"") + bytes([0x58 | number & 7])
        flags = struct.pack("<i", self.random.getrandbits(12) & 0x8C5 | 2)
        return self.random.choice([pushed + pop, pushed + b"\x9d", b"\x68" + flags + b"\x9d"])

    def _short_stack(self, number: int, other: int) -> bytes:
        """PUSH, POP, PUSHF, POPF and LEAVE with the prefix 66; the stack is as before behind it."""
        push = b"\x66" + (b"\x41" if number > 7 else b"") + bytes([0x50 | number & 7])
        pop = b"\x66" + (b"\x41" if other > 7 else b"") + bytes([0x58 | other & 7])
        value = struct.pack("<H", self.random.getrandbits(16))
        flags = struct.pack("<H", self.random.getrandbits(16) & 0x8C5 | 2)
        push_value = b"\x66\x68" + value
        return self.random.choice(
            [
                push + pop,
                push * 4 + pop[1:],
                b"\x66\x6a" + value[:1] + pop,
                push_value + bytes.fromhex("66ff3424 668f0424") + pop,  # push [rsp], pop [rsp]
                b"\x66\x68" + flags + b"\x66\x9d",
                bytes.fromhex("669c 66812424c508") + pop,  # pushfw, and the flags that are defined
                push_value + bytes.fromhex("4889e5 66c9"),  # mov rbp, rsp; leave
                bytes.fromhex("664850 66485b"),  # push rax, pop rbx: REX.W counts more than 66
            ]
        )

    def strings(self) -> bytes:
        """MOVS, STOS, LODS, CMPS, SCAS, with REP, forwards and backwards."""
        backwards = self.random.random() < 0.3
        code = self.random.choice([0xA4, 0xA5, 0xAA, 0xAB, 0xAC, 0xAD, 0xA6, 0xA7, 0xAE, 0xAF])
        size = self.random.choice([4, 8, 2]) if code & 1 else 1
        repeat = self.random.choice([b"", b"\xf3", b"\xf2" if code in (0xA6, 0xA7) else b"\xf3"])
        setup = b"\x48\xc7\xc1" + struct.pack("<i", self.random.randrange(0, 20))  # mov rcx
        for number in (6, 7):
            at = self.random.randrange(-700, 700)
            setup += bytes([0x49, 0x8D, 0x87 | number << 3]) + struct.pack("<i", at)  # lea
        head = (b"\x66" if size == 2 else b"") + repeat + (b"\x48" if size == 8 else b"")
        return (
            setup
            + (b"\xfd" if backwards else b"")
            + head
            + bytes([code])
            + (b"\xfc" if backwards else b"")
        )

    def wide(self) -> bytes:
        """Moves of 16 bytes, and PXOR of registers."""
        reg, kind = self.random.randrange(16), self.random.randrange(4)
        if kind == 0:
            other = self.random.randrange(16)
            rex = 0x40 | (reg >> 3) << 2 | other >> 3
            modrm = 0xC0 | (reg & 7) << 3 | other & 7
            return self.random.choice([b"\x66", b"\xf3"]) + bytes([rex, 0x0F, 0x6F, modrm])
        if kind == 1:
            other = self.random.randrange(16)
            rex = 0x40 | (reg >> 3) << 2 | other >> 3
            return bytes([0x66, rex, 0x0F, 0xEF, 0xC0 | (reg & 7) << 3 | other & 7])
        code, prefix = self.random.choice([0x10, 0x11]), self.random.choice([b"", b"\x66"])
        return self._encode(bytes([0x0F, code]), reg, 4, memory=True, prefix=prefix)

    def aligned(self) -> bytes:
        """MOVAPS, MOVAPD, MOVDQA, MOVNTPS, MOVNTPD, MOVNTDQ, XORPS and PXOR of aligned memory, and
        those that have one of two registers."""
        reg, other = self.random.randrange(16), self.random.randrange(16)
        moves = [(0x28, b""), (0x28, b"\x66"), (0x29, b""), (0x29, b"\x66"), (0x57, b"")]
        moves += [(0x6F, b"\x66"), (0x7F, b"\x66"), (0xEF, b"\x66")]
        if self.random.random() < 0.3:
            code, prefix = self.random.choice(moves)
            rex, modrm = 0x40 | (reg >> 3) << 2 | other >> 3, 0xC0 | (reg & 7) << 3 | other & 7
            return prefix + bytes([rex, 0x0F, code, modrm])
        stores = [(0x2B, b""), (0x2B, b"\x66"), (0xE7, b"\x66")]
        code, prefix = self.random.choice(moves + stores)
        at = 16 * self.random.randrange(-90, 90)
        head = bytes([0x41 | (reg >> 3) << 2, 0x0F, code, 0x87 | (reg & 7) << 3])
        return prefix + head + struct.pack("<i", at)

    def instruction(self) -> bytes:
        """Any of them."""
        make: Callable[[], bytes] = self.random.choice(
            [
                self.alu,
                self.alu,
                self.move,
                self.move,
                self.constant,
                self.one_operand,
                self.shift,
                self.product,
                self.quotient,
                self.quotient_that_fits,
                self.bit,
                self.bit_of_string,
                self.locked,
                self.double_shift,
                self.count,
                self.atomic,
                self.by_condition,
                self.by_condition,
                self.stack,
                self.strings,
                self.wide,
                self.aligned,
                self.extend,
                self.loop,
                self.pair,
                self.unordered,
            ]
        )
        return make()

    def state(self) -> State:
        """Registers, flags and memory before the program."""
        choose = self.random
        registers = [
            choose.choice([choose.getrandbits(64), choose.randrange(256), (1 << 64) - 1])
            for _ in range(16)
        ]
        registers[4] = MIDDLE + 1800  # where no operand reaches
        registers[15] = MIDDLE
        flags = 2 | choose.getrandbits(12) & 0x8D5
        wide = [choose.getrandbits(128) for _ in range(16)]
        return State(registers, flags, wide, choose.randbytes(DATA_SIZE))

    def program(self, length: int) -> list[bytes]:
        """``length`` pieces of one to five instructions."""
        return [self.instruction() for _ in range(length)]
