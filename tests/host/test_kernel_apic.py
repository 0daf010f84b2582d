# SPDX-License-Identifier: Apache-2.0
"""The kernel with an interrupt controller: the same programs do the same with it and without."""

from __future__ import annotations

import pytest

from tests.host.kernel_programs import call, check_conservation, leave
from verbena.host import Computer, Disk, EthernetAdapter, HostError, InterruptController, Ram, Timer
from verbena.host.kernel import Kernel, ProcessState, System

CONTENT = bytes(range(256)) * 16
LOCAL, IO = 0xFEE00000, 0xFEC00000
EVERYTHING = (
    call("disk_read", 2, "buffer", 2)
    + call("write", "buffer+65", 4)
    + call("sleep", 300)
    + call("read", "buffer", 4)
    + call("write", "buffer", 3)
    + leave("rax")
    + "buffer: times 1024 db 0\n"
)


@pytest.mark.parametrize("disk_by", ["dma", "pio"])
def test_the_same_program_with_a_controller_and_without(disk_by: str) -> None:
    displays, interrupts, cycles = [], [], []
    for apic in (False, True):
        system = System(disk=CONTENT, disk_by=disk_by, apic=apic)
        [process] = system.run(EVERYTHING)
        assert process.state is ProcessState.BLOCKED
        system.keyboard.press("xyz")
        system.run()
        check_conservation(system)
        displays.append(str(system.display))
        interrupts.append(system.kernel.interrupts)
        cycles.append(system.kernel.cycles.system)
    assert displays == ["ABCDxyz"] * 2
    assert interrupts[0] == interrupts[1]
    entries = sum(interrupts[1].values())
    assert 4 * entries < cycles[1] - cycles[0] < 12 * entries  # EOI, and the way to the handler


def test_every_interrupt_of_the_kernel_was_seen_or_merged() -> None:
    system = System(disk=CONTENT, apic=True, tick_us=10)
    system.run(*[EVERYTHING] * 3)
    for key in "abcdefghi":
        system.keyboard.press(key)
        system.advance(7)
    system.run()
    controller, counters = system.controller, system.computer.counters
    assert controller is not None
    assert counters.interrupts_sent == controller.taken + counters.interrupts_merged
    assert controller.local.apic(0).isr == 0
    assert controller.io.sent > 30


def test_disk_and_adapter_on_level_triggered_lines() -> None:
    computer = Computer()
    computer.map(Ram(4 << 20), 0)
    timer, disk, adapter = Timer(), Disk(CONTENT), EthernetAdapter()
    for device, base in ((timer, 0x10000000), (disk, 0x10100000), (adapter, 0x10200000)):
        computer.map(device, base)
    controller = InterruptController(computer)
    controller.io.connect(timer, 2)
    controller.io.connect(disk, 16)
    controller.io.connect(adapter, 17)
    kernel = Kernel(computer)
    process = kernel.start(
        call("disk_read", 1, "buffer", 1) + leave("rax") + "buffer: times 512 db 0\n"
    )
    computer.at(50_000_000, lambda: adapter.arrive(bytes(60)))
    computer.run(until=200_000_000)
    kernel.check()
    assert process.exit_status == 1
    assert kernel.interrupts[46] == 1
    assert kernel.interrupts[43] >= 1
    assert kernel.variable("frames_taken") == 1
    computer.store(IO, (0x10 + 2 * 16).to_bytes(4, "little"))
    assert controller.io.read(0x10, 4) == 46 | 0xA000  # level-triggered, active low
    assert controller.local.apic(0).isr == 0


def test_two_devices_of_the_kernel_on_one_line_are_refused() -> None:
    computer = Computer()
    computer.map(Ram(4 << 20), 0)
    timer, disk = Timer(), Disk(CONTENT)
    computer.map(timer, 0x10000000)
    computer.map(disk, 0x10100000)
    controller = InterruptController(computer)
    controller.io.connect(timer, 2)
    controller.io.connect(disk, 2)
    with pytest.raises(HostError, match=r"share no line, as Timer at .* and Disk at"):
        Kernel(computer)


def test_a_controller_in_part_is_refused() -> None:
    computer = Computer()
    computer.map(Ram(4 << 20), 0)
    computer.map(Timer(), 0x10000000)
    InterruptController(computer)
    computer.unmap(IO)
    with pytest.raises(HostError, match="the two parts of an InterruptController"):
        Kernel(computer)
