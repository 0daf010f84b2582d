# SPDX-License-Identifier: Apache-2.0
"""A plain Ethernet adapter with rings of descriptors in memory, and a cable between two of them.

A driver (machine code, or Python through ``Computer.store``) gives the adapter the addresses of its
rings and rings its doorbells. The adapter reads descriptors and frames, and writes frames and
completed descriptors, by DMA. Registers of 8 bytes each:

    0x00 RX_RING   address of the receive ring      0x18 TX_RING   of the transmit ring
    0x08 RX_SIZE   its descriptors                  0x20 TX_SIZE
    0x10 RX_TAIL   descriptors given since reset    0x28 TX_TAIL   frames given since reset
    0x30 ENABLE    1: interrupts; a driver that polls writes 0
    0x38 CAUSE     1: received, 2: transmitted; a read clears it
    0x40 TIME      an interrupt waits so many ns after the first completion
    0x48 PACKETS   or until there are so many completions; 0: TIME alone decides
    0x50 DROPPED   frames that came while no descriptor was free
    0x800          MSI-X (msix.py): entry 0 for received frames, 1 for transmitted ones. While it
                   is off, both have the adapter's vector

A descriptor has 16 bytes: 8 of address, 4 of length, 4 of status, where the adapter writes 1 for
done, or 2 for a length that no frame has. The length of a receive descriptor is written by the
adapter; its buffer has ``LONGEST`` bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from verbena._arguments import checked_class
from verbena.host.clock import Event
from verbena.host.computer import check_link
from verbena.host.devices import Device, checked_vector
from verbena.host.errors import HostError, HostTypeError
from verbena.host.msix import Msix

(RX_RING, RX_SIZE, RX_TAIL, TX_RING, TX_SIZE, TX_TAIL, ENABLE, CAUSE, TIME, PACKETS,
 DROPPED) = range(0, 0x58, 8)  # fmt: skip
MSIX = 0x800
RECEIVED, TRANSMITTED = 1, 2
DESCRIPTOR = 16
DONE, BAD_LENGTH = 1, 2
SHORTEST, LONGEST = 14, 9014  # bytes of a frame without its FCS
LEAST_ON_WIRE, GAP_AND_PREAMBLE, FCS = 64, 20, 4  # bytes (IEEE 802.3, 4A.4.2 and 3.2)


@checked_class(HostTypeError, but=("arrive", "drop_dma", "peek", "read", "write"))
class EthernetAdapter(Device):
    """An adapter whose interrupts have ``vector``. A line is held until CAUSE is read, or ENABLE is
    written with 0."""

    holds_line = True

    def __init__(self, vector: int = 43) -> None:
        super().__init__(0x1000)
        self.vector = checked_vector(vector)
        self.cable: Cable | None = None
        # Frames in memory, frames that have left, frames without a descriptor.
        self.received = self.transmitted = self.dropped = self.interrupts = 0
        self._registers = dict.fromkeys(
            (RX_RING, RX_SIZE, RX_TAIL, TX_RING, TX_SIZE, TX_TAIL, ENABLE, TIME, PACKETS), 0
        )
        self.msix = Msix(self, entries=2, at=MSIX)
        self._cause = self._completed = 0
        self._fresh = 0  # causes since the last interrupt
        self._rx_head = self._tx_head = self._tx_sent = 0
        self._fetched: dict[int, bytes | None] = {}  # frames that wait for those before them
        self._timer: Event | None = None

    # ---- registers ----

    def read(self, offset: int, size: int) -> int:
        value = self.peek(offset, size)
        if value is None:
            covered = self.msix.covers(offset)
            return self.msix.read(offset, size) if covered else super().read(offset, size)
        if offset == CAUSE:
            self._cause = 0
            self.end_interrupt()
        return value & (1 << 8 * size) - 1

    def peek(self, offset: int, size: int) -> int | None:
        if offset == CAUSE:
            return self._cause
        if offset >= MSIX and self.msix.covers(offset):
            return self.msix.peek(offset, size)
        return self.dropped if offset == DROPPED else self._registers.get(offset)

    def write(self, offset: int, size: int, value: int) -> None:
        if offset not in self._registers:
            if not self.msix.covers(offset):
                super().write(offset, size, value)
            self.msix.write(offset, size, value)
            return
        self._registers[offset] = value
        if offset == TX_TAIL:
            self._transmit()
        elif offset == RX_TAIL and value - self._rx_head > self._registers[RX_SIZE]:
            raise HostError(
                f"{self!r}: RX_TAIL {value} gives more descriptors than the ring's "
                f"{self._registers[RX_SIZE]}: it is a count that goes on, not an index"
            )
        elif offset == ENABLE and not value:
            self.end_interrupt()
        elif offset == ENABLE and self._completed:
            self._raise()

    def _descriptor(self, ring: int, size: int, number: int) -> int:
        count = self._registers[size]
        if count == 0:
            raise HostError(f"{self!r} has a doorbell and no ring: write its address and size")
        return self._registers[ring] + number % count * DESCRIPTOR

    # ---- transmit ----

    def _transmit(self) -> None:
        waiting = self._registers[TX_TAIL] - self._tx_sent
        if not 0 <= waiting <= self._registers[TX_SIZE]:
            raise HostError(
                f"{self!r}: TX_TAIL {self._registers[TX_TAIL]} gives {waiting} frames to a ring of "
                f"{self._registers[TX_SIZE]}: it is a count that goes on, not an index"
            )
        while self._tx_head < self._registers[TX_TAIL]:
            number, self._tx_head = self._tx_head, self._tx_head + 1
            at = self._descriptor(TX_RING, TX_SIZE, number)
            self.dma_read(at, DESCRIPTOR, lambda data, number=number: self._fetch(number, data))  # type: ignore[misc]

    def _fetch(self, number: int, descriptor: bytes) -> None:
        address = int.from_bytes(descriptor[:8], "little")
        length = int.from_bytes(descriptor[8:12], "little")
        if SHORTEST <= length <= LONGEST:
            self.dma_read(address, length, lambda frame: self._send(number, frame))
        else:
            self._send(number, None)

    def _send(self, number: int, frame: bytes | None) -> None:
        self._fetched[number] = frame
        while self._tx_sent in self._fetched:
            ready = self._fetched.pop(self._tx_sent)
            at = self._descriptor(TX_RING, TX_SIZE, self._tx_sent)
            self._tx_sent += 1
            if ready is not None and self.cable is not None:
                self.cable.send(self, ready)
            elif ready is not None:
                self.transmitted += 1
            status = BAD_LENGTH if ready is None else DONE
            self.dma_write(at + 12, status.to_bytes(4, "little"), lambda: self._note(TRANSMITTED))

    # ---- receive ----

    def arrive(self, frame: bytes) -> None:
        """A frame comes from the wire; without a descriptor for it, it is dropped."""
        if not SHORTEST <= len(frame) <= LONGEST:
            raise HostError(f"a frame has {SHORTEST} to {LONGEST} bytes, not {len(frame)}")
        if self.is_dead:
            return
        if self._rx_head >= self._registers[RX_TAIL]:
            self.dropped += 1
            return
        at = self._descriptor(RX_RING, RX_SIZE, self._rx_head)
        self._rx_head += 1
        self.dma_read(at, DESCRIPTOR, lambda data: self._place(at, data, frame))

    def _place(self, at: int, descriptor: bytes, frame: bytes) -> None:
        def done() -> None:
            self.received += 1
            self._note(RECEIVED)

        self.dma_write(int.from_bytes(descriptor[:8], "little"), frame)
        self.dma_write(at + 8, len(frame).to_bytes(4, "little") + DONE.to_bytes(4, "little"), done)

    # ---- failure ----

    def drop_dma(self) -> None:
        """Frames that have not left are lost, and their descriptors get no status. An adapter that
        works again goes on with those that its driver gives then."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._fetched.clear()
        self._tx_sent = self._tx_head
        super().drop_dma()
        if self.cable is not None and self.computer is not None:
            self.cable.drop(self)

    # ---- interrupts ----

    def _note(self, cause: int) -> None:
        """A completion is in memory: interrupts now, or with those that come soon."""
        self._cause |= cause
        self._fresh |= cause
        self._completed += 1
        if not self._registers[ENABLE]:
            return
        enough = 0 < self._registers[PACKETS] <= self._completed
        if (self._registers[TIME] == 0 and not self._registers[PACKETS]) or enough:
            self._raise()
        elif self._timer is None and self._registers[TIME]:
            self._timer = self.at(self.now + self._registers[TIME] * 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if self._registers[ENABLE] and self._completed:
            self._raise()

    def _raise(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._completed = 0
        self.interrupts += 1
        fresh, self._fresh = self._fresh, 0
        if not self.msix.is_enabled:
            self.interrupt(self.vector)
            return
        for entry, cause in enumerate((RECEIVED, TRANSMITTED)):
            if fresh & cause:
                self.msix.send(entry)


@checked_class(HostTypeError, but=("drop", "send"))
class Cable:
    """A full-duplex link of two adapters: ``gbps`` each way and ``delay_ns``.

    The adapters' computers have one clock: one computer, or computers of one ``Machines`` whose
    lookahead is no longer than the delay.
    """

    def __init__(
        self, left: EthernetAdapter, right: EthernetAdapter, *, gbps: float = 1.0,
        delay_ns: float = 500.0,
    ) -> None:  # fmt: skip
        if gbps <= 0 or delay_ns < 0:
            raise HostError("a cable has a rate above 0 Gb/s and a delay of at least 0 ns")
        clocks: list[Any] = [one.computer and one.computer.clock for one in (left, right)]
        if left is right or left.cable is not None or right.cable is not None:
            raise HostError("a cable has two ends, at two adapters that have no cable yet")
        if None in clocks or clocks[0] is not clocks[1]:
            raise HostError("map both adapters in computers of one clock first (see Machines)")
        check_link(left.computer, right.computer, round(delay_ns * 1000))
        self._ends = (left, right)
        self._gbps, self._delay = gbps, round(delay_ns * 1000)
        self._free = [0, 0]
        # Each gets a frame's sender, its text, its bytes and when it is on the wire, in ps.
        self.observers: list[Callable[[EthernetAdapter, str, int, int, int], None]] = []
        left.cable = right.cable = self

    def time_ps(self, size: int) -> int:
        """How long a frame of ``size`` bytes, without its FCS, occupies the wire."""
        return round((max(size + FCS, LEAST_ON_WIRE) + GAP_AND_PREAMBLE) * 8000 / self._gbps)

    def send(self, sender: EthernetAdapter, frame: bytes) -> None:
        """Puts a frame behind those that the sender has put on the wire. One that has not left
        when the sender fails or is unmapped is lost."""
        side, now, drops = self._ends.index(sender), sender.now, sender.dma_drops
        computer = sender.computer
        assert computer is not None  # since it has a time
        start = max(self._free[side], now)
        end = self._free[side] = start + self.time_ps(len(frame))
        peer = self._ends[1 - side]

        def begin() -> None:
            if sender.dma_drops == drops:
                for observe in self.observers:
                    observe(sender, "frame", len(frame), start, end)
                computer.at(end, leave)

        def leave() -> None:
            if sender.dma_drops == drops:
                sender.transmitted += 1
                computer.at(end + self._delay, lambda: peer.arrive(frame))

        if start > now:
            computer.at(start, begin)
        else:
            begin()

    def drop(self, sender: EthernetAdapter) -> None:
        """The sender has failed or is unmapped: nothing of it is on the wire, or waits."""
        side = self._ends.index(sender)
        self._free[side] = min(self._free[side], sender.now)
