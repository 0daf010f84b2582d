# SPDX-License-Identifier: Apache-2.0
"""The memory controller: a table of ranges says which memory or device answers an address.

``Computer`` has one, and plugs the devices in; cores find their accesses' targets by it. No two
ranges overlap.
"""

from __future__ import annotations

from verbena._arguments import is_whole
from verbena.host._cpu import PhysicalMemory
from verbena.host.computer_records import Range
from verbena.host.devices import Device, Ram
from verbena.host.errors import AccessError, HostError, HostTypeError

__all__ = ["MemoryController"]

_SPACE = 1 << 52  # bytes that a physical address names


class PhysicalAddresses(PhysicalMemory):
    """The physical address space, which prints as its table of ranges: where, how long, what."""

    def __init__(self, ranges: list[Range]) -> None:
        super().__init__()
        self._ranges = ranges

    def __repr__(self) -> str:
        rows = [
            (f"{one.base:#x}", f"{one.end - 1:#x}", f"{one.end - one.base:,}",
             type(one.device).__name__)
            for one in sorted(self._ranges, key=lambda one: one.base)
        ]  # fmt: skip
        if not rows:
            return "no range is mapped"
        first, last, size = (max(len(row[column]) for row in rows) for column in range(3))
        return "\n".join(
            f"{row[0]:>{first}} to {row[1]:>{last}}  {row[2]:>{size}} bytes  {row[3]}"
            for row in rows
        )


class MemoryController:
    """Ranges of any base and size, of memory and of devices, in one physical address space."""

    def __init__(self) -> None:
        self._ranges: list[Range] = []
        self.memory: PhysicalMemory = PhysicalAddresses(self._ranges)

    @property
    def table(self) -> list[Range]:
        """All ranges by address."""
        return sorted(self._ranges, key=lambda one: one.base)

    def find(self, address: int) -> Range | None:
        """The range that an address belongs to."""
        return next((one for one in self._ranges if one.base <= address < one.end), None)

    def free_range(self, device: Ram | Device, base: int) -> Range:
        """The range that a device or memory would have, which ``add`` takes. Raises HostError."""
        if not hasattr(device, "size") or not (isinstance(device, Ram) or hasattr(device, "base")):
            raise HostError(
                f"a {type(device).__name__} has no size: its __init__ calls super().__init__(SIZE) "
                "with the number of bytes of its registers"
            )
        new = Range(base, base + device.size, device)
        if base < 0 or new.end > _SPACE:
            raise HostError(
                f"{_kind(device)} would be at {base:#x} to {new.end - 1:#x}, and physical "
                "addresses are 0 to 2^52 - 1"
            )
        for one in self._ranges:
            if new.base < one.end and one.base < new.end:
                raise HostError(
                    f"{_kind(device)} at {new.base:#x} to {new.end - 1:#x} overlaps "
                    f"{_kind(one.device)} at {one.base:#x} to {one.end - 1:#x}"
                )
        return new

    def add(self, new: Range) -> None:
        """A row more. Memory answers from now on; a device's window is its computer's work."""
        if isinstance(new.device, Ram) and not self.memory.add_ram(new.base, new.device.bytes):
            raise HostError(
                "there are 16 ranges of memory already: let one Ram have what several would"
            )
        self._ranges.append(new)

    def remove(self, base: int) -> Range:
        """Take away the row that begins at ``base``, and return it. Raises HostError."""
        for one in self._ranges:
            if one.base == base:
                self._ranges.remove(one)
                self.memory.remove(base)
                return one
        raise HostError(f"no range begins at {base:#x}")

    def read(self, address: int, size: int) -> bytes:
        """Bytes of memory, as a debugger reads them. Raises HostTypeError, AccessError."""
        if not is_whole(address) or not is_whole(size):
            raise _bad_range("read", address, size)
        try:
            data = self.memory.read(address, size)
        except (TypeError, OverflowError):
            raise _bad_range("read", address, size) from None
        if data is None:
            raise AccessError(
                f"{size} bytes at {address:#x} are not all in one range of memory"
                f"{self._of_device(address)}"
            )
        return data

    def write(self, address: int, data: bytes) -> None:
        """Write memory. Raises HostTypeError, AccessError."""
        if not is_whole(address):
            raise _bad_range("write", address, data)
        try:
            is_written = self.memory.write(address, data)
        except (TypeError, ValueError, OverflowError):
            raise _bad_range("write", address, data) from None
        if not is_written:
            raise AccessError(
                f"{len(data)} bytes at {address:#x} are not all in one range of memory"
                f"{self._of_device(address)}"
            )

    def _of_device(self, address: int) -> str:
        """Advice, if the registers of a device are at an address."""
        found = self.find(address)
        if found is None or isinstance(found.device, Ram):
            return ""
        return (
            f": these are registers of {found.device!r}, of which its peek(offset, size) shows the "
            "value, and Computer.store changes one"
        )


def _kind(device: Ram | Device) -> str:
    return repr(device) if isinstance(device, Ram) else type(device).__name__


def _bad_range(what: str, address: object, more: object) -> HostTypeError:
    """The error of an access to memory by the caller of ``Computer.read`` or ``write``."""
    name, takes = ("size", "a whole number from 0 on")
    if what == "write":
        name, takes = "data", "bytes"
    return HostTypeError(
        f"Computer.{what}: address is {address!r} and {name} is {more!r}: an address is a whole "
        f"number from 0 to 2^64 - 1, and {name} {'are' if what == 'write' else 'is'} {takes}"
    )
