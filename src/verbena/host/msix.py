# SPDX-License-Identifier: Apache-2.0
"""MSI-X: the table of messages that a device has among its registers, for several interrupts.

    class Sensor(Device):
        def __init__(self):
            super().__init__(0x1000)
            self.msix = Msix(self, entries=4, at=0x800)

A driver writes an address and data into each entry (PCI Local Bus 3.0, 6.8.2); the device sends
by the number of the entry. An address 0xFEExxxxx is an interrupt (``interrupt_message.py``); any
other is memory, which the device writes by DMA. From ``at`` on there are:

    +0   message control, 16 bits: 10-0 the number of entries less one, 14 all are masked, 15 on
    +16  the table: address (8 bytes), data (4), vector control (4, bit 0: masked) of each entry
    then pending bits: 8 bytes for each 64 entries; they can only be read

The standard has message control in the device's configuration space.
"""

from __future__ import annotations

from verbena._arguments import checked_class
from verbena.host.devices import Device
from verbena.host.errors import HostError, HostTypeError
from verbena.host.interrupt_message import MESSAGE_BASE, is_message, parse_message

MOST_ENTRIES = 2048
ENTRY, TABLE = 16, 16  # bytes of an entry, and where the table begins
ENABLE, FUNCTION_MASK = 1 << 15, 1 << 14  # of message control
ADDRESS, DATA, VECTOR_CONTROL = 0, 8, 12  # of an entry
_MASKED = 1


@checked_class(HostTypeError, but=("covers", "peek", "read", "write"))
class Msix:
    """Of ``device``, whose registers from the multiple of 16 ``at`` on it has: ``size`` bytes."""

    def __init__(self, device: Device, entries: int, at: int = 0) -> None:
        if not 1 <= entries <= MOST_ENTRIES:
            raise HostError(f"an MSI-X table has 1 to {MOST_ENTRIES} entries, not {entries}")
        self.device, self.entries, self.at = device, entries, at
        self._pending_at = TABLE + entries * ENTRY
        self.size = self._pending_at + -(-entries // 64) * 8
        if at < 0 or at % 16 or at + self.size > device.size:
            raise HostError(
                f"{device!r} has {device.size} bytes of registers, and {entries} entries of MSI-X "
                f"take {self.size} from a multiple of 16 on: not from {at:#x}"
            )
        self._table = bytearray((bytes(VECTOR_CONTROL) + b"\x01\0\0\0") * entries)
        self._control = 0
        self._pending = 0  # a bit for each entry
        self.sent = self.merged = 0  # messages, and those that were pending already

    @property
    def control(self) -> int:
        """Message control."""
        return self._control | self.entries - 1

    @control.setter
    def control(self, value: int) -> None:
        self._control = value & (ENABLE | FUNCTION_MASK)
        self._send_pending()

    @property
    def is_enabled(self) -> bool:
        """Whether the driver has switched MSI-X on."""
        return bool(self._control & ENABLE)

    @property
    def pending(self) -> list[int]:
        """The entries whose interrupt waits, since they are masked."""
        return [one for one in range(self.entries) if self._pending >> one & 1]

    def is_masked(self, entry: int) -> bool:
        """Whether an entry is masked, alone or with all."""
        return bool(self._control & FUNCTION_MASK or self._field(entry, VECTOR_CONTROL) & _MASKED)

    # ---- the device's interrupts ----

    def send(self, entry: int) -> bool:
        """Sends an entry's message, or lets it wait while it is masked. False: MSI-X is off, and
        the device may use its ``interrupt``."""
        if not 0 <= entry < self.entries:
            raise HostError(
                f"{self.device!r} has no entry {entry} of its MSI-X table: 0 to {self.entries - 1}"
            )
        if not self.is_enabled:
            return False
        if self.is_masked(entry):
            self.merged += self._pending >> entry & 1
            self._pending |= 1 << entry
        else:
            self._send(entry)
        return True

    def _send(self, entry: int) -> None:
        """The write of four bytes."""
        device, computer = self.device, self.device.computer
        address = self._field(entry, ADDRESS, 8)
        data = self._field(entry, DATA)
        who = f"{device!r}, with entry {entry} of its MSI-X table,"
        if device.is_dead:
            return
        if computer is None:
            raise HostError(f"{who} is in no computer yet: map it first")
        self.sent += 1
        if not is_message(address):
            computer.dma_write(device, address, data.to_bytes(4, "little"), None, who)
            return
        try:
            message = parse_message(address, data)
        except HostError as error:
            raise HostError(f"{who} cannot interrupt: {error}") from None
        if computer.apics is not None:
            unknown = not computer.apics.targets(message)
        else:
            unknown = message.logical or message.destination >= len(computer.cores)
        if unknown:
            raise HostError(
                f"{who} interrupts {'logical destination' if message.logical else 'core'} "
                f"{message.destination}, and the computer has cores 0 to "
                f"{len(computer.cores) - 1}: write {MESSAGE_BASE:#x} + (core << 12) as address"
            )
        computer.interrupt_from(device, message.vector, message.destination, message)

    def _send_pending(self) -> None:
        """Sends what waits in entries that are masked no more."""
        if not self._pending or not self.is_enabled or self._control & FUNCTION_MASK:
            return
        for entry in self.pending:
            if not self.is_masked(entry):
                self._pending &= ~(1 << entry)
                self._send(entry)

    def _field(self, entry: int, field: int, size: int = 4) -> int:
        at = entry * ENTRY + field
        return int.from_bytes(self._table[at : at + size], "little")

    # ---- registers ----

    def covers(self, offset: int) -> bool:
        """Whether an offset of the device's registers is one of these."""
        return 0 <= offset - self.at < self.size

    def read(self, offset: int, size: int) -> int:
        """A load; ``offset`` is that of the device."""
        value = self.peek(offset, size)
        if value is None:
            raise self._refusal("load", offset, size)
        return value

    def peek(self, offset: int, size: int) -> int | None:
        """As ``read``; None where it is refused."""
        place = offset - self.at
        if place == 0 and size in (2, 4):
            return self.control
        if size not in (4, 8) or place % size or not TABLE <= place <= self.size - size:
            return None
        if place < self._pending_at:
            at = place - TABLE
            return int.from_bytes(self._table[at : at + size], "little")
        return self._pending >> 8 * (place - self._pending_at) & (1 << 8 * size) - 1

    def write(self, offset: int, size: int, value: int) -> None:
        """A store. HostError for one to an entry that is in use and not masked, whose result the
        standard leaves open, and for those that are no register."""
        place = offset - self.at
        if place == 0 and size in (2, 4):
            self.control = value
        elif size in (4, 8) and not place % size and TABLE <= place < self._pending_at:
            self._store(place - TABLE, size, value)
        else:
            raise self._refusal("store", offset, size)

    def _store(self, at: int, size: int, value: int) -> None:
        entry, field = divmod(at, ENTRY)
        if field != VECTOR_CONTROL and self.is_enabled and not self.is_masked(entry):
            raise HostError(
                f"{self.device!r}: a store to entry {entry} of its MSI-X table, which is in use: "
                "mask it first (bit 0 of its vector control)"
            )
        self._table[at : at + size] = value.to_bytes(size, "little")
        if field + size > VECTOR_CONTROL:
            self._send_pending()

    def _refusal(self, verb: str, offset: int, size: int) -> HostError:
        return HostError(
            f"{self.device!r}: a {verb} of {size} bytes at offset {offset:#x}, among the registers "
            "of MSI-X: message control has 2 bytes, and the table is read and written, and pending "
            "bits are read, 4 or 8 bytes at their multiples"
        )
