# SPDX-License-Identifier: Apache-2.0
"""What moving some bytes cost: a row of the comparison, and the readings that it is made of.

Each way of ways.py takes a ``Reading`` of every computer before and after, and their difference is
a ``Side``. ``Row.limit`` applies the bottleneck law: with many transfers under way at once, none is
faster than its most loaded resource allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from verbena.host.computer import Computer
from verbena.host.devices import Device

_PS = 1e12


@dataclass(frozen=True)
class Crossing:
    """What crossed the PCIe links of a computer in one direction, headers included."""

    transactions: int = 0
    bytes: int = 0
    busy_ps: int = 0  # of the busiest link

    def __sub__(self, other: Crossing) -> Crossing:
        return Crossing(
            self.transactions - other.transactions,
            self.bytes - other.bytes,
            self.busy_ps - other.busy_ps,
        )


@dataclass(frozen=True)
class Side:
    """One computer's part. ``cycles`` are those in which its core was busy, waits for loads from
    devices included; ``charged`` says by name how many of them were charged and not executed."""

    cycles: int = 0
    instructions: int = 0
    charged: dict[str, int] = field(default_factory=dict)
    copied: int = 0  # bytes that the processor moved
    interrupts: int = 0
    system_calls: int = 0
    to_device: Crossing = field(default_factory=Crossing)
    to_memory: Crossing = field(default_factory=Crossing)


@dataclass(frozen=True)
class Row:
    """A way, and what it cost. ``demands`` has the ps for which the transfer occupies a resource
    that is no processor and no link of PCIe: a direction of the wire, the disk's medium."""

    way: str
    size: int
    latency_ps: int
    ghz: float
    here: Side
    there: Side | None = None
    demands: dict[str, int] = field(default_factory=dict)

    @property
    def sides(self) -> dict[str, Side]:
        """The computers that took part, by name."""
        return {"here": self.here} | ({} if self.there is None else {"there": self.there})

    @property
    def rate(self) -> float:
        """Bits per second, one transfer after the other."""
        return self.size * 8 * _PS / self.latency_ps

    @property
    def occupied(self) -> dict[str, float]:
        """For how many ps the transfer occupies each resource."""
        found: dict[str, float] = dict(self.demands)
        for name, side in self.sides.items():
            found[f"the processor {name}"] = side.cycles * 1000 / self.ghz
            found[f"PCIe {name}, to memory"] = side.to_memory.busy_ps
            found[f"PCIe {name}, to the device"] = side.to_device.busy_ps
        return found

    @property
    def limit(self) -> tuple[str, float]:
        """The resource that is occupied longest, and the bits per second that it allows."""
        occupied = self.occupied
        name = max(occupied, key=lambda each: occupied[each])
        return name, self.size * 8 * _PS / max(occupied[name], 1)


@dataclass(frozen=True)
class Reading:
    """The counters of a computer at a time."""

    at: int
    busy: int
    instructions: int
    interrupts: int
    to_device: Crossing
    to_memory: Crossing

    @classmethod
    def of(cls, computer: Computer, ghz: float) -> Reading:
        """Reads them."""
        idle = round(computer.counters.idle_ps * ghz / 1000)
        return cls(
            at=computer.now,
            busy=sum(core.state.cycles for core in computer.cores) - idle,
            instructions=sum(core.state.instructions for core in computer.cores),
            interrupts=sum(core.state.interrupts for core in computer.cores),
            to_device=_crossing(computer, "down"),
            to_memory=_crossing(computer, "up"),
        )

    def since(self, before: Reading, *, copied: int = 0) -> Side:
        """What a computer did between two readings; its processor moved ``copied`` bytes."""
        return Side(
            cycles=self.busy - before.busy,
            instructions=self.instructions - before.instructions,
            copied=copied,
            interrupts=self.interrupts - before.interrupts,
            to_device=self.to_device - before.to_device,
            to_memory=self.to_memory - before.to_memory,
        )


def _crossing(computer: Computer, direction: str) -> Crossing:
    devices = [one.device for one in computer.table if isinstance(one.device, Device)]
    links = {id(one.slot): getattr(one.slot, direction) for one in devices if one.slot is not None}
    return Crossing(
        sum(link.transactions for link in links.values()),
        sum(link.bytes for link in links.values()),
        max((link.busy for link in links.values()), default=0),
    )
