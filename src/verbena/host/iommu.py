# SPDX-License-Identifier: Apache-2.0
"""An IOMMU: what devices use as addresses is translated by a table, page by page.

``Computer.map`` gives the devices of a link one, and ``dma.py`` asks it for every transfer. The
translations used last are in the IO-TLB. A miss is a walk of the page table in memory, and at most
``walkers`` walks are under way at a time: requests of S bytes that all miss are limited to
``walkers * S / miss``. The defaults of entries and time are those measured with pcie-bench
(SIGCOMM 2018; the measurements are at github.com/pcie-bench/data), and with eight walks at a time
reads of 64 bytes lose the 70 % that they lose there.
"""

from __future__ import annotations

import heapq

from verbena._arguments import checked_class
from verbena.host.errors import AccessError, HostError, HostTypeError
from verbena.host.lru import Lru


class IommuFault(AccessError):
    """A device used an address that is not mapped for it; ``address`` is that address."""

    def __init__(self, message: str, address: int) -> None:
        super().__init__(message)
        self.address = address


@checked_class(HostTypeError, but=("translate",))
class Iommu:
    """``entries`` of the IO-TLB, ``miss_ns`` of a walk, ``page`` in bytes (a power of two)."""

    def __init__(
        self, *, entries: int = 64, miss_ns: float = 330.0, page: int = 4096, walkers: int = 8
    ) -> None:
        if page < 4096 or page & (page - 1):
            raise HostError(f"a page is a power of two from 4096 on, not {page} bytes")
        if miss_ns < 0 or walkers < 1:
            raise HostError("an IOMMU has a miss of at least 0 ns and at least one walker")
        self.page = page
        self.miss_ps = round(miss_ns * 1000)
        self.tlb: Lru[int, int] = Lru(entries)  # page: when its walk ends
        self._table: dict[int, tuple[int, bool]] = {}  # page: physical page, may be written
        self._walkers = [0] * walkers  # when each is free; a heap

    # ---- the table, which the operating system writes ----

    def map(self, address: int, physical: int, size: int, *, writable: bool = True) -> None:
        """Lets devices reach ``size`` bytes of memory at ``physical`` by ``address``.

        A page that is mapped already has the new place from now on.
        """
        pages, targets = self._pages(address, physical, size)
        self._forget(pages)
        self._table.update((page, (to, writable)) for page, to in zip(pages, targets, strict=True))

    def unmap(self, address: int, size: int) -> None:
        """Takes pages away, and their translations out of the IO-TLB. Those that are not mapped
        stay so."""
        pages, _ = self._pages(address, 0, size)
        self._forget(pages)
        for page in pages:
            self._table.pop(page, None)

    def _forget(self, pages: range) -> None:
        for page in self.tlb.held():
            if page in pages:
                self.tlb.drop(page)

    def _pages(self, address: int, physical: int, size: int) -> tuple[range, range]:
        if size <= 0 or address < 0 or (address | physical | size) % self.page:
            raise HostError(
                f"an IOMMU maps whole pages of {self.page} bytes: {size} bytes at {address:#x} "
                f"to {physical:#x} are none"
            )
        first, target = address // self.page, physical // self.page
        count = size // self.page
        return range(first, first + count), range(target, target + count)

    # ---- what the root complex asks ----

    def translate(
        self, at: int, address: int, size: int, *, write: bool, who: str
    ) -> tuple[int, list[tuple[int, int]]]:
        """When the translation is known, in ps, and the physical parts as (address, size).

        Raises IommuFault, which names the device and the address.
        """
        ready, parts, end = at, [], address + size
        while address < end:
            number, offset = divmod(address, self.page)
            entry = self._table.get(number)
            if entry is None or (write and not entry[1]):
                verb = "write to" if write else "read from"
                why = "is not mapped for devices" if entry is None else "is mapped for reads only"
                raise IommuFault(
                    f"IOMMU: {who} may not {verb} {address:#x}, which {why}: "
                    "map it with Iommu.map first",
                    address,
                )
            part = min(self.page - offset, end - address)
            ready = max(ready, self._known(at, number))
            parts.append((entry[0] * self.page + offset, part))
            address += part
        return ready, parts

    def allows(self, address: int, size: int, *, write: bool) -> bool:
        """Whether a device may reach all of a range now; nothing is looked up for that."""
        for number in range(address // self.page, (address + size - 1) // self.page + 1):
            entry = self._table.get(number)
            if entry is None or (write and not entry[1]):
                return False
        return True

    def _known(self, at: int, number: int) -> int:
        """When the translation of a page is in the IO-TLB."""
        known = self.tlb.get(number)
        if known is not None:
            return max(at, known)
        done = max(at, self._walkers[0]) + self.miss_ps
        heapq.heapreplace(self._walkers, done)
        self.tlb.put(number, done)
        return done
