# SPDX-License-Identifier: Apache-2.0
"""``TargetQueue``: the queue pair of a target's session: capsules come, blocks and answers go.

The server makes it and starts it. ``WorkState`` are the states of a command. Blocks of a store in
memory go from and to the host by WRITE and READ of that memory; those of other stores by way of
registered buffers. An error of the connection, or a host that breaks the protocol, ends this queue
alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum
from functools import partial
from typing import Any

import numpy as np

from verbena.verbs import CQ, MR, PD, QP, AccessFlags

from .commands import (
    CAPSULE,
    COMPLETION,
    COMPLETION_SIZE,
    FLAG_SGL,
    READ_WRITE,
    SGL_IN_CAPSULE,
    SGL_KEYED_INVALIDATE,
    AdminOpcode,
    Command,
    IoOpcode,
    parse_command,
)
from .completions import Completions
from .memory import Buffers, Regions
from .replies import Failure, Reply, status_of_error
from .reservations import ReservationType
from .send_queue import (
    COUNT_MASK,
    INLINE,
    KIND_SHIFT,
    READ_KIND,
    RECORD,
    SEND,
    SEND_INVALIDATE,
    SLOT_MASK,
    SLOT_SHIFT,
    WRITE,
    SendQueue,
)
from .session import Blocks, SessionState, TargetSession
from .status import DNR, Status
from .stores import call_store
from .stragglers import NO_NAMESPACE, of_namespace
from .subsystems import Namespace

__all__ = ["TargetQueue", "WorkState"]

_REQUESTS = 3  # of a command at most: READ or WRITE, and SEND
_log = logging.getLogger("verbena.nvmeof")
_READY_BYTES = 32 << 20  # of buffers that the commands of a queue have


class WorkState(Enum):
    """States of a command at the target."""

    DEFERRED = "waits for room in the send queue, or for buffers"
    FETCHING = "its data are being read from the host"
    EXECUTING = "the store works, or it waits for an event"
    ANSWERED = "its completion was posted"


_NEXT: dict[WorkState, frozenset[WorkState]] = {
    WorkState.DEFERRED: frozenset({WorkState.FETCHING, WorkState.EXECUTING}),
    WorkState.FETCHING: frozenset({WorkState.EXECUTING}),
    WorkState.EXECUTING: frozenset({WorkState.ANSWERED}),
    WorkState.ANSWERED: frozenset(),
}


class Work:
    """A command that is under way."""

    __slots__ = ("arrival", "buffer", "command", "data", "slot", "state")

    def __init__(self, slot: int, command: Command) -> None:
        self.slot = slot
        self.command = command
        self.state = WorkState.DEFERRED
        self.buffer: MR | None = None
        self.arrival: asyncio.Future[None] | None = None  # where somebody waits for its data
        self.data: memoryview = memoryview(b"")

    def enter(self, state: WorkState) -> None:
        """Go to another state."""
        assert state in _NEXT[self.state], (self.state, state)
        self.state = state


class TargetQueue(Completions):
    """One queue. ``on_end`` is called once, with the reason, when it has ended."""

    def __init__(
        self,
        session: TargetSession,
        pd: PD,
        cq: CQ,
        regions: Regions,
        buffers: Buffers,
        on_end: Callable[[str], None],
    ) -> None:
        self.session = session
        super().__init__(cq)
        self.pd = pd
        self._regions, self._buffers = regions, buffers
        self._stragglers = session.model.stragglers
        self._working: dict[asyncio.Future[Any], int] = {}  # what stores do for it, and NSIDs
        self._cut_off: list[asyncio.Future[Any]] = []  # arrivals, until the queue pair is closed
        self._on_end = on_end
        entries = session.entries
        self.entries = entries
        self._stride = CAPSULE + (session.limits.in_capsule if session.qid else 0)
        self._capsules = pd.alloc(entries * self._stride, AccessFlags.LOCAL_WRITE)
        self._answers = pd.alloc(entries * COMPLETION_SIZE, AccessFlags.LOCAL_WRITE)
        self._capsule_view = memoryview(self._capsules)
        self._answer_view = memoryview(self._answers)
        self._capsules_at = self._capsules.addr, self._capsules.lkey
        self._answers_at = self._answers.addr, self._answers.lkey
        self.sends = SendQueue(self.send_room(entries), entries)
        self._head = 0
        # Of namespaces in memory, by number: what a WRITE from there needs.
        self._in_memory: dict[int, tuple[Namespace, int, int]] = {}
        self._deferred: deque[Work] = deque()
        self._fetching: dict[int, Work] = {}
        self._parked: dict[int, Work] = {}  # commands that wait for events, by CID
        self._used = 0  # bytes of buffers
        self._reserved = 0  # send requests of commands that are under way
        session.on_end = lambda: self.end("its host is silent, or its controller has ended")
        session.begun = self._begun
        session.on_aborted = lambda cid: self._answer_event(cid, 0, Status.ABORTED << 1)

    @staticmethod
    def send_room(entries: int) -> int:
        """Return how many send requests a queue may have under way."""
        return 2 * _REQUESTS * entries

    def prepare(self, qp: QP) -> None:
        """Post the receives, before the host can send."""
        self.sends.qp = qp
        for slot in range(self.entries):
            self._repost(slot)
        self.sends.flush()

    def end(self, reason: str) -> None:
        """End it; commands that a store works on are dropped when it has done them."""
        if self.is_ended:
            return
        self.stop()
        arrivals = self._arrivals()
        self._cut_off += arrivals
        self._deferred.clear()
        self._fetching.clear()
        controller = self.session.controller
        if controller is not None:
            for work, nsid in (self._working | arrivals).items():
                self._stragglers.add(controller.host_id, work, nsid)
        self.session.end()
        self._on_end(reason)

    def release(self) -> None:
        """Let its memory go, after its queue pair was closed."""
        self.sends.release_all()
        for arrival in self._cut_off:
            arrival.set_result(None)
        self._cut_off.clear()
        for region in (self._capsules, self._answers):
            if not region.closed:
                region.close()

    # ---- completions ----

    def take_batch(self, completions: Iterator[tuple[int, int, int, int, int]]) -> None:
        for wr_id, status, _, vendor, length in completions:
            if status:
                self.end(self.reason(status, vendor))
                return
            kind = wr_id >> KIND_SHIFT
            if kind == 0:
                self._receive(wr_id, length)
            else:
                self.sends.retire(wr_id & COUNT_MASK)
                if kind == READ_KIND:
                    self._fetched(wr_id >> SLOT_SHIFT & SLOT_MASK)
        if self.is_ended:
            return
        if self._deferred:
            self._try_deferred()
        self.session.seen()
        self.sends.flush()

    # ---- commands ----

    def _receive(self, slot: int, length: int) -> None:
        """A capsule came. Reads of memory, the usual command of many disks, take a short way."""
        if length < CAPSULE:
            self.end(f"the host sent a capsule of {length} bytes")
            return
        at = slot * self._stride
        view = self._capsule_view
        if view[at] == IoOpcode.READ and not self._deferred and self._read_memory(slot, at):
            return
        work = Work(slot, parse_command(view[at : at + CAPSULE]))
        work.data = view[at + CAPSULE : at + length]
        if self._deferred:
            self._deferred.append(work)
        else:
            self._begin_or_defer(work)

    def _read_memory(self, slot: int, at: int) -> bool:
        """Answer a Read of a store in memory; False if it has to take the long way."""
        _, flags, cid, nsid, address, third, fourth, first, count, _, _ = READ_WRITE.unpack_from(
            self._capsule_view, at
        )
        session, sends = self.session, self.sends
        controller = session.controller
        if controller is None or not session.qid or not controller.is_ready:
            return False
        namespace = controller.subsystem.namespaces.get(nsid)
        if namespace is None or flags != FLAG_SGL or namespace.store.memory is None:
            return False
        length = (count + 1) << namespace.shift
        if (
            third & 0xFFFFFF != length
            or fourth >> 28 != 4
            or length > session.limits.transfer
            or first + count >= namespace.blocks
            or namespace.reservations.kind is not ReservationType.NONE
            or sends.size - sends.posted + sends.retired - self._reserved < _REQUESTS
        ):
            return False
        known = self._in_memory.get(nsid)
        if known is None or known[0] is not namespace:
            region = self._regions.of(self.pd, namespace.store)
            known = self._in_memory[nsid] = (namespace, region.addr, region.lkey)
        _, begin, lkey = known
        key = third >> 24 | (fourth & 0xFFFFFF) << 8
        RECORD.pack_into(
            sends.records,
            sends.at,
            0,
            begin + (first << namespace.shift),
            length,
            lkey,
            WRITE,
            0,
            address,
            key,
        )
        sends.at += RECORD.size
        sends.posted += 1
        namespace.reads += 1
        namespace.read_bytes += length
        self._answer(slot, cid, 0, 0, key if fourth >> 24 == SGL_KEYED_INVALIDATE else None)
        return True

    def _begin_or_defer(self, work: Work) -> bool:
        needed = work.command.sgl.length
        has_buffers = not self._used or self._used + needed <= _READY_BYTES
        if self.sends.room - self._reserved < _REQUESTS or not has_buffers:
            self._deferred.append(work)
            return False
        self._reserved += _REQUESTS
        self._begin(work)
        return True

    def _try_deferred(self) -> None:
        """Begin commands that have waited, in order."""
        while self._deferred and not self.is_ended:
            if not self._begin_or_defer(self._deferred.popleft()):
                self._deferred.rotate(1)  # it was the first one, and is again
                return

    def _begin(self, work: Work) -> None:
        """Get the data that come with a command, and execute it."""
        command = work.command
        try:
            self.session.check_sgl(command, len(work.data))
            blocks = self._blocks(command)
            if not command.to_controller or not command.sgl.length:
                work.data = memoryview(b"")
                work.enter(WorkState.EXECUTING)
                self._execute(work, blocks)
            elif command.sgl.kind == SGL_IN_CAPSULE:
                begin = command.sgl.address
                work.data = work.data[begin : begin + command.sgl.length]
                work.enter(WorkState.EXECUTING)
                self._execute(work, blocks)
            else:
                self._fetch(work, blocks)
        except Failure as failure:
            self._fail(work, failure)

    def _blocks(self, command: Command) -> Blocks | None:
        """Check a command that moves blocks before its data do."""
        if self.session.qid and command.opcode in _MOVES_BLOCKS:
            return self.session.blocks_of(command)
        return None

    def _fetch(self, work: Work, blocks: Blocks | None) -> None:
        sgl = work.command.sgl
        if sgl.length > self.session.limits.transfer:
            raise Failure(Status.SGL_DATA_LENGTH)
        work.enter(WorkState.FETCHING)
        self._fetching[work.slot] = work
        if (
            blocks
            and work.command.opcode == IoOpcode.WRITE
            and blocks.namespace.store.memory
            and blocks.namespace.reservations.is_free  # else they are checked again behind it
        ):
            region = self._regions.of(self.pd, blocks.namespace.store)
            address = region.addr + blocks.offset
        else:
            region = work.buffer = self._take_buffer(sgl.length)
            address = region.addr
            work.data = memoryview(region)[: sgl.length]
        self.sends.add_read(work.slot, address, sgl.length, region.lkey, sgl.address, sgl.key)

    def _fetched(self, slot: int) -> None:
        work = self._fetching.pop(slot, None)
        if work is None:
            return
        if work.arrival is not None:
            work.arrival.set_result(None)
        work.enter(WorkState.EXECUTING)
        try:
            self._execute(work, self._blocks(work.command))
        except Failure as failure:
            self._fail(work, failure)

    def _execute(self, work: Work, blocks: Blocks | None) -> None:
        command = work.command
        handler = _HANDLERS.get(command.opcode) if self.session.qid else None
        if handler is not None and self.session.controller is not None:
            handler(self, work, blocks)
            return
        if command.opcode == AdminOpcode.ASYNC_EVENT and not self.session.qid:
            self._park(work)
            return
        if self.session.state is SessionState.NEW and not self.session.qid:
            host_id = bytes(work.data[:16])  # of Connect
            self._wait(work, False, lambda: self._stragglers.wait(host_id), self._execute_now)
            return
        self._execute_now(work)

    def _execute_now(self, work: Work) -> None:
        """Execute a command that moves no blocks."""
        reply = self.session.execute(work.command, bytes(work.data))
        if self.session.qid == 0 and self.session.controller is not None:
            self.session.controller.on_event = self._event
        waiting = None if reply is None else reply.waiting
        self._wait(work, True, lambda: waiting, lambda done: self._reply(done, reply or Reply()))

    def _park(self, work: Work) -> None:
        """A command waits for an event: its receive is posted again, its completion comes later."""
        cid = work.command.cid
        if cid in self._parked:
            raise Failure(Status.INVALID_FIELD)
        self._repost(work.slot)
        self._parked[cid] = work
        try:
            self.session.execute(work.command, b"")
        except Failure as failure:
            self._answer_event(cid, failure.result, failure.status << 1 | DNR)

    # ---- blocks ----

    def _read(self, work: Work, blocks: Blocks | None) -> None:
        assert blocks is not None
        namespace, offset, length, _ = blocks
        namespace.reads += 1
        namespace.read_bytes += length
        sgl = work.command.sgl
        if namespace.store.memory is not None:
            region = self._regions.of(self.pd, namespace.store)
            self.sends.add(WRITE, region.addr + offset, length, region.lkey, sgl.address, sgl.key)
            self._done(work)
            return
        work.buffer = self._take_buffer(length)
        into = memoryview(work.buffer)[:length]
        call = partial(call_store, namespace.store.read, offset, into)
        self._wait(work, False, call, self._send_data)

    def _send_data(self, work: Work) -> None:
        """WRITE the buffer of a command to the host, and answer."""
        sgl, buffer = work.command.sgl, work.buffer
        assert buffer is not None
        length = min(sgl.length, buffer.length)
        self.sends.add(WRITE, buffer.addr, length, buffer.lkey, sgl.address, sgl.key)
        self._done(work)

    def _write(self, work: Work, blocks: Blocks | None) -> None:
        assert blocks is not None
        namespace, offset, length, durable = blocks
        namespace.writes += 1
        namespace.written_bytes += length
        if work.buffer is None and not len(work.data):  # the READ went into the store's memory
            self._done(work)
            return
        if len(work.data) != length:
            raise Failure(Status.SGL_DATA_LENGTH)
        call = partial(call_store, namespace.store.write, offset, work.data, durable)
        self._wait(work, True, call, self._done)

    def _compare(self, work: Work, blocks: Blocks | None) -> None:
        assert blocks is not None
        namespace, offset, length, _ = blocks
        namespace.reads += 1
        namespace.read_bytes += length
        if len(work.data) != length:
            raise Failure(Status.SGL_DATA_LENGTH)
        own = self._take_buffer(length)
        stored = memoryview(own)[:length]

        def compare(done: Work) -> None:
            same = np.array_equal(
                np.frombuffer(stored, np.uint8), np.frombuffer(done.data, np.uint8)
            )
            if not same:
                raise Failure(Status.COMPARE_FAILURE)
            self._done(done)

        call = partial(call_store, namespace.store.read, offset, stored)
        self._wait(work, False, call, compare, lambda: self._give_back(own))

    def _zero(self, work: Work, blocks: Blocks | None) -> None:
        assert blocks is not None
        namespace, offset, length, _ = blocks
        namespace.writes += 1
        call = partial(call_store, namespace.store.zero, offset, length)
        self._wait(work, True, call, self._done)

    def _discard(self, work: Work, blocks: Blocks | None) -> None:
        ranges = self.session.ranges_of(work.command, bytes(work.data))

        async def discard_all() -> None:
            for each in ranges:
                waiting = call_store(each.namespace.store.discard, each.offset, each.length)
                if waiting is not None:
                    await waiting

        self._wait(work, True, discard_all if ranges else lambda: None, self._done)

    def _flush_stores(self, work: Work, blocks: Blocks | None) -> None:
        namespaces = self.session.flushed_by(work.command)

        async def flush_all() -> None:
            for each in namespaces:
                waiting = call_store(each.store.flush)
                if waiting is not None:
                    await waiting

        if len(namespaces) == 1:
            self._wait(work, True, partial(call_store, namespaces[0].store.flush), self._done)
        else:
            self._wait(work, True, flush_all, self._done)

    def _wait(
        self,
        work: Work,
        is_write: bool,
        call: Callable[[], Awaitable[Any] | None],
        then: Callable[[Work], None],
        finally_: Callable[[], None] = lambda: None,
    ) -> None:
        """Have a store do something, and go on when it has."""
        try:
            waiting = call()
        except Failure:
            finally_()
            raise
        except OSError as error:
            finally_()
            raise Failure(status_of_error(error, is_write)) from error
        except (KeyboardInterrupt, SystemExit):  # they end the loop
            finally_()
            raise
        except BaseException as error:
            finally_()
            raise _defect(work, error) from error
        if waiting is None:
            try:
                then(work)
            finally:
                finally_()
            return
        task = asyncio.ensure_future(waiting)
        uses_blocks = bool(self.session.qid) and work.command.opcode in _HANDLERS
        self._working[task] = work.command.nsid if uses_blocks else NO_NAMESPACE
        task.add_done_callback(self._working.pop)
        task.add_done_callback(partial(self._waited, work, is_write, then, finally_))

    def _waited(
        self,
        work: Work,
        is_write: bool,
        then: Callable[[Work], None],
        finally_: Callable[[], None],
        task: asyncio.Future[Any],
    ) -> None:
        error = None if task.cancelled() else task.exception()
        if self.is_ended:
            finally_()
            self._drop_buffer(work)
            return
        try:
            try:
                if isinstance(error, Failure):
                    raise error
                if isinstance(error, OSError):
                    raise Failure(status_of_error(error, is_write))
                if task.cancelled() or error is not None:
                    raise _defect(work, error or asyncio.CancelledError())
                then(work)
            except Failure as failure:
                self._fail(work, failure)
            finally:
                finally_()
            self._try_deferred()
            self.sends.flush()
        except OSError as broken:
            self.end(str(broken))

    def _begun(self, nsid: int) -> list[asyncio.Future[Any]]:
        """Return what stores do in a namespace, and the data on their way into its memory."""
        return of_namespace(self._working, nsid) + of_namespace(self._arrivals(), nsid)

    def _arrivals(self) -> dict[asyncio.Future[Any], int]:
        """Return, with NSIDs, what is done when data that go right into a store's memory came."""
        found: dict[asyncio.Future[Any], int] = {}
        for work in self._fetching.values():
            if work.buffer is None:
                if work.arrival is None:
                    work.arrival = asyncio.get_running_loop().create_future()
                found[work.arrival] = work.command.nsid
        return found

    # ---- answers ----

    def _event(self, cid: int, result: int) -> None:
        self._answer_event(cid, result, Status.SUCCESS << 1)

    def _answer_event(self, cid: int, result: int, status: int) -> None:
        """Complete a command that waited. Its slot may have another command, whose answer goes
        first."""
        work = self._parked.pop(cid, None)
        if self.is_ended or work is None:
            return
        try:
            self.sends.flush()
            work.enter(WorkState.ANSWERED)
            self._reserved -= _REQUESTS
            self._send_completion(work.slot, cid, result, status, None)
            self.sends.flush()
        except OSError as error:
            self.end(str(error))

    def _reply(self, work: Work, reply: Reply) -> None:
        data = reply.data[: work.command.sgl.length]
        if data:
            self._drop_buffer(work)
            work.buffer = self._take_buffer(len(data))
            memoryview(work.buffer)[: len(data)] = data
            sgl, buffer = work.command.sgl, work.buffer
            self.sends.add(WRITE, buffer.addr, len(data), buffer.lkey, sgl.address, sgl.key)
        self._done(work, reply.result)

    def _done(self, work: Work, result: int = 0) -> None:
        self._complete(work, result, 0)

    def _fail(self, work: Work, failure: Failure) -> None:
        self._complete(work, failure.result, failure.status << 1 | (DNR * failure.is_final))

    def _complete(self, work: Work, result: int, status: int) -> None:
        if work.state is not WorkState.EXECUTING:
            work.state = WorkState.EXECUTING  # it failed before its data were there
        work.enter(WorkState.ANSWERED)
        self._reserved -= _REQUESTS
        sgl = work.command.sgl
        key = sgl.key if sgl.kind == SGL_KEYED_INVALIDATE else None
        self._answer(work.slot, work.command.cid, result, status, key)
        if work.buffer is not None:
            self.sends.hold(self._give_back, work.buffer)
            work.buffer = None

    def _answer(self, slot: int, cid: int, result: int, status: int, key: int | None) -> None:
        """Complete a command, and take the next one into its slot."""
        self._repost(slot)
        self._send_completion(slot, cid, result, status, key)

    def _send_completion(
        self, slot: int, cid: int, result: int, status: int, key: int | None
    ) -> None:
        """Add the SEND of a completion; it is inline."""
        if self.session.flow_control:
            self._head = head = (self._head + 1) % self.entries
        else:
            head = 0xFFFF
        at = slot * COMPLETION_SIZE
        answers_at, answers_key = self._answers_at
        COMPLETION.pack_into(self._answer_view, at, result, head, self.session.qid, cid, status)
        sends = self.sends
        RECORD.pack_into(
            sends.records,
            sends.at,
            0,
            answers_at + at,
            COMPLETION_SIZE,
            answers_key,
            SEND if key is None else SEND_INVALIDATE,
            INLINE,
            0,
            key or 0,
        )
        sends.at += RECORD.size
        sends.posted += 1

    def _repost(self, slot: int) -> None:
        stride = self._stride
        begin, key = self._capsules_at
        self.sends.add_receive(slot, begin + slot * stride, stride, key)

    # ---- buffers ----

    def _take_buffer(self, length: int) -> MR:
        try:
            buffer = self._buffers.take(self.pd, length)
        except OSError:
            raise Failure(Status.INTERNAL_ERROR, is_final=False) from None
        self._used += buffer.length
        return buffer

    def _give_back(self, buffer: MR) -> None:
        self._used -= buffer.length
        self._buffers.give_back(buffer)

    def _drop_buffer(self, work: Work) -> None:
        if work.buffer is not None:
            self._give_back(work.buffer)
            work.buffer = None


def _defect(work: Work, error: BaseException) -> Failure:
    """Say that a store, or the target, has a defect, and return what the host is told of it."""
    opcode, nsid = work.command.opcode, work.command.nsid
    _log.error("command 0x%02x of namespace %d: a defect", opcode, nsid, exc_info=error)
    return Failure(Status.INTERNAL_ERROR)


_MOVES_BLOCKS = frozenset({IoOpcode.READ, IoOpcode.WRITE, IoOpcode.COMPARE, IoOpcode.WRITE_ZEROES})
_HANDLERS: dict[int, Callable[[TargetQueue, Work, Blocks | None], None]] = {
    IoOpcode.READ: TargetQueue._read,
    IoOpcode.WRITE: TargetQueue._write,
    IoOpcode.COMPARE: TargetQueue._compare,
    IoOpcode.WRITE_ZEROES: TargetQueue._zero,
    IoOpcode.DATASET_MANAGEMENT: TargetQueue._discard,
    IoOpcode.FLUSH: TargetQueue._flush_stores,
}
