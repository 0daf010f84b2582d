# SPDX-License-Identifier: Apache-2.0
"""A disk whose blocks are read by programmed I/O or by DMA.

Registers of 8 bytes each, from offset 0:

    0x00 COMMAND   1: read by programmed I/O, 2: read by DMA, 3: write by DMA
    0x08 BLOCK     number of the first block
    0x10 COUNT     number of blocks
    0x18 ADDRESS   of memory, for DMA
    0x20 STATUS    0: idle, 1: busy, 2: data ready, 3: done, 4: error; a read of it clears 3 and 4.
                   A command while another one runs is an error, and that one goes on. One during
                   which the disk fails or is unmapped has ended with 4 when the disk is back
    0x28 ENABLE    1: interrupts at "data ready" and "done"; a line is held until STATUS is read

from 0x30 on those of a queue of commands in memory (``disk_queue.py``), and from 0x1000 on the
buffer of programmed I/O, up to 64 KiB.
"""

from __future__ import annotations

from collections.abc import Callable

from verbena._arguments import checked_class
from verbena.host.devices import Device, checked_vector
from verbena.host.disk_queue import ENTRIES, RING, TAIL, DiskQueue
from verbena.host.errors import AccessError, HostError, HostTypeError

COMMAND, BLOCK, COUNT, ADDRESS, STATUS, ENABLE = range(0, 0x30, 8)
BUFFER = 0x1000
READ_PIO, READ_DMA, WRITE_DMA = 1, 2, 3
IDLE, BUSY, READY, DONE, FAILED = range(5)


@checked_class(
    HostTypeError, but=("dma_failed", "drop_dma", "peek", "raise_interrupt", "read", "write")
)
class Disk(Device):
    """A disk with ``content``; each command takes ``latency_us`` before data move.

    ``channels`` commands of its queue are at the medium at once.
    """

    holds_line = True

    def __init__(
        self,
        content: bytes | bytearray,
        *,
        block: int = 512,
        latency_us: float = 10.0,
        vector: int = 46,
        channels: int = 1,
    ) -> None:
        super().__init__(BUFFER + 65536)
        if latency_us < 0:
            raise HostError(f"a disk's latency is at least 0 us, not {latency_us}")
        if block < 1:
            raise HostError(f"a block of a disk has at least one byte, not {block}")
        if channels < 1:
            raise HostError(f"a disk has at least one channel, not {channels}")
        if len(content) % block:
            raise HostError(f"a disk has whole blocks of {block} bytes, not {len(content)} bytes")
        self.content = bytearray(content)
        self.block, self.latency_ps = block, round(latency_us * 1e6)
        self.vector = checked_vector(vector)
        self._registers = dict.fromkeys((BLOCK, COUNT, ADDRESS, ENABLE), 0)
        self._status = IDLE
        self.failure: str | None = None  # why the last command has failed, for those who show it
        self._refused = False  # a command, while another one runs
        self._buffer = b""
        self._queue = DiskQueue(self, channels, self._carry_out)

    @property
    def is_busy(self) -> bool:
        """A command of COMMAND is under way; entries of the queue wait for it."""
        return self._status == BUSY

    # ---- registers ----

    def read(self, offset: int, size: int) -> int:
        value = self.peek(offset, size)
        if value is None:
            return super().read(offset, size)
        if offset == STATUS:
            self.end_interrupt()
        if offset == STATUS and self._refused:
            self._refused = False
        elif offset == STATUS and self._status in (DONE, FAILED):
            self._status = IDLE
        elif self._status == READY and offset >= BUFFER:
            self._status = READY if offset + size < BUFFER + len(self._buffer) else IDLE
        return value & (1 << 8 * size) - 1

    def peek(self, offset: int, size: int) -> int | None:
        if offset >= BUFFER:
            at = offset - BUFFER
            return int.from_bytes(self._buffer[at : at + size], "little")
        if offset == STATUS:
            return FAILED if self._refused else self._status
        return self._registers.get(offset, self._queue.read(offset))

    def write(self, offset: int, size: int, value: int) -> None:
        if offset == COMMAND:
            self._start(value)
        elif offset in self._registers:
            self._registers[offset] = value
        elif offset in (RING, ENTRIES, TAIL):
            self._queue.write(offset, value)
        else:
            super().write(offset, size, value)

    # ---- commands ----

    def _range(self) -> tuple[int, int]:
        return self._registers[BLOCK] * self.block, self._registers[COUNT] * self.block

    def _start(self, command: int) -> None:
        if self.is_busy or self._queue.is_busy:
            self.failure = "another one is under way"
            self._refused = True
            self.raise_interrupt()
            return
        first, size = self._range()
        self.failure = self._failure(command, first, size)
        if self.failure is not None:
            self._end(FAILED)
            return
        self._status, address = BUSY, self._registers[ADDRESS]
        drops = self.dma_drops

        def at_medium() -> None:
            if self.dma_drops == drops:
                self._medium(command, first, size, address)

        self.at(self.now + self.latency_ps, at_medium)

    def _failure(self, command: int, first: int, size: int) -> str | None:
        """Why a command cannot be done; None if it can."""
        if command not in (READ_PIO, READ_DMA, WRITE_DMA):
            return f"there is no command {command}"
        if size == 0:
            return "it has 0 blocks"
        if first + size > len(self.content):
            count, block = size // self.block, first // self.block
            there = len(self.content) // self.block
            return f"it has {count} blocks from block {block} on, and the disk has {there}"
        if command == READ_PIO and size > self.size - BUFFER:
            return f"its {size} bytes do not fit into the buffer of {self.size - BUFFER}"
        return None

    def _medium(self, command: int, first: int, size: int, address: int) -> None:
        if command == READ_PIO:
            self._buffer = bytes(self.content[first : first + size])
            self._end(READY)
        elif command == READ_DMA:
            data = bytes(self.content[first : first + size])
            self.dma_write(address, data, lambda: self._end(DONE))
        else:
            self.dma_read(address, size, lambda data: self._written(first, data))

    def dma_failed(self, error: AccessError) -> None:
        if not self.is_busy and self._queue.has_stopped:
            return  # it was under way for an entry that the queue has dropped
        self.failure = str(error)
        self._queue.stop()
        self._end(FAILED)
        super().dma_failed(error)

    def drop_dma(self) -> None:
        if self.is_busy or self._queue.is_under_way:
            self.failure = "the disk failed or was unmapped meanwhile"
            self._queue.stop()
            self._status = FAILED
        super().drop_dma()

    def _written(self, first: int, data: bytes) -> None:
        self.content[first : first + len(data)] = data
        self._end(DONE)

    def _end(self, status: int) -> None:
        self._status = status
        self.raise_interrupt()
        self._queue.go_on()

    def _carry_out(
        self, command: int, first: int, count: int, address: int, then: Callable[[int], None]
    ) -> None:
        """Does a command of the queue, and calls ``then`` with its status."""
        start, size = first * self.block, count * self.block
        failure = self._failure(command, start, size)
        if command == READ_PIO:
            failure = "a command of the queue moves its data by DMA"
        self.failure = failure
        if failure is not None:
            then(FAILED)
            return

        drops = self.dma_drops

        def written(data: bytes) -> None:
            self.content[start : start + size] = data
            then(DONE)

        def at_medium() -> None:
            if self.dma_drops != drops:
                return
            if command == READ_DMA:
                data = bytes(self.content[start : start + size])
                self.dma_write(address, data, lambda: then(DONE))
            else:
                self.dma_read(address, size, written)

        self.at(self.now + self.latency_ps, at_medium)

    def raise_interrupt(self) -> None:
        """Interrupts, if the driver has asked for it: after each command."""
        if self._registers[ENABLE]:
            self.interrupt(self.vector)
