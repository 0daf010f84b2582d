# SPDX-License-Identifier: Apache-2.0
"""Devices that never answer, on a PCI bus and behind a PCIe link: what a core sees, and others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.host.pci_devices import FIRST, MEMORY, Mover, Register, check_conservation, follow
from verbena.host import (
    AccessError,
    Computer,
    DeviceFault,
    Disk,
    EmptySlot,
    HostError,
    Iommu,
    Machines,
    PciBus,
    Pcie,
    PciEnd,
    Program,
    Ram,
    Stop,
    Timer,
    UnansweredError,
)

LOAD = f"mov rbx, {FIRST}\nmov rax, [rbx]\nmov ecx, 7\nhlt"
KINDS = ["pci", "pcie"]


def bus_of(kind: str, **settings: Any) -> dict[str, Any]:
    return {kind: (PciBus if kind == "pci" else Pcie)(**settings)}


def computer_with(
    fault: DeviceFault | None, where: dict[str, Any], text: str = LOAD, cores: int = 1
) -> Computer:
    computer, register = Computer(ghz=1.0, cores=cores), Register()
    computer.map(Ram(MEMORY), 0)
    computer.map(register, FIRST, **where)
    register.values[0] = 21
    register.fail(fault)
    computer.load(Program.assemble(text, origin=0x1000))
    return computer


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", list(DeviceFault))
def test_a_load_reads_all_ones_and_the_program_goes_on(kind: str, fault: DeviceFault) -> None:
    computer = computer_with(fault, bus_of(kind))
    assert computer.run() is Stop.HALT
    registers = computer.cores[0].registers
    assert (registers.rax, registers.rcx) == ((1 << 64) - 1, 7)


def test_a_device_without_a_bus_cannot_fail_since_nobody_would_give_up() -> None:
    computer, register = Computer(), Register()
    computer.map(register, FIRST)
    with pytest.raises(HostError, match=r"Register at 0x200000.* is on no bus.* pcie= or pci="):
        register.fail(DeviceFault.SILENT)
    with pytest.raises(HostError, match=r"EmptySlot.* is gone, and is on no bus"):
        computer.map(EmptySlot(64), FIRST + 0x1000)
    assert computer.devices == [register]


@pytest.mark.parametrize("kind", KINDS)
def test_a_device_that_was_repaired_answers_again(kind: str) -> None:
    computer = computer_with(DeviceFault.GONE, bus_of(kind))
    computer.run()
    computer.devices[0].fail(None)
    computer.load(Program.assemble(LOAD, origin=0x1000))
    computer.run()
    assert computer.cores[0].registers.rax == 21


@pytest.mark.parametrize("timeout_us", [50.0, 10_000.0, 50_000.0])
def test_a_root_complex_waits_for_its_completion_timeout(timeout_us: float) -> None:
    link = Pcie(completion_timeout_us=timeout_us)
    computer = computer_with(DeviceFault.SILENT, {"pcie": link})
    computer.run()
    assert computer.now / 1e6 == pytest.approx(timeout_us, rel=0.001)
    slot = computer.devices[0].slot
    assert (slot.down.bytes, slot.up.bytes) == (24, 0)  # a request, and no completion


@pytest.mark.parametrize("timeout_us", [49.0, 65e6, -1.0])
def test_a_timeout_outside_the_range_of_the_specification_is_refused(timeout_us: float) -> None:
    with pytest.raises(HostError, match="50 us to 64 s, not"):
        Pcie(completion_timeout_us=timeout_us)


def test_nobody_claims_the_addresses_of_an_empty_slot() -> None:
    bus, computer = PciBus(), Computer(ghz=1.0)
    computer.map(Ram(MEMORY), 0)
    computer.map(EmptySlot(4096), FIRST, pci=bus)
    seen = follow(bus)
    computer.load(Program.assemble("mov qword ptr [rbx], 1\n" + LOAD.split("\n", 1)[1], 0x1000))
    computer.cores[0].registers.rbx = FIRST
    computer.run()
    assert computer.cores[0].registers.rax == (1 << 64) - 1
    assert [(one.command, one.ending, one.size) for one in seen] == [
        ("Memory Write", PciEnd.ABORT, 0),
        ("Memory Read", PciEnd.ABORT, 0),
    ]
    # address, and the four clocks in which DEVSEL# could come
    assert seen[0].end - seen[0].start == 5 * 30_000
    assert bus.masters[0].aborts == 2
    check_conservation(bus, seen)


def test_endless_retries_end() -> None:
    bus = PciBus(retry_limit=10)
    computer = computer_with(DeviceFault.SILENT, {"pci": bus})
    seen = follow(bus)
    computer.run()
    assert [one.ending for one in seen] == [PciEnd.RETRY] * 10
    assert bus.masters[0].retries == 10
    check_conservation(bus, seen)


def test_others_use_the_bus_between_the_retries() -> None:
    bus, mover = PciBus(), Mover()
    computer = computer_with(DeviceFault.SILENT, {"pci": bus})
    computer.map(mover, FIRST + 0x1000, pci=bus)
    seen = follow(bus)
    computer.at(20_000_000, lambda: mover.move(4096))
    computer.run()
    check_conservation(bus, seen)
    assert bus.host.retries == 256
    assert mover.done is not None
    assert 4096 * 1e6 / (mover.done - 20_000_000) > 80  # MB/s


@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_names_address_and_instruction_and_the_rest_goes_on(kind: str) -> None:
    """The core is shut down. Another core, and a timer, have their time when it is run again."""
    where = bus_of(kind, unanswered="stop")
    computer, timer = computer_with(DeviceFault.GONE, where, cores=2), Timer()
    computer.map(timer, FIRST + 0x1000)
    count = "mov ecx, 100000\nagain: inc rdx\ndec ecx\njnz again\nhlt"
    computer.load(Program.assemble(count, origin=0x2000), core=1)
    computer.store(FIRST + 0x1000, (30_000_000).to_bytes(8, "little"))  # 30 ms
    computer.store(FIRST + 0x1008, (1).to_bytes(8, "little"))
    says = rf"at 0x100[0-9a-f]: mov rax, \[rbx\]: no answer to a load of 8 bytes at {FIRST:#x}"
    with pytest.raises(UnansweredError, match=says) as caught:
        computer.run()
    assert caught.value.address == FIRST
    assert ("master abort" if kind == "pci" else "timeout of 10000 us") in str(caught.value)
    assert computer.run() is Stop.HALT
    assert (computer.cores[1].registers.rdx, timer.ticks) == (100_000, 1)
    assert computer.cores[0].registers.rcx == 0
    computer.load(Program.assemble("mov ecx, 9\nhlt", origin=0x1000))
    computer.run()
    assert computer.cores[0].registers.rcx == 9


def test_the_other_machines_go_on() -> None:
    machines = Machines()
    left, right = machines.computer("left"), machines.computer("right")
    for one in (left, right):
        one.map(Ram(MEMORY), 0)
    left.map(EmptySlot(64), FIRST, pci=PciBus(unanswered="stop"))
    left.load(Program.assemble(LOAD, origin=0x1000))
    right.load(Program.assemble("mov ecx, 50000\nagain: dec ecx\njnz again\nhlt", origin=0x1000))
    with pytest.raises(UnansweredError, match="EmptySlot at 0x200000 to 0x20003f is gone"):
        machines.run()
    assert machines.run() is Stop.HALT
    assert right.instructions == 100_002


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_to_a_device_that_is_gone_is_lost_and_nobody_is_told(kind: str) -> None:
    text = f"mov rbx, {FIRST}\nmov qword ptr [rbx], 5\nhlt"
    computer = computer_with(DeviceFault.GONE, bus_of(kind), text)
    assert computer.run() is Stop.HALT
    assert computer.devices[0].values == {0: 21}


@pytest.mark.parametrize("kind", KINDS)
def test_a_device_that_fails_while_stores_are_on_their_way_takes_none_of_them(kind: str) -> None:
    text = f"mov rbx, {FIRST}\nmov qword ptr [rbx], 5\nhlt"
    computer = computer_with(None, bus_of(kind), text)
    device = computer.devices[0]
    computer.at(100_000, lambda: device.fail(DeviceFault.GONE))
    computer.run()
    assert device.values == {0: 21}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_read", [False, True])
def test_dma_to_where_no_memory_is_names_device_and_address(kind: str, is_read: bool) -> None:
    computer, device, ticks = Computer(), Mover(), []
    computer.map(Ram(MEMORY), 0)
    computer.map(device, FIRST, **bus_of(kind))
    if is_read:
        device.dma_read(0x180000, 64, lambda data: ticks.append("data"))
    else:
        device.dma_write(0x180000, bytes(64), lambda: ticks.append("data"))
    computer.at(10**8, lambda: ticks.append("later"))
    verb = "read 64 bytes by DMA at" if is_read else "wrote 64 bytes by DMA to"
    with pytest.raises(AccessError, match=f"Mover at 0x200000.* {verb} 0x180000"):
        computer.run()
    assert not computer.dma_is_under_way(0x180000)
    assert computer.run() is Stop.HALT
    assert ticks == ["later"]


def test_the_bus_counts_dma_that_nobody_claims_and_the_next_one_goes_on() -> None:
    class Careful(Mover):
        failed = 0

        def dma_failed(self, error: AccessError) -> None:
            self.failed += 1

    bus, computer, device = PciBus(), Computer(), Careful()
    computer.map(Ram(MEMORY), 0)
    computer.map(device, FIRST, pci=bus)
    seen = follow(bus)
    device.dma_write(0x180000, bytes(64))
    device.move(64)
    computer.run()
    assert [one.ending for one in seen] == [PciEnd.ABORT, PciEnd.COMPLETED]
    assert (device.failed, bus.up.bytes, bus.masters[1].aborts) == (1, 64, 1)
    check_conservation(bus, seen)


def test_dma_through_an_iommu_to_where_no_memory_is_fails_once_and_the_next_one_goes_on() -> None:
    class Careful(Mover):
        failed = 0

        def dma_failed(self, error: AccessError) -> None:
            self.failed += 1

    computer, device, iommu, got = Computer(), Careful(), Iommu(), []
    computer.map(Ram(MEMORY), 0)
    computer.map(device, FIRST, pcie=Pcie(tags=2), iommu=iommu)
    iommu.map(0, 0x180000, 4096)  # memory that is not there
    iommu.map(4096, 0x1000, 4096)
    device.dma_read(0, 4096, got.append)  # eight requests
    device.dma_write(0, bytes(64))
    device.dma_read(4096, 4096, got.append)
    computer.run()
    assert (device.failed, [len(one) for one in got]) == (2, [4096])
    assert not computer.dma_is_under_way(0)
    assert not computer.dma_is_under_way(4096)


def test_a_link_refuses_a_read_of_no_memory_with_a_completion_without_data() -> None:
    computer, device = Computer(), Mover()
    computer.map(Ram(MEMORY), 0)
    computer.map(device, FIRST, pcie=Pcie())
    kinds: list[tuple[str, int]] = []
    device.slot.observers.append(lambda tlp: kinds.append((tlp.kind, tlp.bytes)))
    device.dma_read(0x180000, 64, lambda data: None)
    with pytest.raises(AccessError):
        computer.run()
    assert kinds == [("MRd", 24), ("Cpl", 20)]
    assert (device.slot.up.bytes, device.slot.down.bytes) == (24, 20)
    assert 900 <= computer.now / 1000 < 920


# ---- drivers ----

READ_A_BLOCK = f"""
    mov  rsp, 0x80000
    lidt [table]
    mov  rbx, {FIRST}
    mov  rbp, 0x300000
    mov  qword ptr [rbx+0x28], 1        ; interrupts
    mov  qword ptr [rbx+0x10], 1
    mov  qword ptr [rbx+0x18], 0x40000
    mov  qword ptr [rbx], 2
    {{}}
    sti
    hlt
    cli
    hlt
late:
    mov  r9, [rbx+0x20]                 ; what the disk says of itself
    mov  r8, 2
    iretq
done:
    mov  r8, 1
    mov  r9, [rbx+0x20]
    iretq
    align 16
idt:
    times 32 dq 0, 0
    dq (late & 0xffff) | (8 << 16) | (0x8e << 40) | ((late >> 16) << 48), 0
    times 13 dq 0, 0
    dq (done & 0xffff) | (8 << 16) | (0x8e << 40) | ((done >> 16) << 48), 0
table:
    dw 47 * 16 - 1
    dq idt
"""
WITH_TIMER = """
    mov  qword ptr [rbp], 1000000       ; a millisecond
    mov  qword ptr [rbp+8], 1
"""


def disk_and_timer(kind: str, text: str, fails_at: int | None) -> tuple[Computer, Disk]:
    computer, disk = Computer(), Disk(bytes(4096), latency_us=10)
    computer.map(Ram(MEMORY), 0)
    computer.map(disk, FIRST, **bus_of(kind))
    computer.map(Timer(), 0x300000)
    computer.load(Program.assemble(text, origin=0x1000))
    if fails_at is not None:
        computer.at(fails_at, lambda: disk.fail(DeviceFault.SILENT))
    return computer, disk


@pytest.mark.parametrize("kind", KINDS)
def test_a_driver_that_waits_for_an_interrupt_that_never_comes(kind: str) -> None:
    """The run ends, and says why, whether or not it has a limit."""
    for limits in ({}, {"until": 10**12}):
        computer, _ = disk_and_timer(kind, READ_A_BLOCK.format(""), 5_000_000)
        stop = computer.run(**limits)
        assert stop is Stop.WAITS
        assert "halted until an interrupt, and nothing is left that could raise one" in str(stop)
        assert computer.cores[0].registers.r8 == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_driver_with_a_timeout_notices_a_disk_that_never_finishes(kind: str) -> None:
    text = READ_A_BLOCK.format(WITH_TIMER)
    computer, _ = disk_and_timer(kind, text, 5_000_000)
    assert computer.run() is Stop.HALT
    registers = computer.cores[0].registers
    assert (registers.r8, registers.r9) == (2, (1 << 64) - 1)
    computer, _ = disk_and_timer(kind, text, None)
    computer.run()
    assert (computer.cores[0].registers.r8, computer.cores[0].registers.r9) == (1, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_whose_memory_is_gone_fails_its_command_and_can_be_used_again(kind: str) -> None:
    computer, disk = disk_and_timer(kind, READ_A_BLOCK.format(""), None)
    computer.map(Ram(4096), 0x400000)
    text = READ_A_BLOCK.format("").replace("0x40000\n", "0x400000\n")
    computer.load(Program.assemble(text, origin=0x1000))
    computer.at(1_000_000, lambda: computer.unmap(0x400000))
    with pytest.raises(AccessError, match="wrote 512 bytes by DMA to 0x400000"):
        computer.run()
    assert computer.run() is Stop.HALT
    assert (computer.cores[0].registers.r8, computer.cores[0].registers.r9) == (1, 4)
    assert "0x400000" in str(disk.failure)
    computer.load(Program.assemble(READ_A_BLOCK.format(""), origin=0x1000))
    computer.run()
    assert computer.cores[0].registers.r9 == 3
