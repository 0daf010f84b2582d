# SPDX-License-Identifier: Apache-2.0
"""What a computer tells of itself: its table of ranges, its counters, accesses, and steps.

``Computer`` makes them, for its observers and for programs that look into it. They are only data.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from verbena.host.devices import Device, Ram


@dataclass(frozen=True)
class Range:
    """A row of the memory controller's table; ``end`` is the address behind it."""

    base: int
    end: int
    device: Ram | Device


@dataclass
class Counters:
    """What happened since the computer was made."""

    loads: int = 0  # from devices
    stores: int = 0
    dma_read_bytes: int = 0
    dma_written_bytes: int = 0
    interrupts_sent: int = 0
    interrupts_merged: int = 0
    interrupts_refused: int = 0  # by local APICs
    idle_ps: int = 0


@dataclass(frozen=True)
class Transaction:
    """An access of a core to a device: its time, address, size, value and direction."""

    at: int
    address: int
    size: int
    value: int
    write: bool
    device: Device = field(compare=False)


@dataclass(frozen=True)
class Step:
    """An instruction that ran: when, where, as text, the registers that changed, the accesses.

    ``interrupt`` is the vector of an interrupt that the core took right before.
    """

    at: int
    address: int
    text: str
    changed: dict[str, int]
    bus: list[Transaction]
    interrupt: int | None = None

    def __str__(self) -> str:
        parts = [f"{self.at / 1e6:10.3f} us  {self.address:#8x}  {self.text:32}"]
        parts += [f"{name}={value:#x}" for name, value in self.changed.items()]
        for one in self.bus:
            verb = "write" if one.write else "read"
            offset = one.address
            parts.append(f"{verb} {type(one.device).__name__} {offset:#x}: {one.value:#x}")
        return "  ".join(parts)
