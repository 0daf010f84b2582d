# SPDX-License-Identifier: Apache-2.0
"""A link: frames in both directions over one queue pair, with credits, and large payloads.

Clients and servers have one ``Link`` for each connection. A frame needs a credit, which is a
receive that the peer has posted; without one it waits in the outbox, in order. Each frame that
arrives is given to ``on_frame`` before its receive is posted again. Nothing here waits: what has to
wait has a function that is called later.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import finalize, ref

import numpy as np

from verbena.peers.errors import Ended
from verbena.peers.memory import BufferPool, RegionCache, dense_array
from verbena.peers.transport import CmHome, Sharing, SocketHome, Transport
from verbena.peers.wire import Hello
from verbena.verbs import (
    MR,
    PD,
    WC,
    AccessFlags,
    QPCap,
    SendFlags,
    VerbsError,
    WCStatus,
)
from verbena.verbs.forked import follow

from ._frames import FrameEnd
from .bulk import Fetch, Offers, nbytes_of, payload_bytes
from .errors import MessageTooLarge
from .frames import FRAME, FRAME_SIZE, TOKEN, FrameFlags, FrameKind
from .memory import RECEIVES, FrameSlots, OwnReceives, SharedReceives
from .poller import Poller

__all__ = ["RECORD", "Link", "LinkPlan", "OnFrame"]

SENT, READ, WRITE, OTHER, RECORD = (kind << 33 for kind in range(1, 6))
_NUMBER = (1 << 33) - 1
_EXTRA = 160  # requests besides frames: READs and WRITEs of bulk, and of the ring
_ACCESS = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_READ | AccessFlags.REMOTE_WRITE
_INLINE = 256
_READ_SIZE = 1 << 28
_READS = 16
_GOODBYE = 1.0  # seconds
_AHEAD = 64 << 20  # bytes of payloads, without items, that are fetched and not released

# Plain numbers: a comparison with an attribute of an enum takes 0.1 µs more, and & with one 2 µs.
_PLAIN = 0
_CREDIT, _MORE, _DONE = int(FrameKind.CREDIT), int(FrameKind.MORE), int(FrameKind.DONE)
_PARTS = int(FrameFlags.PARTS)
_ITEM, _BYE, _BELL = int(FrameKind.ITEM), int(FrameKind.BYE), int(FrameKind.BELL)
_FETCH, _WRITTEN = int(FrameFlags.FETCH), int(FrameFlags.WRITTEN)

OnFrame = Callable[[int, int, int, int, int, Any], None]
"""Called with kind, flags, method, call, count and payload: bytes, or a Fetch that goes on."""


class LinkPlan:
    """What a queue pair is made for (a ``Seat`` of verbena.peers): a link that is not there yet."""

    def __init__(
        self,
        home: CmHome | SocketHome,
        hello: Hello,
        shared: Callable[[PD], tuple[Sharing, SharedReceives | None]] | None = None,
    ) -> None:
        self.home = home
        self.hello = hello
        self.receives: OwnReceives | None = None
        self.on_prepare: Callable[[int], None] = _nobody_cares
        self._shared = shared

    @property
    def cap(self) -> QPCap:
        """What the queue pair has to hold."""
        return QPCap(
            max_send_wr=2 * self.hello.slots + _EXTRA,
            max_recv_wr=self.hello.slots + 4,
            max_send_sge=1,
            max_recv_sge=1,
            max_inline_data=_INLINE,
        )

    def sharing(self, pd: PD) -> Sharing:
        """Return the CQ and the SRQ of the server."""
        if self._shared is None:
            return Sharing()
        sharing, self.receives = self._shared(pd)
        return sharing

    def prepare(self, qp: Any) -> None:
        """Post the receives of a new queue pair that does not share them."""
        self.on_prepare(qp.qp_num)
        if self.receives is None:
            self.receives = OwnReceives(qp.pd, self.hello.slots, self.hello.slot_size)
            self.receives.post_all(qp)

    def abandon(self) -> None:
        """There will be no link."""
        if self.receives is not None and not isinstance(self.receives, SharedReceives):
            self.receives.close()
        self.home.leave()


class Link(FrameEnd):
    """One side of a connection. ``on_frame`` and ``on_lost`` are set before it starts."""

    def __init__(self, plan: LinkPlan, transport: Transport, poller: Poller) -> None:
        assert plan.receives is not None
        hello, peer = plan.hello, transport.peer
        self.about = transport.about
        self.ended: Ended | None = None
        self.on_frame: OnFrame = _nobody
        self.on_lost: Callable[[Ended], None] = _nobody_cares
        self.on_ring: Callable[[int], None] = _nobody_cares  # so many records were taken
        self.on_bell: Callable[[], None] = _nothing
        self.on_record: Callable[[], None] = _nothing  # a record is in the peer's memory
        self.inline = _INLINE
        self.waits: Callable[[], bool] = _no
        self.poller = poller
        self.pd = transport.pd
        self.max_message = 1 << 30  # of the peer
        self.takes_at_most = 1 << 30
        self.queue_most = 1 << 30  # frames that wait for credits
        self.pool = BufferPool(self.pd, _ACCESS)
        self.regions = RegionCache(self.pd)
        self.offers = Offers(self.regions, self.pool)
        self.qp = transport.aqp.qp
        self._home = plan.home
        self._transport = transport
        self._receives = plan.receives
        self._in = plan.receives.view
        size = min(hello.slot_size, peer.slot_size)
        slots = min(hello.slots, peer.slots)
        self._out = FrameSlots(self.pd, slots, size, _INLINE, SENT)
        self.room = size - FRAME_SIZE  # bytes of payload in a frame
        self._slots = slots
        self._use_memory(self._out, self._receives, self.qp.post_send)
        self._credits = slots
        self._sent = 0
        self._completed = 0
        self._owed = 0
        self._half = max(1, slots // 2)
        # A client posts the receive of a response once its next request is on its way; the peer has
        # one credit less until then. A server has sent its response when it posts the request's.
        self.holds = False
        self.held = -1  # the slot of that receive
        self.taken = 0  # records of the ring that were taken, and of which the peer was told
        self.told = 0
        self._outbox: deque[tuple[int, int, int, int, int, bytes]] = deque()
        self._parts: tuple[int, int, int, int, int, bytearray] | None = None
        self._parts_left = 0
        self._fetches: dict[int, Fetch] = {}
        self._fetch_later: deque[Fetch] = deque()
        self._reads = 0
        self._next_read = 0
        self._ahead = 0
        self.items_ahead = 0  # bytes of items that are, or are being, fetched and not taken
        self._writes: dict[int, tuple[object, Callable[[], None]]] = {}
        self._next_write = 0
        self._watching: asyncio.Task[None] | None = None
        self._leaving: list[asyncio.Future[None]] = []
        self._is_closing = False
        poller.targets[self.qp.qp_num] = self
        follow(self)

    def start(self) -> None:
        """Watch for the end of the peer."""
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    # ---- sending ----

    def _send_later(
        self, kind: int, flags: int, method: int, call: int, count: int, payload: bytes
    ) -> None:
        """Keep a frame that cannot be sent now."""
        if self.ended is not None:
            return
        self._outbox.append((kind, flags, method, call, count, bytes(payload)))
        if len(self._outbox) > self.queue_most:
            self.broken(BufferError("the peer gives no credits back, and asks for more"))
            return
        if self._sent - self._completed >= self._slots:
            self.poller.poll()
        self._flush()
        self.poller.hear()

    def _frame(
        self, kind: int, flags: int, method: int, call: int, count: int, length: int, payload: Any
    ) -> None:
        slot = self._sent % self._slots
        out = self._out
        at = slot * out.size
        owed, self._owed = self._owed, 0
        self.told = self.taken
        FRAME.pack_into(*(out.view, at, kind, flags, method, owed, call, count, length, self.taken))
        size = len(payload)
        if size:
            out.view[at + FRAME_SIZE : at + FRAME_SIZE + size] = payload
        self._sent += 1
        try:
            self._post(out.request(slot, FRAME_SIZE + size))
        except VerbsError:
            self._lost(Ended.DIED)

    def _flush(self) -> None:
        outbox = self._outbox
        while outbox and self._credits > 0 and self._sent - self._completed < self._slots:
            if self.ended is not None:
                outbox.clear()
                return
            kind, flags, method, call, count, payload = outbox.popleft()
            self._credits -= 1
            length = len(payload)
            if flags & _PARTS:
                length, payload = int.from_bytes(payload[:4], "little"), payload[4:]
            self._frame(kind, flags, method, call, count, length, payload)

    def send_parts(
        self, kind: int, flags: int, method: int, call: int, count: int, payload: Any
    ) -> None:
        """Send a payload of any size in frames, one behind the other."""
        if self.ended is not None:
            return
        data = memoryview(payload_bytes(payload))
        size = len(data)
        if size <= self.room:
            self.send(kind, flags, method, call, count, bytes(data))
            return
        parts = -(-size // self.room)
        unused = min(self._credits, self._slots - self._sent + self._completed)
        if not self._outbox and parts <= unused:  # each is copied once, to where it is sent from
            self._credits -= parts
            self._frame(kind, flags | _PARTS, method, call, count, size, data[: self.room])
            for start in range(self.room, size, self.room):
                part = data[start : start + self.room]
                self._frame(_MORE, 0, 0, call, 0, len(part), part)
            return
        first = size.to_bytes(4, "little") + bytes(data[: self.room])
        self._outbox.append((kind, flags | _PARTS, method, call, count, first))
        for start in range(self.room, size, self.room):
            rest = bytes(data[start : start + self.room])
            self._outbox.append((_MORE, 0, 0, call, 0, rest))
        self._flush()
        if self._outbox:
            self.poller.hear()

    def send_fetch(
        self,
        kind: int,
        flags: int,
        method: int,
        call: int,
        count: int,
        payload: Any,
        done: Callable[[], None],
        before: bytes = b"",
    ) -> None:
        """Send where a payload is; the peer reads it, and ``done`` is called then."""
        self.check_size(nbytes_of(payload))
        token = self.offers.offer(payload, done)
        flags |= _FETCH
        self.send(kind, int(flags), method, call, count, before + token)

    def send_written(self, method: int, call: int, payload: Any, token: tuple[int, ...]) -> None:
        """Write a response into the memory that the request named, and send its frame."""
        addr, _, rkey, _ = token
        array = dense_array(payload)
        region, end = self.regions.register(array, 0)
        number = self._next_write = self._next_write + 1
        self._writes[number] = (array, region), end
        try:
            self.qp.write(
                region,
                addr,
                rkey,
                array.ctypes.data - region.addr,
                array.nbytes,
                wr_id=WRITE | number,
                flags=SendFlags.SIGNALED,
            )
        except VerbsError:
            self._lost(Ended.DIED)
            return
        flags = _WRITTEN
        self.send(FrameKind.RESPONSE, flags, method, call, array.nbytes, b"")

    def check_size(self, nbytes: int) -> None:
        """Raise MessageTooLarge for what the peer does not take."""
        if nbytes > self.max_message:
            raise MessageTooLarge(
                f"{nbytes} bytes are more than the {self.max_message} that the peer takes"
                " (max_message= of its side): send them in parts, as a stream"
            )

    def write_word(self, region: MR, offset: int, addr: int, rkey: int, length: int = 8) -> None:
        """Write a part of a region into the peer's memory, with a completion."""
        with suppress(VerbsError):
            self.qp.write(region, addr, rkey, offset, length, wr_id=OTHER, flags=SendFlags.SIGNALED)

    def post_record(self, request: Any) -> None:
        """Post the WRITE of a record into the ring."""
        try:
            self._post(request)
        except VerbsError:
            self._lost(Ended.DIED)

    # ---- completions ----

    def _requested(self, wc: WC) -> None:
        """Take a completion that is not of a frame, or that comes too late."""
        wr_id = wc.wr_id
        if not wc.is_success:
            if wr_id < RECEIVES:
                self._receives.post(wr_id)
            refused = wc.status in (WCStatus.REM_ACCESS_ERR, WCStatus.LOC_ACCESS_ERR)
            self._lost(Ended.REFUSED if refused else Ended.DIED)
            return
        if wr_id < RECEIVES:  # the link has ended
            self._receives.post(wr_id)
            return
        what, number = wr_id & ~_NUMBER, wr_id & _NUMBER
        if what == SENT:
            done = self._completed
            self._completed += (number - done) % self._slots + 1
            self._go_on()
        elif what == READ:
            self._read(self._fetches[number])
        elif what == WRITE:
            self._writes.pop(number)[1]()
        elif what == RECORD:
            self.on_record()

    def _wake_leaving(self) -> None:
        self.poller.wake_all(self._leaving)

    def _failed(self) -> None:
        self._lost(Ended.DIED)

    def hold(self) -> None:
        """Post the receive of a frame only with the next frame, or by ``give_back``."""
        self.holds = self._slots > 1  # with one, the peer would have no credit meanwhile

    def give_back(self) -> None:
        """Post the receive that is held."""
        slot, self.held = self.held, -1
        self._owed += 1
        self._receives.post(slot)

    def broken(self, error: Exception) -> None:
        """End this link alone, since its peer breaks the protocol, or since of a defect here."""
        about = {"message": f"the link to {self.about} has failed", "exception": error}
        self._lost(Ended.DIED)
        asyncio.get_running_loop().call_exception_handler(about)

    def tell(self) -> None:
        """Give credits back, and say how many records of the ring were taken, by a CREDIT."""
        if self.ended is None and not self._is_full():
            self._frame(_CREDIT, 0, 0, 0, 0, 0, b"")

    def _is_full(self) -> bool:
        return self._sent - self._completed >= self._slots

    def _special(
        self, kind: int, flags: int, method: int, call: int, count: int, length: int, start: int
    ) -> None:
        view = self._in
        if kind == _MORE:
            self._more(view[start : start + length])
        elif kind == _DONE:
            self.offers.done(count)
        elif kind == _BYE:
            self._lost(Ended.PEER)
        elif kind == _BELL:
            self.on_bell()
        elif flags & _FETCH:
            before = length - TOKEN.size
            payload = self._offered(TOKEN.unpack_from(view, start + before))
            payload.before = bytes(view[start : start + before])
            payload.is_item = kind == _ITEM
            if not payload.is_item:
                self.fetch(payload)
            self.on_frame(kind, flags, method, call, count, payload)
        elif flags & _PARTS:
            if length > self.takes_at_most:
                raise ValueError(f"the peer sends {length} bytes, more than it was told to")
            first = bytearray(view[start : start + self.room])
            self._parts = kind, flags & ~_PARTS, method, call, count, first
            self._parts_left = length - len(first)

    def _more(self, data: memoryview) -> None:
        if self._parts is None:
            raise ValueError("a part of no frame")
        *head, whole = self._parts
        whole += data
        self._parts_left -= len(data)
        if self._parts_left <= 0:
            self._parts = None
            kind, flags, method, call, count = head
            self.on_frame(kind, flags, method, call, count, whole)

    # ---- fetching ----

    def _offered(self, token: tuple[int, int, int, int]) -> Fetch:
        fetch = Fetch(token, _nobody_cares)
        if fetch.length > self.takes_at_most:
            raise ValueError(f"the peer offers {fetch.length} bytes, more than it was told to")
        return fetch

    def fetch(self, fetch: Fetch) -> None:
        """Fetch a payload, now or when there is room. An item's stream says when."""
        fetch.is_begun = True
        self._fetch_later.append(fetch)
        self._begin_fetches()

    def drop(self, fetch: Fetch) -> None:
        """Nobody needs a payload: it is released when it is here, or never fetched."""
        if fetch.is_begun:
            fetch.then = self.release
            self.release(fetch)
            return
        fetch.is_begun = True
        self.send(_DONE, _PLAIN, 0, 0, fetch.number, b"")

    def _begin_fetches(self) -> None:
        while self._fetch_later and self._reads < _READS:
            fetch = self._fetch_later[0]
            if not fetch.is_item:
                if self._ahead and self._ahead + fetch.length > _AHEAD:
                    return
                self._ahead += fetch.length
            self._fetch_later.popleft()
            self._next_read += 1
            fetch.key = self._next_read
            self._fetches[fetch.key] = fetch
            fetch.buffer = buffer = self.pool.get(fetch.length)
            try:
                for start in range(0, fetch.length, _READ_SIZE):
                    fetch.left += 1
                    self._reads += 1
                    self.qp.read(
                        buffer,
                        fetch.addr + start,
                        fetch.rkey,
                        start,
                        min(_READ_SIZE, fetch.length - start),
                        wr_id=READ | self._next_read,
                        flags=SendFlags.SIGNALED,
                    )
            except VerbsError:
                self._lost(Ended.DIED)
                return

    def _read(self, fetch: Fetch) -> None:
        fetch.left -= 1
        self._reads -= 1
        if fetch.left:
            return
        del self._fetches[fetch.key]
        fetch.is_ready = True
        self.poller.expect_more(fetch.length)
        self.send(_DONE, _PLAIN, 0, 0, fetch.number, b"")
        fetch.then(fetch)
        self._begin_fetches()

    def release(self, fetch: Fetch) -> None:
        """The payload of a fetch is not needed any more."""
        if fetch.buffer is not None and fetch.is_ready:
            if not fetch.is_item:
                self._ahead -= fetch.length
            fetch.release(self.pool if self.ended is None else None)
            self._begin_fetches()

    def lend(self, fetch: Fetch) -> memoryview:
        """Return the payload of a fetch; its buffer is used again when the last view is gone."""
        assert fetch.buffer is not None
        buffer, fetch.buffer = fetch.buffer, None
        self._ahead -= fetch.length
        self._begin_fetches()
        return self.lend_buffer(buffer, fetch.length)

    def lend_buffer(self, buffer: MR, length: int) -> memoryview:
        """Return a part of a buffer of the pool, which is used again when no view is left."""
        array = np.asarray(memoryview(buffer))[:length]
        finalize(array, _put_back, ref(self), buffer).atexit = False
        return array.data

    # ---- its end ----

    def must_hear(self) -> bool:
        """Return whether frames wait for credits: PollTarget."""
        return bool(self._outbox or self.offers) or self.waits()

    async def _watch(self) -> None:
        await self._transport.wait_lost()
        self.poller.poll()  # what has arrived before is taken first
        self._lost(Ended.DIED)

    async def close(self) -> None:
        """Say goodbye, wait until the peer has it, for a second at most, and disconnect.

        The goodbye may go another way than the end of the peer's socket or connection: a peer that
        saw that end first would take this side for dead.
        """
        self._is_closing = True
        try:
            async with asyncio.timeout(_GOODBYE):
                await self._until(lambda: self._credits > 0 and not self._is_full())
                if self.ended is None:
                    self._out.signal(self._sent % self._slots)
                    self._frame(_BYE, 0, 0, 0, 0, 0, b"")
                await self._until(lambda: self._sent == self._completed)
        except TimeoutError:
            pass
        finally:
            self._lost(Ended.HERE)

    def stay_with_parent(self) -> None:
        """In a forked child the link is the parent's."""
        self.ended = self.ended or Ended.FORKED

    def abort(self) -> None:
        """Disconnect at once, without a goodbye."""
        self._is_closing = True
        self._lost(Ended.HERE)

    async def _until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition holds and no frame waits, or for the end of this link."""
        await self.poller.until(
            lambda: self.ended is not None or (not self._outbox and holds()), self._leaving
        )

    def _lost(self, reason: Ended) -> None:
        if self.ended is not None:
            return
        # A peer that has the goodbye may disconnect before its acknowledgement is here.
        reason = self.ended = Ended.HERE if self._is_closing else reason
        self.poller.targets.pop(self.qp.qp_num, None)
        self._outbox.clear()
        self.poller.wake_all(self._leaving)
        if self._watching is not None and self._watching is not asyncio.current_task():
            self._watching.cancel()
        self.on_lost(reason)
        asyncio.get_running_loop().call_soon(self._release)

    def _release(self) -> None:
        """Close everything. The loop calls it, since the poller may be in the CQ's poll."""
        with suppress(VerbsError):
            self._transport.close()
        self.offers.close()
        for _, end in self._writes.values():
            end()
        self._writes.clear()
        for fetch in [*self._fetches.values(), *self._fetch_later]:
            fetch.release(None)
        self.regions.close()
        self.pool.close()
        if not isinstance(self._receives, SharedReceives):
            self._receives.close()
        self._out.close()
        self._home.leave()


def _nobody(kind: int, flags: int, method: int, call: int, count: int, payload: Any) -> None:
    """Frames before anybody is there for them are not taken."""


def _nothing() -> None:
    """Nobody waits for records, or the bell."""


def _no() -> bool:
    return False


def _put_back(link: ref[Link], buffer: MR) -> None:
    here = link()
    if here is not None and here.ended is None:
        here.pool.put(buffer)


def _nobody_cares(what: Any) -> None:
    """Nothing is to be done."""
