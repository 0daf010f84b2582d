# SPDX-License-Identifier: Apache-2.0
"""What each opcode of the processor's subset is called, and what its operands are.

``disassembler.py`` reads the tables; src/native/cpu/decode.c has the same opcodes. Operands are in
the notation of Intel's manual (SDM volume 2, appendix A.2): E is a register or memory by ModRM, G
the register of ModRM, Z that of the opcode, M memory, I an immediate, J a jump's distance, V and W
XMM registers, C a control register and R a general one by ModRM. The letter behind is the size: b,
w, d, q, x for 1, 2, 4, 8 and 16 bytes, v for 2, 4 or 8 as prefixes say, z for v but at most 4, s
for 8 or 2 (the stack), and u for z that has no sign unless it is extended to 8 bytes. Words in
capitals stand for themselves.
"""

from __future__ import annotations

ALU = ("add", "or", "adc", "sbb", "and", "sub", "xor", "cmp")
_SHIFTS = ("rol", "ror", "", "", "shl", "shr", "shl", "sar")
_CONDITIONS = ("o", "no", "b", "ae", "e", "ne", "be", "a", "s", "ns", "p", "np", "l", "ge", "le",
               "g")  # fmt: skip
_UNARY = ("test {},I{}", "test {},I{}", "not {}", "neg {}", "mul {}", "imul {}", "div {}",
          "idiv {}")  # fmt: skip


def _alu(place: int) -> dict[int, str]:
    forms = ("Eb,Gb", "Ev,Gv", "Gb,Eb", "Gv,Ev", "AL,Ib", "A,Iz")
    return {place * 8 + code: f"{ALU[place]} {form}" for code, form in enumerate(forms)}


def _by_condition(code: int, form: str) -> dict[int, str]:
    return {code + place: form.format(name) for place, name in enumerate(_CONDITIONS)}


ONE_BYTE: dict[int, str] = {
    **{code: text for place in range(8) for code, text in _alu(place).items()},
    **{0x50 + number: "push Zs" for number in range(8)},
    **{0x58 + number: "pop Zs" for number in range(8)},
    **_by_condition(0x70, "j{} Jb"),
    **{0x90 + number: "xchg Zv,A" for number in range(1, 8)},
    **{0xB0 + number: "mov Zb,Ib" for number in range(8)},
    **{0xB8 + number: "mov Zv,Iv" for number in range(8)},
    0x63: "movsxd Gv,Ed", 0x68: "push Is", 0x69: "imul Gv,Ev,Iz", 0x6A: "push Ib",
    0x6B: "imul Gv,Ev,Ib", 0x84: "test Eb,Gb", 0x85: "test Ev,Gv", 0x86: "xchg Eb,Gb",
    0x87: "xchg Ev,Gv", 0x88: "mov Eb,Gb", 0x89: "mov Ev,Gv", 0x8A: "mov Gb,Eb",
    0x8B: "mov Gv,Ev", 0x8D: "lea Gv,M", 0xA8: "test AL,Ib", 0xA9: "test A,Iz", 0xC2: "ret Iw",
    0xC3: "ret", 0xC9: "leave", 0xCC: "int3", 0xCD: "int Ib", 0xE0: "loopne Jb",
    0xE1: "loope Jb", 0xE2: "loop Jb", 0xE3: "jrcxz Jb", 0xE4: "in AL,Ib", 0xE5: "in P,Ib",
    0xE6: "out Ib,AL", 0xE7: "out Ib,P", 0xE8: "call Jd", 0xE9: "jmp Jd", 0xEB: "jmp Jb",
    0xEC: "in AL,DX", 0xED: "in P,DX", 0xEE: "out DX,AL", 0xEF: "out DX,P", 0xF4: "hlt",
    0xF5: "cmc", 0xF8: "clc", 0xF9: "stc", 0xFA: "cli", 0xFB: "sti", 0xFC: "cld", 0xFD: "std",
}  # fmt: skip

TWO_BYTES: dict[int, str] = {
    **_by_condition(0x40, "cmov{} Gv,Ev"),
    **_by_condition(0x80, "j{} Jd"),
    **_by_condition(0x90, "set{} Eb"),
    **{0xC8 + number: "bswap Zv" for number in range(8)},
    0x05: "syscall", 0x07: "sysret", 0x18: "nop Ev", 0x1E: "nop Ev", 0x1F: "nop Ev",
    0x20: "mov R,C", 0x22: "mov C,R", 0x30: "wrmsr", 0x31: "rdtsc", 0x32: "rdmsr", 0xA2: "cpuid",
    0xA3: "bt Ev,Gv", 0xA4: "shld Ev,Gv,Ib", 0xA5: "shld Ev,Gv,CL", 0xAB: "bts Ev,Gv",
    0xAC: "shrd Ev,Gv,Ib", 0xAD: "shrd Ev,Gv,CL", 0xAF: "imul Gv,Ev", 0xB0: "cmpxchg Eb,Gb",
    0xB1: "cmpxchg Ev,Gv", 0xB3: "btr Ev,Gv", 0xB6: "movzx Gv,Eb", 0xB7: "movzx Gv,Ew",
    0xBB: "btc Ev,Gv", 0xBC: "bsf Gv,Ev", 0xBD: "bsr Gv,Ev", 0xBE: "movsx Gv,Eb",
    0xBF: "movsx Gv,Ew", 0xC0: "xadd Eb,Gb", 0xC1: "xadd Ev,Gv", 0xC3: "movnti Mv,Gv",
}  # fmt: skip

# The prefix F3 or 66 makes other instructions of these.
WITH_REPEAT = {0xB8: "popcnt Gv,Ev", 0xBC: "tzcnt Gv,Ev", 0xBD: "lzcnt Gv,Ev"}
WIDE: dict[tuple[int, int], str] = {
    (0x10, 0): "movups Vx,Wx", (0x10, 0x66): "movupd Vx,Wx", (0x11, 0): "movups Wx,Vx",
    (0x11, 0x66): "movupd Wx,Vx", (0x28, 0): "movaps Vx,Wx", (0x28, 0x66): "movapd Vx,Wx",
    (0x29, 0): "movaps Wx,Vx", (0x29, 0x66): "movapd Wx,Vx", (0x2B, 0): "movntps Wx,Vx",
    (0x2B, 0x66): "movntpd Wx,Vx", (0x57, 0): "xorps Vx,Wx", (0x6F, 0x66): "movdqa Vx,Wx",
    (0x6F, 0xF3): "movdqu Vx,Wx", (0x7F, 0x66): "movdqa Wx,Vx", (0x7F, 0xF3): "movdqu Wx,Vx",
    (0xE7, 0x66): "movntdq Wx,Vx", (0xEF, 0x66): "pxor Vx,Wx",
}  # fmt: skip

# Opcodes whose instruction the reg field of ModRM chooses; those of two bytes are 0x0Fxx.
GROUPS: dict[int, tuple[str, ...]] = {
    0x80: tuple(f"{name} Eb,Ib" for name in ALU),
    0x81: tuple(f"{name} Ev,Iz" for name in ALU),
    0x83: tuple(f"{name} Ev,Ib" for name in ALU),
    0x8F: ("pop Es",),
    **{
        code: tuple(f"{name} {form}" for name in _SHIFTS)
        for code, form in {
            0xC0: "Eb,Ib", 0xC1: "Ev,Ib", 0xD0: "Eb,1", 0xD1: "Ev,1", 0xD2: "Eb,CL", 0xD3: "Ev,CL",
        }.items()
    },
    0xC6: ("mov Eb,Ib",),
    0xC7: ("mov Ev,Iu",),
    0xF6: tuple(text.format("Eb", "b") for text in _UNARY),
    0xF7: tuple(text.format("Ev", "z") for text in _UNARY),
    0xFE: ("inc Eb", "dec Eb"),
    0xFF: ("inc Ev", "dec Ev", "call Eq", "", "jmp Eq", "", "push Es"),
    0x0F01: ("", "", "", "lidt M", "", "", "", "invlpg M"),
    0x0FBA: ("", "", "", "", "bt Ev,Ib", "bts Ev,Ib", "btr Ev,Ib", "btc Ev,Ib"),
    0x0FC7: ("", "cmpxchg8b M"),
}  # fmt: skip
STRINGS = {0xA4: "movs", 0xA6: "cmps", 0xAA: "stos", 0xAC: "lods", 0xAE: "scas"}
# Names that the operation's size chooses.
BY_SIZE: dict[int, dict[int, str]] = {
    0x98: {2: "cbw", 4: "cwde", 8: "cdqe"},
    0x99: {2: "cwd", 4: "cdq", 8: "cqo"},
    0x9C: {2: "pushfw", 4: "pushfq", 8: "pushfq"},
    0x9D: {2: "popfw", 4: "popfq", 8: "popfq"},
    0xCF: {2: "iretw", 4: "iretd", 8: "iretq"},
}
