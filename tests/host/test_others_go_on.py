# SPDX-License-Identifier: Apache-2.0
"""After an error of one program or device the rest of the world goes on."""

from __future__ import annotations

import pytest

from verbena.host import (
    Computer,
    Disk,
    HostError,
    Machines,
    Pcie,
    ProcessorError,
    Program,
    Ram,
    Stop,
)

LOOP = "mov ecx, 100000\nagain: dec ecx\n jnz again\n hlt"


def test_a_core_that_is_shut_down_after_its_fault_stops_no_other() -> None:
    computer = Computer(cores=2)
    computer.map(Ram(1 << 16), 0)
    computer.load(Program.assemble(LOOP, 0x1000))
    computer.load(Program.assemble("ud2", 0x2000), core=1)
    for _ in range(2):
        with pytest.raises(ProcessorError, match=r"at 0x2000: ud2: invalid opcode") as caught:
            computer.run()
    assert caught.value.core is not None
    assert caught.value.core is computer.cores[1]
    caught.value.core.shut_down()
    assert computer.run() is Stop.HALT
    assert computer.cores[0].registers.rcx == 0
    computer.load(Program.assemble("mov eax, 7\n hlt", 0x3000), core=1)
    assert computer.run() is Stop.HALT
    assert computer.cores[1].registers.rax == 7


def test_a_computer_whose_core_is_shut_down_stops_no_other() -> None:
    machines = Machines()
    left, right = machines.computer("left"), machines.computer("right")
    for computer, text in ((left, LOOP), (right, "mov rax, [0x90000]")):
        computer.map(Ram(1 << 16), 0)
        computer.load(Program.assemble(text, 0x1000))
    with pytest.raises(ProcessorError, match="computer 'right', core 0: at 0x1000") as caught:
        machines.run()
    assert caught.value.core is not None
    assert caught.value.core is right.cores[0]
    caught.value.core.shut_down()
    assert machines.run() is Stop.HALT
    assert left.cores[0].registers.rcx == 0


def test_dma_to_no_memory_is_named_and_a_further_run_goes_on() -> None:
    machines = Machines()
    left, right = machines.computer("left"), machines.computer("right")
    for computer in (left, right):
        computer.map(Ram(1 << 16), 0)
        computer.load(Program.assemble(LOOP, 0x1000))
    left.map(Disk(bytes(512)), 0x100000, pcie=Pcie())
    for register, value in ((0x10, 1), (0x18, 0x900000), (0, 2)):
        left.store(0x100000 + register, value.to_bytes(8, "little"))
    with pytest.raises(HostError, match="wrote 512 bytes by DMA to 0x900000, where there is no"):
        machines.run()
    assert machines.run() is Stop.HALT
    assert [one.cores[0].registers.rcx for one in (left, right)] == [0, 0]
