# SPDX-License-Identifier: Apache-2.0
"""What compilers make of ordinary C, and what GNU as makes, runs on the simulated processor.

C is compiled with ``-mgeneral-regs-only``: the processor has no arithmetic on XMM registers.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from tests.support import ROOT
from verbena.host import Computer, Program, Ram, Stop

ORIGIN, STACK = 0x10000, 0x80000
INPUT, SEVEN = 12345678901234567, 7
FLAGS = (
    "-mgeneral-regs-only -ffreestanding -fno-stack-protector -fno-pic -mcmodel=small -nostdlib "
    f"-static -Wl,-Ttext={ORIGIN:#x},--build-id=none,-estart,-N,--no-warnings"
).split()


def expected() -> dict[int, int]:
    """``results`` by number, from the text of compiled.c."""
    product, numbers = INPUT * (INPUT + 3), [i * 7919 % 31 - 15 for i in range(20)]
    low = INPUT & 0xFFFF
    short = low - (1 << 16) if low >> 15 else low
    half = INPUT & 0xFFFFFFFF
    whole = half - (1 << 32) if half >> 31 else half
    values = {
        0: zlib.crc32(b"123456789"),
        1: min(numbers),
        2: max(numbers),
        3: 144,
        4: len(str(INPUT)),
        5: product,
        6: product >> 64,
        7: product << SEVEN,
        8: product << SEVEN >> 64,
        9: product >> SEVEN,
        10: INPUT + 19,
        11: 4,
        12: 64 - INPUT.bit_length(),
        13: int.from_bytes(INPUT.to_bytes(8, "little"), "big"),
        14: INPUT << SEVEN | INPUT >> (64 - SEVEN),
        15: -(INPUT // SEVEN),
        16: INPUT % SEVEN,
        17: short + whole * 3 + (INPUT & 0xFF),
        18: 88,
        19: INPUT % 1000003,
        20: 7,
        21: 1,
        22: 99,
        23: 1,
        24: 6,
    }
    return {number: value & (1 << 64) - 1 for number, value in values.items()}


def image(compiler: str, options: list[str], folder: Path) -> tuple[bytes, dict[str, int]]:
    """The bytes from ``ORIGIN`` on, and the symbols."""
    program, flat = folder / "compiled", folder / "compiled.bin"
    source = ROOT / "tests" / "host" / "compiled.c"
    command = [compiler, *options, *FLAGS, "-o", str(program), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    subprocess.run(["objcopy", "-O", "binary", program, flat], check=True)
    symbols = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    words = [line.split() for line in symbols.splitlines()]
    return flat.read_bytes(), {one[2]: int(one[0], 16) for one in words if len(one) == 3}


def compilers() -> list[str]:
    """Those of this machine that make code of x86-64."""
    found = []
    for name in ("gcc", "clang"):
        if shutil.which(name) is None or shutil.which("objcopy") is None:
            continue
        target = subprocess.run([name, "-dumpmachine"], capture_output=True, text=True, check=True)
        if target.stdout.startswith("x86_64"):
            found.append(name)
    return found


@pytest.mark.skipif(
    not compilers(), reason="no compiler for x86-64 is installed; apt-get install gcc brings it"
)
@pytest.mark.parametrize("options", ["-O0", "-Os", "-O2", "-O3 -mpopcnt -mlzcnt"])
def test_what_compilers_make_of_c(options: str, tmp_path: Path) -> None:
    for compiler in compilers():
        code, symbols = image(compiler, options.split(), tmp_path)
        computer = Computer()
        computer.map(Ram(1 << 20), 0)
        computer.write(ORIGIN, code)
        call = f"mov rsp, {STACK}\n mov rax, {symbols['start']}\n call rax\n hlt"
        computer.load(Program.assemble(call, 0x1000))
        assert computer.run(instructions=1_000_000) is Stop.HALT
        wanted = expected()
        found = struct.unpack("<32Q", computer.read(symbols["results"], 256))
        assert {number: found[number] for number in wanted} == wanted, compiler
        text = computer.read(symbols["text"], len(str(INPUT)))
        assert text.decode() == str(INPUT), compiler


@pytest.mark.parametrize(
    ("text", "value", "carry", "zero"),
    [
        ("tzcnt rax, rbx", 64, True, False),
        ("lzcnt ax, bx", 16, True, False),
        ("popcnt eax, ebx", 0, False, True),
        ("bsf rax, rbx", 99, None, True),
    ],
)
def test_counts_of_a_word_without_bits(
    text: str, value: int, carry: bool | None, zero: bool
) -> None:
    """SDM volume 2: TZCNT and LZCNT give the operand's bits and CF, BSF keeps its destination."""
    computer = Computer()
    computer.map(Ram(1 << 20), 0)
    program = f"mov eax, 99\n xor ebx, ebx\n {text}\n setc cl\n setz dl\n hlt"
    computer.load(Program.assemble(program, 0x1000))
    computer.run()
    registers = computer.cores[0].registers
    assert registers.rax == value
    assert registers.rdx & 1 == zero
    assert carry is None or registers.rcx & 1 == carry


@pytest.mark.skipif(
    "gcc" not in compilers(), reason="no gcc for x86-64 is installed; apt-get install gcc brings it"
)
@pytest.mark.parametrize("compiler", compilers())
def test_the_commands_of_the_page_make_a_program(compiler: str, tmp_path: Path) -> None:
    """Also with clang, without the two options that the page names; zeros are zeros."""
    page = (ROOT / "docs" / "computer.md").read_text()
    (source,) = re.findall(r'```c title="sum.c"\n(.*?)```', page, re.S)
    (commands,) = re.findall(r"```shell\n(gcc .*?)```", page, re.S)
    (calls,) = re.findall(r'CALL = "(.*?)"', page)
    zeros = "static volatile long zeros[9];\n" + source.replace("= sum", "= zeros[8] + sum")
    assert "+ sum(1000)" in zeros
    (tmp_path / "sum.c").write_text(zeros)
    if compiler == "clang":
        commands = commands.replace("gcc", compiler).replace(" -fno-toplevel-reorder", "")
        commands = commands.replace(" -fno-reorder-functions", "")
    done = subprocess.run(
        ["sh", "-ec", commands], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    code = (tmp_path / "sum.bin").read_bytes()
    assert len(code) < 1000
    computer = Computer()
    computer.map(Ram(1 << 20), 0)
    computer.write(ORIGIN, b"\xff" * 4096)
    computer.write(ORIGIN, code)
    computer.load(Program.assemble(calls.replace("\\n", "\n"), 0x1000))
    assert computer.run(instructions=1_000_000) is Stop.HALT
    assert int.from_bytes(computer.read(0x20000, 8), "little") == 500_500
