# SPDX-License-Identifier: Apache-2.0
"""Write combining: a core's stores to one line of 64 bytes of a device become one transaction.

``Computer`` uses it for the parts of a device's range that ``Device.combines``. A full line is
written at once. A line that is not full is written when the core reaches the device in another way
or begins another line, and otherwise after a while, since a fence alone is not seen here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

LINE = 64
WHILE_PS = 100_000  # a line that is not full stays so long


@dataclass
class CombiningLine:
    """One line: ``base`` is its offset in the device's range, None: no line is open."""

    base: int | None = None
    bytes: bytearray = field(default_factory=lambda: bytearray(LINE))
    written: int = 0  # a bit for each byte
    opened: int = 0  # counts lines

    def fits(self, offset: int, size: int) -> bool:
        """Whether a store belongs to the line that is open."""
        return self.base is not None and self.base <= offset and offset + size <= self.base + LINE

    def add(self, offset: int, size: int, value: int) -> bool:
        """Takes a store, which opens the line if none is; whether the line is full now."""
        if self.base is None:
            self.base = offset // LINE * LINE
            self.opened += 1
        at = offset - self.base
        self.bytes[at : at + size] = value.to_bytes(size, "little")
        self.written |= ((1 << size) - 1) << at
        return self.written == (1 << LINE) - 1

    def take(self) -> list[tuple[int, int, int]]:
        """Closes the line; its runs of bytes as (offset, size, value)."""
        found: list[tuple[int, int, int]] = []
        at = 0
        while self.base is not None and self.written >> at:
            if not self.written >> at & 1:
                at += 1
                continue
            end = at
            while self.written >> end & 1:
                end += 1
            value = int.from_bytes(self.bytes[at:end], "little")
            found.append((self.base + at, end - at, value))
            at = end
        self.base, self.written = None, 0
        return found
