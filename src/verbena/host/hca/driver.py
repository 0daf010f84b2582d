# SPDX-License-Identifier: Apache-2.0
"""The adapter's driver: makes queues, registers memory, and posts and polls for Python programs.

Everything that the adapter reads is in the computer's memory, in an area that the driver is given.
Posting and polling do what machine code does: they write requests and read completions there, and
store to the registers over the link. Processor time is in named costs, which ``charge`` receives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from verbena._arguments import checked_class
from verbena.host.costs import default_cycles
from verbena.host.devices import checked_vector
from verbena.host.errors import HostError, HostTypeError
from verbena.host.hca.device import PAGE, Hca
from verbena.host.hca.formats import BLOCK, CQE_BYTES, CompletionEntry, parse_completion
from verbena.host.hca.pages import PageSource, ResidentPages
from verbena.host.hca.posting import QueuePair
from verbena.host.hca.queues import CompletionRing, Qp, SendRing
from verbena.host.hca.regions import Region, Registry
from verbena.host.hca.tables import EVERYTHING, HcaAccess, TablePlaces
from verbena.host.hca.vectors import CompletionVectors

MOST_WAIT_US = 10**8


@checked_class(HostTypeError)
@dataclass(frozen=True)
class HcaCosts:
    """Processor time of the driver, in cycles, and of page faults, in nanoseconds.

    The defaults and names of the cycles are those of costs.py, with their sources. The page faults
    are those that NP-RDMA (2023) gives for its own handling in its abstract.
    """

    post: int = default_cycles("verbs_post")
    doorbell: int = default_cycles("doorbell")
    poll_empty: int = default_cycles("cq_poll_empty")
    poll_entry: int = default_cycles("cq_poll")
    registration: int = default_cycles("mr_register")
    registration_page: int = default_cycles("mr_page")
    minor_fault_ns: int = 4600
    major_fault_ns: int = 60_000


class DriverMemory:
    """The area of memory that a driver has, given out from the front."""

    def __init__(self, base: int, size: int) -> None:
        self.base, self.end = base, base + size
        self._next = base

    def take(self, size: int, align: int = 64) -> int:
        """The address of ``size`` bytes; HostError if the area has no room."""
        start = -(-self._next // align) * align
        if start + size > self.end:
            raise HostError(
                f"the driver's memory of {self.end - self.base:,} bytes at {self.base:#x} has no "
                f"room for {size:,} more: give HcaDriver a larger size"
            )
        self._next = start + size
        return start


@dataclass(frozen=True)
class Completion:
    """A completion, and the ``id`` that the request was posted with (its index by default)."""

    entry: CompletionEntry
    id: int

    @property
    def is_error(self) -> bool:
        """Whether the request failed; ``entry.status`` says how."""
        return self.entry.status != 0


@checked_class(HostTypeError)
class CompletionQueue:
    """A completion queue as a program has it."""

    def __init__(self, driver: HcaDriver, ring: CompletionRing, page: int) -> None:
        self._driver, self.ring, self._page = driver, ring, page
        self.taken = 0
        self._arms = 0

    @property
    def number(self) -> int:
        """Its number, for the register that arms it."""
        return self.ring.number

    def poll(self, most: int = 1 << 30) -> list[Completion]:
        """Takes up to ``most`` completions that are in memory."""
        driver = self._driver
        found: list[Completion] = []
        while len(found) < most:
            data = driver.computer.read(self.ring.place(self.taken), CQE_BYTES)
            entry = parse_completion(data, self.taken, self.ring.entries)
            if entry is None:
                break
            self.taken += 1
            driver.charge("cq_poll", driver.costs.poll_entry)
            found.append(Completion(entry, driver.posted_id(entry)))
        if found:
            driver.computer.write(self.ring.record, self.taken.to_bytes(8, "little"))
        else:
            driver.charge("cq_poll_empty", driver.costs.poll_empty)
        return found

    def arm(self) -> None:
        """Asks for one interrupt at the next completion, or at once if one is there already."""
        self._arms += 1
        self._arm()

    def ring_again(self) -> None:
        """Arms it again if the adapter has not heard of it."""
        if self.ring.arms < self._arms:
            self.ring.arms = self._arms - 1
            self._arm()

    def check_driver(self, driver: HcaDriver) -> None:
        """HostError if it is a queue of another adapter, whose queues have the same numbers."""
        if driver is not self._driver:
            raise HostError(
                f"completion queue {self.number} is of {self._driver.hca}, and the queue pair is "
                f"of {driver.hca}: give it one that its own driver has made"
            )

    def _arm(self) -> None:
        value = self.number | (self.taken & 0xFFFFFFFF) << 32
        self._driver.store(self._page, 0x010, value.to_bytes(8, "little"))

    def steer(self, core: int, vector: int | None = None) -> None:
        """Lets its interrupts go to another core, and with another vector if given."""
        vectors, entry = self._entry()
        before = self.ring.vector
        assert before is not None  # since it has an entry
        self._driver.checked_core(core)
        vectors.steer(entry, before if vector is None else vector, core)
        self.ring.core, self.ring.vector = core, before if vector is None else vector

    def mask(self) -> None:
        """Lets its interrupt wait until ``unmask``."""
        vectors, entry = self._entry()
        vectors.mask(entry)

    def unmask(self) -> None:
        """Lets its interrupt come, also one that has waited."""
        vectors, entry = self._entry()
        vectors.unmask(entry)

    def _entry(self) -> tuple[CompletionVectors, int]:
        vectors, entry = self._driver.vectors, self.ring.entry
        if vectors is None or entry is None:
            raise HostError(
                f"completion queue {self.number} has no entry of an MSI-X table: make the driver "
                "with msix=True, and the queue with a vector"
            )
        return vectors, entry


@checked_class(HostTypeError, but=("charge", "page_address", "posted_id", "remember", "store"))
class HcaDriver:
    """Of one adapter, which is mapped into a computer at ``base``.

    ``memory`` is an area of RAM as (address, size); ``keys`` and ``table_pages`` are how many
    regions and pages of regions its tables hold. ``charge(name, cycles)`` gets processor time.
    ``msix``: completion queues with a vector have entries of the adapter's MSI-X table; otherwise
    each interrupt is a message with the vector, for which nothing is programmed.
    """

    def __init__(
        self,
        hca: Hca,
        memory: tuple[int, int],
        *,
        keys: int = 1024,
        table_pages: int = 16384,
        queue_pairs: int = 1024,
        costs: HcaCosts | None = None,
        charge: Callable[[str, int], None] | None = None,
        msix: bool = False,
    ) -> None:
        self.hca, self.computer = hca, hca.home
        self.costs = HcaCosts() if costs is None else costs
        self.spent: dict[str, int] = {}  # cycles by name
        self._charge = charge
        self._base = next(one.base for one in self.computer.table if one.device is hca)
        if hca.iommu is not None:
            page = hca.iommu.page
            first, end = memory[0] // page * page, -(-sum(memory) // page) * page
            hca.iommu.map(first, first, end - first)
        self.memory = DriverMemory(*memory)
        self._queue_pairs = queue_pairs
        places = TablePlaces(
            contexts=self.memory.take(queue_pairs * 64),
            protections=self.memory.take(keys * 64),
            translations=self.memory.take(table_pages * 8),
            keys=keys,
            pages=table_pages,
        )
        hca.set_tables(places)
        self.registry = Registry(self, places)
        hca.page_fault = self.registry.page_fault
        hca.came_back = self._came_back
        self._queues: list[CompletionQueue | QueuePair] = []
        self._ids: dict[tuple[int, bool, int], int] = {}
        self.vectors = CompletionVectors(hca.msix, self._store_vector) if msix else None

    @property
    def base(self) -> int:
        """Where the adapter is mapped, or was until it was unmapped."""
        if self.hca.base is not None:
            self._base = self.hca.base
        return self._base

    # ---- processor time, and registers ----

    def charge(self, name: str, cycles: int) -> None:
        """Counts processor time under a name and passes it on."""
        self.spent[name] = self.spent.get(name, 0) + cycles
        if self._charge is not None:
            self._charge(name, cycles)

    def store(self, page: int, register: int, data: bytes) -> None:
        """A store to a page of registers, 1 to ``hca.pages``."""
        self.charge("doorbell", self.costs.doorbell)
        self.computer.store(self.page_address(page) + register, data)

    def _store_vector(self, offset: int, size: int, value: int) -> None:
        self.charge("doorbell", self.costs.doorbell)
        self.computer.store(self.base + offset, value.to_bytes(size, "little"))

    def checked_core(self, number: int) -> int:
        """A core's number. HostError if the computer has none of that number."""
        if not 0 <= number < len(self.computer.cores):
            raise HostError(
                f"there is no core {number}: there are 0 to {len(self.computer.cores) - 1}"
            )
        return number

    def page_address(self, page: int) -> int:
        """The physical address of a page of registers, for the page tables of its process."""
        if not 1 <= page <= self.hca.pages:
            raise HostError(f"there is no page {page} of registers: 1 to {self.hca.pages}")
        return self.base + page * PAGE

    # ---- queues ----

    def completion_queue(
        self, entries: int = 256, *, vector: int | None = None, core: int = 0, page: int = 1
    ) -> CompletionQueue:
        """Makes a completion queue; with ``vector`` it interrupts ``core`` when it was armed."""
        if entries < 1:
            raise HostError("a completion queue has at least one entry")
        if vector is not None:
            checked_vector(vector)
        self.checked_core(core)
        self.page_address(page)
        number = len(self.hca.cqs) + 1
        entry = None
        if self.vectors is not None and vector is not None:
            entry = self.vectors.take(vector, core)
        ring = CompletionRing(
            number,
            self._zeroed(entries * CQE_BYTES),
            entries,
            self._zeroed(8),
            vector,
            core,
            entry,
        )
        self.hca.cqs[number] = ring
        queue = CompletionQueue(self, ring, page)
        self._queues.append(queue)
        return queue

    def queue_pair(
        self,
        send_cq: CompletionQueue,
        receive_cq: CompletionQueue | None = None,
        *,
        page: int = 1,
        blocks: int = 256,
        receives: int = 256,
        retry: int = 7,
        rnr_retry: int = 7,
        timeout_us: float = 1000.0,
        rnr_us: float = 10.0,
        depth: int = 16,
    ) -> QueuePair:
        """Makes a queue pair whose doorbell is on ``page`` of the registers.

        ``blocks`` of 64 bytes are its ring of send requests; ``rnr_us`` is how long its peer waits
        after an RNR NAK, ``depth`` how many READs and atomics may be outstanding. ``rnr_retry`` 7
        is without end (IBA 9.7.5.2.8): a SEND for which no receive is ever posted then lets a run
        without ``until`` go on for ever.
        """
        number = len(self.hca.qps) + 1
        self.page_address(page)
        if number >= self._queue_pairs:
            raise HostError(f"there are {self._queue_pairs - 1} queue pairs already")
        if blocks < 4 or receives < 1 or depth < 1:
            raise HostError("a queue pair has at least 4 blocks, 1 receive and a depth of 1")
        if not (0 <= retry <= 7 and 0 <= rnr_retry <= 7):
            raise HostError(
                f"retry and rnr_retry have 3 bits, 0 to 7 (IBA 9.7.5.1.3): not {retry} and "
                f"{rnr_retry}"
            )
        if not (0 < timeout_us <= MOST_WAIT_US and 0 <= rnr_us <= MOST_WAIT_US):
            raise HostError(
                f"timeout_us is above 0, rnr_us at least 0, and both at most {MOST_WAIT_US}, a "
                f"hundred seconds: not {timeout_us:g} and {rnr_us:g}"
            )
        received = send_cq if receive_cq is None else receive_cq
        for queue in (send_cq, received):
            queue.check_driver(self)
        qp = Qp(
            number,
            page,
            SendRing(self._zeroed(blocks * BLOCK), blocks),
            self._zeroed(receives * 16),
            receives,
            send_cq.ring,
            received.ring,
            retry,
            rnr_retry,
            round(timeout_us * 1e6),
            round(rnr_us * 1e6),
            depth,
        )
        self.hca.qps[number] = qp
        pair = QueuePair(self, qp)
        self._queues.append(pair)
        return pair

    def _came_back(self) -> None:
        """The adapter works again, and has not heard doorbells meanwhile."""
        for queue in self._queues:
            queue.ring_again()

    def _zeroed(self, size: int) -> int:
        address = self.memory.take(size)
        self.computer.write(address, bytes(size))
        return address

    def remember(self, qpn: int, is_send: bool, index: int, id: int) -> None:
        """Notes the ``id`` of a request until it completes."""
        self._ids[qpn, is_send, index & 0xFFFF] = id

    def posted_id(self, entry: CompletionEntry) -> int:
        """The ``id`` of the request that completed."""
        key = (entry.qpn, entry.opcode < 128, entry.index)
        return self._ids.pop(key, entry.index)

    # ---- memory ----

    def register(
        self,
        address: int,
        length: int,
        access: HcaAccess = EVERYTHING,
        *,
        pages: PageSource | None = None,
        page: int = 4096,
        on_demand: bool = False,
    ) -> Region:
        """Registers memory: pins and translates its pages, or with ``on_demand`` leaves them.

        It takes ``costs.registration`` cycles and ``costs.registration_page`` for each page.
        HostError for a range that is not all in memory, unless ``on_demand``.
        """
        source = ResidentPages() if pages is None else pages
        return self.registry.register(address, length, access, source, page, on_demand)
