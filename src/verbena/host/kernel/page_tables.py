# SPDX-License-Identifier: Apache-2.0
"""Memory for the kernel's loader: pieces of it, and page tables of four levels.

``kernel.py`` makes the kernel's address space, and one for each process that has the kernel's part
in it. The processor (src/native/cpu/paging.c) and the kernel's ``user_range`` follow the tables.
"""

from __future__ import annotations

from verbena.host.computer import Computer
from verbena.host.errors import HostError
from verbena.host.kernel.layout import PAGE

PRESENT, WRITABLE, USER = 1, 2, 4
NO_EXECUTE = 1 << 63
_ADDRESS = 0x000F_FFFF_FFFF_F000


class FreeMemory:
    """Pieces of whole pages, given out from the lowest address on."""

    def __init__(self, start: int, end: int) -> None:
        self._free = [(start, end)]

    def has(self, size: int) -> bool:
        """Is there a piece of ``size`` bytes?"""
        return any(end - start >= size for start, end in self._free)

    def take(self, size: int) -> int:
        """The address of a piece of ``size`` bytes; HostError if no free piece is that long."""
        for place, (start, end) in enumerate(self._free):
            if end - start >= size:
                self._free[place] = (start + size, end)
                return start
        most = max(end - start for start, end in self._free)
        raise HostError(
            f"the computer's memory has no piece of {size:,} bytes left for a process, the longest "
            f"has {most:,}: give the system more memory"
        )

    def give_back(self, address: int, size: int) -> None:
        """Makes a piece free again, and one with its free neighbours."""
        pieces = sorted([*self._free, (address, address + size)])
        joined = [pieces[0]]
        for start, end in pieces[1:]:
            if start == joined[-1][1]:
                joined[-1] = (joined[-1][0], end)
            else:
                joined.append((start, end))
        self._free = joined


class AddressSpace:
    """Page tables in a computer's memory; ``root`` is what CR3 gets."""

    def __init__(self, computer: Computer, memory: FreeMemory) -> None:
        self._computer, self._memory = computer, memory
        self._tables: list[int] = []
        self.root = self._table()

    def _table(self) -> int:
        address = self._memory.take(PAGE)
        self._computer.write(address, bytes(PAGE))
        self._tables.append(address)
        return address

    def _entry(self, at: int) -> int:
        return int.from_bytes(self._computer.read(at, 8), "little")

    def _set(self, at: int, entry: int) -> None:
        self._computer.write(at, entry.to_bytes(8, "little"))

    def map(self, linear: int, physical: int, size: int, rights: int) -> None:
        """Maps pages; ``rights`` are WRITABLE, USER and NO_EXECUTE. Tables above allow all that
        a page may."""
        for offset in range(0, size, PAGE):
            table = self.root
            for shift in (39, 30, 21):
                at = table + (linear + offset >> shift & 511) * 8
                entry = self._entry(at)
                if not entry & PRESENT:
                    entry = self._table() | PRESENT
                entry |= WRITABLE | rights & USER
                self._set(at, entry)
                table = entry & _ADDRESS
            at = table + (linear + offset >> 12 & 511) * 8
            self._set(at, physical + offset | PRESENT | rights)

    def share(self, other: AddressSpace, gibibyte: int) -> None:
        """Has the other's tables for one GiB of the lowest 512."""
        source = self._entry(other.root) & _ADDRESS
        above = self._entry(self.root)
        if not above & PRESENT:
            above = self._table() | PRESENT | WRITABLE | USER
            self._set(self.root, above)
        self._set((above & _ADDRESS) + gibibyte * 8, other._entry(source + gibibyte * 8))

    def is_mapped(self, linear: int) -> bool:
        """Has the page of an address an entry?"""
        table = self.root
        for shift in (39, 30, 21, 12):
            entry = self._entry(table + (linear >> shift & 511) * 8)
            if not entry & PRESENT:
                return False
            table = entry & _ADDRESS
        return True

    def free(self) -> None:
        """Gives the tables back; the pages are their owners'."""
        for address in self._tables:
            self._memory.give_back(address, PAGE)
        self._tables.clear()
