# SPDX-License-Identifier: Apache-2.0
"""A connection's messages: credits, confirmations, large messages, and coming back after a loss.

``Session`` is below ``PeerConnection``. It sends messages numbered from 1 on and keeps each until
the peer confirms it; the peer confirms a message when its program has taken it, so the number of
messages that are not confirmed is also the back-pressure. The peer also says up to which message it
has all bytes, of large ones too, since a sender waits for that alone and not for a program that
has small messages in front. After a loss both sides say what has arrived, and the rest is sent
again: each message arrives once, in order.

Everything that changes state is done between two awaits, so a task that is cancelled leaves either
the state before or the state after.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verbena.cm.arguments import limited
from verbena.verbs import (
    MR,
    PD,
    WC,
    AccessFlags,
    Context,
    QPCap,
    QPState,
    SendFlags,
    VerbsError,
    WCStatus,
)
from verbena.verbs.forked import follow

from .errors import Ended, PeerConnectionEnded
from .forgetting import Forgetting
from .memory import BufferPool, RegionCache, byte_view, dense_array
from .ring import ARRIVED, Ring
from .transport import CmHome, Sharing, SocketHome, Transport
from .wire import HEADER_SIZE, Header, Hello, MessageKind

__all__ = ["PATIENCE", "Arrived", "Session", "queue_cap"]

PATIENCE = 5.0
"""Seconds for which a connection that is closed waits for its peer, by default."""

_GOODBYE = 1.0  # seconds in which the peer is told what it will not get
_READ = 1 << 28  # bytes of one READ of a large message
_INLINE_BYTES = 64
_INLINE = int(SendFlags.INLINE)
_AHEAD = 16 << 20  # bytes of large messages that are fetched before the program receives them
_ALL_ARRIVED = (Ended.HERE, Ended.PEER, Ended.FORKED)  # or it is not this process that has sent
_FIRST = "what failed first: "  # as hca/sentences.c has it
_MESSAGES = frozenset((int(MessageKind.DATA), int(MessageKind.LARGE)))
_FLUSH = 0.1  # seconds; a failed queue pair's completions come a few milliseconds after the failure
_ONE_SIDED = 64  # requests for arrays, at a time


def queue_cap(slots: int, receives: int) -> QPCap:
    """Return how much a queue pair of a session has to hold."""
    return QPCap(
        max_send_wr=slots + _control(slots) + _ONE_SIDED,
        max_recv_wr=receives,
        max_send_sge=1,
        max_recv_sge=1,
        max_inline_data=_INLINE_BYTES,
    )


def _control(slots: int) -> int:
    """Control messages that are in the send queue at most."""
    return slots + 8


@dataclass(eq=False, slots=True)
class Arrived:
    """A message that has arrived: in a slot, or still in the peer's memory.

    ``kept``: its bytes, if it was received already and is to be received again.
    """

    header: Header
    slot: int | None
    buffer: MR | None = None
    kept: NDArray[np.uint8] | None = None
    fetching: asyncio.Task[None] | None = None


@dataclass(eq=False, slots=True)
class Outgoing:
    """A message that the peer has not confirmed. ``end`` is called when the peer has its bytes."""

    length: int
    kept: object
    end: Callable[[], None]
    large: bool


_OTHER_LOOP = (
    "a connection or listener of verbena.peers belongs to the event loop in which it was made, and"
    " this is another: make one in each loop, or use verbena.peers.sync, which serves any thread"
)


class Waiters:
    """Tasks that wait until a condition holds; whoever changes the state wakes them.

    They are of the loop in which this was made: nobody would wake those of another.
    """

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []
        self._loop = asyncio.get_running_loop()

    def check_loop(self) -> None:
        """Raise RuntimeError in another loop."""
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(_OTHER_LOOP)

    def check_loop_of_end(self) -> None:
        """Raise RuntimeError in another loop, and outside of one when that of this is closed."""
        running = asyncio._get_running_loop()
        if running is not None and running is not self._loop:
            raise RuntimeError(_OTHER_LOOP)
        if self._loop.is_closed():
            raise RuntimeError(
                "the event loop in which this listener was made is closed: close the listener"
                " before its loop, or use `async with`"
            )

    def wake(self) -> None:
        """Have all look again."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until the condition holds."""
        while not holds():
            self.check_loop()
            waiter = self._loop.create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            finally:
                self._waiting.remove(waiter)


class Session:
    """One side of a connection. ``on_lost`` is called when a transport is lost."""

    def __init__(
        self, home: CmHome | SocketHome, hello: Hello, on_lost: Callable[[Session], bool]
    ) -> None:
        self.hello = hello
        self.home = home
        self.about = "the peer"
        self.ended: Ended | None = None
        self.transport: Transport | None = None
        self.revoked: set[int] = set()
        self.changed = Waiters()
        self._forgetting = Forgetting()
        self.when_ended: list[Callable[[Ended], object]] = []
        self.on_note: Callable[[int], object] | None = None
        self.last_note: int | None = None
        self._said = ""  # by the device, of the completion with which the transport was lost
        self._on_lost = on_lost
        self._pd: PD | None = None
        self._ring: Ring | None = None
        self._pool: BufferPool | None = None
        self._regions: RegionCache | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._is_released = False
        self.has_said_bye = False
        # Sending
        self._turn = asyncio.Lock()
        self._sent = 0
        self._confirmed = 0
        self._fetched_there = 0  # the peer has the bytes of all messages up to this one
        self._window = 0
        self._peer_slot = 0
        self._outgoing: dict[int, Outgoing] = {}
        self._in_queue = 0  # messages in the send queue
        self._controls = 0  # control messages in it
        self._signaled: deque[tuple[int, int]] = deque()  # how many of both a completion is for
        self._unsignaled = 0  # messages since the last request that has a completion
        self._must_confirm = False
        # Receiving
        self._arrived = 0
        self._taken = 0
        self._taken_early: dict[int, bool] = {}  # whether the sender waits, for those that follow
        self._told = 0
        self._fetched_here = 0  # this side has the bytes of all messages up to this one
        self._has_fetched = False  # a large message, so that its sender may wait for a confirmation
        self._fetched_early: dict[int, bool] = {}  # as _taken_early, for _fetched_here
        self._inbox: deque[Arrived] = deque()
        self._ahead = 0  # bytes of the large messages in it that are, or are being, fetched
        follow(self)

    # ---- memory ----

    @property
    def pd(self) -> PD:
        """The protection domain of the session. Raises PeerConnectionEnded after its end."""
        if self._pd is None:
            raise self.failure()
        return self._pd

    @property
    def regions(self) -> RegionCache:
        """The registrations of the program's memory."""
        if self._regions is None:
            raise self.failure()
        return self._regions

    def prepare(self, qp: Any) -> None:
        """Post the receives of a new queue pair."""
        if self._pd is None or self._ring is None:
            self._pd = qp.pd
            self._ring = Ring(qp.pd, self.hello.slots, self.hello.slot_size)
            self._pool = BufferPool(qp.pd)
            self._regions = RegionCache(qp.pd)
        self._ring.post_all(qp)

    @property
    def cap(self) -> QPCap:
        """What a queue pair has to hold."""
        return queue_cap(self.hello.slots, 2 * self.hello.slots + 8)

    def sharing(self, pd: PD) -> Sharing:
        """Return what its queue pair shares with others: nothing."""
        del pd
        return Sharing()

    @property
    def arrived(self) -> int:
        """How many messages of the peer have arrived."""
        return self._arrived

    @property
    def has_told(self) -> bool:
        """Whether the peer was told of all messages for whose confirmation it may wait."""
        return not self._must_confirm or self.transport is None

    # ---- life ----

    def failure(self) -> PeerConnectionEnded:
        """Return the exception that says why it has ended."""
        lost = len(self._outgoing) if self.ended not in _ALL_ARRIVED else 0
        said = self._said if self.ended in (Ended.DIED, Ended.REFUSED) else ""
        return PeerConnectionEnded(self.ended or Ended.HERE, self.about, lost, said)

    def check(self) -> None:
        """Raise PeerConnectionEnded if it has ended, and RuntimeError in another loop."""
        if self.ended is not None:
            raise self.failure()
        self.changed.check_loop()

    def check_open(self) -> None:
        """Raise as ``check``, and PeerConnectionEnded as well if it is being closed here.

        Whatever begins a message or a request calls this. So nothing comes behind the goodbye,
        where the peer would not look, and ``close`` does not wait for what began after it.
        """
        self.check()
        if self._is_closing:
            raise PeerConnectionEnded(Ended.HERE, self.about, is_closing=True)

    def attach(self, transport: Transport) -> None:
        """Use a transport that was made with ``prepare``; send again what the peer lacks."""
        self.transport = transport
        self.about = transport.about
        self._window = min(transport.peer.slots, self.hello.slots)
        self._peer_slot = min(transport.peer.slot_size, self.hello.slot_size)
        self._in_queue = self._controls = 0
        self._unsignaled = 0
        self._signaled.clear()
        transport.aqp.reserve(self.hello.slots + _control(self.hello.slots))
        self._receive_from(transport)
        self.spawn(self._watch(transport))
        for number in sorted(self._outgoing):
            if number > transport.peer.arrived:
                self._post(number, self._outgoing[number])
        self._must_confirm = self._taken > 0 or self._has_fetched
        self._confirm()
        self.changed.wake()

    async def ready(self) -> Transport:
        """Return the transport, after a return of the peer if it is lost. PeerConnectionEnded."""
        await self.changed.until(lambda: self.transport is not None or self.ended is not None)
        self.check()
        assert self.transport is not None
        return self.transport

    async def ready_for_request(self) -> Transport:
        """Return the transport, as ``ready``, for what the program begins. Raises as check_open."""
        self.check_open()
        return await self.ready()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task that ends with the session."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended_task)
        return task

    def _ended_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits for the task gets it

    def end(self, reason: Ended) -> None:
        """It has ended; what has arrived can still be received."""
        if self.ended is None:
            self.ended = reason
            for call in self.when_ended:
                call(reason)
            self.when_ended.clear()
        self.changed.wake()

    def _lost(self, transport: Transport, reason: Ended) -> None:
        if self.transport is not transport:
            return
        self._drain(transport)
        self.transport = None
        transport.close()
        # A side that closes needs no new transport when all that it sent has arrived.
        if self.ended is None and (self._has_arrived() or not self._on_lost(self)):
            self.end(Ended.HERE if self.has_said_bye else reason)
        self.changed.wake()

    def _has_arrived(self) -> bool:
        return self._is_closing and not (self._in_queue and self._outgoing)

    async def _watch(self, transport: Transport) -> None:
        await transport.wait_lost()
        await asyncio.sleep(0)  # what has arrived before is taken first
        await self._flushed(transport)
        self._lost(transport, Ended.DIED)

    async def _flushed(self, transport: Transport) -> None:
        """Wait for the completions of a queue pair that has failed: they have the device's text."""
        if self.transport is not transport or transport.aqp.qp.state is not QPState.ERR:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH):
                await self.changed.until(lambda: self.transport is not transport)

    async def close(self) -> None:
        """Wait until the peer has what was sent, say goodbye, and disconnect.

        Nothing new begins from now on, and messages that wait for a credit are refused. Where the
        transport was lost with messages on it, it waits for the next one, over which the messages
        are sent again.
        """
        self._is_closing = True
        self.changed.wake()  # whoever waits for a credit
        while self.ended is None and (self.transport is not None or self._outgoing):
            await self.changed.until(
                lambda: (
                    self.ended is not None
                    or (self.transport is not None and not self._large_left())
                )
            )
            if self.ended is None and await self.say_goodbye():
                return

    async def finish(self, patience: float) -> int:
        """Close, within so many seconds, and release; return how many messages the peer lacks."""
        left = 0
        try:
            async with asyncio.timeout(limited(patience)):
                await self.close()
        except TimeoutError:
            left = self.unfetched
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GOODBYE):
                    await self.say_goodbye(left)
        finally:
            self.release()
        return left

    @property
    def is_released(self) -> bool:
        """Whether everything was closed, or is another process's."""
        return self._is_released

    def forget(self) -> None:
        """Finish, since the program refers to the connection no more; any thread may call this."""
        self._forgetting.end(lambda: self.finish(PATIENCE), self._forgotten)

    def _forgotten(self) -> None:
        """Release, if the loop has ended first."""
        if not self._is_released:
            self._control_message(MessageKind.BYE, self._large_left())
            self.release()

    @property
    def unfetched(self) -> int:
        """How many messages the peer may not have: large ones, or all that are on their way."""
        is_on_its_way = self.transport is None or (self.has_said_bye and self._in_queue > 0)
        return len(self._outgoing) if is_on_its_way else self._large_left()

    def _large_left(self) -> int:
        return sum(each.large for each in self._outgoing.values())

    async def say_goodbye(self, left: int = 0) -> bool:
        """Return whether the peer has the goodbye, and not only a part of what was before it.

        ``left`` is how many messages the peer cannot fetch any more.
        """
        transport = self.transport
        self._control_message(MessageKind.BYE, left)
        self.has_said_bye = True
        await self.changed.until(
            lambda: (
                self.ended is not None
                or self.transport is not transport
                or not (self._in_queue or self._controls)
            )
        )
        return self.transport is transport

    def stay_with_parent(self) -> None:
        """In a forked child the connection, and all that it has, is the parent's."""
        self.ended = self.ended or Ended.FORKED
        self.transport = self._pd = self._regions = None
        self._tasks.clear()
        self._is_released = True

    def release(self) -> None:
        """Disconnect, and close everything."""
        self._is_closing = True
        self.end(Ended.HERE)
        for task in list(self._tasks):
            task.cancel()
        if self.transport is not None:
            self.transport.close()
            self.transport = None
        if self._is_released:
            return
        self._is_released = True
        self._pd = None
        for outgoing in self._outgoing.values():
            outgoing.end()
        for each in (self._regions, self._pool, self._ring):
            if each is not None:
                each.close()
        self._regions, self._pool = None, None
        self.home.leave()

    # ---- completions ----

    def _receive_from(self, transport: Transport) -> None:
        """Have the loop hand over what arrives, and completions of messages."""
        loop = asyncio.get_running_loop()
        failed = False

        def lost(reason: Ended = Ended.DIED) -> None:
            # Not at once: that closes the CQ which is being polled.
            nonlocal failed
            if not failed and self.transport is transport and not loop.is_closed():
                loop.call_soon(self._lost, transport, reason)
            failed = True

        def handle(wc: WC) -> None:
            if failed or self.transport is not transport:
                return
            if wc.is_success:
                self._handle(transport, wc)
            else:
                self._said = _said_of(wc, transport.acq.cq.context)
                refused = wc.status in (WCStatus.REM_ACCESS_ERR, WCStatus.LOC_ACCESS_ERR)
                lost(Ended.REFUSED if refused else Ended.DIED)

        try:
            transport.acq.deliver(handle, lost)
        except VerbsError:
            lost()

    def _handle(self, transport: Transport, wc: WC) -> None:
        if wc.wr_id & ARRIVED:
            self._take(transport, wc.wr_id & (ARRIVED - 1))
        else:
            self._completed()

    def _drain(self, transport: Transport) -> None:
        """Take what has arrived over a transport before it is closed."""
        with contextlib.suppress(VerbsError):
            transport.acq.poll()
        transport.acq.withhold()

    def _completed(self) -> None:
        """A request that was signaled has completed, and with it all before it."""
        messages, controls = self._signaled.popleft()
        self._in_queue -= messages
        self._controls -= controls
        if controls:
            self._confirm()
        self.changed.wake()

    def _flags(self, is_control: bool) -> int:
        """Count a request, and return its flags.

        A completion wakes the loop, so few requests have one: enough for the send queue's room.
        """
        if is_control:
            self._controls += 1
        else:
            self._in_queue += 1
            self._unsignaled += 1
            if self._unsignaled < self.hello.slots // 4:
                return 0
        self._signaled.append((self._unsignaled, int(is_control)))
        self._unsignaled = 0
        return int(SendFlags.SIGNALED)

    def _take(self, transport: Transport, slot: int) -> None:
        assert self._ring is not None
        header = Header.from_bytes(self._ring.view(slot))
        kind = header.kind
        self._on_confirmed(header.confirmed)
        is_message = kind in _MESSAGES
        is_new = is_message and header.number == self._arrived + 1
        if is_new:
            self._arrived = header.number
        if is_new and kind == MessageKind.DATA:
            self._ring.hold(slot)
            self._inbox.append(Arrived(header, slot))
            self._has_bytes_of(header.number, False)
        else:
            with contextlib.suppress(VerbsError):  # the queue pair may have failed since
                self._ring.post(transport.aqp.qp, slot)
        if not is_message:
            self._on_fetched(header.number)
            self._take_control(kind, header.addr)
        elif is_new and kind == MessageKind.LARGE:
            self._inbox.append(Arrived(header, None))
            self._fetch_ahead()
        self.changed.wake()

    def _take_control(self, kind: int, about: int) -> None:
        if kind == MessageKind.REVOKE:
            self.revoked.add(about)
        elif kind == MessageKind.NOTE:
            self.last_note = about
            if self.on_note is not None:
                self.on_note(about)
        elif kind == MessageKind.BYE:
            self.end(Ended.CUT if about else Ended.PEER)

    def _on_fetched(self, number: int) -> None:
        """The peer has the bytes of all messages up to a number: their memory is free."""
        while self._fetched_there < number:
            self._fetched_there += 1
            outgoing = self._outgoing.get(self._fetched_there)
            if outgoing is not None and outgoing.large:
                outgoing.end()
                outgoing.kept, outgoing.end, outgoing.large = None, _nothing, False

    def _on_confirmed(self, number: int) -> None:
        while self._confirmed < number:
            self._confirmed += 1
            outgoing = self._outgoing.pop(self._confirmed, None)
            if outgoing is not None:
                outgoing.end()

    # ---- sending ----

    async def send(self, data: Any) -> None:
        """Send a message; see PeerConnection.send."""
        await self.fetched(await self.post(data))

    async def post(self, data: Any) -> int:
        """Begin to send a message, and return the number to wait for: 0 if it is in a slot."""
        number, is_large = await self._begin(dense_array(data))
        return number if is_large else 0

    async def fetched(self, number: int) -> None:
        """Wait until the peer has all messages up to ``number``."""

        def is_there() -> bool:
            return max(self._confirmed, self._fetched_there) >= number

        if not is_there():
            await self.changed.until(lambda: is_there() or self.ended is not None)
        if not is_there():
            self.check()

    @property
    def may_post(self) -> bool:
        """Whether a message can be posted at once."""
        return (
            not (self._turn.locked() or self._is_closing)
            and self.ended is None
            and self._may_send()
        )

    async def _begin(self, array: NDArray[Any]) -> tuple[int, bool]:
        """Give the message its number as soon as there is a credit, and post it.

        Between the last look whether it is open and the posting nothing else runs: a message is
        posted before the goodbye, or not at all.
        """
        self.check_open()
        async with self._turn:
            await self.changed.until(self._may_send)
            self.check_open()
            is_large = array.nbytes + HEADER_SIZE > self._peer_slot
            assert self._ring is not None
            if is_large:
                number = self._sent + 1
                region, end = self.regions.register(array, AccessFlags.REMOTE_READ)
                offset = array.ctypes.data - region.addr
                header = Header(
                    MessageKind.LARGE,
                    region.rkey,
                    number,
                    self._taken,
                    array.nbytes,
                    region.addr + offset,
                )
                self._ring.fill(number, header.to_bytes())
                self._begun(Outgoing(HEADER_SIZE, (array, region), end, True))
            else:
                self._copy_and_begin(array.nbytes, byte_view(array))
            return self._sent, is_large

    def post_now(self, *parts: bytes | memoryview) -> bool:
        """Post a message of parts, if it is a small one and has a credit; return whether it was."""
        length = sum(map(len, parts))
        if length + HEADER_SIZE > self._peer_slot or not self.may_post:
            return False
        self._copy_and_begin(length, *parts)
        return True

    def _copy_and_begin(self, length: int, *parts: bytes | memoryview) -> None:
        assert self._ring is not None
        number = self._sent + 1
        header = Header(MessageKind.DATA, 0, number, self._taken, length)
        self._ring.fill(number, header.to_bytes(), *parts)
        self._begun(Outgoing(HEADER_SIZE + length, None, _nothing, False))

    def _begun(self, outgoing: Outgoing) -> None:
        """Give a message that lies in the ring the next number, and post it."""
        self._sent += 1
        self._outgoing[self._sent] = outgoing
        self._told = self._taken
        self._post(self._sent, outgoing)

    def _may_send(self) -> bool:
        """Whether a message need not wait, since there is a credit or it will be refused."""
        if self.ended is not None or self._is_closing:
            return True
        return (
            self.transport is not None
            and self._sent - self._confirmed < self._window
            and self._in_queue < self.hello.slots
        )

    def _post(self, number: int, outgoing: Outgoing) -> None:
        assert self._ring is not None
        assert self.transport is not None
        region, offset, length = self._ring.sent(number, outgoing.length)
        with contextlib.suppress(VerbsError):  # its completion tells that the transport is lost
            qp = self.transport.aqp.qp
            qp.send(region, offset, length, wr_id=0, flags=self._flags(False))

    def _control_message(self, kind: MessageKind, about: int = 0) -> None:
        if self.transport is None:
            return
        self._told = self._taken
        header = Header(kind, 0, self._fetched_here, self._taken, 0, about)
        with contextlib.suppress(VerbsError):
            flags = self._flags(True) | _INLINE
            self.transport.aqp.qp.send(header.to_bytes(), flags=flags, wr_id=0)

    async def revoke(self, lent: int) -> None:
        """Tell the peer that a window has ended."""
        await self.changed.until(
            lambda: self._controls < _control(self.hello.slots) or self.transport is None
        )
        self._control_message(MessageKind.REVOKE, lent)

    def note(self, value: int) -> None:
        """Tell the peer 64 bits without a credit, unless too much is under way, or it is away.

        A connection that is being closed tells none.
        """
        if self.ended is None and not self._is_closing and self._controls < self.hello.slots:
            self._control_message(MessageKind.NOTE, value)

    # ---- receiving ----

    async def receive(self) -> Arrived:
        """Wait for the next message, which the caller releases. Raises PeerConnectionEnded."""
        if self.ended is None:
            self.changed.check_loop()
        while True:
            await self.changed.until(lambda: bool(self._inbox) or self.ended is not None)
            if not self._inbox or self._is_released:  # whose memory is gone, with what lay there
                raise self.failure()
            message = self._inbox.popleft()
            if message.header.kind == MessageKind.DATA or message.kept is not None:
                return message
            try:
                await self._fetched(message)
            except BaseException:
                if self._pool is not None:
                    self._insert(message)
                raise
            self._ahead -= message.header.length
            self._fetch_ahead()
            return message

    def put_back(self, message: Arrived, data: bytes | None = None) -> None:
        """Have the next receive give a message that nobody got.

        ``data``: its bytes, if its memory was given back.
        """
        if data is not None:
            kept = np.frombuffer(bytearray(data), np.uint8)
            message = Arrived(message.header, None, kept=kept)
        elif message.buffer is not None:
            self._ahead += message.header.length
        self._insert(message)

    def _insert(self, message: Arrived) -> None:
        """Put a message into the inbox again, in its order."""
        number = message.header.number
        before = sum(each.header.number < number for each in self._inbox)
        self._inbox.insert(before, message)
        self.changed.wake()

    async def receive_copy(self) -> memoryview | None:
        """Wait for the next message; return a copy if it is small, and None if it is not.

        A large one stays for ``receive``. Raises PeerConnectionEnded.
        """
        while not self._inbox and self.ended is None:
            await self.changed.until(lambda: bool(self._inbox) or self.ended is not None)
        if not self._inbox or self._is_released:
            raise self.failure()
        if self._inbox[0].slot is None:
            return None
        copy = self.content(self._inbox[0]).copy()
        self.give_back(self._inbox.popleft())
        return copy.data

    def peek(self) -> memoryview | None:
        """Return the first message of the inbox, if it is in a slot."""
        if not self._inbox or self._inbox[0].slot is None or self._is_released:
            return None
        return self.content(self._inbox[0]).data

    def peek_last(self) -> bytes | None:
        """Return the last message of the inbox, if it is in a slot."""
        if not self._inbox or self._inbox[-1].slot is None or self._ring is None:
            return None
        return self.content(self._inbox[-1]).tobytes()

    async def _fetched(self, message: Arrived) -> None:
        """Wait until the READ has ended; it goes on if the caller is cancelled."""
        if message.fetching is None:
            self._begin_fetch(message)
        assert message.fetching is not None
        try:
            await asyncio.shield(message.fetching)
        finally:
            if message.fetching.done() and message.buffer is None:
                message.fetching = None
                self._ahead -= message.header.length

    def _begin_fetch(self, message: Arrived) -> None:
        self._ahead += message.header.length
        message.fetching = self.spawn(self._fetch(message))

    def _fetch_ahead(self) -> None:
        """Fetch messages while they are small enough, so that their senders need not wait."""
        for message in self._inbox:
            if message.slot is None and message.fetching is None and message.kept is None:
                if self._ahead + message.header.length > _AHEAD:
                    return
                self._begin_fetch(message)

    async def _fetch(self, message: Arrived) -> None:
        header = message.header
        assert self._pool is not None
        buffer = self._pool.get(header.length, header.addr)
        while True:
            transport = await self.ready()
            try:
                operations = [
                    transport.aqp.read(
                        buffer,
                        header.addr + start,
                        header.rkey,
                        start,
                        min(_READ, header.length - start),
                    )
                    for start in range(0, header.length, _READ)
                ]
                for operation in operations:
                    await operation
                break
            except VerbsError:
                self._lost(transport, Ended.DIED)
        message.buffer = buffer
        self._has_fetched = True
        self._has_bytes_of(header.number, True)
        self._on_taken(header.number, True)
        self._confirm()  # that it was fetched, unless that went with what was taken

    def content(self, message: Arrived) -> NDArray[np.uint8]:
        """Return the bytes of a message, without a copy."""
        if message.kept is not None:
            return message.kept[:]
        assert self._ring is not None
        length = message.header.length
        if message.slot is not None:
            return np.asarray(self._ring.view(message.slot))[HEADER_SIZE : HEADER_SIZE + length]
        assert message.buffer is not None
        return np.asarray(memoryview(message.buffer))[:length]

    def give_back(self, message: Arrived, is_viewed: bool = False) -> None:
        """The program has done with a message; ``is_viewed``: it has kept a view of its memory."""
        if self._pool is None or self._ring is None or message.kept is not None:
            return
        if message.buffer is not None:
            if not is_viewed:
                self._pool.put(message.buffer)
            return
        slot = message.slot
        assert slot is not None
        if is_viewed:
            self._ring.replace(slot)
        self._ring.release(slot)
        if self.transport is not None:
            with contextlib.suppress(VerbsError):
                self._ring.post(self.transport.aqp.qp, slot)
        self._on_taken(message.header.number, False)

    def _has_bytes_of(self, number: int, is_awaited: bool) -> None:
        """A message lies here whole. Its sender is to be told where it waits for that."""
        self._fetched_early[number] = is_awaited
        while (waits := self._fetched_early.pop(self._fetched_here + 1, None)) is not None:
            self._fetched_here += 1
            self._must_confirm |= waits

    def _on_taken(self, number: int, at_once: bool) -> None:
        self._taken_early[number] = at_once
        is_awaited = False  # a large message may have been fetched before a small one was taken
        while (waits := self._taken_early.pop(self._taken + 1, None)) is not None:
            self._taken += 1
            is_awaited |= waits
        if is_awaited or self._taken - self._told >= max(1, self._window // 2):
            self._must_confirm = True
            self._confirm()

    def _confirm(self) -> None:
        """Tell what was taken, unless that is on its way: one confirmation at a time."""
        if self._must_confirm and not self._controls and self.transport is not None:
            self._must_confirm = False
            self._control_message(MessageKind.CONFIRM)


def _said_of(wc: WC, context: Context) -> str:
    """Return what the device says of a failure: of the first one, where others are flushed."""
    said = context.explain(wc.vendor_err)
    return said.partition(_FIRST)[2] if wc.status == WCStatus.WR_FLUSH_ERR else said


def _nothing() -> None:
    """Nothing is kept for a message in the ring."""
