# SPDX-License-Identifier: Apache-2.0
"""Registration of memory: keys, the tables' entries, pinned pages, and pages on demand.

``driver.py`` calls it for programs, and the adapter when it misses a page of a region.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from verbena.host.errors import HostError
from verbena.host.hca.pages import DemandPages, NoFrame, PageSource
from verbena.host.hca.tables import (
    PROTECTION_BYTES,
    TRANSLATION_BYTES,
    Absent,
    HcaAccess,
    Protection,
    TablePlaces,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from verbena.host.hca.driver import HcaDriver

_PAGE = 4096
_WAIT_PS = 1_000_000  # for a frame that DMA uses


@dataclass
class Region:
    """Registered memory: ``key`` is its local and its remote key."""

    registry: Registry
    key: int
    address: int
    length: int
    access: HcaAccess
    pages: PageSource
    page: int  # bytes
    first: int  # of its translations
    on_demand: bool
    is_registered: bool = True
    pinned: list[int] = field(default_factory=list)  # addresses of pages of 4096 bytes
    faults: dict[str, int] = field(default_factory=lambda: {"minor": 0, "major": 0})

    @property
    def count(self) -> int:
        """How many pages it touches."""
        return (self.address + self.length - 1) // self.page - self.address // self.page + 1

    def deregister(self) -> None:
        """Unpins its pages and takes its key back; a use of it fails from now on."""
        self.registry.deregister(self)

    def page_gone(self, page: int) -> None:
        """A page leaves memory: the adapter must not use it any more."""
        first = self.address // _PAGE * _PAGE
        if self.is_registered and first <= page < self.address + self.length:
            self.registry.set_page(self, (page - first) // _PAGE, None)


def _most_at_once(pages: PageSource) -> int | None:
    """How many pages a fault brings at most: one more would take a frame of the others."""
    return pages.frames if isinstance(pages, DemandPages) else None


class Registry:
    """Of one adapter's driver."""

    def __init__(self, driver: HcaDriver, places: TablePlaces) -> None:
        self.driver, self._places = driver, places
        self._regions: dict[int, Region] = {}
        self._uses = 0  # the low byte of keys: an old key of an index is not a new one
        self._free_keys = list(reversed(range(1, places.keys)))
        self._free_pages: list[tuple[int, int]] = [(0, places.pages)]

    def register(
        self,
        address: int,
        length: int,
        access: HcaAccess,
        pages: PageSource,
        page: int,
        on_demand: bool,
    ) -> Region:
        """As ``HcaDriver.register`` says."""
        if address < 0:
            raise HostError(f"the address of a region is 0 or more, not {address}")
        if length < 1:
            raise HostError(f"a region has at least one byte, not {length} at {address:#x}")
        if page < _PAGE or page & (page - 1):
            raise HostError(f"a page is a power of two from 4096 on, not {page}")
        if on_demand and page != _PAGE:
            raise HostError("on-demand paging has pages of 4096 bytes")
        if not self._free_keys:
            raise HostError(f"all {self._places.keys - 1} keys are given: deregister a region")
        count = (address + length - 1) // page - address // page + 1
        first = self._take_pages(count)
        self._uses += 1
        key = self._free_keys.pop() << 8 | self._uses & 0xFF
        region = Region(self, key, address, length, access, pages, page, first, on_demand)
        costs = self.driver.costs
        self.driver.charge("mr_register", costs.registration)
        self.driver.charge("mr_page", costs.registration_page * count)
        try:
            for number in range(count):
                self._enter(region, number)
        except HostError:
            self._leave(region)
            raise
        self._regions[key] = region
        self._write_protection(region, length)
        if isinstance(pages, DemandPages) and on_demand:
            pages.watchers.append(region)
        return region

    def deregister(self, region: Region) -> None:
        """As ``Region.deregister`` says."""
        if not region.is_registered:
            raise HostError(f"the region of key {region.key:#x} is deregistered already")
        region.is_registered = False
        del self._regions[region.key]
        self._write_protection(region, 0)
        if isinstance(region.pages, DemandPages) and region.on_demand:
            region.pages.watchers.remove(region)
        self._leave(region)

    def _leave(self, region: Region) -> None:
        """Gives back the region's key, its part of the table, and the pins it has."""
        for number in range(region.count):
            self.set_page(region, number, None)
        for page in region.pinned:
            region.pages.unpin(page)
        region.pinned.clear()
        self._give_pages(region.first, region.count)
        self._free_keys.insert(0, region.key >> 8)

    def _take_pages(self, count: int) -> int:
        for place, (first, free) in enumerate(self._free_pages):
            if free > count:
                self._free_pages[place] = (first + count, free - count)
                return first
            if free == count:
                del self._free_pages[place]
                return first
        raise HostError(
            f"the translation table has no room for {count} pages: give HcaDriver more table_pages"
        )

    def _give_pages(self, first: int, count: int) -> None:
        """Joins a free part of the table with the free parts beside it."""
        joined: list[tuple[int, int]] = []
        for start, free in sorted([*self._free_pages, (first, count)]):
            if joined and sum(joined[-1]) == start:
                joined[-1] = (joined[-1][0], joined[-1][1] + free)
            else:
                joined.append((start, free))
        self._free_pages = joined

    def _small_pages(self, region: Region, number: int) -> range:
        """Addresses of the pages of 4096 bytes in one page of a region."""
        start = (region.address // region.page + number) * region.page
        return range(start, start + region.page, _PAGE)

    def _enter(self, region: Region, number: int) -> None:
        """Pins a page of a region and writes its translation; on demand only if it is there."""
        small = self._small_pages(region, number)
        if region.on_demand:
            self.set_page(region, number, region.pages.physical(small[0]))
            return
        places = []
        for page in small:
            places.append(region.pages.bring(page)[0])
            region.pages.pin(page)
            region.pinned.append(page)
        if places != list(range(places[0], places[0] + region.page, _PAGE)):
            raise HostError(
                f"the page of {region.page} bytes at {small[0]:#x} is not in one piece of memory"
            )
        self._check_memory(region, small[0], places[0])
        self.set_page(region, number, places[0])

    def _check_memory(self, region: Region, page: int, physical: int) -> None:
        """HostError if what a region has of a page is not all in memory."""
        memory = self.driver.computer.memory
        at = max(page, region.address)
        end = min(page + region.page, region.address + region.length)
        while at < end:
            part = min(end, (at // _PAGE + 1) * _PAGE) - at
            place = physical + at - page
            if memory.find(place, part) is None:
                raise HostError(
                    f"there is no memory for {part} bytes at {at:#x} of the region at "
                    f"{region.address:#x}, which are {part} bytes at {place:#x} of the "
                    "computer: registration pins what is there"
                )
            at += part

    def set_page(self, region: Region, number: int, physical: int | None) -> None:
        """Writes one translation, None: absent, and has the adapter forget the old one."""
        index = region.first + number
        value = 0 if physical is None else physical | 1
        place = self._places.translations + index * TRANSLATION_BYTES
        self.driver.computer.write(place, value.to_bytes(8, "little"))
        self.driver.hca.tables.forget_pages(index, 1)
        iommu = self.driver.hca.iommu
        if iommu is not None and physical is not None:
            start, end = physical // iommu.page, (physical + region.page - 1) // iommu.page
            for one in range(start, end + 1):
                iommu.map(one * iommu.page, one * iommu.page, iommu.page)

    def _write_protection(self, region: Region, length: int) -> None:
        entry = Protection(
            region.key,
            region.access,
            region.address,
            length,
            region.first,
            region.page.bit_length() - 1,
        )
        place = self._places.protections + (region.key >> 8) * PROTECTION_BYTES
        self.driver.computer.write(place, entry.packed())
        self.driver.hca.tables.forget_key(region.key)

    # ---- pages on demand ----

    def page_fault(self, absent: Absent, then: Callable[[], None]) -> None:
        """Brings pages in and calls ``then`` when their faults have taken their time."""
        region = self._regions.get(absent.key)
        if region is None:  # it was deregistered meanwhile: the next try is refused
            self.driver.computer.at(self.driver.computer.now, then)
            return
        computer = self.driver.computer
        first = region.address // _PAGE * _PAGE
        costs, spent = self.driver.costs, 0
        found = []
        for page in absent.pages[: _most_at_once(region.pages)]:
            try:
                _, is_major = region.pages.bring(page)
            except NoFrame as error:
                if not error.is_passing:
                    raise
                spent = max(spent, _WAIT_PS)
                break  # the adapter asks again for those that are still absent
            region.faults["major" if is_major else "minor"] += 1
            spent += (costs.major_fault_ns if is_major else costs.minor_fault_ns) * 1000
            found.append((page - first) // _PAGE)

        def done() -> None:
            if region.is_registered:
                for number in found:
                    physical = region.pages.physical(first + number * _PAGE)
                    self.set_page(region, number, physical)
            then()

        computer.at(computer.now + spent, done)
