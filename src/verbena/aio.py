# SPDX-License-Identifier: Apache-2.0
"""Completions and events as awaitables, on any asyncio event loop.

    channel = ctx.create_comp_channel()
    acq = aio.AsyncCQ(ctx.create_cq(256, channel))
    aqp = aio.AsyncQP(qp, acq)
    await aqp.write(mr, remote_addr, rkey)      # posted by the call, completed by the await
    async for wc in acq: ...                    # completions of what ``qp`` itself posted

No completion is missed: a task that has to wait polls the CQ, arms it, polls it again, and only
then suspends. The channel's descriptor wakes the loop, which drains the CQ and arms it again as
long as a task waits. So awaiting a request that has completed already does not suspend, except that
each 128th such await (or each 8 MiB of payload) lets the loop run other tasks and timeouts.

This module uses only ``create_future``, ``add_reader`` and ``remove_reader`` of the loop, and
neither a clock nor a thread. So a loop with another clock runs the same program; callers use
``asyncio.timeout`` for time limits.

Cancelling an ``await`` abandons the result, not the request: the request completes, its completion
is discarded, and no other waiter is affected. A request that was still queued here is not posted.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, ParamSpec, Self, SupportsIndex, Unpack
from weakref import WeakKeyDictionary, ref

from .verbs import connect
from .verbs._verbs import AH, CQ, MR, QP, SGE, WC, Context
from .verbs.connect import ConnectOptions, QPInfo
from .verbs.enums import PlacementType, SendFlags, WCStatus
from .verbs.errors import VerbsError
from .waiting import EventStream, Reader, Step, Steps, Unheard, Wakeup, wake

__all__ = ["AsyncCQ", "AsyncQP", "EventStream", "Operation", "connect_rc", "events"]

TOKEN_BIT = 1 << 63
"""Set in the ``wr_id`` of every request that AsyncQP posts; other requests leave it clear."""

_SIGNALED = int(SendFlags.SIGNALED)
_BATCH = 16  # completions that one poll takes
# How many completions awaits may take of a CQ before the loop runs once; each 64 KiB of payload
# count as one more. An iteration of the loop takes as long as two small WRITEs, so it costs 2 % of
# their rate (measured: 1 to 3 %).
_TURN = 128
_PIECE_SHIFT = 16

_tokens = count(TOKEN_BIT)  # one counter for all CQs, so that a token never names two requests
_async_cqs: WeakKeyDictionary[CQ, ref[AsyncCQ]] = WeakKeyDictionary()  # the latest of each CQ

if TYPE_CHECKING:
    from .verbs._verbs import Bytes

Local = MR | SGE | Sequence[SGE]
P = ParamSpec("P")


class AsyncCQ:
    """A CQ whose completions can be awaited; the CQ needs a completion channel of its own.

    ``async for wc in acq`` yields the completions of requests that were not posted by an AsyncQP,
    failed ones too. It ends when the AsyncCQ is closed, and raises VerbsError when the CQ is in
    error. Closing the CQ closes the AsyncCQ. One loop at a time may use it: while that loop runs,
    use by another loop raises VerbsError(EBUSY).

    Raises VerbsError: EINVAL (the CQ has no channel, or shares it with another CQ), EBUSY (the CQ
    has another AsyncCQ, which would take its completions).
    """

    def __init__(self, cq: CQ) -> None:
        if not isinstance(cq, CQ):
            raise TypeError(
                f"AsyncCQ takes a CQ, and not {type(cq).__name__}:"
                " ctx.create_cq(64, ctx.create_comp_channel())"
            )
        if cq.channel is None:
            raise VerbsError(
                errno.EINVAL, "AsyncCQ needs a CQ with a channel: ctx.create_cq(cqe, channel)"
            )
        if cq.channel.is_shared:
            raise VerbsError(
                errno.EINVAL, "AsyncCQ needs a channel of its own: another CQ notifies this one too"
            )
        _refuse_second(cq)
        self.cq = cq
        self._channel = cq.channel
        self._pending: dict[int, Operation] = {}
        self._unclaimed: deque[WC] = deque()
        self._arrivals = Wakeup()
        self._handle: Callable[[WC], object] | None = None
        self._when_ended: Callable[[], object] | None = None
        self._awaited = 0
        self._sends = 0  # requests of AsyncQPs that are posted and not completed
        self._receives = 0
        self._given = 0  # since the last iteration of the loop, to awaits that did not suspend
        self._queued: dict[AsyncQP, None] = {}  # the QPs that have requests in their backlog
        self._ended: VerbsError | None = None
        self._reader = Reader(cq.channel.fd, self._on_event)
        cq.call_before_closing(self._on_closing)
        cq.call_when_closed(self.close)
        _async_cqs[cq] = ref(self)

    def close(self) -> None:
        """Stop: iterations end, and operations in flight fail with ECANCELED. The CQ stays open."""
        if self._pending and self._ended is None:
            # A request that has completed keeps its result, above all a failure.
            with suppress(VerbsError):
                self.poll()
        self._end(VerbsError(errno.ECANCELED, "the AsyncCQ was closed"))

    def _on_closing(self) -> None:
        """Take all completions before the CQ, or a QP of it, closes and discards them.

        So a request that has completed keeps its result, above all a failure. Nothing is posted
        meanwhile. If closing fails, queued requests are posted in the loop's next iteration.
        """
        if not self._pending or self._ended is not None:
            return
        queued, self._queued = self._queued, {}
        try:
            with suppress(VerbsError):
                self.poll()
        finally:
            self._queued = queued
        loop = self._reader.loop
        if queued and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._post_queued)

    def _post_queued(self) -> None:
        for aqp in list(self._queued):
            aqp._post_queued()

    def _end(self, why: VerbsError) -> None:
        """End all waits with the error ``why``; no completion comes any more."""
        if self._ended is not None:
            return
        self._ended = why
        self._reader.detach()
        for operation in list(self._pending.values()):
            operation.end(why)
        self._pending.clear()
        self._arrivals.all()
        if self._when_ended is not None:
            self._when_ended()

    def _check(self) -> None:
        if self._ended is not None:
            raise self._ended

    def _has_room(self) -> bool:
        """Return whether the CQ has room for the completion of one more send.

        Receives reserve room too, but one send is always allowed: receives wait for the peer, which
        may wait for that send.
        """
        return self._ended is not None or self._sends < max(1, self.cq.cqe - self._receives)

    def _begun(self, operation: Operation) -> None:
        self._pending[operation.token] = operation
        if operation._aqp is not None:
            self._sends += 1
        else:
            self._receives += 1

    def _completed(self, operation: Operation) -> None:
        if operation._aqp is not None:
            self._sends -= 1
        else:
            self._receives -= 1
        if self._queued:
            self._post_queued()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[WC]:
        return _Next(self)

    def poll(self) -> bool:
        """Take all completions that are there, without waiting. Returns whether there were any.

        Raises VerbsError when the CQ is in error, EBUSY when a loop of another thread uses it.
        """
        if self._reader.loop is not None:
            self._reader.check()
        return self._take()

    def deliver(self, handle: Callable[[WC], object], ended: Callable[[], object]) -> None:
        """Call ``handle`` in the running loop with the completions that ``async for`` would yield.

        That saves a task's turn for each. ``ended`` is called when no more come: this was closed,
        or the CQ is in error. Neither may raise, or close the CQ. Raises VerbsError.
        """
        self._check()
        self._handle, self._when_ended = handle, ended
        while self._unclaimed:
            handle(self._unclaimed.popleft())
        self._start_waiting()

    def withhold(self) -> None:
        """Call no more; completions that come are kept for ``async for``."""
        self._handle = self._when_ended = None

    def _take(self) -> bool:
        """Do as ``poll``, in the thread of the loop that uses this: the check is a system call in
        Python 3.11, and a fifth of a message's time."""
        found = False
        while True:
            try:
                wcs = self.cq.poll(_BATCH)
            except VerbsError as error:
                self._end(error)
                raise
            if not wcs:
                return found
            found = True
            for wc in wcs:
                operation = self._pending.pop(wc.wr_id, None)
                if operation is not None:
                    operation.end(wc)
                elif wc.wr_id & TOKEN_BIT:
                    pass  # its operation was abandoned
                elif self._handle is not None:
                    self._handle(wc)
                else:
                    self._unclaimed.append(wc)
                    self._arrivals.one()
            if len(wcs) < _BATCH:  # the CQ is empty
                return found

    def _on_event(self) -> None:
        try:
            self._channel.drain()
            self._take()
            if self._awaited or self._arrivals or self._handle is not None:
                self._arm()
        except VerbsError as error:
            self._end(error)

    def _arm(self) -> None:
        """Arm the CQ. After this every completion that was not taken yet makes an event."""
        self.cq.req_notify()
        while self._take():  # a completion from before the arming makes no event
            self.cq.req_notify()

    def _start_waiting(self) -> asyncio.AbstractEventLoop:
        loop = self._reader.attach()
        self._arm()
        return loop

    def _must_yield(self, nbytes: int) -> bool:
        """Return whether an await that found its completion, of ``nbytes``, lets other tasks run.

        With the direct carrier a request completes as it is posted, so such a task would never
        suspend, and other tasks would starve.
        """
        self._given += 1 + (nbytes >> _PIECE_SHIFT)
        if self._given < _TURN:
            return False
        self._given = 0
        return True

    def _next(self) -> Steps:
        if not self._unclaimed and self._ended is None:
            self.poll()
        waited = False
        while True:
            if not self._unclaimed and self._ended is None:
                loop = self._start_waiting()
            if self._unclaimed:
                if waited or not self._must_yield(self._unclaimed[0].byte_len):
                    return self._unclaimed.popleft()
                yield None
            elif self._ended is not None:
                raise self._end_of_iteration()
            else:
                yield from self._arrivals.wait(loop)
            waited = True

    def _end_of_iteration(self) -> Exception:
        assert self._ended is not None
        closed = self._ended.errno == errno.ECANCELED
        return StopAsyncIteration() if closed else self._ended


def _refuse_second(cq: CQ) -> None:
    other = _async_cqs.get(cq)
    first = None if other is None else other()
    if first is not None and first._ended is None:
        raise VerbsError(
            errno.EBUSY,
            "another AsyncCQ has this CQ and would take its completions: use that one for all QPs"
            " of the CQ, or close it first",
        )


class _Next(Step):
    """The next completion of an AsyncCQ."""

    __slots__ = ("_acq",)

    def __init__(self, acq: AsyncCQ) -> None:
        self._acq = acq

    def __await__(self) -> Steps:
        return self._acq._next()


class Operation(Step):
    """A request that was posted, or waits to be posted; ``await`` returns its WC.

    The await raises CompletionError, or VerbsError if the request could not be posted. An operation
    may be awaited late, more than once, or never, and ``TaskGroup.create_task`` accepts it. If a
    request fails and its operation is not awaited, the loop's exception handler gets the error as
    soon as it is known: at a later await on the AsyncCQ, or when that, its CQ, the QP or the
    context is closed.
    """

    __slots__ = (
        *("_acq", "_aqp", "_kept", "_length", "_outcome", "_queued", "_unheard", "_waiters"),
        *("posted", "token"),
    )

    def __init__(self, acq: AsyncCQ, aqp: AsyncQP | None, kept: object, length: int | None) -> None:
        self.token = next(_tokens)  # its wr_id
        self.posted = False
        self._acq = acq
        self._aqp = aqp  # the QP whose send queue has it; None for a receive
        self._kept = kept  # references to the memory that it uses
        self._length = length  # of its message in bytes; None: the length of the memory
        self._queued = False
        self._waiters: tuple[asyncio.Future[None], ...] = ()  # of acq._awaited
        self._outcome: WC | Exception | None = None
        self._unheard: Unheard | None = None

    @property
    def done(self) -> bool:
        """True once its completion was taken, or it has failed otherwise."""
        return self._outcome is not None

    def __repr__(self) -> str:
        kind = "receive" if self._aqp is None else "request"
        aqp = self._poster()
        where = f" of {aqp.qp!r}" if aqp is not None else ""
        return f"<Operation, a {kind}{where}, wr_id={self.token:#x}: {self._state()}>"

    def _state(self) -> str:
        if self._outcome is None:
            return "on its way" if self.posted else "waits for room in the send queue"
        if isinstance(self._outcome, WC):
            return f"done, {self._outcome.status.name}"
        return f"failed, {self._outcome}"

    def _poster(self) -> AsyncQP | None:
        """Return the QP that it was posted to; for a receive that is in ``_kept``."""
        if self._aqp is not None:
            return self._aqp
        first = self._kept[0] if isinstance(self._kept, tuple) else None
        return first if isinstance(first, AsyncQP) else None

    def _is_of(self, aqp: AsyncQP) -> bool:
        return self._poster() is aqp

    def begin(self) -> None:
        """Record that the QP has the request, so that it will complete."""
        self._acq._begun(self)
        self.posted = True

    def end(self, outcome: WC | Exception) -> None:
        """Set the result: a completion, or another failure."""
        self._outcome = outcome
        if not isinstance(outcome, WC) or not outcome.is_success:
            self._remember(outcome)
        if self._waiters:
            self._acq._awaited -= len(self._waiters)
            for waiter in self._waiters:
                wake(waiter)
            self._waiters = ()
        if not self.posted:
            return
        if self._aqp is not None:
            self._aqp._room += 1
        self._acq._completed(self)

    def __await__(self) -> Steps:
        if self._outcome is None:
            self._acq.poll()
        waiter: asyncio.Future[None] | None = None
        if self._outcome is None:
            try:
                loop = self._acq._start_waiting()
                if self._outcome is None:
                    waiter = loop.create_future()
                    self._waiters += (waiter,)
                    self._acq._awaited += 1
                    yield from waiter
            except BaseException as error:
                self._tell_wait(error)
                self._abandon(waiter)
                raise
        # Arming may find the completion too, so this await may have let nobody run yet.
        if waiter is None and self._acq._must_yield(
            _length_of(self._kept) if self._length is None else self._length
        ):
            yield None
        return self._result()

    def _tell_wait(self, error: BaseException) -> None:
        """Add notes to a cancellation that say what the QP waits for.

        They are those of ``Context.describe``: requests that wait for a second or more, or for a
        receive of the peer, and QPs whose peer is gone. With a timeout, the cancellation is the
        cause of the TimeoutError.
        """
        aqp = self._poster()
        if not isinstance(error, asyncio.CancelledError) or aqp is None or self.done:
            return
        number = aqp.qp.qp_num
        said = aqp.qp.context.describe() or {}
        told = [*said.get("deserted", ())]
        if self._aqp is not None:  # these entries are about requests, not about receives
            told += [*said.get("waiting", ()), *said.get("unready", ())]
        for entry in told:
            if entry["qp_num"] == number:
                error.add_note(entry["why"])

    def _abandon(self, waiter: asyncio.Future[None] | None) -> None:
        """Remove a waiter. A request that is still queued here is not posted when no waiter is
        left."""
        if waiter in self._waiters:
            self._waiters = tuple(other for other in self._waiters if other is not waiter)
            self._acq._awaited -= 1
        if not self.posted and not self.done and not self._waiters and self._aqp is not None:
            self._aqp._withdraw(self)
            self._outcome = VerbsError(
                errno.ECANCELED, "the request was cancelled before it was posted"
            )

    def _remember(self, outcome: WC | Exception) -> None:
        """Have the loop report the failure if no task awaits it.

        Failures that follow from an earlier one are not reported: flushed requests, and those of a
        CQ, QP or AsyncCQ that was closed.
        """
        error: Exception | None = None
        if not isinstance(outcome, WC):
            if not self.posted and getattr(outcome, "errno", None) != errno.ECANCELED:
                error = outcome
        elif outcome.status != WCStatus.WR_FLUSH_ERR:
            try:
                outcome.raise_for_status()
            except VerbsError as failed:
                error = failed.with_traceback(None)
        if error is not None:
            self._unheard = Unheard(error, self._acq._reader.loop)

    def _result(self) -> WC:
        if self._unheard is not None:
            self._unheard.heard = True
        if isinstance(self._outcome, Exception):
            raise self._outcome
        assert self._outcome is not None
        self._outcome.raise_for_status()
        return self._outcome


def _length_of(kept: object) -> int:
    """Return how many bytes a request without an explicit length transfers."""
    if isinstance(kept, MR | SGE):
        return kept.length
    return sum(map(_length_of, kept)) if isinstance(kept, list | tuple) else 0


class AsyncQP:
    """A QP whose requests can be awaited.

    While requests are in flight, post to the QP only through this object. Each method posts at once
    and returns an Operation. If the send queue is full, or ``send_cq`` has no room for one more
    completion, the request waits here, in order, until there is room. ``send_cq`` is for the send
    queue, ``recv_cq`` (default: the same) for receives. Closing the QP ends waiting operations with
    ECANCELED.

    An await whose completion is there returns at once, except that each 128th, or each 8 MiB of
    payload, gives the loop one iteration for other tasks and ``asyncio.timeout``.
    """

    def __init__(self, qp: QP, send_cq: AsyncCQ, recv_cq: AsyncCQ | None = None) -> None:
        self.qp = qp
        self.send_cq = send_cq
        self.recv_cq = recv_cq or send_cq
        self._check_queues()
        self._room = qp.cap.max_send_wr
        # In order, with the function that posts each.
        self._backlog: dict[Operation, Callable[[], None]] = {}
        qp.call_before_closing(self._on_closing)
        qp.call_when_closed(self._on_closed)

    def _check_queues(self) -> None:
        for queue in (self.send_cq, self.recv_cq):
            if not isinstance(queue, AsyncCQ):
                raise TypeError(
                    f"AsyncQP takes an AsyncCQ, and not {type(queue).__name__}:"
                    " acq = aio.AsyncCQ(ctx.create_cq(64, ctx.create_comp_channel())), with a QP"
                    " made by send_cq=acq.cq"
                )
        if not isinstance(self.qp, QP):
            raise TypeError(f"AsyncQP takes a QP, and not {type(self.qp).__name__}")
        if self.qp.send_cq is not self.send_cq.cq or self.qp.recv_cq is not self.recv_cq.cq:
            raise VerbsError(errno.EINVAL, "the AsyncCQs must be those of the QP's own CQs")

    def post(self, method: Callable[..., Any], kept: object, **options: object) -> Operation:
        """Post a request by a method of the QP, as ``qp.bind_mw``, and return its operation.

        ``options`` are the method's arguments without ``wr_id``; ``kept`` is what must live until
        the request has completed. Raises VerbsError when the AsyncCQ has ended.
        """
        operation, post = self._start(method, kept, 0)
        post(wr_id=operation.token, **options)
        return self._started(operation)

    def reserve(self, count: int) -> None:
        """Keep room in the send queue for requests that are posted to the QP itself.

        Raises VerbsError(EINVAL) when no room is left for others.
        """
        if self._room <= count:
            raise VerbsError(
                errno.EINVAL, f"the send queue has to hold more than {count} requests: max_send_wr="
            )
        self._room -= count

    def _start(
        self, post: Callable[P, None], kept: object, length: int | None
    ) -> tuple[Operation, Callable[P, None]]:
        """Return an operation and the function that posts its request.

        The caller calls that function and then ``_started``. Raises VerbsError when the AsyncCQ has
        ended.
        """
        if self.send_cq._reader.loop is not None:
            self.send_cq._reader.check()
        operation = Operation(self.send_cq, self, kept, length)
        has_room = self._has_room()
        if not has_room:
            self.send_cq.poll()
            has_room = self._has_room()
        if self._backlog or not has_room:
            return operation, self._later(operation, post)
        self.send_cq._check()
        return operation, post

    def _started(self, operation: Operation) -> Operation:
        if not operation._queued:
            operation.begin()
            self._room -= 1
        return operation

    def _later(self, operation: Operation, post: Callable[P, None]) -> Callable[P, None]:
        def queue(*args: P.args, **options: P.kwargs) -> None:
            self._queue(operation, partial(post, *args, **options))

        operation._queued = True
        return queue

    def _queue(self, operation: Operation, post: Callable[[], None]) -> None:
        """Queue a request until a completion makes room; the loop polls even if no task awaits."""
        self._backlog[operation] = post
        self.send_cq._queued[self] = None
        self.send_cq._awaited += 1
        with suppress(RuntimeError):  # no loop is running yet: the first await polls
            self.send_cq._start_waiting()

    def _unqueue(self, operation: Operation) -> Callable[[], None]:
        self.send_cq._awaited -= 1
        post = self._backlog.pop(operation)
        if not self._backlog:
            self.send_cq._queued.pop(self, None)
        return post

    def _has_room(self) -> bool:
        """Return whether the send queue and its CQ both have room for one more request."""
        return self._room > 0 and self.send_cq._has_room()

    def _post_queued(self) -> None:
        while self._backlog and self._has_room():
            operation = next(iter(self._backlog))
            post = self._unqueue(operation)
            try:
                self.send_cq._check()
                post()
            except Exception as error:  # raised by this operation's await, not here
                operation.end(error)
            else:
                operation.begin()
                self._room -= 1

    def _on_closing(self) -> None:
        for acq in {self.send_cq, self.recv_cq}:
            acq._on_closing()

    def _on_closed(self) -> None:
        """End all operations of the QP, which is closed, with ECANCELED."""
        why = VerbsError(errno.ECANCELED, "the QP was closed before the request had completed")
        for operation in list(self._backlog):
            self._unqueue(operation)
            operation.end(why)
        for acq in {self.send_cq, self.recv_cq}:
            for operation in list(acq._pending.values()):
                if operation._is_of(self):
                    acq._pending.pop(operation.token, None)
                    operation.end(why)

    def _withdraw(self, operation: Operation) -> None:
        if operation in self._backlog:
            self._unqueue(operation)

    def send(
        self,
        local: Local | Bytes,
        offset: int = 0,
        length: int | None = None,
        *,
        imm_data: int | None = None,
        flags: int = 0,
        ah: AH | None = None,
        remote_qpn: int = 0,
        remote_qkey: int = 0,
        remote_srqn: int = 0,
    ) -> Operation:
        """SEND.

        Arguments as ``QP.send``: ``ah``, ``remote_qpn`` and ``remote_qkey`` are the address of a UD
        peer, ``remote_srqn``, here and below, the number of an XRC SRQ. SIGNALED is always set.
        """
        operation, post = self._start(self.qp.send, local if ah is None else (local, ah), length)
        post(
            local,
            offset,
            length,
            imm_data=imm_data,
            wr_id=operation.token,
            flags=flags | _SIGNALED,
            ah=ah,
            remote_qpn=remote_qpn,
            remote_qkey=remote_qkey,
            remote_srqn=remote_srqn,
        )
        return self._started(operation)

    def write(
        self,
        local: Local | Bytes,
        remote_addr: SupportsIndex,
        rkey: SupportsIndex,
        offset: int = 0,
        length: int | None = None,
        *,
        imm_data: int | None = None,
        flags: int = 0,
        remote_srqn: int = 0,
    ) -> Operation:
        """RDMA WRITE; arguments as ``QP.write``."""
        operation, post = self._start(self.qp.write, local, length)
        post(
            local,
            remote_addr,
            rkey,
            offset,
            length,
            imm_data=imm_data,
            wr_id=operation.token,
            flags=flags | _SIGNALED,
            remote_srqn=remote_srqn,
        )
        return self._started(operation)

    def read(
        self,
        local: Local,
        remote_addr: SupportsIndex,
        rkey: SupportsIndex,
        offset: int = 0,
        length: int | None = None,
        *,
        flags: int = 0,
        remote_srqn: int = 0,
    ) -> Operation:
        """RDMA READ; arguments as ``QP.read``."""
        operation, post = self._start(self.qp.read, local, length)
        post(
            local,
            remote_addr,
            rkey,
            offset,
            length,
            wr_id=operation.token,
            flags=flags | _SIGNALED,
            remote_srqn=remote_srqn,
        )
        return self._started(operation)

    def compare_swap(
        self,
        local: Local,
        remote_addr: SupportsIndex,
        rkey: SupportsIndex,
        compare: SupportsIndex,
        swap: SupportsIndex,
        offset: int = 0,
        *,
        flags: int = 0,
        remote_srqn: int = 0,
    ) -> Operation:
        """Compare-and-swap; arguments as ``QP.compare_swap``."""
        operation, post = self._start(self.qp.compare_swap, local, 8)
        post(
            local,
            remote_addr,
            rkey,
            compare,
            swap,
            offset,
            wr_id=operation.token,
            flags=flags | _SIGNALED,
            remote_srqn=remote_srqn,
        )
        return self._started(operation)

    def fetch_add(
        self,
        local: Local,
        remote_addr: SupportsIndex,
        rkey: SupportsIndex,
        add: SupportsIndex,
        offset: int = 0,
        *,
        flags: int = 0,
        remote_srqn: int = 0,
    ) -> Operation:
        """Fetch-and-add; arguments as ``QP.fetch_add``."""
        operation, post = self._start(self.qp.fetch_add, local, 8)
        post(
            local,
            remote_addr,
            rkey,
            add,
            offset,
            wr_id=operation.token,
            flags=flags | _SIGNALED,
            remote_srqn=remote_srqn,
        )
        return self._started(operation)

    def atomic_write(
        self,
        local: Local,
        remote_addr: SupportsIndex,
        rkey: SupportsIndex,
        offset: int = 0,
        *,
        flags: int = 0,
        remote_srqn: int = 0,
    ) -> Operation:
        """Atomic write of eight bytes; arguments as ``QP.atomic_write``."""
        operation, post = self._start(self.qp.atomic_write, local, 8)
        post(
            local,
            remote_addr,
            rkey,
            offset,
            wr_id=operation.token,
            flags=flags | _SIGNALED,
            remote_srqn=remote_srqn,
        )
        return self._started(operation)

    def flush(
        self,
        remote_addr: SupportsIndex,
        rkey: SupportsIndex,
        length: int | None = None,
        *,
        placement: int = PlacementType.GLOBAL,
        flags: int = 0,
        remote_srqn: int = 0,
    ) -> Operation:
        """FLUSH of earlier writes; arguments as ``QP.flush``."""
        operation, post = self._start(self.qp.flush, None, 0)
        post(
            remote_addr,
            rkey,
            length,
            placement=placement,
            wr_id=operation.token,
            flags=flags | _SIGNALED,
            remote_srqn=remote_srqn,
        )
        return self._started(operation)

    def recv(self, local: Local, offset: int = 0, length: int | None = None) -> Operation:
        """Post a receive.

        Its WC describes the message. Raises VerbsError(ENOMEM) when the queue is full.
        """
        self.recv_cq._reader.check()
        self.recv_cq._check()
        operation = Operation(self.recv_cq, None, (self, local), length)
        self.qp.recv(local, offset, length, wr_id=operation.token)
        operation.begin()
        return operation


def events(context: Context) -> EventStream:
    """Return a stream of the asynchronous events of ``context``. Raises TypeError."""
    if not isinstance(context, Context):
        raise TypeError(
            f"events takes an open device, and not {type(context).__name__}: verbs.open_device()"
        )
    return EventStream(context)


async def connect_rc(
    qp: QP,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    *,
    gid_index: int | None = None,
    psn: int | None = None,
    **options: Unpack[ConnectOptions],
) -> QPInfo:
    """``verbena.connect_rc`` over asyncio streams; the peer may use either of the two functions.

    Raises the same errors except ETIMEDOUT: use ``asyncio.timeout``.
    """
    connect.check_options(options)
    _check_streams(reader, writer)
    with connect.telling(writer.write):
        local, gid_index = connect.prepare(qp, options, gid_index, psn)
    try:
        return await _exchange(qp, reader, writer, local, gid_index, options)
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise connect.peer_closed() from error


def _check_streams(reader: object, writer: object) -> None:
    for stream, method in ((reader, "readexactly"), (writer, "write")):
        if not hasattr(stream, method):
            raise TypeError(
                "aio.connect_rc takes the two streams of asyncio.open_connection or start_server"
                f" (over a socket: verbena.connect_rc), and not {type(stream).__name__}"
            )


async def _exchange(
    qp: QP,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    local: QPInfo,
    gid_index: int,
    options: ConnectOptions,
) -> QPInfo:
    writer.write(local.to_bytes())
    head = await reader.readexactly(connect.HEAD_SIZE)
    remote = QPInfo.from_bytes(head + await reader.readexactly(connect.body_length(head)))
    try:
        connect.bring_up(qp, local, remote, gid_index, **options)
    except Exception as error:
        writer.write(connect.verdict(error))
        raise
    writer.write(connect.verdict(None))
    code, length = connect.parse_verdict(await reader.readexactly(connect.VERDICT_SIZE))
    connect.check_verdict(code, await reader.readexactly(length))
    return remote
