# SPDX-License-Identifier: Apache-2.0
"""A disk's bytes into memory of the same computer: by programmed I/O, and by DMA.

Both ways run the machine code of drivers.py; the entry and exit of an interrupt are charged when it
comes. ``ways.py`` lists them.
"""

from __future__ import annotations

import sys
from array import array
from dataclasses import replace
from math import gcd

from verbena.host.assembler import Program
from verbena.host.comparison.drivers import DISK, ORIGIN, TARGET, dma_driver, words_driver
from verbena.host.comparison.recording import Recording
from verbena.host.comparison.rows import Reading, Row
from verbena.host.comparison.settings import Setup, checked_size
from verbena.host.computer import Computer
from verbena.host.computer_records import Transaction
from verbena.host.devices import Ram
from verbena.host.disk import BUFFER, Disk
from verbena.host.errors import HostError

_MOST_BLOCK = 512


def content_of(size: int) -> bytes:
    """The bytes that the ways move: no two words of a block are alike."""
    words = array("I", range(-(-size // 4)))  # 4 bytes each
    if sys.byteorder == "big":
        words.byteswap()
    return words.tobytes()[:size]


def disk_machine(setup: Setup, size: int) -> tuple[Computer, Disk]:
    """A computer with ``size`` bytes on its disk, in blocks of up to 512 bytes."""
    computer = Computer(ghz=setup.ghz)
    computer.map(Ram(TARGET + size), 0)
    disk = Disk(content_of(size), block=gcd(size, _MOST_BLOCK), latency_us=setup.disk_us)
    computer.map(disk, DISK, pcie=setup.pcie)
    return computer, disk


def charge_interrupts(computer: Computer) -> None:
    """Lets each interrupt take the time of its entry and exit, before its handler runs."""

    def charge(kind: str, _: int, core: int) -> None:
        if kind == "MSI":
            computer.cores[core].charge("hard_irq")

    computer.memory_observers.append(charge)


def by_words(setup: Setup, size: int, recording: Recording | None = None) -> Row:
    """The processor loads each word from the disk's buffer."""
    blocks = gcd(checked_size(size), _MOST_BLOCK)
    return _read("pio", setup, size, words_driver(size // blocks, blocks), recording)


def by_dma(setup: Setup, size: int, recording: Recording | None = None) -> Row:
    """The disk writes to memory."""
    blocks = gcd(checked_size(size), _MOST_BLOCK)
    return _read("dma", setup, size, dma_driver(size // blocks), recording)


def _read(way: str, setup: Setup, size: int, driver: str, recording: Recording | None) -> Row:
    computer, disk = disk_machine(setup, size)
    if recording is not None:
        recording.begin(computer.now, computer.timeline())
    charge_interrupts(computer)
    moved: list[int] = []

    def watch(seen: Transaction) -> None:
        if seen.device is disk and not seen.write and seen.address >= DISK + BUFFER:
            moved.append(seen.size)

    computer.observers.append(watch)
    before = Reading.of(computer, setup.ghz)
    computer.load(Program.assemble(driver, ORIGIN))
    computer.run()
    if recording is not None:
        recording.end()
    if computer.read(TARGET, size) != content_of(size):
        raise HostError(f"{way}: the disk's bytes did not arrive")
    after = Reading.of(computer, setup.ghz)
    side = after.since(before, copied=sum(moved))
    side = replace(side, charged={"hard_irq": round(computer.cores[0].ledger.cycles["hard_irq"])})
    medium = round(setup.disk_us * 1e6) * max(1, after.interrupts)
    return Row(
        way,
        size,
        after.at - before.at,
        setup.ghz,
        side,
        demands={"the disk's medium": medium},
    )
