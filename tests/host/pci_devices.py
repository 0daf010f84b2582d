# SPDX-License-Identifier: Apache-2.0
"""Devices and computers for the tests of PCI buses, and what must hold of any run."""

from __future__ import annotations

from itertools import pairwise

from verbena.host import Computer, Device, PciBus, PciTransaction, Program, Ram

MEMORY = 1 << 20
FIRST = 0x200000  # the address of the first device; each has 4 KiB


class Mover(Device):
    """Moves bytes by DMA in pieces, one after the other; ``done`` is when the last was moved."""

    def __init__(self) -> None:
        super().__init__(8)
        self.done: int | None = None

    def move(self, size: int, *, is_read: bool = False, piece: int | None = None) -> None:
        """Begins at address 0 of memory."""
        left, most = size, piece or size

        def following(*_: bytes) -> None:
            nonlocal left
            if left == 0:
                self.done = self.now
                return
            part = min(left, most)
            left -= part
            if is_read:
                self.dma_read(0, part, following)
            else:
                self.dma_write(0, bytes(part), following)

        following()

    def mbps(self, size: int) -> float:
        """MB/s of ``size`` bytes that it has moved since the time 0."""
        assert self.done is not None
        return size * 1e6 / self.done


class Register(Device):
    """Keeps what was stored, and when."""

    def __init__(self) -> None:
        super().__init__(64)
        self.values: dict[int, int] = {}
        self.times: list[int] = []

    def read(self, offset: int, size: int) -> int:
        return self.values.get(offset, 0) & (1 << 8 * size) - 1

    def write(self, offset: int, size: int, value: int) -> None:
        self.values[offset] = value
        self.times.append(self.now)


def computer_on(bus: PciBus, *devices: Device, text: str = "", cores: int = 1) -> Computer:
    """A computer whose devices are on one bus, with a program for each core."""
    computer = Computer(ghz=1.0, cores=cores)
    computer.map(Ram(MEMORY), 0)
    for number, device in enumerate(devices):
        computer.map(device, FIRST + number * 0x1000, pci=bus)
    for core in range(cores if text else 0):
        computer.load(Program.assemble(text, 0x1000), core=core)
    return computer


def follow(bus: PciBus) -> list[PciTransaction]:
    """All transactions of the bus from now on."""
    seen: list[PciTransaction] = []
    bus.observers.append(seen.append)
    return seen


def check_conservation(bus: PciBus, seen: list[PciTransaction]) -> None:
    """One transaction at a time, and each byte and clock is counted once, wherever."""
    bus.settle()
    clock = bus.timing.clock_ps
    for one, following in pairwise(seen):
        assert following.start >= one.end + clock
    for one in seen:
        assert one.start % clock == 0
        assert one.start >= one.asked_at
        assert one.end - one.start == (one.first + one.phases) * clock
    assert bus.up.bytes == sum(one.size for one in seen if one.up)
    assert bus.down.bytes == sum(one.size for one in seen if not one.up)
    moving = [one for one in seen if one.phases]
    assert bus.up.transactions + bus.down.transactions == len(moving)
    masters = bus.masters
    assert sum(one.read_bytes + one.written_bytes for one in masters) == (
        bus.up.bytes + bus.down.bytes
    )
    assert sum(one.transactions for one in masters) == len(moving)
    assert sum(one.busy for one in masters) == bus.busy == bus.up.busy + bus.down.busy
    assert bus.busy == sum(one.end - one.start + clock for one in seen)
    assert bus.busy + bus.idle == bus.accounted
    assert sum(one.wait for one in masters) == sum(one.start - one.asked_at for one in seen)
