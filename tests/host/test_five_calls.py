# SPDX-License-Identifier: Apache-2.0
"""The page's device in at most twenty lines: read, write, peek, DMA and an interrupt."""

from __future__ import annotations

import re
from typing import Any

from tests.support import ROOT
from verbena.host import Computer, Device, Pcie, Program, Ram, Stop


def block_of_the_page() -> str:
    page = (ROOT / "docs" / "computer.md").read_text()
    (block,) = re.findall(
        r'```python title="adder.py"\n.*?\n(class Adder\(Device\):.*?)```', page, re.S
    )
    return str(block)


def names() -> dict[str, Any]:
    """What the block of the page defines, without running its computer."""
    source = block_of_the_page().partition("computer = Computer()")[0]
    found: dict[str, Any] = {"Device": Device}
    exec(source, found)
    return found


def loaded() -> tuple[Computer, Any, Program]:
    found = names()
    computer = Computer()
    computer.map(Ram(65536), 0)
    adder = found["Adder"](8)
    computer.map(adder, 0x100000, pcie=Pcie())
    program = Program.assemble(found["PROGRAM"], origin=0x1000)
    computer.load(program)
    computer.write(0x4000, bytes(range(1, 9)))
    return computer, adder, program


def test_it_has_at_most_twenty_lines() -> None:
    lines = block_of_the_page().partition("\n\n\n")[0].splitlines()
    assert lines[0] == "class Adder(Device):"
    assert len(lines) <= 20


def test_a_write_begins_dma_whose_end_is_an_interrupt_and_a_read_takes_the_sum() -> None:
    computer, _, _ = loaded()
    seen: list[tuple[str, int, int]] = []
    computer.memory_observers.append(lambda what, address, size: seen.append((what, address, size)))
    accesses: list[tuple[bool, int]] = []
    computer.observers.append(lambda one: accesses.append((one.write, one.value)))
    assert computer.run() is Stop.HALT
    assert accesses == [(True, 0x4000), (False, 36), (False, 0)]
    assert [what for what, *_ in seen][-1] == "MSI"
    assert ("MSI", 40, 0) in seen
    assert any(address == 0x4000 and size == 8 for _, address, size in seen)
    assert computer.counters.dma_read_bytes == 8
    assert computer.counters.interrupts_sent == 1
    registers = computer.cores[0].registers
    assert (registers.rax, registers.rcx) == (36, 0)


def test_peek_has_no_effect() -> None:
    computer, adder, program = loaded()
    computer.cores[0].break_at(program.labels["take"])
    assert computer.run() is Stop.MARK
    before = (adder.total, computer.now, computer.counters.loads)
    assert [adder.peek(0, 8) for _ in range(3)] == [36, 36, 36]
    after = (adder.total, computer.now, computer.counters.loads)
    assert before == after
    assert computer.run() is Stop.HALT
    assert computer.cores[0].registers.rax == 36
    assert adder.peek(0, 8) == 0
