# SPDX-License-Identifier: Apache-2.0
"""The interrupt wires of a PCI bus: levels that devices share, and a handler that asks each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verbena.host import Computer, Disk, Keyboard, PciBus, Program, Ram, Stop
from verbena.host.pci_wires import PciWire

LEFT, RIGHT = 0x200000, 0x300000
SHARED = f"""
    mov  rsp, 0x80000
    lidt [table]
    mov  rbx, {LEFT}
    mov  rbp, {RIGHT}
    mov  qword ptr [rbx+0x28], 1        ; interrupts
    mov  qword ptr [rbp+0x28], 1
    mov  qword ptr [rbx+0x10], 4        ; blocks
    mov  qword ptr [rbp+0x10], 4
    mov  qword ptr [rbx+0x18], 0x40000  ; where to
    mov  qword ptr [rbp+0x18], 0x50000
    mov  qword ptr [rbx], 2             ; read, to memory
    mov  qword ptr [rbp], 2
wait:
    sti
    hlt
    cli
    mov  rax, r8
    add  rax, r9
    cmp  rax, 2
    jb   wait
    hlt
handler:
    inc  r10
    mov  rax, [rbx+0x20]                ; the left one's status
    cmp  rax, 3
    jne  other
    inc  r8
other:
    mov  rax, [rbp+0x20]
    cmp  rax, 3
    jne  ends
    inc  r9
ends:
    iretq
    align 16
idt:
    times 46 dq 0, 0
    dq (handler & 0xffff) | (8 << 16) | (0x8e << 40) | ((handler >> 16) << 48), 0
table:
    dw 47 * 16 - 1
    dq idt
"""


@pytest.mark.parametrize("apart_us", [0.0, 0.3, 2.0, 50.0])
def test_a_handler_asks_both_disks_that_share_a_wire(apart_us: float) -> None:
    bus, computer = PciBus(), Computer()
    computer.map(Ram(1 << 20), 0)
    for number, base in enumerate((LEFT, RIGHT)):
        disk = Disk(bytes([number + 1]) * 4096, latency_us=10 + number * apart_us, vector=46)
        computer.map(disk, base, pci=bus)
    computer.load(Program.assemble(SHARED, origin=0x1000))
    assert computer.run() is Stop.HALT
    registers = computer.cores[0].registers
    assert (registers.r8, registers.r9) == (1, 1)
    assert 1 <= registers.r10 <= 3  # one for both, or each its own; perhaps one for nothing
    assert computer.read(0x40000, 2048) == bytes([1]) * 2048
    assert computer.read(0x50000, 2048) == bytes([2]) * 2048
    wire = bus.wires["INTA#"]
    assert not wire.is_active
    assert wire.changes in (2, 4)


def test_a_wire_is_held_until_the_driver_asks() -> None:
    bus, computer, disk = PciBus(), Computer(), Disk(bytes(4096), latency_us=1)
    computer.map(Ram(1 << 20), 0)
    computer.map(disk, LEFT, pci=bus.slot(wire="INTC#"))
    for offset in (0x28, 0x10):
        computer.store(LEFT + offset, (1).to_bytes(8, "little"))
    computer.store(LEFT, (2).to_bytes(8, "little"))
    computer.run()
    assert [one.name for one in bus.wires.values() if one.is_active] == ["INTC#"]
    assert disk.peek(0x20, 8) == 3  # a debugger's look lets nothing go
    assert bus.wires["INTC#"].is_active
    computer.load(Program.assemble(f"mov rax, [{LEFT + 0x20:#x}]\nhlt", origin=0x1000))
    computer.run()
    assert not bus.wires["INTC#"].is_active


def test_levels_go_to_an_interrupt_controller_if_there_is_one() -> None:
    levels: list[tuple[str, bool]] = []
    bus = PciBus(
        raise_line=lambda line: levels.append((line, True)),
        lower_line=lambda line: levels.append((line, False)),
    )
    computer, left, right = Computer(), Disk(bytes(512)), Disk(bytes(512))
    computer.map(Ram(1 << 20), 0)
    computer.map(left, LEFT, pci=bus)
    computer.map(right, RIGHT, pci=bus.slot(wire="INTA#"))
    left.interrupt(46)
    right.interrupt(46)
    left.end_interrupt()
    assert levels == [("INTA#", True)]
    right.end_interrupt()
    assert levels == [("INTA#", True), ("INTA#", False)]
    assert computer.counters.interrupts_sent == 0


def test_a_device_that_is_taken_out_lets_its_wire_go() -> None:
    bus, computer, keyboard = PciBus(), Computer(), Keyboard()
    computer.map(keyboard, LEFT, pci=bus)
    keyboard.interrupt(33)
    assert bus.wires["INTA#"].is_active
    computer.unmap(LEFT)
    assert not bus.wires["INTA#"].is_active


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40))
def test_a_wire_is_active_while_any_device_pulls_it(steps: list[tuple[int, bool]]) -> None:
    """No pull is lost: after each one, and each letting go, who still pulls is delivered."""
    delivered: list[int] = []
    wire, pulling = PciWire("INTA#"), set()
    for device, is_pull in steps:
        delivered.clear()
        if is_pull:
            wire.pull(device, lambda device=device: delivered.append(device))
            pulling.add(device)
            assert delivered == [device]
        else:
            was = device in pulling
            wire.let_go(device)
            pulling.discard(device)
            assert bool(delivered) == bool(was and pulling)
            assert set(delivered) <= pulling
        assert wire.is_active == bool(pulling)
