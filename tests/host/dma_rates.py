# SPDX-License-Identifier: Apache-2.0
"""The rate at which a device moves data by DMA over a PCIe link of its own.

Tests of the link call it, and row C1 of `make validate`.
"""

from __future__ import annotations

from verbena.host import Computer, Device, Iommu, Pcie, Ram

MEMORY = 1 << 20


class Mover(Device):
    """A device that reads or writes, or does both, in transfers of one size."""

    def __init__(self) -> None:
        super().__init__(4096)
        self.read_until = self.written_until = 0

    def move(self, size: int, count: int, ways: str) -> None:
        """Asks for ``count`` transfers at once; ``ways`` has "r" for reads and "w" for writes."""
        for number in range(count):
            address = number * size % MEMORY
            if "w" in ways:
                self.dma_write(address, bytes(size), self._written)
            if "r" in ways:
                self.dma_read(address, size, self._read)

    def _written(self) -> None:
        self.written_until = self.now

    def _read(self, data: bytes) -> None:
        assert data == bytes(len(data))
        self.read_until = self.now


def rate_of_dma(link: Pcie, size: int, count: int, ways: str, *, translated: bool = False) -> float:
    """Gb/s of data, in each direction where ``ways`` is "rw", until the last byte is there.

    ``translated``: the link has an IOMMU, whose misses cost nothing.
    """
    computer, device = Computer(), Mover()
    computer.map(Ram(MEMORY), 0)
    iommu = Iommu(miss_ns=0) if translated else None
    if iommu is not None:
        iommu.map(0, 0, MEMORY)
    computer.map(device, 1 << 30, pcie=link, iommu=iommu)
    computer.at(0, lambda: device.move(size, count, ways))
    computer.run()
    return size * count * 8000 / max(device.read_until, device.written_until)


def rate_by_tags(link: Pcie) -> float:
    """Gb/s of long reads: the link's, or a request for each tag in the time that one takes.

    That is the round trip, and the bytes of request and completions.
    """
    asks, answers = link.read_bytes(link.mrrs)
    whole = link.round_trip_ns + (asks + answers) * 8 / link.usable_gbps
    return min(link.usable_gbps * link.mrrs / answers, link.tags * link.mrrs * 8 / whole)
