# SPDX-License-Identifier: Apache-2.0
"""The kernel's variables and tables in a computer's memory, by name.

``kernel.py`` sets them before the boot and when it loads a program; it and ``process.py`` read what
the kernel has written there since.
"""

from __future__ import annotations

from collections.abc import Mapping

from verbena.host.computer import Computer
from verbena.host.errors import HostError
from verbena.host.kernel.layout import (
    KERNEL_DATA,
    PROCESS_FIELDS,
    PROCESS_SIZE,
    PROCESSES,
    SEND_RING,
    SOCKETS,
    STACK_SPAN,
    STACKS,
    TRAP_FRAME,
)
from verbena.host.kernel.numbers import CALLS

_TRAP_FRAME_BYTES = 8 * len(TRAP_FRAME)
_CHANNELS = {"keys": "a key", "ticks": "a time", "frames_sent": "room in the send ring"}


class KernelTables:
    """The memory of the kernel whose labels are ``labels``."""

    def __init__(self, computer: Computer, labels: Mapping[str, int]) -> None:
        self.computer = computer
        self._core = computer.cores[0]
        self._labels = labels

    def read(self, address: int) -> int:
        """8 bytes."""
        return int.from_bytes(self.computer.read(address, 8), "little")

    def write(self, address: int, value: int) -> None:
        """8 bytes."""
        self.computer.write(address, (value & (1 << 64) - 1).to_bytes(8, "little"))

    def variable(self, name: str) -> int:
        """A variable of asm/data.asm; HostError if there is none of that name."""
        if self._labels.get(name, 0) < KERNEL_DATA or name.isupper():
            raise HostError(f"the kernel has no variable {name!r}: asm/data.asm has them")
        return self.read(self._labels[name])

    def set(self, **values: int) -> None:
        """Sets variables."""
        for name, value in values.items():
            self.write(self._labels[name], value)

    # ---- the table of processes ----

    def entry_at(self, place: int) -> int:
        """The address of an entry."""
        return PROCESSES + place * PROCESS_SIZE

    def entry(self, place: int) -> dict[str, int]:
        """The fields of an entry, and ``call NAME`` for the count of each call."""
        data = self.computer.read(self.entry_at(place), PROCESS_SIZE)
        names = (*PROCESS_FIELDS[:-1], *(f"call {one.name}" for one in CALLS))
        return {
            name: int.from_bytes(data[8 * at : 8 * at + 8], "little")
            for at, name in enumerate(names)
        }

    def set_entry(self, place: int, **values: int) -> None:
        """Sets fields of an entry, in this order."""
        for name, value in values.items():
            self.write(self.entry_at(place) + 8 * PROCESS_FIELDS.index(name), value)

    def address_of(self, place: int) -> int:
        """The address of the next instruction of a process in ring 3."""
        is_current = self.variable("current") == self.entry_at(place)
        if is_current and self._core.registers.ring == 3:
            return self._core.rip
        top = STACKS + (place + 1) * STACK_SPAN
        return self.read(top - _TRAP_FRAME_BYTES + 8 * TRAP_FRAME.index("rip"))

    def unstamped(self, place: int) -> tuple[int, int]:
        """(user, system) cycles of the current process that the kernel has not counted yet; those
        of the idle process, which is place 0, are user cycles."""
        if self.variable("current") != self.entry_at(place):
            return 0, 0
        since = self._core.state.cycles - self.variable("last_stamp")
        if self._core.rip == self._labels["account_outside_adds"]:
            return self._core.registers.rcx, since
        if self._core.rip == self._labels["account_kernel_adds"]:
            since += self._core.registers.rcx
        is_outside = place == 0 or self._core.registers.ring == 3
        return (since, 0) if is_outside else (0, since)

    def channel_name(self, channel: int) -> str:
        """What a process waits for that sleeps on a channel."""
        for label, text in _CHANNELS.items():
            if channel == self._labels[label]:
                return text
        if SOCKETS <= channel < SEND_RING:
            return f"a datagram at port {self.read(channel + 8)}"
        return "the disk"
