# SPDX-License-Identifier: Apache-2.0
"""Breakpoints where an interrupt ends HLT, and in its handler."""

from __future__ import annotations

import pytest

from verbena.host import Computer, Device, Program, Ram, Stop

TEXT = """
    mov  rsp, 0x8000
    lidt [table]
    mov  qword ptr [0x100000], 5000   ; an interrupt, in so many ps
    sti
    hlt
behind:
    inc  ecx
    cli
    hlt
handler:
    inc  eax
    iretq
    align 16
idt:
    times 40 dq 0, 0
    dq (handler & 0xffff) | (8 << 16) | (0x8e << 40) | ((handler >> 16) << 48), 0
table:
    dw 41 * 16 - 1
    dq idt
"""


class Bell(Device):
    def write(self, offset: int, size: int, value: int) -> None:
        self.at(self.now + value, lambda: self.interrupt(40))


def loaded(*labels: str, cores: int = 1) -> tuple[Computer, Program]:
    computer = Computer(cores=cores)
    computer.map(Ram(1 << 16), 0)
    computer.map(Bell(8), 0x100000)
    program = Program.assemble(TEXT, 0x1000)
    computer.load(program)
    for label in labels:
        computer.cores[0].break_at(program.labels[label])
    return computer, program


@pytest.mark.parametrize("cores", [1, 2])
def test_each_is_reached_once_in_order(cores: int) -> None:
    computer, program = loaded("handler", "behind", cores=cores)
    core = computer.cores[0]
    reached = []
    while computer.run() is Stop.MARK:
        reached.append((core.rip, core.registers.rax, core.registers.rcx))
    assert reached == [(program.labels["handler"], 0, 0), (program.labels["behind"], 1, 0)]
    assert (core.registers.rax, core.registers.rcx) == (1, 1)


def test_a_core_that_has_halted_is_at_no_breakpoint() -> None:
    computer, _ = loaded("behind")
    assert computer.run(until=4000) is Stop.TIME
    assert computer.run() is Stop.MARK
    assert computer.cores[0].registers.rax == 1


def test_one_at_an_instruction_that_an_interrupt_precedes_is_reached_after_the_handler() -> None:
    """The run begins at the breakpoint, and the handler comes first."""
    computer, program = loaded("behind")
    assert computer.run() is Stop.MARK
    core = computer.cores[0]
    core.break_at(program.labels["handler"])
    core.state.interrupt(40)
    assert computer.run() is Stop.MARK
    assert core.rip == program.labels["handler"]
    assert computer.run() is Stop.MARK
    assert (core.rip, core.registers.rcx) == (program.labels["behind"], 0)
    assert computer.run() is Stop.HALT
