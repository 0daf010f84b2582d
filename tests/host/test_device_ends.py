# SPDX-License-Identifier: Apache-2.0
"""Devices that fail, or are unmapped, while their DMA is under way: it ends at that moment."""

from __future__ import annotations

from typing import Any

import pytest

from tests.host.pci_devices import FIRST, MEMORY, Mover, check_conservation, follow
from verbena.host import Computer, Device, DeviceFault, Disk, Iommu, PciBus, Pcie, Ram, Stop

PLACE, SIZE = 0x8000, 65536
BUSES = ["pci", "pcie", "iommu"]
ENDS = ["silent", "gone", "unmapped"]


def bus_of(kind: str) -> dict[str, Any]:
    if kind == "pci":
        return {"pci": PciBus()}
    iommu = Iommu()
    iommu.map(0, 0, MEMORY)
    return {"pcie": Pcie(tags=2)} | ({"iommu": iommu} if kind == "iommu" else {})


def let_end(computer: Computer, device: Device, how: str) -> None:
    if how == "unmapped":
        computer.unmap(FIRST)
    else:
        device.fail(DeviceFault[how.upper()])


def computer_with(device: Device, kind: str) -> Computer:
    computer = Computer()
    computer.map(Ram(MEMORY), 0)
    computer.map(device, FIRST, **bus_of(kind))
    return computer


def command(computer: Computer) -> None:
    for register, value in ((0x28, 1), (0x10, 128), (0x18, PLACE), (0, 2)):
        computer.store(FIRST + register, value.to_bytes(8, "little"))


@pytest.mark.parametrize("kind", BUSES)
@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("is_read", [False, True])
def test_dma_ends_and_its_callback_is_not_called(kind: str, how: str, is_read: bool) -> None:
    device, called = Mover(), []
    computer = computer_with(device, kind)

    def then(*_: bytes) -> None:
        called.append("then")
        device.interrupt(46)

    for _ in range(4):  # one under way, and others behind it
        if is_read:
            device.dma_read(PLACE, 8192, then)
        else:
            device.dma_write(PLACE, b"\xaa" * 8192, then)
    device.at(2_000_000, lambda: called.append("event") if how == "unmapped" else None)
    seen = follow(device.pci.bus) if device.pci is not None else []
    computer.at(1_000_000, lambda: let_end(computer, device, how))
    computer.at(10**9, lambda: called.append("later"))
    assert computer.run() is Stop.HALT
    assert called == ["later"]
    assert not computer.dma_is_under_way(PLACE)
    assert computer.counters.interrupts_sent == 0
    if device.pci is not None:
        check_conservation(device.pci.bus, seen)
        assert all(one.start <= 1_000_000 for one in seen)
        moved = sum(one.size for one in seen)
        assert 0 < moved < 8192
        assert computer.read(PLACE, 8192).count(0xAA) == (0 if is_read else moved)


@pytest.mark.parametrize("kind", BUSES)
def test_another_device_goes_on_and_the_first_can_be_used_again(kind: str) -> None:
    where, one, other = bus_of(kind), Mover(), Mover()
    computer = Computer()
    computer.map(Ram(MEMORY), 0)
    computer.map(one, FIRST, **where)
    computer.map(other, FIRST + 0x1000, **where)
    one.move(32768)
    other.move(32768)
    computer.at(1_000_000, lambda: computer.unmap(FIRST))
    computer.run()
    assert one.done is None
    assert other.done is not None
    computer.map(one, FIRST, **bus_of(kind))
    one.move(4096, is_read=True)
    computer.run()
    assert one.done is not None


@pytest.mark.parametrize("kind", BUSES)
@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("fails_at", [5, 15])
def test_a_disk_is_back_with_an_error_and_takes_commands(
    kind: str, how: str, fails_at: int
) -> None:
    """5 us: the command waits for the medium. 15 us: its data are under way."""
    disk = Disk(b"\xaa" * SIZE, latency_us=10)
    computer = computer_with(disk, kind)
    command(computer)
    computer.at(fails_at * 10**6, lambda: let_end(computer, disk, how))

    def heal() -> None:
        if how == "unmapped":
            computer.map(disk, FIRST, **bus_of(kind))
        else:
            disk.fail(None)

    computer.at(fails_at * 10**6 + 1_000_000, heal)
    computer.run()
    assert computer.read(PLACE, SIZE).count(0xAA) < SIZE
    assert disk.read(0x20, 8) == 4
    assert "failed or was unmapped" in str(disk.failure)
    command(computer)
    computer.run()
    assert (disk.read(0x20, 8), computer.read(PLACE, SIZE).count(0xAA)) == (3, SIZE)
