# SPDX-License-Identifier: Apache-2.0
"""Two devices without DMA that an operating system needs: a display of text, and a timer.

Drivers store to them. The display's cells are memory-mapped, a byte each, row by row; it prints as
text. The timer raises its vector once or again and again.
"""

from __future__ import annotations

from verbena._arguments import checked_class
from verbena.host.clock import Event
from verbena.host.devices import Device, checked_vector
from verbena.host.errors import HostError, HostTypeError


@checked_class(HostTypeError, but=("peek", "read", "write"))
class Display(Device):
    """``columns`` by ``rows`` cells of a byte each; ``str`` gives the text without its margin."""

    def __init__(self, columns: int = 80, rows: int = 25) -> None:
        if columns < 1 or rows < 1:
            raise HostError("a display has at least one column and one row")
        super().__init__(columns * rows)
        self.columns, self.rows = columns, rows
        self.cells = bytearray(columns * rows)

    def read(self, offset: int, size: int) -> int:
        return int.from_bytes(self.cells[offset : offset + size], "little")

    def peek(self, offset: int, size: int) -> int | None:
        return self.read(offset, size)

    def write(self, offset: int, size: int, value: int) -> None:
        self.cells[offset : offset + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")

    def line(self, number: int) -> str:
        """A row, from 0; cells that are not printable ASCII are spaces. HostError for none."""
        if not 0 <= number < self.rows:
            raise HostError(f"there is no row {number}: there are 0 to {self.rows - 1}")
        row = self.cells[number * self.columns : (number + 1) * self.columns]
        return "".join(chr(one) if 32 <= one < 127 else " " for one in row).rstrip()

    def __str__(self) -> str:
        return "\n".join(self.line(number) for number in range(self.rows)).rstrip("\n")


@checked_class(HostTypeError, but=("peek", "read", "write"))
class Timer(Device):
    """Offset 0: nanoseconds to the interrupt, written with 1 (once) or 2 (periodic) at offset 8.

    A write of 0 to offset 8 stops it; a write of 1 or 2 starts it anew. A read ends the interrupt.
    """

    def __init__(self, vector: int = 32) -> None:
        super().__init__(16)
        self.vector = checked_vector(vector)
        self.ticks = 0
        self._period = self._mode = 0
        self._next: Event | None = None

    def read(self, offset: int, size: int) -> int:
        self.end_interrupt()
        return self._value(offset, size)

    def peek(self, offset: int, size: int) -> int | None:
        return self._value(offset, size)

    def _value(self, offset: int, size: int) -> int:
        return (self._period if offset == 0 else self._mode) & (1 << 8 * size) - 1

    def write(self, offset: int, size: int, value: int) -> None:
        if offset == 0:
            self._period = value
            return
        if offset != 8 or value > 2:
            raise HostError("a timer has its time at offset 0, and at 8 a mode of 0, 1 or 2")
        if value and not self._period:
            raise HostError("a timer needs its time, in ns, before it is started")
        if self._next is not None:
            self._next.cancel()
            self._next = None
        self._mode = value
        if value:
            self._set(self.now)

    def _set(self, start: int) -> None:
        due = start + self._period * 1000
        self._next = self.at(due, lambda: self._expire(due))

    def _expire(self, due: int) -> None:
        self._next = None
        self.ticks += 1
        if self._mode == 2:
            self._set(due)
        else:
            self._mode = 0
        self.interrupt(self.vector)
