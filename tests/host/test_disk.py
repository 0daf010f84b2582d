# SPDX-License-Identifier: Apache-2.0
"""What a disk does with commands and registers that a driver writes at an unusual time."""

from __future__ import annotations

import pytest

from verbena.host import Computer, Core, Disk, Program, Ram

CONTENT = bytes(range(256)) * 4
REGISTERS = """
    mov rbx, 0x100000
    mov qword ptr [rbx+0x10], 1
    mov qword ptr [rbx+0x18], 0x4000
    mov qword ptr [rbx], 2
"""
WAIT = """
poll: mov rax, [rbx+0x20]
    cmp rax, 1
    je poll
    hlt
"""


def ran(text: str, block: int = 512) -> tuple[Computer, Core]:
    computer = Computer()
    computer.map(Ram(1 << 16), 0)
    computer.map(Disk(CONTENT, block=block), 0x100000)
    computer.load(Program.assemble(text))
    computer.run()
    return computer, computer.cores[0]


def test_a_command_has_the_address_that_was_there_when_it_began() -> None:
    computer, _ = ran(REGISTERS + "mov qword ptr [rbx+0x18], 0x8000" + WAIT)
    assert computer.read(0x4000, 512) == CONTENT[:512]
    assert computer.read(0x8000, 512) == bytes(512)


def test_a_command_while_another_one_runs_is_an_error_and_does_not_end_it() -> None:
    again = """
    mov qword ptr [rbx+0x08], 1
    mov qword ptr [rbx+0x18], 0x8000
    mov qword ptr [rbx], 2
    mov r8, [rbx+0x20]
    mov r9, [rbx+0x20]
    mov qword ptr [rbx], 2
    mov r10, [rbx+0x20]
    """
    computer, core = ran(REGISTERS + again + WAIT)
    registers = core.registers
    assert (registers.r8, registers.r9, registers.r10, registers.rax) == (4, 1, 4, 3)
    assert computer.read(0x4000, 512) == CONTENT[:512]
    assert computer.read(0x8000, 512) == bytes(512)


@pytest.mark.parametrize("words", [1, 2])
def test_the_last_word_of_the_buffer_ends_a_read_by_programmed_io(words: int) -> None:
    loads = "".join(f"mov r8, [rbx+{0x1000 + 8 * at}]\n" for at in range(words))
    text = REGISTERS.replace("mov qword ptr [rbx], 2", "mov qword ptr [rbx], 1")
    _, core = ran(text + WAIT.replace("hlt", loads + "mov r9, [rbx+0x20]\n hlt"), 8 * words)
    assert core.registers.rax == 2
    assert core.registers.r8 == int.from_bytes(CONTENT[8 * words - 8 : 8 * words], "little")
    assert core.registers.r9 == 0
