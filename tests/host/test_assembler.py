# SPDX-License-Identifier: Apache-2.0
"""The assembler against GNU as, byte for byte, and against the interpreter's decoder."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from verbena.host import AssemblyError, Program
from verbena.host._cpu import instruction_length
from verbena.host.instructions import CONDITIONS
from verbena.host.operands import REGISTERS

NAMES = {
    size: [r.name for r in REGISTERS.values() if r.size == size and r.kind == "general"]
    for size in (1, 2, 4, 8)
}
POINTERS = {1: "byte ptr", 2: "word ptr", 4: "dword ptr", 8: "qword ptr"}
FIXED = """
mov rax, 0x123456789abcdef0
mov eax, 0xffffffff
mov rax, 0xffffffff
movabs r9, 5
mov rax, [11500]
movzx eax, byte ptr [11500]
lea eax, [rip+0x10]
mov rax, fs:[0x10]
mov gs:[rbx], eax
mov eax, [r9d+8]
mov rax, [rcx*8+100]
mov rax, [rsp+rbp]
push 5
push 500
push qword ptr [rax]
push word ptr [rax+r9]
push r9w
pop bx
pop word ptr [r12]
pushfw
popfw
pop qword ptr [r12]
lock xadd [rax], rcx
lock cmpxchg [rdx], ebx
lock cmpxchg16b [rsi]
cmpxchg8b [rsi]
rep movsb
rep movsq
repne scasb
repe cmpsw
rep stosd
lodsq
movnti [rax], rcx
movups xmm1, [rax]
movaps [rax], xmm9
movdqa xmm1, xmm12
movdqu [rax+r9], xmm3
movntdq [rax], xmm4
movntps [rax], xmm4
movupd xmm1, [rax]
movupd [r9+8], xmm12
movapd [rax], xmm9
movapd xmm1, xmm12
movntpd [rax], xmm4
pxor xmm0, xmm8
xorps xmm1, [rdi]
int 0x80
int3
syscall
sysretq
iretq
mov cr3, rax
mov r9, cr2
in al, dx
in eax, 0x60
out dx, ax
out 0x80, al
ret 16
jmp rax
jmp [rax]
call [rax+8]
call r11
lidt [rax]
invlpg [r13]
clflush [rax]
bswap r9
tzcnt r9, [rax+r8]
lzcnt cx, r9w
popcnt eax, dword ptr [rsi]
shld rax, rbx, 5
shrd dword ptr [rdi], r9d, cl
shld r8w, cx, cl
shrd qword ptr [r12], rdx, 63
bswap eax
xchg eax, r8d
xchg [rax], cl
imul rax, rbx, 5
imul rax, [rbx], 500
imul ecx, edx
shl rax, 1
sar ecx, cl
rol byte ptr [rax], 3
hlt
pause
mfence
lfence
sfence
rdtsc
cpuid
rdmsr
wrmsr
swapgs
leave
pushfq
popfq
cqo
cdqe
cwd
endbr64
"""


def random_line(choose: random.Random) -> str:
    """An instruction of the common forms with random operands."""
    size = choose.choice([1, 2, 4, 8])
    low = [name for name in NAMES[size] if name not in ("ah", "bh", "ch", "dh")]

    def address(sized: bool = True) -> str:
        base, index = choose.choice(NAMES[8]), choose.choice(NAMES[8])
        inner = choose.choice(
            [
                base,
                f"{base}{choose.randrange(-200, 200):+}",
                f"{base}+{index if index != 'rsp' else 'rax'}*{choose.choice([1, 2, 4, 8])}"
                f"{choose.randrange(-100000, 100000):+}",
                str(choose.randrange(1 << 30)),
            ]
        )
        return f"{POINTERS[size] + ' ' if sized else ''}[{inner}]"

    register, other = choose.choice(low), choose.choice(low)
    number = choose.choice([1, -1, 127, 128, -128, -129, choose.getrandbits(min(8 * size, 31))])
    if not -(1 << 8 * size - 1) <= number < 1 << 8 * size:
        number = 1
    rm = choose.choice([other, address()])
    name = choose.choice(["add", "or", "adc", "sbb", "and", "sub", "xor", "cmp", "mov", "test"])
    lines = [
        f"{name} {rm}, {register}",
        f"{name} {rm}, {number}",
        f"{name if name != 'test' else 'mov'} {register}, {address()}",
        f"{choose.choice(['inc', 'dec', 'not', 'neg', 'mul', 'imul', 'div', 'idiv'])} {rm}",
        f"{choose.choice(['shl', 'shr', 'sar', 'rol', 'ror'])} {rm}, {choose.choice([1, 5, 'cl'])}",
        f"{choose.choice(['xadd', 'cmpxchg'])} {rm}, {register}",
        f"set{choose.choice(list(CONDITIONS))} {choose.choice(NAMES[1])}",
    ]
    if size > 1:
        lines += [
            f"{choose.choice(['tzcnt', 'lzcnt', 'popcnt'])} {register}, {rm}",
            f"{choose.choice(['shld', 'shrd'])} {rm}, {register}, {choose.choice([0, 9, 'cl'])}",
            f"{choose.choice(['bt', 'bts', 'btr', 'btc'])} {rm}, "
            f"{choose.choice([register, str(choose.randrange(16))])}",
            f"{choose.choice(['bsf', 'bsr', 'imul'])} {register}, {rm}",
            f"cmov{choose.choice(list(CONDITIONS))} {register}, {rm}",
            f"lea {register}, {address(sized=False)}",
        ]
    if size > 2:
        lines.append(f"{choose.choice(['movzx', 'movsx'])} {register}, {choose.choice(NAMES[2])}")
    return choose.choice(lines)


def is_possible(line: str) -> bool:
    """False for AH beside a register that needs REX; other mistakes fail the test."""
    try:
        Program.assemble(line)
    except AssemblyError as error:
        if "needs REX" in str(error) or "does not fit" in str(error):
            return False
        raise
    return True


def gnu(lines: list[str], folder: Path) -> list[bytes]:
    """What GNU as makes of each line: lines are set apart by a mark that is none of their bytes."""
    source, listing = folder / "a.s", folder / "a.lst"
    source.write_text(".intel_syntax noprefix\n" + "\n".join(lines) + "\n")
    subprocess.run(
        ["as", f"-aln={listing}", "-o", str(folder / "a.o"), str(source)], check=True, timeout=60
    )
    found: dict[int, bytes] = {}
    for row in listing.read_text().splitlines():
        parts = row.split()
        if len(parts) < 2 or not parts[0].isdigit():
            continue
        number = int(parts[0])
        if len(parts[1]) == 4 and len(parts) > 2 and int(parts[0]) not in found:
            found[number] = bytes.fromhex(parts[2])
        elif number in found and len(parts) == 2:
            found[number] += bytes.fromhex(parts[1])
    return [found[number + 2] for number in range(len(lines))]


@pytest.mark.skipif(shutil.which("as") is None, reason="GNU as is missing; apt install binutils")
def test_every_line_is_as_gnu_makes_it(tmp_path: Path) -> None:
    choose = random.Random(17)
    lines = FIXED.strip().splitlines()
    while len(lines) < 3000:
        line = random_line(choose)
        if is_possible(line):
            lines.append(line)
    wrong = [
        f"{line}: {Program.assemble(line).code.hex()}, GNU {theirs.hex()}"
        for line, theirs in zip(lines, gnu(lines, tmp_path), strict=True)
        if Program.assemble(line).code != theirs
    ]
    assert not wrong, "\n".join(wrong[:20])


def test_the_decoder_knows_every_instruction() -> None:
    choose = random.Random(18)
    lines = FIXED.strip().splitlines() + [random_line(choose) for _ in range(1000)]
    for line in filter(is_possible, lines):
        code = Program.assemble(line).code
        assert instruction_length(code) == len(code), line


def test_jumps_are_as_short_as_they_can_be() -> None:
    near = Program.assemble("jmp end\n times 127 nop\nend: hlt")
    assert near.code[:2] == b"\xeb\x7f"
    far = Program.assemble("jmp end\n times 128 nop\nend: hlt")
    assert far.code[:5] == b"\xe9\x80\0\0\0"
    back = Program.assemble("again: times 126 nop\n jnz again")
    assert back.code[126:] == b"\x75\x80"


def test_data_labels_and_expressions() -> None:
    program = Program.assemble(
        """
size equ 4 * 2
start:  mov rcx, size
        jmp .done                 # a local label
.done:  hlt
        align 8
table:  dq start, end - start, 0x10, 1ah, 'A'
        db "text", 0
        dw 0xffff, -1
end:
        org 0x1080
        dd $
""",
        origin=0x1000,
    )
    assert program.labels["start"] == 0x1000
    table = program.labels["table"] - 0x1000
    values = [
        int.from_bytes(program.code[table + 8 * i : table + 8 * i + 8], "little") for i in range(5)
    ]
    assert values == [0x1000, program.labels["end"] - 0x1000, 0x10, 0x1A, 65]
    assert program.code[table + 40 : table + 45] == b"text\0"
    assert program.code[-4:] == (0x1080).to_bytes(4, "little")
    assert program.lines[0x1000] == "start:  mov rcx, size"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mov rax", "line 1: 'mov rax': it takes a register or address, and a register, address"),
        ("nop\nfoo rax", "line 2: 'foo rax': there is no instruction 'foo' in the subset"),
        ("jmp nowhere", "there is no label or register 'nowhere'"),
        ("mov eax, rbx", "the operands have different sizes"),
        ("mov [rax], 5", "say the size: byte, word, dword or qword ptr"),
        ("mov al, 300", "300 does not fit 1 bytes"),
        ("mov [rax], [rbx]", "at most one address"),
        ("mov ah, r8b", "cannot be used beside a register that needs REX"),
        ("mov rax, [rbx+rcx*3]", "multiplied by 1, 2, 4 or 8, not by 3"),
        ("mov rax, [rsp*2]", "RSP can be no index"),
        ("mov rax, [ax]", "ax can be no part of an address"),
        ("mov rax, [eax+rbx]", "base and index of an address have one size"),
        ("a: nop\na: nop", "the label 'a' stands twice"),
        ("mov rax, 1 +", "is no number, label, or sum of them"),
        ("mov rax, __import__('os')", "is no number, label, or sum of them"),
        ("dq 5 / 0", "divides by 0"),
        ("dq 1 << 64", "a shift is by 0 to 63"),
        ("dq 1 >> -1", "a shift is by 0 to 63"),
        ("org 0x10\norg 5", "is before 0x10"),
        ("align 3", "a power of two"),
        ("org 0xfffffff0", "at most 16 MiB"),
        ("loop far\n times 200 nop\nfar: nop", "bytes away: at most 127 are possible"),
        ("mov rax, [0x1234567890]", "needs a register"),
        ("push eax", "a register of 8 bytes or of 2"),
        ("pop dword ptr [rax]", "a register of 8 bytes or of 2"),
        ("push byte ptr [rax]", "a register of 8 bytes or of 2"),
        ("times 9999999 nop", "up to 1,048,576"),
        ("lock", "a prefix stands before an instruction"),
        ("movdqa rax, xmm1", "an XMM register, and another or an address"),
    ],
)
def test_mistakes_say_what_to_do(text: str, message: str) -> None:
    with pytest.raises(AssemblyError) as caught:
        Program.assemble(text)
    assert message in str(caught.value)
