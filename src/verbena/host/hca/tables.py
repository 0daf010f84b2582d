# SPDX-License-Identifier: Apache-2.0
"""The adapter's tables in memory and its caches of them: QP contexts, protection and translation.

The driver writes the tables into memory. The adapter reads an entry by DMA when it needs one that
is not in its cache, which takes one read transaction and its round trip. The protection table
(MPT) has an entry of 64 bytes for each key:

    0 key, 4 access, 8 first address, 16 length, 24 index of its first translation, 28 log2 of page

and the translation table (MTT) one of 8 bytes for each page: its physical address with bit 0 set,
or 0 for a page that is not in memory (on-demand paging).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntFlag
from typing import TYPE_CHECKING

from verbena.host.lru import Lru

if TYPE_CHECKING:
    from verbena.host.hca.device import Hca

CONTEXT_BYTES, PROTECTION_BYTES, TRANSLATION_BYTES = 64, 64, 8
_PROTECTION = struct.Struct("<IIQQII")


class HcaAccess(IntFlag):
    """The bits of ``ibv_access_flags``; reading by the owner itself is always allowed."""

    LOCAL_READ = 0
    LOCAL_WRITE = 1
    REMOTE_WRITE = 2
    REMOTE_READ = 4
    REMOTE_ATOMIC = 8


EVERYTHING = HcaAccess(15)


@dataclass(frozen=True)
class Protection:
    """An entry of the protection table."""

    key: int
    access: HcaAccess
    start: int
    length: int
    first: int  # index of the first translation
    shift: int  # log2 of the page size

    def packed(self) -> bytes:
        """Its 64 bytes."""
        packed = _PROTECTION.pack(
            self.key, self.access, self.start, self.length, self.first, self.shift
        )
        return packed.ljust(PROTECTION_BYTES, b"\0")

    @classmethod
    def parse(cls, data: bytes) -> Protection:
        """Of 64 bytes."""
        key, access, start, length, first, shift = _PROTECTION.unpack_from(data)
        return cls(key, HcaAccess(access & 15), start, length, first, shift)


@dataclass(frozen=True)
class Refused:
    """Why an access is not allowed, and its address."""

    why: str
    address: int


@dataclass(frozen=True)
class Absent:
    """Pages of a region with on-demand paging that are not in memory, by address."""

    key: int
    pages: tuple[int, ...]


Parts = list[tuple[int, int]]  # DMA address and size
Found = Parts | Refused | Absent


class EntryCache:
    """Entries of one table by index; a miss is one read of ``size`` bytes."""

    def __init__(
        self, hca: Hca, base: int, size: int, entries: int, keep: Callable[[bytes], bool]
    ) -> None:
        self._hca, self.base, self._size, self._keep = hca, base, size, keep
        self.lru: Lru[int, bytes] = Lru(entries)
        self._waiting: dict[int, list[Callable[[bytes], None]]] = {}
        self._outdated: set[int] = set()  # entries that were changed while they are being read

    def get(self, index: int, then: Callable[[bytes], None]) -> None:
        """Calls ``then`` with the entry: at once if it is there, otherwise when it was read."""
        if index in self._waiting:
            self._waiting[index].append(then)
            return
        entry = self.lru.get(index)
        if entry is not None:
            then(entry)
            return
        if self._hca.is_away:
            return
        self._waiting[index] = [then]
        self._read(index)

    def drop(self, index: int) -> None:
        """The entry in memory was changed: forgets it, and reads it anew if it is being read."""
        self.lru.drop(index)
        if index in self._waiting:
            self._outdated.add(index)

    def _read(self, index: int) -> None:
        address = self.base + index * self._size
        self._hca.transfers.read(
            address, self._size, lambda data: self._arrived(index, data), self._hca.lose_tables
        )

    def forget_readers(self) -> None:
        """What was being read was dropped: those who wait for it are not called."""
        self._waiting.clear()
        self._outdated.clear()

    def _arrived(self, index: int, data: bytes) -> None:
        if index in self._outdated:
            self._outdated.discard(index)
            self._read(index)
            return
        if self._keep(data):
            self.lru.put(index, data)
        for then in self._waiting.pop(index):
            then(data)


@dataclass(frozen=True)
class TablePlaces:
    """Where the driver has put the tables, and how many keys and pages they have room for."""

    contexts: int
    protections: int
    translations: int
    keys: int
    pages: int


class Tables:
    """The three tables of one adapter. ``entries`` are those of each cache."""

    def __init__(
        self, hca: Hca, places: TablePlaces, contexts: int, protections: int, translations: int
    ) -> None:
        self.places = places
        self.changes = 0  # of translations: what was found before one may be wrong
        self.contexts = EntryCache(hca, places.contexts, CONTEXT_BYTES, contexts, lambda data: True)
        self.protections = EntryCache(
            hca, places.protections, PROTECTION_BYTES, protections, lambda data: True
        )
        self.translations = EntryCache(
            hca, places.translations, TRANSLATION_BYTES, translations, lambda data: data[0] & 1 == 1
        )

    def forget_readers(self) -> None:
        """Reads of the tables were dropped."""
        for table in (self.contexts, self.protections, self.translations):
            table.forget_readers()

    def forget_key(self, key: int) -> None:
        """The driver has changed a key's entry."""
        self.protections.drop(key >> 8)

    def forget_pages(self, first: int, count: int) -> None:
        """The driver has changed entries of the translation table."""
        self.changes += 1
        for index in range(first, first + count):
            self.translations.drop(index)

    def translate(
        self,
        key: int,
        address: int,
        size: int,
        access: HcaAccess,
        then: Callable[[Found], None],
        *,
        whole: int | None = None,
    ) -> None:
        """Calls ``then`` with where ``size`` bytes are, or why not; at once if all is in caches.

        ``whole`` is the length of the message that begins here, which the region has to hold.
        """

        def known(data: bytes) -> None:
            entry = Protection.parse(data)
            wrong = _check(entry, key, address, size if whole is None else whole, access)
            if wrong is not None:
                then(Refused(wrong, address))
            elif size == 0:
                then([])
            else:
                self._pages(entry, address, size, then)

        if key >> 8 >= self.places.keys:
            then(Refused(f"key {key:#x} is of no region", address))
        else:
            self.protections.get(key >> 8, known)

    def _pages(
        self, entry: Protection, address: int, size: int, then: Callable[[Found], None]
    ) -> None:
        page = 1 << entry.shift
        first = address // page - entry.start // page
        count = (address + size - 1) // page - address // page + 1
        found: dict[int, int] = {}

        def known(number: int, data: bytes) -> None:
            found[number] = int.from_bytes(data, "little")
            if len(found) == count:
                then(_joined(entry, address, size, [found[first + i] for i in range(count)]))

        for number in range(first, first + count):
            self.translations.get(
                entry.first + number,
                lambda data, number=number: known(number, data),  # type: ignore[misc]
            )


def _check(entry: Protection, key: int, address: int, size: int, access: HcaAccess) -> str | None:
    if entry.key != key or entry.length == 0:
        return f"key {key:#x} is of no region: it was never given, or its region is deregistered"
    end = entry.start + entry.length
    if size and not (entry.start <= address and address + size <= end):
        return (
            f"{size} bytes at {address:#x} are not in the region of key {key:#x}, "
            f"which has {entry.start:#x} to {end - 1:#x}"
        )
    if access & ~entry.access:
        return f"the region of key {key:#x} does not allow {access.name}"
    return None


def _joined(entry: Protection, address: int, size: int, pages: list[int]) -> Found:
    """The parts of memory, neighbours as one; or the pages that are absent."""
    page = 1 << entry.shift
    first = address // page * page
    absent = tuple(first + i * page for i, one in enumerate(pages) if not one & 1)
    if absent:
        return Absent(entry.key, absent)
    parts: Parts = []
    for one in pages:
        offset = address % page
        part = min(page - offset, size)
        place = (one & ~1) + offset
        if parts and sum(parts[-1]) == place:
            parts[-1] = (parts[-1][0], parts[-1][1] + part)
        else:
            parts.append((place, part))
        address, size = address + part, size - part
    return parts
