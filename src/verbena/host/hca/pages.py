# SPDX-License-Identifier: Apache-2.0
"""Which memory is behind a program's addresses: what registration pins, and page faults bring.

The driver asks a ``PageSource`` when a region is registered and when the adapter misses a page.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from verbena._arguments import checked_class
from verbena.host.errors import HostError, HostTypeError

if TYPE_CHECKING:
    from verbena.host.computer import Computer

PAGE = 4096


class NoFrame(HostError):
    """All frames are pinned, or a device reads or writes them now; then there is one later."""

    def __init__(self, message: str, *, is_passing: bool) -> None:
        super().__init__(message)
        self.is_passing = is_passing


class PageSource(Protocol):
    """Virtual and physical addresses of pages of 4096 bytes."""

    def physical(self, page: int) -> int | None:
        """The physical address of the page at a virtual address; None: it is not in memory."""

    def bring(self, page: int) -> tuple[int, bool]:
        """Brings a page into memory: its physical address, and whether from storage (major)."""

    def pin(self, page: int) -> None:
        """The page must stay where it is, until it was unpinned as often."""

    def unpin(self, page: int) -> None:
        """Takes one pin away."""


@checked_class(HostTypeError, but=("bring", "physical", "pin", "unpin"))
class ResidentPages:
    """All memory is there and stays; virtual addresses are physical ones, plus ``offset``."""

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset

    def physical(self, page: int) -> int | None:
        return page + self.offset

    def bring(self, page: int) -> tuple[int, bool]:
        return page + self.offset, False

    def pin(self, page: int) -> None:
        """Nothing: it stays anyway."""

    def unpin(self, page: int) -> None:
        """Nothing."""


@dataclass
class _Resident:
    frame: int
    pins: int = 0


@checked_class(HostTypeError, but=("bring", "physical", "pin", "unpin"))
class DemandPages:
    """Pages that get a frame when they are touched, and can be evicted to storage and come back.

    The frames are ``frames`` pages of a computer's memory from ``base`` on. Without a free frame
    the page that came first, and is neither pinned nor being read or written by DMA, is evicted.
    ``watchers`` hear of each that leaves.

    A request of a region on demand may have more pages than there are frames: then they are brought
    as its packets need them. A packet may lie in two pages, which takes two frames.
    """

    def __init__(self, computer: Computer, base: int, frames: int) -> None:
        if base % PAGE or frames < 1:
            raise HostError("frames begin at a multiple of 4096, and there is at least one")
        self._computer = computer
        self.frames = frames
        self._free = [base + i * PAGE for i in reversed(range(frames))]
        self._resident: OrderedDict[int, _Resident] = OrderedDict()
        self._stored: dict[int, bytes] = {}
        self.watchers: list[PageWatcher] = []

    def physical(self, page: int) -> int | None:
        found = self._resident.get(page)
        return None if found is None else found.frame

    def bring(self, page: int) -> tuple[int, bool]:
        if page in self._resident:
            return self._resident[page].frame, False
        if not self._free:
            self.evict(self._victim(page))
        frame = self._free.pop()
        stored = self._stored.pop(page, None)
        self._computer.write(frame, bytes(PAGE) if stored is None else stored)
        self._resident[page] = _Resident(frame)
        return frame, stored is not None

    def _victim(self, page: int) -> int:
        """The page that leaves for another one; NoFrame if none can."""
        loose = [(p, one.frame) for p, one in self._resident.items() if not one.pins]
        for victim, frame in loose:
            if not self._computer.dma_is_under_way(frame):
                return victim
        why = "devices read or write all others now" if loose else "all others are pinned"
        raise NoFrame(f"no frame for the page at {page:#x}: {why}", is_passing=bool(loose))

    def evict(self, page: int) -> None:
        """Moves a page to storage; HostError if it is pinned, in use by DMA, or not in memory."""
        found = self._resident.get(page)
        if found is None:
            raise HostError(f"the page at {page:#x} is not in memory")
        if found.pins:
            raise HostError(f"the page at {page:#x} is pinned: a region that has it is registered")
        if self._computer.dma_is_under_way(found.frame):
            raise HostError(
                f"a device reads or writes the page at {page:#x} now: let time go on and try again"
            )
        for watcher in self.watchers:
            watcher.page_gone(page)
        self._stored[page] = self._computer.read(found.frame, PAGE)
        del self._resident[page]
        self._free.append(found.frame)

    def pin(self, page: int) -> None:
        self._resident[page].pins += 1

    def unpin(self, page: int) -> None:
        self._resident[page].pins -= 1

    def write(self, address: int, data: bytes) -> None:
        """Stores of the program itself: they bring pages in."""
        while data:
            offset = address % PAGE
            part, data = data[: PAGE - offset], data[PAGE - offset :]
            self._computer.write(self.bring(address - offset)[0] + offset, part)
            address += len(part)

    def read(self, address: int, size: int) -> bytes:
        """Loads of the program itself."""
        found = b""
        while len(found) < size:
            at = address + len(found)
            part = min(PAGE - at % PAGE, size - len(found))
            found += self._computer.read(self.bring(at - at % PAGE)[0] + at % PAGE, part)
        return found


class PageWatcher(Protocol):
    """Who has to know that a page leaves memory: an MMU notifier."""

    def page_gone(self, page: int) -> None:
        """The page at a virtual address is about to leave."""
