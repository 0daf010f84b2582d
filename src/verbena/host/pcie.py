# SPDX-License-Identifier: Apache-2.0
"""A PCI Express link between a processor's root complex and a device: what crosses it, and when.

Both directions are links with a rate of their own, on which transactions queue. Each transaction
has headers and framing beside its bytes (64-bit addresses, no ECRC), and acknowledgements and
credits of the link layer take a share of the rate. The formulas are those of the model that was
published with pcie-bench (SIGCOMM 2018), with whose figures the tests compare.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from verbena._arguments import checked_class
from verbena.host.device_bus import (
    DeviceFault,
    Schedule,
    checked_unanswered,
)
from verbena.host.errors import HostError, HostTypeError
from verbena.host.pcie_direction import Direction, Piece
from verbena.host.posted import PostedStore

# GT/s of a lane, and payload bits and bits of the code on the wire.
_GENERATIONS = {1: (2.5, 8, 10), 2: (5.0, 8, 10), 3: (8.0, 128, 130), 4: (16.0, 128, 130),
                5: (32.0, 128, 130)}  # fmt: skip
_WIDTHS = (1, 2, 4, 8, 16)

# Bytes after which an acknowledgement has to follow, and an update of credits, each of 8 bytes: by
# the largest payload and the width, at 2.5 GT/s; faster links add their own delay (PCI Express Base
# 3.0, tables 3-7 to 3-9 and 2-43 to 2-45). Widths of 1, 2, 4, 8 and 16 lanes.
_LIMITS = {
    128: (237, 128, 73, 67, 48),
    256: (416, 217, 118, 107, 72),
    512: (559, 289, 154, 86, 86),
    1024: (1071, 545, 282, 150, 150),
    2048: (2095, 1057, 538, 278, 278),
    4096: (4143, 2081, 1050, 534, 534),
}
_LIMIT_MORE = {1: 0, 2: 51, 3: 96, 4: 96, 5: 96}

REQUEST_HEADER = 24  # bytes of a memory read or write beside its data
COMPLETION_HEADER = 20
_HEADERS = {
    "MWr": REQUEST_HEADER, "MRd": REQUEST_HEADER, "MSI": REQUEST_HEADER,
    "CplD": COMPLETION_HEADER, "Cpl": COMPLETION_HEADER,
}  # fmt: skip
_POSTED = ("MWr", "MSI")  # an MSI is a write of four bytes

MOST_ROUND_TRIP_NS = 10**6


def _check_size(size: int) -> None:
    if size < 0:
        raise HostError(f"a transfer has 0 bytes or more, not {size}")


@checked_class(HostTypeError, but=("read_bytes", "time_ps", "write_bytes"))
@dataclass(frozen=True)
class Pcie:
    """A link: ``generation`` 1 to 5, ``lanes``, sizes in bytes, and times in nanoseconds.

    ``completion_timeout_us`` is how long the root complex waits for an answer to a load, 50 us to
    64 s (PCI Express Base 3.0, 2.8 and 7.8.16). ``unanswered`` is then "ones", what the load reads,
    or "stop": the core is shut down, and the run raises ``UnansweredError``.
    """

    generation: int = 3
    lanes: int = 8
    mps: int = 256
    mrrs: int = 512
    round_trip_ns: float = 900.0
    tags: int = 64
    completion_timeout_us: float = 10_000.0
    unanswered: str = "ones"

    def __post_init__(self) -> None:
        if self.generation not in _GENERATIONS:
            raise HostError(f"PCIe generation {self.generation}: there are 1 to 5")
        if self.lanes not in _WIDTHS:
            raise HostError(f"a PCIe link has 1, 2, 4, 8 or 16 lanes, not {self.lanes}")
        for name in ("mps", "mrrs"):
            size = getattr(self, name)
            if size not in _LIMITS:
                raise HostError(f"{name} is a power of two from 128 to 4096, not {size}")
        if not 0 <= self.round_trip_ns <= MOST_ROUND_TRIP_NS:
            raise HostError(
                f"a round trip is 0 to {MOST_ROUND_TRIP_NS} ns, a millisecond, not "
                f"{self.round_trip_ns:g} ns"
            )
        if self.tags < 1:
            raise HostError(f"a link has at least one tag, not {self.tags}")
        if not 50 <= self.completion_timeout_us <= 64e6:
            raise HostError(
                f"a completion timeout is 50 us to 64 s, not {self.completion_timeout_us:g} us"
            )
        checked_unanswered(self.unanswered)

    @property
    def raw_gbps(self) -> float:
        """Gb/s after the line code."""
        rate, data, code = _GENERATIONS[self.generation]
        return rate * self.lanes * data / code

    @property
    def usable_gbps(self) -> float:
        """Gb/s without acknowledgements, updates of credits and skip ordered sets."""
        limit = _LIMITS[self.mps][_WIDTHS.index(self.lanes)] + _LIMIT_MORE[self.generation]
        return self.raw_gbps * (1 - 8 / limit - 8 / limit - 4 / 1538)

    def write_bytes(self, size: int) -> int:
        """What a memory write of ``size`` bytes takes in its direction. HostError below 0."""
        _check_size(size)
        return -(-size // self.mps) * REQUEST_HEADER + size

    def read_bytes(self, size: int) -> tuple[int, int]:
        """What a read takes in its direction, and its completions in the other. HostError for a
        size below 0."""
        _check_size(size)
        requests = -(-size // self.mrrs)
        return requests * REQUEST_HEADER, -(-size // self.mps) * COMPLETION_HEADER + size

    def time_ps(self, size: int) -> int:
        """How long ``size`` bytes of transactions occupy one direction. HostError below 0."""
        _check_size(size)
        return round(size * 8000 / self.usable_gbps)


@dataclass(frozen=True)
class Tlp:
    """A transaction layer packet on a link.

    ``at`` is when it was given to the link, in ps; a completion is when its request has arrived.
    ``up``: to memory and processor. ``kind`` is MWr (memory write), MRd (memory read), CplD
    (completion with data), Cpl (without) or MSI. ``data`` are the bytes that it carries or, for
    MRd, asks for; ``bytes`` what it takes of the link, from ``begins`` to ``ends``, in ps.
    ``address`` is the first byte's. ``who`` names the device at the link's end.
    """

    at: int
    up: bool
    kind: str
    data: int
    bytes: int
    address: int
    who: str
    begins: int
    ends: int


@checked_class(
    HostTypeError,
    but=(
        "answer",
        "ask",
        "carry_to_device",
        "carry_to_memory",
        "give_up_text",
        "load",
        "load_unanswered",
        "message",
        "read_from_memory",
        "refuse_read",
        "requests",
        "store",
        "store_unanswered",
        "write_to_memory",
    ),
)
@dataclass
class Slot:
    """The link of one device: ``up`` leads to memory and processor, ``down`` to the device.

    Each of ``observers`` is called with every ``Tlp``; their bytes are those of the directions.
    """

    link: Pcie
    who: str = "device"
    up: Direction = field(init=False)
    down: Direction = field(init=False)
    observers: list[Callable[[Tlp], None]] = field(default_factory=list)
    half_ps: int = field(init=False)
    """The time of a transaction without its bytes: half of the round trip."""
    posted: deque[PostedStore] = field(default_factory=deque)
    """Stores of the processor that have not arrived."""
    posts_at: int = field(init=False, default=0)
    """Credits of posted stores are never used up here: one is taken at any time."""
    _tags: deque[int] = field(default_factory=deque)  # when each outstanding read completes

    def __post_init__(self) -> None:
        self.up = Direction(self.link.time_ps)
        self.down = Direction(self.link.time_ps)
        self.half_ps = round(self.link.round_trip_ns * 500)

    def reset_counts(self) -> None:
        """Sets the sums of both directions to 0; what is under way keeps its time."""
        for direction in (self.up, self.down):
            direction.bytes = direction.transactions = direction.busy = 0

    # ---- DMA ----

    def write_to_memory(self, at: int, size: int, address: int = 0) -> int:
        """DMA from the device: when the bytes are in memory."""
        return self._cross(at, True, "MWr", size, address) + self.half_ps

    def requests(self, size: int, address: int = 0) -> Iterator[tuple[int, int]]:
        """The address and size of each read request for ``size`` bytes."""
        for offset in range(0, size, self.link.mrrs):
            yield address + offset, min(self.link.mrrs, size - offset)

    def ask(self, at: int, size: int, address: int, now: int | None = None) -> int:
        """One read request of at most MRRS bytes: when it is on the link. It takes no tag."""
        return self._cross(at, True, "MRd", size, address, now)

    def answer(self, at: int, size: int, address: int, now: int | None = None) -> int:
        """The completions of one read request, which begin at ``at``: when the last is on the
        link."""
        return self._cross(at, False, "CplD", size, address, now)

    def read_from_memory(self, at: int, size: int, address: int = 0) -> int:
        """DMA to the device: when the bytes are there.

        Each request has a tag until its last completion; without a free one it waits.
        """
        done = now = at
        for where, part in self.requests(size, address):
            if len(self._tags) >= self.link.tags:
                at = max(at, self._tags.popleft())
            arrives = self.ask(at, part, where, now) + self.half_ps
            done = self.answer(arrives, part, where, now) + self.half_ps
            self._tags.append(done)
        return done

    def message(self, at: int) -> int:
        """A message-signalled interrupt: when it is at the processor."""
        return self._cross(at, True, "MSI", 4, 0) + self.half_ps

    def carry_to_memory(
        self, at: int, size: int, address: int, schedule: Schedule, landed: Callable[[], None],
        dropped: Callable[[int], None] | None = None,
    ) -> None:  # fmt: skip
        """DMA from the device: calls ``landed`` when the bytes are in memory."""
        schedule(self.write_to_memory(at, size, address), landed)

    def carry_to_device(
        self, at: int, size: int, address: int, schedule: Schedule, landed: Callable[[], None]
    ) -> None:
        """DMA to the device: calls ``landed`` when the bytes are there."""
        schedule(self.read_from_memory(at, size, address), landed)

    def refuse_read(
        self, at: int, size: int, address: int, schedule: Schedule, refused: Callable[[], None]
    ) -> None:
        """DMA to the device from where no memory is: a completion without data, Unsupported
        Request (2.2.9), for the first read request; ``refused`` is called when it is there."""
        arrives = self.ask(at, min(size, self.link.mrrs), address) + self.half_ps
        known = self._cross(arrives, False, "Cpl", 0, address, at) + self.half_ps
        schedule(known, refused)

    # ---- accesses of the processor ----

    @property
    def unanswered_stops(self) -> bool:
        """Whether a load without an answer stops the core."""
        return self.link.unanswered == "stop"

    def load_unanswered(self, at: int, size: int, address: int, fault: DeviceFault) -> int:
        """A load that the device does not answer: when the root complex gives up."""
        asked = self._cross(at, False, "MRd", size, address)
        return asked + round(self.link.completion_timeout_us * 1e6)

    def store_unanswered(self, at: int, size: int, address: int, fault: DeviceFault) -> None:
        """A posted store that nobody takes: it crosses the link, and nobody is told."""
        self.store(at, size, address)

    def give_up_text(self, fault: DeviceFault) -> str:
        """How the root complex gives up a load."""
        return f"completion timeout of {self.link.completion_timeout_us:g} us"

    def load(self, at: int, size: int, address: int = 0) -> int:
        """A load of the processor: when its value is there. It waits for it."""
        if not self.observers:  # faster: loads of a program come here
            arrives = self.down.take(at, REQUEST_HEADER, REQUEST_HEADER, at) + self.half_ps
            answer = COMPLETION_HEADER + size
            return self.up.take(arrives, answer, answer, at) + self.half_ps
        arrives = self._cross(at, False, "MRd", size, address) + self.half_ps
        return self._cross(arrives, True, "CplD", size, address, at) + self.half_ps

    def store(self, at: int, size: int, address: int = 0) -> int:
        """A posted store: when it is at the device. The processor goes on at once."""
        if not self.observers:
            whole = REQUEST_HEADER + size
            return self.down.take(at, whole, whole, at, posted=True) + self.half_ps
        return self._cross(at, False, "MWr", size, address) + self.half_ps

    # ---- packets ----

    def _cross(
        self, at: int, up: bool, kind: str, data: int, address: int, now: int | None = None
    ) -> int:
        """Puts the packets of one transfer on the link at ``at``: when the last is on it. ``now``
        is the time of this call, if it is another."""
        direction = self.up if up else self.down
        header, carried, mps = _HEADERS[kind], 0 if kind == "MRd" else data, self.link.mps
        full = size = header + carried
        if carried > mps:
            full, size = header + mps, -(-carried // mps) * header + carried
        elif kind == "MWr" and not data:
            size = 0
        seen: list[Piece] | None = [] if self.observers else None
        end = direction.take(at, size, full, at if now is None else now, kind in _POSTED, seen)
        if seen:
            self._show(Tlp(at, up, kind, data, size, address, self.who, 0, end), full, seen)
        return end

    def _show(self, whole: Tlp, full: int, pieces: list[Piece]) -> None:
        """Calls the observers with the packets of a transfer, of which each but the last has
        ``full`` bytes."""
        header, address, left = _HEADERS[whole.kind], whole.address, whole.data
        for begin, size in pieces:
            for offset in range(0, size, full):
                end = min(size, offset + full)
                data = left if whole.kind == "MRd" else end - offset - header
                one = replace(
                    whole, data=data, bytes=end - offset, address=address,
                    begins=begin + self.link.time_ps(offset),
                    ends=begin + self.link.time_ps(end),
                )  # fmt: skip
                address += data
                for observe in self.observers:
                    observe(one)
