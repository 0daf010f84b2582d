# SPDX-License-Identifier: Apache-2.0
"""The RDMA adapter as a device: pages of registers, fetching of requests, completions, interrupts.

The range of the device has pages of 4096 bytes. Page 0 is for the driver; each further one (a UAR
page) can be mapped into the address space of one process, which by its page tables reaches that
page only, and a doorbell for a queue pair of another page is refused, too. From 0x400 of page 0 on
there is the MSI-X table (``msix.py``), with an entry for each completion queue. In the others:

    0x000  send doorbell: QP number, and in the upper half the number of blocks posted (32 bits)
    0x010  arms a completion queue: its number, and in the upper half how many entries were taken
    0x800  BlueFlame: four buffers of 256 bytes, in which stores combine to lines of 64; a send
           request written here is taken as it comes, if nothing before it is still to be fetched

``driver.py`` makes queues and tables; machine code then needs the formats of ``formats.py`` only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verbena._arguments import checked_class
from verbena.host.devices import Device
from verbena.host.errors import HostError, HostTypeError
from verbena.host.hca.completer import Completer
from verbena.host.hca.formats import (
    BLOCK,
    MOST_BLOCKS,
    CompletionEntry,
    HcaOpcode,
    blocks_of,
    parse_send,
)
from verbena.host.hca.landings import Landings
from verbena.host.hca.packets import Packet
from verbena.host.hca.queues import CompletionRing, Qp, QpState
from verbena.host.hca.requester import Requester
from verbena.host.hca.responder import Responder
from verbena.host.hca.setback import Setback
from verbena.host.hca.tables import Absent, Refused, TablePlaces, Tables
from verbena.host.hca.transfers import Transfers
from verbena.host.msix import Msix

if TYPE_CHECKING:
    from verbena.host.computer import Computer
    from verbena.host.device_bus import DeviceFault
    from verbena.host.errors import AccessError
    from verbena.host.hca.wire import Wire

PAGE = 4096
MSIX, MOST_VECTORS = 0x400, 128
DOORBELL, ARM, BLUEFLAME = 0x000, 0x010, 0x800
_BUFFER = MOST_BLOCKS * BLOCK
_BLUEFLAME_END = BLUEFLAME + 4 * _BUFFER
MAGIC = 0x4143485F42560001  # what page 0 begins with: "VB_HCA", version 1


@dataclass(frozen=True)
class Refusal:
    """Something that the adapter did not do, and why."""

    at: int
    qpn: int
    what: str
    why: str
    address: int

    def __str__(self) -> str:
        return (
            f"{self.at / 1e6:.3f} us, QP {self.qpn}: {self.what} at {self.address:#x}: {self.why}"
        )


@dataclass
class _Buffer:
    """What was written to a BlueFlame buffer."""

    data: bytearray
    written: int = 0  # a bit for each byte


@checked_class(
    HostTypeError,
    but=(
        "arrive",
        "combines",
        "complete",
        "dma_failed",
        "drop_dma",
        "end",
        "flush_receives",
        "gather",
        "note",
        "page_in",
        "peek",
        "read",
        "transmit",
        "write",
    ),
)
class Hca(Device):
    """``pages`` of registers for processes, and the entries of each cache of its tables. It has
    ``vectors`` entries of MSI-X."""

    def __init__(
        self,
        *,
        pages: int = 16,
        contexts: int = 256,
        protections: int = 256,
        translations: int = 2048,
        vectors: int = 16,
    ) -> None:
        if pages < 1 or not 1 <= vectors <= MOST_VECTORS:
            raise HostError(
                "an adapter has at least one page of registers for processes, and 1 to "
                f"{MOST_VECTORS} vectors: not {pages} and {vectors}"
            )
        super().__init__((pages + 1) * PAGE)
        self.msix = Msix(self, vectors, MSIX)
        self.pages = pages
        self._entries = (contexts, protections, translations)
        self.wire: Wire | None = None
        self.qps: dict[int, Qp] = {}
        self.cqs: dict[int, CompletionRing] = {}
        self.refusals: list[Refusal] = []
        self.page_fault: Callable[[Absent, Callable[[], None]], None] | None = None
        self.came_back: Callable[[], None] | None = None  # the driver, after a setback
        self.transfers = Transfers(self)
        self.landings = Landings(self)
        self.completer = Completer(self, self._overrun)
        self._setback = Setback(self, self._resume)
        self._tables: Tables | None = None
        self._requester = Requester(self)
        self._responder = Responder(self)
        self._buffers: dict[int, _Buffer] = {}

    def __repr__(self) -> str:
        return "Hca" if self.computer is None else f"Hca of {self.computer.name!r}"

    @property
    def home(self) -> Computer:
        """The computer that it is in; HostError if it is in none."""
        return self._home()

    @property
    def mtu(self) -> int:
        """Payload of a packet, in bytes."""
        return 4096 if self.wire is None else self.wire.mtu

    @property
    def tables(self) -> Tables:
        """Its tables; HostError before the driver has set them."""
        if self._tables is None:
            raise HostError(f"{self!r} has no driver yet: make an HcaDriver")
        return self._tables

    def set_tables(self, places: TablePlaces) -> None:
        """The driver says where the tables are, once."""
        if self._tables is not None:
            raise HostError(f"{self!r} has a driver already")
        self._tables = Tables(self, places, *self._entries)

    # ---- registers ----

    def read(self, offset: int, size: int) -> int:
        if self.msix.covers(offset):
            return self.msix.read(offset, size)
        return self.peek(offset, size) or 0

    def peek(self, offset: int, size: int) -> int | None:
        if self.msix.covers(offset):
            return self.msix.peek(offset, size)
        known = {0: MAGIC, 8: self.pages}.get(offset, 0)
        return known & (1 << 8 * size) - 1

    def combines(self, offset: int) -> bool:
        return offset >= PAGE and BLUEFLAME <= offset % PAGE < _BLUEFLAME_END

    def write(self, offset: int, size: int, value: int) -> None:
        page, register = divmod(offset, PAGE)
        if page and BLUEFLAME <= register < _BLUEFLAME_END:
            self._blueflame(page, register, size, value)
        elif page and register == DOORBELL and size == 8:
            self._ring(page, value & 0xFFFFFFFF, value >> 32)
        elif page and register == ARM and size == 8:
            self._arm(value & 0xFFFFFFFF, value >> 32)
        elif self.msix.covers(offset):
            self.msix.write(offset, size, value)
        else:
            self._refuse_store(0, f"a store of {size} bytes", "there is no such register", offset)

    def _refuse_store(self, qpn: int, what: str, why: str, offset: int) -> None:
        self.refusals.append(Refusal(self.now, qpn, what, why, offset))

    def _owned(self, page: int, qpn: int) -> Qp | None:
        """The queue pair, if a page of registers may ring for it."""
        qp = self.qps.get(qpn)
        if qp is None or qp.page != page:
            why = "there is none" if qp is None else f"it belongs to page {qp.page} of registers"
            if qp is not None and not qp.page:
                why = "its process has ended, or has given it back"
            self._refuse_store(qpn, f"a doorbell on page {page}", why, page * PAGE)
            return None
        return qp

    def _arm(self, number: int, taken: int) -> None:
        cq = self.cqs.get(number)
        if cq is None:
            self._refuse_store(0, f"arming of CQ {number}", "there is none", ARM)
            return
        cq.arms += 1
        cq.taken = cq.written - (cq.written - taken & 0xFFFFFFFF)
        if cq.taken < cq.written:
            self.completer.interrupt(cq)
        else:
            cq.is_armed = True

    # ---- send requests ----

    def _ring(self, page: int, qpn: int, count: int) -> None:
        qp = self._owned(page, qpn)
        if qp is None:
            return
        ring = qp.ring
        fresh = count - ring.producer & 0xFFFFFFFF
        if fresh > ring.blocks:
            self._refuse_store(
                qpn,
                f"a doorbell for {fresh} blocks",
                f"the ring has {ring.blocks}",
                page * PAGE,
            )
            return
        ring.producer += fresh
        self.tables.contexts.get(qpn, lambda _: self._fetch(qp))

    def _fetch(self, qp: Qp) -> None:
        """Reads the blocks that were posted; fetches may overlap, and are parsed in order."""
        ring = qp.ring
        while ring.fetched < ring.producer:
            address, count = ring.run()
            ring.fetched += count
            place: list[bytes] = []
            ring.fetches.append(place)

            def arrived(data: bytes, place: list[bytes] = place) -> None:
                place.append(data)
                while ring.fetches and ring.fetches[0]:
                    ring.stream += ring.fetches.popleft()[0]
                self._parse(qp)

            self.transfers.read(address, count * BLOCK, arrived, lambda: self._ring_missing(qp))

    def _ring_missing(self, qp: Qp) -> None:
        why = "there is no memory"
        self._refuse_store(qp.number, "a fetch of send requests", why, qp.ring.address)
        self.end(qp)

    def _parse(self, qp: Qp) -> None:
        """Starts the requests that are here as a whole."""
        ring = qp.ring
        while len(ring.stream) >= BLOCK:
            blocks = blocks_of(ring.stream)
            if 1 <= blocks <= MOST_BLOCKS and len(ring.stream) < blocks * BLOCK:
                return
            blocks = blocks if 1 <= blocks <= MOST_BLOCKS else 1
            data = bytes(ring.stream[: blocks * BLOCK])
            del ring.stream[: blocks * BLOCK]
            self._start(qp, data)
            ring.parsed += blocks

    def _start(self, qp: Qp, data: bytes) -> None:
        index = qp.ring.parsed
        try:
            request = parse_send(data)
            if request.qpn != qp.number or not 1 <= blocks_of(data) <= MOST_BLOCKS:
                raise ValueError(f"the request is for QP {request.qpn}, or has no length")
            if qp.state is QpState.INIT:
                raise ValueError("the queue pair is not connected")
        except ValueError as error:
            self._refuse_store(qp.number, "a send request", str(error), index)
            self._requester.invalid(qp, index)
        else:
            self._requester.start(qp, request)

    def _blueflame(self, page: int, register: int, size: int, value: int) -> None:
        """Collects a send request until its blocks are here."""
        place = register - (register - BLUEFLAME) % _BUFFER
        key = page * PAGE + place
        buffer = self._buffers.setdefault(key, _Buffer(bytearray(_BUFFER)))
        at = register - place
        buffer.data[at : at + size] = value.to_bytes(size, "little")
        buffer.written |= ((1 << size) - 1) << at
        blocks = blocks_of(buffer.data)
        whole = (1 << min(max(blocks, 1), MOST_BLOCKS) * BLOCK) - 1
        if buffer.written & whole == whole:
            del self._buffers[key]
            self._take_blueflame(page, bytes(buffer.data[: whole.bit_length()]))

    def _take_blueflame(self, page: int, data: bytes) -> None:
        qp = self._owned(page, int.from_bytes(data[4:8], "little"))
        if qp is None:
            return
        ring, blocks = qp.ring, len(data) // BLOCK
        index = int.from_bytes(data[2:4], "little")
        if ring.producer == ring.parsed and index == ring.producer & 0xFFFF:
            ring.producer += blocks
            ring.fetched += blocks

            def known(_: bytes) -> None:
                self._start(qp, data)
                ring.parsed += blocks

            self.tables.contexts.get(qp.number, known)
        else:  # it comes from the ring, behind the others
            count = ring.producer + (index + blocks - ring.producer & 0xFFFF)
            self._ring(page, qp.number, count & 0xFFFFFFFF)

    # ---- memory ----

    def gather(
        self,
        parts: list[tuple[int, int]],
        then: Callable[[bytes], None],
        failed: Callable[[int], None],
    ) -> None:
        """Reads several parts of memory and calls ``then`` with all bytes; ``failed`` gets the
        address of a part where there is no memory."""
        found: dict[int, bytes] = {}

        def arrived(number: int, data: bytes) -> None:
            found[number] = data
            if len(found) == len(parts):
                then(b"".join(found[i] for i in range(len(parts))))

        for number, (address, size) in enumerate(parts):
            self.transfers.read(
                address,
                size,
                lambda data, number=number: arrived(number, data),  # type: ignore[misc]
                lambda address=address: failed(address),  # type: ignore[misc]
            )

    def page_in(self, absent: Absent, then: Callable[[], None]) -> None:
        """Asks the driver for pages that are not in memory."""
        if self.page_fault is None:
            raise HostError(
                f"{self!r} needs the page at {absent.pages[0]:#x} of key {absent.key:#x}, "
                "and no driver handles page faults"
            )
        self.page_fault(absent, then)

    # ---- completions ----

    def complete(self, cq: CompletionRing, entry: CompletionEntry) -> None:
        """Writes a completion, and interrupts if the queue is armed."""
        self.completer.complete(cq, entry)

    def _overrun(self, cq: CompletionRing, qpn: int, why: str) -> None:
        """A queue can take no more completions: ends its QPs."""
        self._refuse_store(qpn, f"a completion in CQ {cq.number}", why, cq.address)
        for qp in self.qps.values():
            if cq in (qp.send_cq, qp.receive_cq):
                self.end(qp)

    # ---- failures of the adapter and of memory ----

    @property
    def is_away(self) -> bool:
        """Whether it does nothing: it has failed or was unmapped, or is not over that yet."""
        return self.is_dead or self.transfers.is_cut

    @property
    def was_unmapped(self) -> bool:
        """Whether it was unmapped, and not mapped since."""
        return self._was_unmapped

    @was_unmapped.setter
    def was_unmapped(self, value: bool) -> None:
        is_back = not value and getattr(self, "_was_unmapped", False)
        self._was_unmapped = value
        if is_back and self.computer is not None:  # its link is plugged in after this
            self.computer.at(self.computer.now, self._setback.come_back)

    def fail(self, fault: DeviceFault | None) -> None:
        """As of every device. Queue pairs with a request, a packet or a completion under way go to
        the error state; when it works again their requests complete with WR_FLUSH_ERR."""
        super().fail(fault)
        if fault is None:
            self._setback.come_back()

    def drop_dma(self) -> None:
        super().drop_dma()
        self._buffers.clear()
        if self._tables is not None:
            self._tables.forget_readers()
        self._responder.forget_atomics()
        self._setback.lose()
        if self.computer is not None:  # if it has not failed it goes on at once
            self.computer.at(self.computer.now, self._setback.come_back)

    def dma_failed(self, error: AccessError) -> None:
        self.transfers.fail()
        super().dma_failed(error)

    def lose_tables(self) -> None:
        """There is no memory where its tables are: what is under way fails."""
        self.landings.forget()
        self.drop_dma()

    def _resume(self, qp: Qp) -> None:
        """Flushes what is in the rings of a queue pair that has failed."""
        self._responder.flush(qp)
        self._fetch(qp)

    # ---- queue pairs ----

    def transmit(self, packet: Packet) -> None:
        """Sends a packet; without a wire it goes nowhere."""
        if self.wire is not None and not self.is_away:
            self.wire.send(self, packet)

    def arrive(self, packet: Packet) -> None:
        """Takes a packet from the wire, once its queue pair's context is here; it is lost if the
        adapter has failed or is not mapped."""
        qp = self.qps.get(packet.qpn)
        if qp is None or self.is_away:
            return
        take = self._responder.arrive if packet.reply is None else self._requester.answered
        self.tables.contexts.get(qp.number, lambda _: take(qp, packet))

    def end(self, qp: Qp) -> None:
        """Puts a queue pair into the error state and flushes its requests."""
        if qp.state is QpState.ERROR:
            return
        qp.state = QpState.ERROR
        self._requester.end(qp)
        self._responder.end(qp)

    def flush_receives(self, qp: Qp) -> None:
        """The driver has posted receive requests to a queue pair in the error state."""
        self._responder.flush(qp)

    def note(self, qp: Qp, opcode: HcaOpcode, refused: Refused) -> None:
        """Records why a request failed."""
        self.refusals.append(
            Refusal(self.now, qp.number, opcode.name, refused.why, refused.address)
        )
