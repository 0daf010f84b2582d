# SPDX-License-Identifier: Apache-2.0
"""DMA that an IOMMU refuses, or that goes beyond memory: it ends once, and others go on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.host.pci_devices import FIRST, MEMORY, Mover
from verbena.host import (
    AccessError,
    Computer,
    Device,
    Disk,
    HostError,
    Iommu,
    IommuFault,
    PciBus,
    Pcie,
    Ram,
    Stop,
)

SIZE = 65536


def computer_with(device: Device, **where: Any) -> Computer:
    computer = Computer()
    computer.map(Ram(MEMORY), 0)
    computer.map(device, FIRST, **where)
    return computer


def command(computer: Computer, number: int, address: int) -> None:
    for register, value in ((0x28, 1), (0x10, SIZE // 512), (0x18, address), (0, number)):
        computer.store(FIRST + register, value.to_bytes(8, "little"))


@pytest.mark.parametrize("number", [2, 3])
def test_a_disk_that_the_iommu_refuses_has_ended_with_an_error(number: int) -> None:
    iommu, disk = Iommu(), Disk(b"\x11" * SIZE)
    computer = computer_with(disk, pcie=Pcie(), iommu=iommu)
    command(computer, number, 0x40000)
    with pytest.raises(IommuFault, match=r"Disk may not .* 0x40000"):
        computer.run()
    assert computer.run() is Stop.HALT
    assert computer.counters.interrupts_sent == 1
    assert "0x40000" in str(disk.failure)
    assert disk.read(0x20, 8) == 4
    assert not computer.dma_is_under_way(0x40000)
    iommu.map(0x40000, 0x40000, SIZE)
    command(computer, 2, 0x40000)
    computer.run()
    assert disk.read(0x20, 8) == 3


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("where", [{"pcie": Pcie()}, {"pci": True}, {}])
@pytest.mark.parametrize("address", [0x900000, 2**64 - 8])
def test_a_disk_whose_address_has_no_memory_has_ended_with_an_error(
    number: int, where: dict[str, Any], address: int
) -> None:
    disk = Disk(b"\x11" * SIZE)
    computer = computer_with(disk, **({"pci": PciBus()} if "pci" in where else where))
    command(computer, number, address)
    with pytest.raises(AccessError, match=f"{SIZE} bytes by DMA .* {address:#x}, where there is"):
        computer.run()
    assert computer.run() is Stop.HALT
    assert disk.read(0x20, 8) == 4
    command(computer, 2, 0x4000)
    computer.run()
    assert disk.read(0x20, 8) == 3


@pytest.mark.parametrize("kind", ["at once", "pcie", "pci", "iommu"])
def test_a_read_that_is_longer_than_memory_is_refused_at_once(kind: str) -> None:
    """Of a device of one's own, whatever number it gives."""
    where: dict[str, dict[str, Any]] = {
        "at once": {}, "pcie": {"pcie": Pcie()}, "pci": {"pci": PciBus()},
        "iommu": {"pcie": Pcie(), "iommu": Iommu()},
    }  # fmt: skip
    device, got = Mover(), []
    computer = computer_with(device, **where[kind])
    if kind == "iommu":
        where[kind]["iommu"].map(0, 0, MEMORY)
    device.dma_read(0, 1 << 50, got.append)
    device.dma_read(0, 4096, lambda data: got.append(len(data)))
    assert computer.dma_is_under_way(0)
    end = "which is not mapped" if kind == "iommu" else f"where there is no memory from {MEMORY:#x}"
    with pytest.raises(AccessError, match=end):
        computer.run()
    assert computer.run() is Stop.HALT
    assert got == [4096]
    assert not computer.dma_is_under_way(0)


def test_a_read_of_no_bytes_through_an_iommu_has_them_at_once() -> None:
    device, got = Mover(), []
    computer = computer_with(device, pcie=Pcie(), iommu=Iommu())
    device.dma_read(0x4000, 0, got.append)
    computer.run()
    assert got == [b""]


@pytest.mark.parametrize(("address", "size"), [(-1, 8), (1 << 64, 8), (0, -1), (0, 1 << 64)])
def test_addresses_and_sizes_that_are_none_are_refused_where_they_are_given(
    address: int, size: int
) -> None:
    device = Mover()
    computer_with(device)
    with pytest.raises(HostError, match="an address is 0 to 2\\^64 - 1, and a size 0 or more"):
        device.dma_read(address, size, lambda data: None)
