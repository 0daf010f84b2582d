# SPDX-License-Identifier: Apache-2.0
"""Memory regions.

A registration gives a range of memory a key, in one protection domain, with access flags. Peers may
write or change only what this process may write too: REMOTE_WRITE or REMOTE_ATOMIC without
LOCAL_WRITE is refused, and so is a range of no bytes (ibv_reg_mr(3), IBA 10.6.3).

A key opens memory if it names a region that exists, in the queue pair's protection domain, with the
access that is needed, and if the whole range lies inside. For no bytes at all the key is not looked
at. Reading one's own memory needs no flag.

What is not specified is which bytes a failed request has moved. The model *forgets* the range then:
every value is right in it, and only in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .words import Access, Place, Sge


@dataclass
class Region:
    pd: str
    place: Place
    length: int
    access: Access

    def contains(self, place: Place, length: int) -> bool:
        start = place.offset - self.place.offset
        return place.arena == self.place.arena and start >= 0 and start + length <= self.length


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
    """What a process's arenas hold, and which bytes are forgotten."""

    arenas: dict[str, bytearray]
    regions: dict[str, Region] = field(default_factory=dict)
    forgotten: set[tuple[str, int]] = field(default_factory=set)

    def opens(self, key: str, pd: str, place: Place, length: int, need: Access) -> bool:
        """The check of a key."""
        if length == 0:
            return True
        region = self.regions.get(key)
        return (
            region is not None
            and region.pd == pd
            and region.access & need == need
            and region.contains(place, length)
        )

    def read(self, place: Place, length: int) -> Data:
        content = bytes(self.arenas[place.arena][place.offset : place.offset + length])
        bytes_of = enumerate(range(place.offset, place.offset + length))
        return Data(content, {i for i, at in bytes_of if (place.arena, at) in self.forgotten})

    def write(self, place: Place, data: Data) -> None:
        self.arenas[place.arena][place.offset : place.offset + len(data)] = data.content
        self.forgotten -= span(place, len(data))
        self.forgotten |= {(place.arena, place.offset + i) for i in data.unknown}

    def forget(self, place: Place, length: int) -> None:
        self.forgotten |= span(place, length)

    def gather(self, sges: tuple[Sge, ...]) -> Data:
        gathered = Data(b"")
        for sge in sges:
            gathered += self.read(sge.place, sge.length)
        return gathered

    def scatter(self, sges: tuple[Sge, ...], data: Data) -> None:
        """Fill the elements in order. Where two of them overlap, the order is not specified."""
        touched: set[tuple[str, int]] = set()
        for sge in sges:
            part, data = data.split(sge.length)
            self.write(sge.place, part)
            twice = touched & span(sge.place, len(part))
            self.forgotten |= twice
            touched |= span(sge.place, len(part))

    def forget_list(self, sges: tuple[Sge, ...], pd: str) -> None:
        """A list that was only partly filled: whatever its keys open may have changed."""
        for sge in sges:
            if self.opens(sge.key, pd, sge.place, sge.length, Access.LOCAL_WRITE):
                self.forget(sge.place, sge.length)
            elif sge.key in self.regions:
                self.forget_part(sge)

    def forget_part(self, sge: Sge) -> None:
        """An element that leaves its region: what lies inside may be filled before that shows."""
        region = self.regions[sge.key]
        if sge.place.arena == region.place.arena and region.access & Access.LOCAL_WRITE:
            inside = span(region.place, region.length)
            self.forgotten |= inside & span(sge.place, sge.length)


def registration_error(length: int, access: Access) -> str | None:
    """Why a registration is refused."""
    remote = access & (Access.REMOTE_WRITE | Access.REMOTE_ATOMIC)
    return "EINVAL" if length == 0 or (remote and not access & Access.LOCAL_WRITE) else None


def span(place: Place, length: int) -> set[tuple[str, int]]:
    return {(place.arena, place.offset + i) for i in range(length)}
