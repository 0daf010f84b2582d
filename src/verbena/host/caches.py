# SPDX-License-Identifier: Apache-2.0
"""The processor's caches as costs: which level has a line, and what a load or a copy of it takes.

There are three levels of 64-byte lines, of which each keeps those used last; the contents stay in
memory. A ``Computer`` with ``caches`` lets DMA writes pass through here: with DDIO they go into a
share of the last level, without it to memory. ``Core.charge`` asks here what copies and loads take
whose addresses it is given. Instructions that the interpreter runs take the same time with caches
and without, and neither use lines nor move them. All cores of a computer have the same levels.

The default costs are orders of magnitude (docs/sources.md says what was found about them);
those of a copy agree with 27, 15 and 5.6 GB/s measured for blocks of 64 KiB, 1 MiB and 16 MiB.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import IntEnum

from verbena._arguments import checked_class
from verbena.host.errors import HostError, HostTypeError
from verbena.host.lru import Lru

LINE = 64
MOST_BYTES = 1 << 30
"""Of a copy or load that is followed line by line."""


class Level(IntEnum):
    """Where a line is."""

    L1 = 1
    L2 = 2
    L3 = 3
    MEMORY = 4


@checked_class(HostTypeError)
@dataclass(frozen=True)
class CacheCosts:
    """Sizes in bytes, and by level (L1, L2, L3, memory) cycles of a load and of a copied byte.

    ``ddio_share`` is the part of the last level that DMA writes may fill.
    """

    sizes: tuple[int, int, int] = (32 << 10, 512 << 10, 16 << 20)
    load_cycles: tuple[int, int, int, int] = (4, 14, 50, 250)
    copy_cycles_per_byte: tuple[float, float, float, float] = (0.1, 0.1, 0.2, 0.5)
    ddio_share: float = 0.18

    def __post_init__(self) -> None:
        if not LINE <= self.sizes[0] <= self.sizes[1] <= self.sizes[2]:
            raise HostError(f"the levels of a cache grow from {LINE} bytes on: {self.sizes} do not")
        if not 0 < self.ddio_share <= 1:
            raise HostError(f"the share of DDIO is above 0 and at most 1, not {self.ddio_share}")

    def copy_of(self, size: int, working_set: int | None = None) -> int:
        """Cycles of a copy of ``size`` bytes out of and into blocks of ``working_set`` in all.

        The working set, by default source and destination, decides the level.
        """
        total = 2 * size if working_set is None else working_set
        level = next((i for i, most in enumerate(self.sizes) if total <= most), 3)
        return round(size * self.copy_cycles_per_byte[level])


@checked_class(HostTypeError, but=("dma_write",))
class Caches:
    """Three levels, each of which has the lines of the ones before it, too."""

    def __init__(self, costs: CacheCosts | None = None, *, ddio: bool = True) -> None:
        self.costs = CacheCosts() if costs is None else costs
        self.ddio = ddio
        self._levels: list[Lru[int, None]] = [Lru(size // LINE) for size in self.costs.sizes]
        share = round(self.costs.sizes[2] * self.costs.ddio_share)
        self._by_dma: Lru[int, None] = Lru(max(1, share // LINE))

    def level(self, address: int) -> Level:
        """Where the line of an address is; this is no use of it."""
        line = address // LINE
        for level, lines in zip(Level, self._levels, strict=False):
            if line in lines:
                return level
        return Level.MEMORY

    def load(self, address: int, size: int) -> int:
        """Cycles of loading ``size`` bytes, line by line; they are in all levels then.

        Raises HostError for an address or size below 0, and for more than 1 GiB.
        """
        found = self.lines_loaded(address, size)
        return sum(self.costs.load_cycles[level - 1] * lines for level, lines in found.items())

    def copy(self, source: int, destination: int, size: int) -> int:
        """Cycles of a copy: each line costs what the farther of its two ends does.

        Raises HostError for an address or size below 0, and for more than 1 GiB.
        """
        found = self.bytes_copied(source, destination, size)
        return round(sum(self.costs.copy_cycles_per_byte[at - 1] * n for at, n in found.items()))

    def lines_loaded(self, address: int, size: int) -> dict[Level, int]:
        """Loads ``size`` bytes: how many lines came from each level. Raises as ``load``."""
        check_range(size, address)
        return Counter(self._use(line) for line in _lines(address, size))

    def bytes_copied(self, source: int, destination: int, size: int) -> dict[Level, int]:
        """Copies ``size`` bytes: how many cost what each level does. Raises as ``copy``."""
        check_range(size, source, destination)
        found: Counter[Level] = Counter()
        offset = 0
        while offset < size:  # by pieces that are in one line at both ends
            one, other = source + offset, destination + offset
            piece = min(LINE - one % LINE, LINE - other % LINE, size - offset)
            found[max(self._use(one // LINE), self._use(other // LINE))] += piece
            offset += piece
        return found

    def dma_write(self, address: int, size: int) -> None:
        """A device has written: the lines are in the last level with DDIO, else in memory only."""
        for line in _lines(address, size):
            for lines in self._levels[:2]:
                lines.drop(line)
            if not self.ddio:
                self._levels[2].drop(line)
                continue
            was_there = line in self._levels[2]
            self._levels[2].put(line, None)
            if not was_there or line in self._by_dma:
                gone = self._by_dma.put(line, None)
                if gone is not None:
                    self._levels[2].drop(gone)

    def _use(self, line: int) -> Level:
        level = self.level(line * LINE)
        for lines in self._levels:
            lines.put(line, None)
        self._by_dma.drop(line)  # it is an ordinary line of the processor's now
        return level


def check_range(size: int, *addresses: int) -> None:
    """Raises HostError for what caches do not follow: an address or size below 0, above 1 GiB."""
    if not 0 <= size <= MOST_BYTES:
        raise HostError(f"caches follow copies and loads of 0 bytes to 1 GiB, and not of {size}")
    for address in addresses:
        if not 0 <= address < 1 << 64:
            raise HostError(f"an address is 0 to 2^64 - 1, and not {address:#x}")


def _lines(address: int, size: int) -> range:
    return range(address // LINE, (address + size - 1) // LINE + 1) if size > 0 else range(0)
