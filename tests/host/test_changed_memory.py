# SPDX-License-Identifier: Apache-2.0
"""Devices that map and unmap memory while a core is in the middle of an access to them."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verbena.host import Computer, Device, ProcessorError, Program, Ram

TARGET = 0x20000
DEVICE = 0x100000


class Changer(Device):
    """The access of a number calls something; the value of a register is always 0x77s."""

    def __init__(self, number: int, call: object) -> None:
        super().__init__(0x1000)
        self.left = number
        self.call = call

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            assert callable(self.call)
            self.call()

    def read(self, offset: int, size: int) -> int:
        self._count()
        return int.from_bytes(b"\x77" * size, "little")

    def write(self, offset: int, size: int, value: int) -> None:
        self._count()


def _computer(text: str) -> Computer:
    computer = Computer()
    computer.map(Ram(0x10000), 0)
    computer.map(Ram(0x2000), TARGET)
    computer.load(Program.assemble(text, 0x1000))
    return computer


COPY = f"""
    mov rdi, {TARGET}
    mov qword ptr [rdi], 1    ; so that the core knows where the page is
    mov rsi, {DEVICE}
    mov rcx, 16
    cld
    rep movsq
    hlt
"""


@pytest.mark.parametrize("keeps", [False, True])
def test_memory_that_a_device_takes_away_is_not_written(keeps: bool) -> None:
    """In the middle of REP MOVS, whose next store would go to the page that is known."""
    computer = _computer(COPY)
    ram = computer.table[1].device
    assert isinstance(ram, Ram)
    kept = ram.bytes if keeps else None
    del ram
    computer.map(Changer(3, lambda: computer.unmap(TARGET)), DEVICE)
    with pytest.raises(ProcessorError) as caught:
        computer.run()
    gc.collect()
    assert f"{TARGET + 16:#x}" in str(caught.value)
    assert computer.cores[0].registers.rcx == 14
    if kept is not None:
        assert bytes(kept[:32]) == b"\x77" * 16 + bytes(16)


def test_memory_that_takes_the_place_of_other_memory() -> None:
    computer = _computer(COPY)
    new = Ram(0x2000)

    def swap() -> None:
        computer.unmap(TARGET)
        computer.map(new, TARGET)

    computer.map(Changer(3, swap), DEVICE)
    computer.run()
    assert bytes(new.bytes[:128]) == bytes(16) + b"\x77" * 112


def test_a_device_that_takes_the_program_away() -> None:
    computer = _computer(f"mov rbx, {DEVICE}\n mov rax, [rbx]\n hlt")
    computer.map(Changer(1, lambda: computer.unmap(0)), DEVICE)
    with pytest.raises(ProcessorError, match="0x100a"):
        computer.run()
    assert computer.cores[0].registers.rax == 0x7777777777777777


def test_a_device_that_takes_itself_away() -> None:
    computer = _computer(f"mov rbx, {DEVICE}\n mov rax, [rbx]\n mov rcx, [rbx]\n hlt")
    computer.map(Changer(1, lambda: computer.unmap(DEVICE)), DEVICE)
    gc.collect()
    with pytest.raises(ProcessorError, match=f"{DEVICE:#x}"):
        computer.run()
    assert computer.cores[0].registers.rax == 0x7777777777777777


@given(st.lists(st.tuples(st.integers(1, 20), st.booleans()), min_size=1, max_size=6))
@settings(max_examples=40, deadline=None)
def test_whatever_is_mapped_while_it_copies(changes: list[tuple[int, bool]]) -> None:
    """Each change removes or restores the target; a copy ends, or faults where there is none."""
    computer = _computer(COPY)
    counts = sorted({number for number, _ in changes})
    is_there = True

    def change(number: int) -> None:
        nonlocal is_there
        wanted = dict(changes)[number]
        if wanted != is_there:
            if wanted:
                computer.map(Ram(0x2000), TARGET)
            else:
                computer.unmap(TARGET)
            is_there = wanted
        if more := [later - number for later in counts if later > number]:
            device.left = more[0]
            device.call = lambda: change(number + more[0])

    device = Changer(counts[0], lambda: change(counts[0]))
    computer.map(device, DEVICE)
    removed = [number for number in counts if number <= 16 and not dict(changes)[number]]
    if removed:
        with pytest.raises(ProcessorError):
            computer.run()
        assert computer.cores[0].registers.rcx == 17 - removed[0]
    else:
        computer.run()
