# SPDX-License-Identifier: Apache-2.0
"""A PCI Express link between a processor's root complex and a device: what crosses it, and when.

Both directions are links with a rate of their own, on which transactions queue. Each transaction has
headers and framing beside its bytes (64-bit addresses, no ECRC), and the link layer's acknowledgements
and credits take a share of the rate; the formulas are those of the model that was published with
pcie-bench (SIGCOMM 2018). ``tests/host`` compares with the figures of that model.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from verbena.host.errors import HostError

# GT/s of a lane, and payload bits and bits of the code on the wire.
_GENERATIONS = {1: (2.5, 8, 10), 2: (5.0, 8, 10), 3: (8.0, 128, 130), 4: (16.0, 128, 130),
                5: (32.0, 128, 130)}  # fmt: skip
_WIDTHS = (1, 2, 4, 8, 16)

REQUEST_HEADER = 24  # bytes of a memory read or write beside its data
COMPLETION_HEADER = 20
MESSAGE_INTERRUPT = 28  # an MSI is a write of four bytes

# Bytes after which an acknowledgement, or an update of credits, of 8 bytes has to follow, by
# generation up to 3, width and maximum payload size (PCI Express Base 3.0, tables 3-7 to 3-9 and 2-43).
_LIMIT_128 = {1: 237, 2: 128, 4: 73, 8: 67, 16: 48}


@dataclass(frozen=True)
class Pcie:
    """A link: ``generation`` 1 to 5, ``lanes``, sizes in bytes, and times in nanoseconds."""

    generation: int = 3
    lanes: int = 8
    mps: int = 256
    mrrs: int = 512
    round_trip_ns: float = 900.0
    tags: int = 64
    limit: int | None = None  # bytes between two acknowledgements; None: by MPS and width

    def __post_init__(self) -> None:
        if self.generation not in _GENERATIONS:
            raise HostError(f"PCIe generation {self.generation}: there are 1 to 5")
        if self.lanes not in _WIDTHS:
            raise HostError(f"a PCIe link has 1, 2, 4, 8 or 16 lanes, not {self.lanes}")
        for name in ("mps", "mrrs"):
            size = getattr(self, name)
            if size not in (128, 256, 512, 1024, 2048, 4096):
                raise HostError(f"{name} is a power of two from 128 to 4096, not {size}")
        if self.round_trip_ns < 0 or self.tags < 1:
            raise HostError("a link has a round trip of at least 0 and at least one tag")

    @property
    def raw_gbps(self) -> float:
        """Gb/s after the line code."""
        rate, data, code = _GENERATIONS[self.generation]
        return rate * self.lanes * data / code

    @property
    def usable_gbps(self) -> float:
        """Gb/s without acknowledgements, updates of credits and skip ordered sets."""
        limit = self.limit if self.limit is not None else 203
        return self.raw_gbps * (1 - 8 / limit - 8 / limit - 4 / 1538)

    def write_bytes(self, size: int) -> int:
        """What a memory write of ``size`` bytes takes in its direction."""
        return -(-size // self.mps) * REQUEST_HEADER + size

    def read_bytes(self, size: int) -> tuple[int, int]:
        """What a read takes in its direction, and its completions in the other."""
        requests = -(-size // self.mrrs)
        return requests * REQUEST_HEADER, -(-size // self.mps) * COMPLETION_HEADER + size

    def time_ps(self, size: int) -> int:
        """How long ``size`` bytes of transactions occupy one direction."""
        return round(size * 8000 / self.usable_gbps)


@dataclass
class Direction:
    """One direction of a link: when it is free, and what has crossed it."""

    link: Pcie
    free_at: int = 0
    bytes: int = 0
    transactions: int = 0
    busy: int = 0

    def take(self, at: int, size: int, transactions: int) -> int:
        """Puts transactions of ``size`` bytes in all behind what is there; the time of their end."""
        duration = self.link.time_ps(size)
        self.free_at = max(self.free_at, at) + duration
        self.bytes += size
        self.transactions += transactions
        self.busy += duration
        return self.free_at


@dataclass
class Slot:
    """The link of one device: ``up`` leads to memory and processor, ``down`` to the device."""

    link: Pcie
    up: Direction = field(init=False)
    down: Direction = field(init=False)

    def __post_init__(self) -> None:
        self.up = Direction(self.link)
        self.down = Direction(self.link)

    @property
    def half_ps(self) -> int:
        """The time of a transaction without its bytes: half of the round trip."""
        return round(self.link.round_trip_ns * 500)

    def write_to_memory(self, at: int, size: int) -> int:
        """DMA from the device: when the bytes are in memory."""
        done = self.up.take(at, self.link.write_bytes(size), -(-size // self.link.mps))
        return done + self.half_ps

    def read_from_memory(self, at: int, size: int) -> int:
        """DMA to the device: when the bytes are there."""
        ask, answer = self.link.read_bytes(size)
        asked = self.up.take(at, ask, -(-size // self.link.mrrs))
        done = self.down.take(asked, answer, -(-size // self.link.mps))
        return done + 2 * self.half_ps

    def message(self, at: int) -> int:
        """A message-signalled interrupt: when it is at the processor."""
        return self.up.take(at, MESSAGE_INTERRUPT, 1) + self.half_ps

    def load(self, at: int, size: int) -> int:
        """A load of the processor: when its value is there. It waits for it."""
        asked = self.down.take(at, REQUEST_HEADER, 1)
        return self.up.take(asked, COMPLETION_HEADER + size, 1) + 2 * self.half_ps

    def store(self, at: int, size: int) -> int:
        """A posted store: when it is at the device. The processor goes on at once."""
        return self.down.take(at, REQUEST_HEADER + size, 1) + self.half_ps
