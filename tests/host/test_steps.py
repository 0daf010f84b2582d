# SPDX-License-Identifier: Apache-2.0
"""``Computer.steps`` with several cores: one runs, devices go on, and the others stand still."""

from __future__ import annotations

from itertools import islice, pairwise

from verbena.host import Computer, Disk, Pcie, Program, Ram, Stop

COUNT = "again: inc qword ptr [{:#x}]\ncmp qword ptr [0x8000], 3\njne again\nhlt"
DISK = 0x100000
READ = f"""
    mov rbx, {DISK:#x}
    mov qword ptr [rbx+0x10], 1
    mov qword ptr [rbx+0x18], 0x9000
    mov qword ptr [rbx], 2
wait: cmp qword ptr [0x9000], 0
    je wait
    hlt
"""


def counting(text: str = COUNT.format(0x8000)) -> Computer:
    """Core 1 waits for a word that a program of core 0 may count up."""
    computer = Computer(cores=2)
    computer.map(Ram(1 << 16), 0)
    computer.load(Program.assemble(text, 0x1000))
    computer.load(Program.assemble("wait: cmp qword ptr [0x8000], 2\njb wait\nhlt", 0x2000), core=1)
    return computer


def test_other_cores_stand_still_while_one_is_stepped() -> None:
    computer = counting()
    other = computer.cores[1]
    steps = list(computer.steps())
    assert len(steps) == 10
    assert all(b.at > a.at for a, b in pairwise(steps))
    assert (other.rip, other.state.instructions, other.state.cycles) == (0x2000, 0, 0)
    assert computer.run() is Stop.HALT  # it catches up
    assert other.state.instructions == 3
    assert computer.time_of(other) == computer.now


def test_what_another_core_would_do_does_not_come() -> None:
    computer = counting()
    steps = list(islice(computer.steps(core=1), 100))
    assert {step.address for step in steps} == {0x2000, 0x2009}
    assert computer.cores[0].state.instructions == 0
    assert computer.read(0x8000, 8) == bytes(8)


def test_two_cores_are_stepped_in_turn() -> None:
    computer = counting()
    pairs = list(zip(computer.steps(0), computer.steps(1), strict=False))
    assert [pair[0].address for pair in pairs[:3]] == [0x1000, 0x1008, 0x1011]
    assert {pair[1].address for pair in pairs} == {0x2000, 0x2009, 0x200B}


def test_devices_go_on_while_a_core_is_stepped() -> None:
    computer = counting(READ)
    computer.map(Disk(bytes([7]) * 512, latency_us=1), DISK, pcie=Pcie())
    assert list(computer.steps())[-1].text == "hlt"
    assert computer.read(0x9000, 1) == bytes([7])
    assert computer.cores[1].state.cycles == 0
