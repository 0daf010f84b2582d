# SPDX-License-Identifier: Apache-2.0
"""Memory regions.

A registration gives a range of memory a key, in one protection domain, with access flags. Peers may
write or change only what this process may write too: REMOTE_WRITE or REMOTE_ATOMIC without
LOCAL_WRITE is refused, and so is a range of no bytes, but of device memory (ibv_reg_mr(3), IBA
10.6.3). No memory here is persistent: FLUSH_PERSISTENT is refused.

A key opens memory if it names a region that exists, in the queue pair's protection domain, with the
access that is needed, and if the whole range lies inside. For no bytes at all the key is not looked
at, but by FLUSH. Reading one's own memory needs no flag.

The addresses of a ZERO_BASED region count from 0. Those of device memory always do: a region of it
that is not ZERO_BASED is refused, and so is one with MW_BIND (ibv_alloc_dm(3)). A null region is a
local key for every address: zeros are read there, and what is written is gone
(ibv_alloc_null_mr(3)).

A region may be registered again (ibv_rereg_mr(3)), with another protection domain, other access
flags, other memory, or several of these; with other memory its keys are others. EINVAL is what a
registration refuses, and a region of device memory; EBUSY a region to which a window is bound. What
is refused leaves the region as it was.

What is not specified is which bytes a failed request has moved. The model *forgets* the range then:
every value is right in it, and only in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .words import Access, Place, Sge

if TYPE_CHECKING:
    from .windows import Window

Bytes = set[tuple[str, int]]
"""Bytes by arena and offset."""


@dataclass
class Range:
    """What a key opens: the first byte lies at ``place``."""

    place: Place
    length: int
    access: Access

    @property
    def start(self) -> Place:
        """The first byte's address."""
        return Place("zero", 0) if self.access & Access.ZERO_BASED else self.place

    def contains(self, address: Place, length: int) -> bool:
        into = address.offset - self.start.offset
        return address.arena == self.start.arena and into >= 0 and into + length <= self.length

    def lies(self, address: Place) -> Place:
        into = address.offset - self.start.offset
        return Place(self.place.arena, self.place.offset + into)


@dataclass
class Region(Range):
    name: str
    pd: str


@dataclass
class Data:
    """Bytes on their way; at the places in ``unknown`` every value is right."""

    content: bytes
    unknown: set[int] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.content)

    def __add__(self, other: Data) -> Data:
        moved = {len(self) + at for at in other.unknown}
        return Data(self.content + other.content, self.unknown | moved)

    def split(self, at: int) -> tuple[Data, Data]:
        """The first ``at`` bytes, and the others."""
        head = Data(self.content[:at], {i for i in self.unknown if i < at})
        return head, Data(self.content[at:], {i - at for i in self.unknown if i >= at})


@dataclass
class Memory:
    """What a process's arenas hold, which bytes are forgotten, and the keys."""

    arenas: dict[str, bytearray]
    regions: dict[str, Region] = field(default_factory=dict)
    nulls: dict[str, str] = field(default_factory=dict)  # null regions, and their domains
    windows: dict[str, Window] = field(default_factory=dict)
    forgotten: Bytes = field(default_factory=set)

    # ---- keys ----

    def opens(self, key: str, pd: str, place: Place, length: int, need: Access) -> bool:
        """The check of a local key."""
        if length == 0 or self.nulls.get(key) == pd:
            return True
        region = self.regions.get(key)
        return region is not None and region.pd == pd and allows(region, place, length, need)

    def opens_to(self, qp: str, pd: str, key: str, place: Place, length: int, need: Access) -> bool:
        """The check of a remote key, for a request to that queue pair."""
        given = self.given_to(qp, pd, key)
        return length == 0 or (given is not None and allows(given, place, length, need))

    def given_to(self, qp: str, pd: str, key: str) -> Range | None:
        """What a remote key names, for requests to that queue pair."""
        region = self.regions.get(key)
        if region is not None:
            return region if region.pd == pd else None
        for window in self.windows.values():
            bound = window.bound
            if bound is not None and bound.key == key and window.pd == pd:
                return bound if bound.qp in (None, qp) else None
        return None

    def named(self, key: str) -> Range | None:
        """What a key names, a region or a window."""
        bound = [w.bound for w in self.windows.values() if w.bound and w.bound.key == key]
        return self.regions.get(key) or next(iter(bound), None)

    def lies(self, key: str, address: Place) -> Place:
        """Where an address that the key opens is found."""
        if key in self.nulls:
            return Place("null", address.offset)
        named = self.named(key)
        return named.lies(address) if named else address

    def places(self, sges: tuple[Sge, ...]) -> Bytes:
        """The bytes that a list names."""
        return set().union(*(span(self.lies(s.key, s.place), s.length) for s in sges))

    # ---- bytes ----

    def read(self, place: Place, length: int) -> Data:
        if place.arena == "null":
            return Data(bytes(length))
        content = bytes(self.arenas.get(place.arena, b"")[place.offset : place.offset + length])
        bytes_of = enumerate(range(place.offset, place.offset + length))
        return Data(content, {i for i, at in bytes_of if (place.arena, at) in self.forgotten})

    def write(self, place: Place, data: Data) -> None:
        if place.arena == "null" or not len(data):
            return
        self.arenas[place.arena][place.offset : place.offset + len(data)] = data.content
        self.forgotten -= span(place, len(data))
        self.forgotten |= {(place.arena, place.offset + i) for i in data.unknown}

    def forget(self, place: Place, length: int) -> None:
        self.forgotten |= span(place, length)

    def gather(self, sges: tuple[Sge, ...], *, inline: bool = False) -> Data:
        """Inline data is taken from its address, whatever the key."""
        gathered = Data(b"")
        for sge in sges:
            place = sge.place if inline else self.lies(sge.key, sge.place)
            gathered += self.read(place, sge.length)
        return gathered

    def scatter(self, sges: tuple[Sge, ...], data: Data) -> None:
        """Fill the elements in order. Where two of them overlap, the order is not specified."""
        touched: Bytes = set()
        for sge in sges:
            part, data = data.split(sge.length)
            place = self.lies(sge.key, sge.place)
            self.write(place, part)
            twice = touched & span(place, len(part))
            self.forgotten |= twice
            touched |= span(place, len(part))

    def forget_list(self, sges: tuple[Sge, ...], pd: str) -> None:
        """A list that was only partly filled: whatever its keys open may have changed."""
        for sge in sges:
            if self.opens(sge.key, pd, sge.place, sge.length, Access.LOCAL_WRITE):
                self.forget(self.lies(sge.key, sge.place), sge.length)
            elif sge.key in self.regions:
                self.forget_part(sge)

    def forget_part(self, sge: Sge) -> None:
        """An element that leaves its region: what lies inside may be filled before that shows."""
        region = self.regions[sge.key]
        if sge.place.arena == region.start.arena and region.access & Access.LOCAL_WRITE:
            inside = span(region.place, region.length)
            self.forgotten |= inside & span(region.lies(sge.place), sge.length)


def allows(found: Range, place: Place, length: int, need: Access) -> bool:
    return found.access & need == need and found.contains(place, length)


def registration_error(place: Place, length: int, access: Access) -> str | None:
    """Why a registration is refused."""
    remote = access & (Access.REMOTE_WRITE | Access.REMOTE_ATOMIC)
    no_device_memory = not access & Access.ZERO_BASED or access & Access.MW_BIND
    if place.arena == "dm" and no_device_memory:
        return "EINVAL"
    if (length == 0 and place.arena != "dm") or access & Access.FLUSH_PERSISTENT:
        return "EINVAL"
    return "EINVAL" if remote and not access & Access.LOCAL_WRITE else None


def change_error(
    region: Region, place: Place, length: int, access: Access, *, covered: bool
) -> set[str]:
    """Why a registration is not changed to this: one of these."""
    faults = {"EBUSY"} if covered else set()
    if region.place.arena == "dm" or registration_error(place, length, access):
        faults.add("EINVAL")
    return faults


def span(place: Place, length: int) -> Bytes:
    if place.arena == "null":
        return set()
    return {(place.arena, place.offset + i) for i in range(length)}
