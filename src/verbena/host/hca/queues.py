# SPDX-License-Identifier: Apache-2.0
"""What the adapter knows of each completion queue and each queue pair while it works.

``device.py`` makes them for the driver; ``requester.py`` and ``responder.py`` change them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from verbena.host.clock import Event
from verbena.host.hca.formats import (
    BLOCK,
    CQE_BYTES,
    CompletionEntry,
    ReceiveRequest,
    SendRequest,
)
from verbena.host.hca.packets import Packet


@dataclass
class CompletionRing:
    """A completion queue: a ring of ``entries`` at ``address``. ``vector`` None: no interrupts;
    ``entry`` is that of the MSI-X table, if the driver uses it."""

    number: int
    address: int
    entries: int
    record: int  # address of 8 bytes: how many completions the program has taken
    vector: int | None = None
    core: int = 0
    entry: int | None = None
    written: int = 0
    taken: int = 0  # as far as the adapter knows
    is_armed: bool = False
    arms: int = 0  # how often the register that arms it was written
    overran: bool = False
    under_way: dict[int, CompletionEntry] = field(default_factory=dict)  # to memory, by place
    blocked: deque[CompletionEntry] = field(default_factory=deque)  # until the program has polled
    is_due: bool = False  # an interrupt belongs to entries that are under way

    def place(self, index: int) -> int:
        """The address of a completion."""
        return self.address + index % self.entries * CQE_BYTES


class QpState(Enum):
    """Of a queue pair in the adapter (the states of IBA 10.3.1 that matter to it)."""

    INIT = "INIT"
    RTS = "RTS"
    ERROR = "ERROR"


@dataclass
class OutstandingRequest:
    """A send request that was started: its PSNs, and what of it has come about."""

    request: SendRequest
    first_psn: int
    packets: int
    received: int = 0  # responses
    landing: int = 0  # responses that are on their way to memory
    is_done: bool = False  # its answer is in memory
    attempt: int = 0  # counts how often it began anew: an earlier one's responses do not count

    def begin_anew(self) -> None:
        """Its responses are asked for once more."""
        self.attempt += 1
        self.received = self.landing = 0

    @property
    def last_psn(self) -> int:
        return self.first_psn + self.packets - 1


@dataclass
class Segment:
    """A packet of a request that is being made; ``data`` is None until its payload is here."""

    owner: OutstandingRequest
    place: int
    length: int
    data: bytes | None = None
    was_absent: bool = False  # its pages were asked for once
    waits: bool = False  # for the packets before it: its pages left before they were read

    @property
    def psn(self) -> int:
        """A READ's request has its first."""
        return self.owner.first_psn + self.place


@dataclass
class Arrival:
    """A request's packet at the responder, in the order of PSNs; ``taken`` is its receive."""

    packet: Packet
    index: int | None = None  # of the receive request, where it takes one
    is_fetched: bool = False
    taken: ReceiveRequest | None = None


@dataclass
class Answer:
    """What the responder sends: one packet, or for a READ one for each segment."""

    packet: Packet
    pieces: list[list[tuple[int, int]]] = field(default_factory=list)  # parts of memory
    asked: int = 0  # pieces whose data were asked for
    sent: int = 0
    data: dict[int, bytes] = field(default_factory=dict)
    is_ready: bool = True
    is_paged: bool = False  # pieces have addresses of the region, and are looked up one by one
    changes: int = 0  # of translations when its pieces were found
    # Pieces whose pages have left, and that are looked up when those before them are sent.
    waiting: dict[int, Callable[[], None]] = field(default_factory=dict)

    @property
    def may_ask(self) -> bool:
        """Whether the data of a piece may be asked for while those before it are not sent."""
        return not self.is_paged or self.asked == self.sent


@dataclass
class SendRing:
    """The ring of send requests and what was fetched of it; indices count blocks of 64 bytes."""

    address: int
    blocks: int
    producer: int = 0
    fetched: int = 0
    parsed: int = 0
    stream: bytearray = field(default_factory=bytearray)
    fetches: deque[list[bytes]] = field(default_factory=deque)  # each has its data once it is here

    def run(self) -> tuple[int, int]:
        """Address and number of the blocks to fetch next, up to the ring's end."""
        place = self.fetched % self.blocks
        count = min(self.producer - self.fetched, self.blocks - place)
        return self.address + place * BLOCK, count


@dataclass
class Qp:
    """A queue pair in the adapter. Times are in ps; ``rnr_retry`` 7 is without end."""

    number: int
    page: int  # of registers, whose owner alone may ring for it; 0: nobody any more
    ring: SendRing
    receive_address: int
    receives: int
    send_cq: CompletionRing
    receive_cq: CompletionRing
    retry: int
    rnr_retry: int
    timeout_ps: int
    rnr_ps: int
    depth: int  # READs and atomics outstanding
    state: QpState = QpState.INIT
    peer: int = 0
    # requester
    epoch: int = 0  # counts rewinds: what an earlier one fetched is thrown away
    next_psn: int = 0
    acked: int = -1
    requests: deque[OutstandingRequest] = field(default_factory=deque)
    cursor: tuple[int, int] = (0, 0)  # request and packet to make next
    segments: deque[Segment] = field(default_factory=deque)
    timer: Event | None = None
    waits: Event | None = None  # for the peer's receive request
    # Responses that are not in memory, by PSN; a call if their pages left before they were written,
    # and they wait for those before them.
    landing: dict[int, Callable[[], None] | None] = field(default_factory=dict)
    retries: int = 0
    rnr_retries: int = 0
    is_running: bool = False
    # responder
    expected: int = 0  # PSN
    has_complained: bool = False
    early: Packet | None = None  # came before a missing one, for which nobody has asked yet
    turn: int = 0  # counts rewinds of the responder
    arrivals: deque[Arrival] = field(default_factory=deque)
    absent: tuple[int, tuple[int, ...]] | None = None  # PSN and pages of a READ that has to wait
    is_busy: bool = False
    is_working: bool = False
    next_receive: int = 0
    reported: int = 0  # receive requests that were completed
    receive: ReceiveRequest | None = None
    target: tuple[int, int] = (0, 0)  # address and key of a WRITE that is under way
    offset: int = 0  # bytes of the message so far
    answers: deque[Answer] = field(default_factory=deque)
    atomics: dict[int, bytes] = field(default_factory=dict)  # results of the last ones, by PSN
