# SPDX-License-Identifier: Apache-2.0
"""Programs that GNU as and nasm assemble run on the simulated processor."""

from __future__ import annotations

import shutil
import subprocess
import zlib
from pathlib import Path

import pytest

from verbena.host import Computer, Program, Ram, Stop

ORIGIN, RESULT, TEXT = 0x10000, 0x20000, b"the five boxing wizards jump quickly"

# CRC-32 of the text, the number of its spaces, and its reversal behind RESULT + 64.
BODY = """
    mov rsp, 0x80000
    {rel_rsi}
    mov ecx, {length}
    call checksum
    mov [0x20000], rax
    {rel_rdi}
    mov ecx, {length}
    xor edx, edx
    mov al, 32
next_space:
    scasb
    sete bl
    movzx ebx, bl
    add rdx, rbx
    loop next_space
    mov [0x20008], rdx
    {rel_rsi}
    mov edi, 0x20040 + {length} - 1
    mov ecx, {length}
next_byte:
    lodsb
    mov [rdi], al
    dec rdi
    sub ecx, 1
    jnz next_byte
    hlt

checksum:
    push rbx
    mov eax, 0xffffffff
next:
    movzx ebx, byte {ptr} [rsi]
    inc rsi
    xor eax, ebx
    mov edx, 8
bit:
    shr eax, 1
    jnc even
    xor eax, 0xedb88320
even:
    dec edx
    jnz bit
    dec rcx
    jnz next
    not eax
    pop rbx
    ret
"""


def with_as(folder: Path) -> bytes:
    head = f".intel_syntax noprefix\n.code64\n.set length, {len(TEXT)}\n"
    body = BODY.format(
        rel_rsi="lea rsi, [rip+text]", rel_rdi="lea rdi, [rip+text]", length="length", ptr="ptr"
    )
    (folder / "a.s").write_text(f'{head}{body}text: .ascii "{TEXT.decode()}"\n')
    run(folder, "as", "-o", "a.o", "a.s")
    run(folder, "objcopy", "-O", "binary", "-j", ".text", "a.o", "a.bin")
    return (folder / "a.bin").read_bytes()


def with_nasm(folder: Path) -> bytes:
    head = f"bits 64\norg {ORIGIN:#x}\nlength equ {len(TEXT)}\n"
    body = BODY.format(
        rel_rsi="lea rsi, [rel text]", rel_rdi="lea rdi, [rel text]", length="length", ptr=""
    )
    (folder / "a.asm").write_text(f'{head}{body}text: db "{TEXT.decode()}"\n')
    run(folder, "nasm", "-f", "bin", "-o", "a.bin", "a.asm")
    return (folder / "a.bin").read_bytes()


def with_verbena(folder: Path) -> bytes:
    body = BODY.format(
        rel_rsi="lea rsi, [text]", rel_rdi="lea rdi, [text]", length=len(TEXT), ptr="ptr"
    )
    return Program.assemble(f'{body}text: db "{TEXT.decode()}"\n', ORIGIN).code


def run(folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def check_results(code: bytes) -> None:
    """Runs the program and compares what it has left in memory."""
    computer = Computer()
    computer.map(Ram(1 << 20), 0)
    computer.load(Program(code, ORIGIN))
    assert computer.run(instructions=100_000) is Stop.HALT
    assert int.from_bytes(computer.read(RESULT, 8), "little") == zlib.crc32(TEXT)
    assert int.from_bytes(computer.read(RESULT + 8, 8), "little") == TEXT.count(b" ")
    assert computer.read(RESULT + 64, len(TEXT)) == TEXT[::-1]


@pytest.mark.skipif(
    shutil.which("as") is None or shutil.which("objcopy") is None,
    reason="no GNU as is installed; apt-get install binutils brings it",
)
def test_a_program_of_gnu_as_runs(tmp_path: Path) -> None:
    check_results(with_as(tmp_path))


@pytest.mark.skipif(
    shutil.which("nasm") is None, reason="no nasm is installed; apt-get install nasm brings it"
)
def test_a_program_of_nasm_runs(tmp_path: Path) -> None:
    check_results(with_nasm(tmp_path))


def test_the_same_program_of_verbena_s_assembler_runs(tmp_path: Path) -> None:
    check_results(with_verbena(tmp_path))
