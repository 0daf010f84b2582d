# SPDX-License-Identifier: Apache-2.0
"""The textbook's computer, whose ranges have odd sizes: loads from its mouse, and how it prints."""

from __future__ import annotations

import pytest

from verbena.host import Computer, Keyboard, Mouse, Program, Ram, Stop


def textbook() -> tuple[Computer, Mouse]:
    computer, mouse = Computer(), Mouse(500)
    computer.map(Ram(10_000), 0)
    computer.map(Keyboard(2_000), 10_000)
    computer.map(mouse, 12_000)
    return computer, mouse


@pytest.mark.parametrize(
    ("load", "value"),
    [
        ("mov rax, [12000]", 300 | 200 << 16 | 5 << 32),
        ("movzx eax, word ptr [12000]", 300),
        ("movzx eax, word ptr [12002]", 200),
        ("movzx eax, byte ptr [12004]", 5),
        ("movzx eax, byte ptr [12499]", 0),
    ],
)
def test_a_load_from_the_range_of_the_mouse_has_its_data(load: str, value: int) -> None:
    computer, mouse = textbook()
    mouse.move(x=300, y=200, buttons=5)
    computer.load(Program.assemble(f"{load}\n hlt"))
    assert computer.run() is Stop.HALT
    assert computer.cores[0].registers.rax == value


def test_the_address_space_prints_its_table() -> None:
    computer, _ = textbook()
    assert str(computer.memory).split("\n") == [
        "   0x0 to 0x270f  10,000 bytes  Ram",
        "0x2710 to 0x2edf   2,000 bytes  Keyboard",
        "0x2ee0 to 0x30d3     500 bytes  Mouse",
    ]
    computer.unmap(10_000)
    assert "Keyboard" not in str(computer.memory)
    assert str(Computer().memory) == "no range is mapped"


def test_registers_print_all_values() -> None:
    computer, _ = textbook()
    computer.load(Program.assemble("mov r15, 0x123456789\n hlt"))
    computer.run()
    core = computer.cores[0]
    text = str(core.registers)
    assert "r15   0x0000000123456789" in text
    words = text.split()
    printed = {name: int(value, 16) for name, value in zip(words[::2], words[1::2], strict=True)}
    assert printed == {**core.registers.all(), "rip": core.registers.rip}
