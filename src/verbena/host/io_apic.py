# SPDX-License-Identifier: Apache-2.0
"""An I/O APIC: interrupt lines of devices, and the table that says what becomes of each.

``InterruptController`` maps it. A driver writes the number of a register of 4 bytes at offset 0
and finds the register at offset 0x10 (Intel 82093AA, 3.0): 0 the ID, 1 the version and the number
of the last line, 2 the arbitration ID, and two for each line from 0x10 on. Those of a line are

    bits 0-7 vector    8-10 0 fixed, 1 lowest priority    11 logical destination    12 always 0
    13 active low      14 remote IRR                      15 level-triggered        16 masked
    56-63 destination

A line is active while any of its sources raises it; several devices may share a level-triggered
one. Remote IRR is 1 from when a local APIC has taken such an interrupt in until EOI: if the line is
still active then, the interrupt comes again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from verbena._arguments import checked_class
from verbena.host.devices import Device
from verbena.host.errors import HostError, HostTypeError
from verbena.host.interrupt_message import FIXED, LOWEST_PRIORITY, InterruptMessage
from verbena.host.local_apics import LocalApics

LINES = 24
SELECT, WINDOW = 0x00, 0x10
MASKED, LEVEL, REMOTE_IRR, ACTIVE_LOW, LOGICAL = 1 << 16, 1 << 15, 1 << 14, 1 << 13, 1 << 11
TABLE = 0x10  # the number of the first register of the table
_VERSION = 0x11 | LINES - 1 << 16
_SIZE, _WORD = 0x1000, 0xFFFFFFFF
_LOW_BITS = MASKED | LEVEL | ACTIVE_LOW | LOGICAL | 0x7FF  # that a driver may write


@dataclass
class _Line:
    """A line and its entry of the table."""

    is_low: bool  # its wire is low while a source raises it
    entry: int = MASKED
    sources: set[object] = field(default_factory=set)
    is_active: bool = False

    @property
    def level(self) -> bool:
        """Whether it is level-triggered."""
        return bool(self.entry & LEVEL)

    def follows(self) -> bool:
        """Takes over what is on the wire; True: the line has become active."""
        was_active = self.is_active
        self.is_active = bool(self.sources) ^ self.is_low ^ bool(self.entry & ACTIVE_LOW)
        return self.is_active and not was_active


class WiredLine:
    """A device's end of a line, as ``Device.wired``."""

    def __init__(self, controller: IoApic, line: int, device: Device) -> None:
        self._controller, self._line, self._device = controller, line, device

    @property
    def register(self) -> int:
        """The number of the register with the lower half of the line's entry."""
        return TABLE + 2 * self._line

    def entry(self, vector: int) -> int:
        """The lower half of an entry that fits wire and device, for a driver."""
        low = ACTIVE_LOW if self._controller.is_active_low(self._line) else 0
        return vector | low | (LEVEL if self._device.holds_line else 0)

    def interrupt(self) -> None:
        """The device raises the line, and holds it if it can say when its cause is gone."""
        self._controller.raise_line(self._line, self._device)
        if not self._device.holds_line:
            self.lower()

    def lower(self) -> None:
        """The device's cause is gone."""
        self._controller.lower_line(self._line, self._device)


@checked_class(HostTypeError, but=("peek", "read", "write"))
class IoApic(Device):
    """Sends to ``apics``. The wires of ``active_low`` lines are low while a source raises them: 16
    to 23 by default, as those of PCI on usual boards."""

    def __init__(self, apics: LocalApics, *, active_low: Iterable[int] = range(16, LINES)) -> None:
        super().__init__(_SIZE)
        low = set(active_low)
        if not low <= set(range(LINES)):
            raise HostError(f"lines are 0 to {LINES - 1}: active_low has {sorted(low)}")
        self._apics = apics
        apics.end_observers.append(self._ended)
        apics.enable_observers.append(self._send_again)
        self._lines = [_Line(number in low) for number in range(LINES)]
        for line in self._lines:
            line.follows()
        self._select = self._id = 0
        self.sent = 0  # interrupts
        self.masked_edges = 0  # that were lost, since the line was masked

    # ---- lines ----

    def connect(self, device: Device, line: int) -> None:
        """Lets a device's interrupts come by a line, in place of its vector and a message.

        Those of a device that ``holds_line`` last until it calls ``end_interrupt``; others are
        pulses, for an edge-triggered line.
        """
        self._line(line)
        if device.computer is not None and device.computer is not self._apics.computer:
            raise HostError(f"{device!r} is in another computer than {self!r}")
        if device.wired is not None:
            raise HostError(f"{device!r} has a line already")
        device.wired = WiredLine(self, line, device)

    def is_active_low(self, line: int) -> bool:
        """Whether a line's wire is low while a source raises it."""
        return self._line(line).is_low

    def _line(self, number: int) -> _Line:
        if not 0 <= number < LINES:
            raise HostError(f"{self!r} has no line {number}: 0 to {LINES - 1}")
        return self._lines[number]

    def raise_line(self, line: int, source: object = None) -> None:
        """A source raises a line; it may have raised it already."""
        one = self._line(line)
        one.sources.add(source)
        self._look(one, one.follows())

    def lower_line(self, line: int, source: object = None) -> None:
        """A source no longer raises a line, which stays active while others do."""
        one = self._line(line)
        one.sources.discard(source)
        self._look(one, one.follows())

    def _look(self, one: _Line, has_edge: bool) -> None:
        """Sends what a line asks for now."""
        if one.entry & MASKED:
            self.masked_edges += has_edge and not one.level
        elif one.level and one.is_active and not one.entry & REMOTE_IRR:
            if self._sends(one):
                one.entry |= REMOTE_IRR
        elif has_edge and not one.level:
            self._sends(one)

    def _sends(self, one: _Line) -> bool:
        self.sent += 1
        self._home().counters.interrupts_sent += 1
        message = InterruptMessage(
            destination=one.entry >> 56,
            vector=one.entry & 0xFF,
            logical=bool(one.entry & LOGICAL),
            lowest=one.entry >> 8 & 7 == LOWEST_PRIORITY,
            level=one.level,
        )
        return self._apics.deliver(message, "I/O APIC")

    def _ended(self, vector: int) -> None:
        """A local APIC tells that a level-triggered interrupt has ended."""
        for one in self._lines:
            if one.level and one.entry & REMOTE_IRR and one.entry & 0xFF == vector:
                one.entry &= ~REMOTE_IRR
                self._look(one, False)

    def _send_again(self) -> None:
        """A local APIC was enabled: it may take in what none has before."""
        for one in self._lines:
            self._look(one, False)

    # ---- registers ----

    def read(self, offset: int, size: int) -> int:
        value = self.peek(offset, size) if size == 4 else None
        if value is None:
            raise HostError(
                f"{self!r}: a load of {size} bytes at offset {offset:#x}, with register "
                f"{self._select:#x} selected: 4 bytes at 0 or 0x10, and registers 0 to 2 and "
                f"{TABLE:#x} to {TABLE + 2 * LINES - 1:#x}"
            )
        return value

    def peek(self, offset: int, size: int) -> int | None:
        if offset == SELECT:
            return self._select
        if offset != WINDOW:
            return None
        place, half = divmod(self._select - TABLE, 2)
        if 0 <= place < LINES:
            return self._lines[place].entry >> 32 * half & _WORD
        return {0: self._id << 24, 1: _VERSION, 2: self._id << 24}.get(self._select)

    def write(self, offset: int, size: int, value: int) -> None:
        place, half = divmod(self._select - TABLE, 2)
        if size == 4 and offset == SELECT:
            self._select = value & 0xFF
        elif size == 4 and offset == WINDOW and 0 <= place < LINES:
            self._set_entry(place, half, value)
        elif size == 4 and offset == WINDOW and self._select == 0:
            self._id = value >> 24 & 0xF
        else:
            raise HostError(
                f"{self!r}: a store of {size} bytes at offset {offset:#x}, with register "
                f"{self._select:#x} selected: 4 bytes at 0 or 0x10, and registers 0 and "
                f"{TABLE:#x} to {TABLE + 2 * LINES - 1:#x}"
            )

    def _set_entry(self, place: int, half: int, value: int) -> None:
        one = self._lines[place]
        if half:
            one.entry = one.entry & _WORD | (value & 0xFF000000) << 32
            return
        mode, vector = value >> 8 & 7, value & 0xFF
        if not value & MASKED and (mode not in (FIXED, LOWEST_PRIORITY) or vector < 32):
            raise HostError(
                f"{self!r}: line {place} gets delivery mode {mode} and vector {vector}: here are "
                "modes 0 (fixed) and 1 (lowest priority) with vectors 32 to 255; leave it masked "
                "(bit 16) until they are set"
            )
        kept = one.entry & ~_WORD | (one.entry & REMOTE_IRR if value & LEVEL else 0)
        one.entry = kept | value & _LOW_BITS
        one.follows()
        self._look(one, False)
