# SPDX-License-Identifier: Apache-2.0
"""A disk's queue: a ring of commands in memory, of which the disk carries out several at once.

``Disk`` has one. A driver writes entries to the ring and stores to TAIL how many it has given; the
disk reads each entry, moves the data by DMA, writes the entry's status and then interrupts.
Registers of 8 bytes:

    0x30 RING      address of the ring; a write begins the queue anew, with no entries given
    0x38 ENTRIES   of the ring
    0x40 TAIL      entries given since RING was written: a count that goes on, not an index
    0x48 ENDED     entries that have ended, to be read only

An entry has 32 bytes: command (4; 2: read, 3: write, as COMMAND), blocks (4), first block (8),
address of memory (8), status (4; the disk writes 3: done, 4: error) and 4 bytes for the driver.
Entries begin in their order, and may end in another one where ``channels`` is above 1. DMA to
where no memory is, or a failure of the disk, stops the queue: entries that have not ended get no
status, STATUS of the disk is 4, and a driver gives the next entries after it has written RING.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from verbena.host.errors import HostError

if TYPE_CHECKING:
    from verbena.host.disk import Disk

RING, ENTRIES, TAIL, ENDED = 0x30, 0x38, 0x40, 0x48
ENTRY_BYTES, STATUS_AT = 32, 24
_ENTRY = struct.Struct("<IIQQ8x")


class DiskQueue:
    """Of ``disk``; ``channels`` is how many entries are at the medium at once.

    ``carry_out(command, first block, blocks, address, then)`` is what does one, and calls ``then``
    with its status.
    """

    def __init__(
        self,
        disk: Disk,
        channels: int,
        carry_out: Callable[[int, int, int, int, Callable[[int], None]], None],
    ) -> None:
        self._disk, self._channels, self._carry_out = disk, channels, carry_out
        self._ring = self._entries = 0
        self._given = self._read = self._begun = self._ended = 0  # entries
        self._running = 0
        self.has_stopped = False  # its DMA failed, and RING has not been written since
        self._beginnings = 0  # how often the queue began anew: what was under way before is dropped
        self._waiting: deque[tuple[int, bytes]] = deque()  # entries that were read: place and bytes

    @property
    def is_busy(self) -> bool:
        """Entries are at the medium."""
        return self._running > 0

    @property
    def is_under_way(self) -> bool:
        """Entries have been given that have not ended."""
        return self._ended < self._given

    def read(self, register: int) -> int | None:
        """A register's value; None: it is none of the queue's."""
        return {RING: self._ring, ENTRIES: self._entries, TAIL: self._given,
                ENDED: self._ended}.get(register)  # fmt: skip

    def write(self, register: int, value: int) -> None:
        """A store to RING, ENTRIES or TAIL. HostError for one that a driver must not make."""
        if register in (RING, ENTRIES) and self.is_under_way:
            raise HostError(
                f"{self._disk!r}: its ring has {self._given - self._ended} entries that have not "
                "ended: wait for them before it gets another one"
            )
        if register == RING:
            self._ring = value
            self.has_stopped = False
            self._given = self._read = self._begun = self._ended = 0
        elif register == ENTRIES:
            self._entries = value
        elif register == TAIL:
            self._give(value)

    def stop(self) -> None:
        """The disk's DMA has failed: drops the entries that have not ended, if there are any."""
        if not self.is_under_way:
            return
        self.has_stopped = True
        self._beginnings += 1
        self._running = 0
        self._waiting.clear()
        self._given = self._read = self._begun = self._ended

    def _give(self, count: int) -> None:
        if self.has_stopped:
            raise HostError(
                f"{self._disk!r}: its queue has stopped, since its DMA failed "
                f"({self._disk.failure}): a store to RING begins it anew"
            )
        if not self._given <= count <= self._ended + self._entries:
            raise HostError(
                f"{self._disk!r}: TAIL {count} gives {count - self._ended} entries that have not "
                f"ended to a ring of {self._entries}, and was {self._given}: it is a count that "
                "goes on, not an index, of entries that were written to a ring"
            )
        self._given = count
        self.go_on()

    def go_on(self) -> None:
        """Begins entries that are here, as far as channels are free, and reads as many ahead."""
        while self._waiting and self._running < self._channels and not self._disk.is_busy:
            place, data = self._waiting.popleft()
            self._begun += 1
            self._running += 1
            command, blocks, first, address = _ENTRY.unpack(data)
            self._carry_out(
                command, first, blocks, address, partial(self._end, self._beginnings, place)
            )
        while self._read < self._given and self._read - self._begun < self._channels:
            place = self._ring + self._read % self._entries * ENTRY_BYTES
            self._read += 1
            self._disk.dma_read(place, ENTRY_BYTES, partial(self._arrived, self._beginnings, place))

    def _arrived(self, beginning: int, place: int, data: bytes) -> None:
        if beginning == self._beginnings:
            self._waiting.append((place, data))
            self.go_on()

    def _end(self, beginning: int, place: int, status: int) -> None:
        if beginning != self._beginnings:
            return
        self._running -= 1
        written = partial(self._written, beginning)
        self._disk.dma_write(place + STATUS_AT, status.to_bytes(4, "little"), written)
        self.go_on()

    def _written(self, beginning: int) -> None:
        if beginning == self._beginnings:
            self._ended += 1
            self._disk.raise_interrupt()
