# SPDX-License-Identifier: Apache-2.0
"""An instruction of x86-64 that the processor's subset lacks is named, with its own bytes only."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from verbena.host import Computer, ProcessorError, Program, Ram
from verbena.host.kernel import System
from verbena.host.kernel.layout import USER_BASE
from verbena.host.other_instructions import other_instruction

# What GNU as makes of a line, and the part of x86-64 that the error says.
TABLE = """
addps xmm0, xmm1                    | 0f 58 c1                      | SSE
addpd xmm3, [rax+rcx*4+0x12345678]  | 66 0f 58 9c 88 78 56 34 12    | SSE
mulsd xmm8, [rsp+8]                 | f2 44 0f 59 44 24 08          | SSE
divss xmm1, xmm2                    | f3 0f 5e ca                   | SSE
cvtsi2sd xmm0, rax                  | f2 48 0f 2a c0                | SSE
cvttsd2si rax, xmm0                 | f2 48 0f 2c c0                | SSE
ucomisd xmm0, [rip+0x100]           | 66 0f 2e 05 00 01 00 00       | SSE
shufps xmm0, xmm1, 0x1b             | 0f c6 c1 1b                   | SSE
movss xmm0, [rax]                   | f3 0f 10 00                   | SSE
movd xmm0, eax                      | 66 0f 6e c0                   | SSE
movq xmm0, rax                      | 66 48 0f 6e c0                | SSE
movhlps xmm0, xmm1                  | 0f 12 c1                      | SSE
paddb xmm0, xmm1                    | 66 0f fc c1                   | SSE
pshufd xmm1, xmm2, 0x4e             | 66 0f 70 ca 4e                | SSE
psrldq xmm5, 4                      | 66 0f 73 dd 04                | SSE
haddpd xmm0, xmm1                   | 66 0f 7c c1                   | SSE
pshufb xmm0, [rbx]                  | 66 0f 38 00 03                | SSE
pmulld xmm1, xmm2                   | 66 0f 38 40 ca                | SSE
ptest xmm0, xmm1                    | 66 0f 38 17 c1                | SSE
pblendvb xmm0, xmm1                 | 66 0f 38 10 c1                | SSE
roundsd xmm0, xmm1, 1               | 66 0f 3a 0b c1 01             | SSE
palignr xmm0, xmm1, 7               | 66 0f 3a 0f c1 07             | SSE
pcmpistri xmm0, xmm1, 0x18          | 66 0f 3a 63 c1 18             | SSE
pextrq rax, xmm0, 1                 | 66 48 0f 3a 16 c0 01          | SSE
aesenc xmm0, xmm1                   | 66 0f 38 dc c1                | SSE
aeskeygenassist xmm0, xmm1, 1       | 66 0f 3a df c1 01             | SSE
pclmulqdq xmm0, xmm1, 0             | 66 0f 3a 44 c1 00             | SSE
sha256rnds2 xmm1, xmm2              | 0f 38 cb ca                   | SSE
paddb mm0, mm1                      | 0f fc c1                      | MMX
emms                                | 0f 77                         | MMX
fld1                                | d9 e8                         | x87
fld qword ptr [rax]                 | dd 00                         | x87
fstp tbyte ptr [rsp+0x80]           | db bc 24 80 00 00 00          | x87
fadd st, st(3)                      | d8 c3                         | x87
fcos                                | d9 ff                         | x87
fnstcw [rsp]                        | d9 3c 24                      | x87
vaddps ymm0, ymm1, ymm2             | c5 f4 58 c2                   | AVX
vaddsd xmm1, xmm2, [rax+0x10]       | c5 eb 58 48 10                | AVX
vmovups ymm0, [rdi+rcx*8]           | c5 fc 10 04 cf                | AVX
vzeroupper                          | c5 f8 77                      | AVX
vzeroall                            | c5 fc 77                      | AVX
vpermq ymm0, ymm1, 0x4e             | c4 e3 fd 00 c1 4e             | AVX
vfmadd231pd ymm0, ymm1, ymm2        | c4 e2 f5 b8 c2                | AVX
vbroadcastss ymm0, [rax]            | c4 e2 7d 18 00                | AVX
vpshufb xmm0, xmm1, xmm2            | c4 e2 71 00 c2                | AVX
vinsertf128 ymm0, ymm1, xmm2, 1     | c4 e3 75 18 c2 01             | AVX
andn eax, ebx, ecx                  | c4 e2 60 f2 c1                | BMI
pext rax, rbx, rcx                  | c4 e2 e2 f5 c1                | BMI
mulx rax, rbx, rcx                  | c4 e2 e3 f6 c1                | BMI
shlx eax, ebx, ecx                  | c4 e2 71 f7 c3                | BMI
blsr eax, ebx                       | c4 e2 78 f3 cb                | BMI
rorx eax, ebx, 5                    | c4 e3 7b f0 c3 05             | BMI
vaddpd zmm0, zmm1, zmm2             | 62 f1 f5 48 58 c2             | AVX-512
vmulps zmm0, zmm1, [rax+0x40]       | 62 f1 74 48 59 40 01          | AVX-512
kandw k1, k2, k3                    | c5 ec 41 cb                   | AVX-512
rcl eax, 1                          | d1 d0                         | general
rcr qword ptr [rax+8], 3            | 48 c1 58 08 03                | general
rcl bl, cl                          | d2 d3                         | general
enter 16, 0                         | c8 10 00 00                   | general
xlatb                               | d7                            | general
sahf                                | 9e                            | general
lahf                                | 9f                            | general
insb                                | 6c                            | general
fwait                               | 9b                            | general
retf                                | cb                            | general
mov ax, ds                          | 66 8c d8                      | general
mov ds, eax                         | 8e d8                         | general
call far ptr [rax]                  | ff 18                         | general
movabs al, [0x1122334455667788]     | a0 88 77 66 55 44 33 22 11    | general
xbegin .+6                          | c7 f8 00 00 00 00             | general
sgdt [rax]                          | 0f 01 00                      | system
smsw ax                             | 66 0f 01 e0                   | system
lgdt [rbx]                          | 0f 01 13                      | system
rdtscp                              | 0f 01 f9                      | system
xgetbv                              | 0f 01 d0                      | system
monitor                             | 0f 01 c8                      | system
vmcall                              | 0f 01 c1                      | system
stac                                | 0f 01 cb                      | system
wbinvd                              | 0f 09                         | system
clts                                | 0f 06                         | system
rdpmc                               | 0f 33                         | system
sysenter                            | 0f 34                         | system
mov rax, dr7                        | 0f 21 f8                      | system
rdrand eax                          | 0f c7 f0                      | system
rdseed rax                          | 48 0f c7 f8                   | system
rdpid rax                           | f3 0f c7 f8                   | system
fxsave [rax]                        | 0f ae 00                      | system
ldmxcsr [rax]                       | 0f ae 10                      | system
clwb [rax]                          | 66 0f ae 30                   | system
xsavec [rax]                        | 0f c7 20                      | system
rdfsbase rax                        | f3 48 0f ae c0                | system
lsl eax, ebx                        | 0f 03 c3                      | system
push fs                             | 0f a0                         | system
movbe eax, [rbx]                    | 0f 38 f0 03                   | extended
crc32 eax, bl                       | f2 0f 38 f0 c3                | extended
adcx eax, ebx                       | 66 0f 38 f6 c3                | extended
ud2                                 | 0f 0b                         | invalid on every
"""
ROWS = [[part.strip() for part in line.split("|")] for line in TABLE.strip().split("\n")]
BEHIND = bytes.fromhex("f4 00 90 48 89 c3")
NAMES = {"movabs": "mov"}


def name_of(text: str) -> str:
    """The mnemonic, as Intel's manual has it."""
    name = text.split()[0]
    return NAMES.get(name, name)


def fault_of(code: bytes) -> str:
    computer = Computer()
    computer.map(Ram(1 << 16), 0)
    computer.load(Program(code + BEHIND, 0x1000))
    with pytest.raises(ProcessorError) as caught:
        computer.run()
    return str(caught.value)


def test_there_are_many_encodings() -> None:
    assert len(ROWS) >= 90


@pytest.mark.parametrize(("text", "code", "kind"), ROWS)
def test_the_error_names_the_instruction_with_its_own_bytes(
    text: str, code: str, kind: str
) -> None:
    name = name_of(text)
    error = fault_of(bytes.fromhex(code))
    assert error.startswith(f"at 0x1000: {name} ({code}): invalid opcode (#UD): "), error
    assert f"the instruction is not one of the subset: {name}, " in error
    assert f" {kind} " in error


@pytest.mark.skipif(
    shutil.which("as") is None, reason="no GNU as is installed; apt-get install binutils brings it"
)
def test_the_bytes_are_those_of_gnu_as(tmp_path: Path) -> None:
    lines = "\n".join(text for text, *_ in ROWS)
    (tmp_path / "all.s").write_text(f".intel_syntax noprefix\n{lines}\n")
    done = subprocess.run(
        ["as", "-o", "all.o", "all.s"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    subprocess.run(["objcopy", "-O", "binary", "-j", ".text", "all.o", "all"], cwd=tmp_path,
                   check=True)  # fmt: skip
    assert (tmp_path / "all").read_bytes() == b"".join(bytes.fromhex(row[1]) for row in ROWS)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("f0 01 d8", "lock (f0 01 d8): invalid opcode (#UD): the instruction is not one of the "
         "subset: lock, a prefix that this instruction cannot have"),
        ("06", "byte 0x06 (06): invalid opcode (#UD): the instruction is not one of the subset: "
         "byte 0x06, which is no instruction in 64-bit mode"),
        ("62 f1 7d 48 ef c1", "opcode 0F EF of EVEX (62 f1 7d 48 ef c1): invalid opcode (#UD)"),
        ("0f 04 c0", "0f 04 c0 f4 00 90 48 89 c3"),
    ],
)  # fmt: skip
def test_what_is_no_instruction_is_said_to_be_none(code: str, says: str) -> None:
    assert f"at 0x1000: {says}" in fault_of(bytes.fromhex(code))


def test_an_instruction_that_is_cut_off_or_of_the_subset_is_no_other() -> None:
    assert other_instruction(b"\x0f\x58") is None
    assert other_instruction(b"\xf2") is None
    assert other_instruction(b"\x90") is None


def test_a_process_s_error_names_it() -> None:
    code = bytes.fromhex("0f 58 c1")
    [process] = System().run(Program(code + BEHIND, USER_BASE))
    assert process.report is not None
    assert process.report.endswith(
        "at 0x40000000: addps (0f 58 c1): invalid opcode (#UD): the instruction is not one of the "
        "subset: addps, an SSE instruction"
    )


def test_a_line_of_assembly_is_shown_beside_the_name() -> None:
    computer = Computer()
    computer.map(Ram(1 << 16), 0)
    computer.load(Program.assemble("db 0x0f, 0x58, 0xc1 ; a sum", 0x1000))
    with pytest.raises(ProcessorError, match=r"db 0x0f.*subset: addps, an SSE instruction"):
        computer.run()
