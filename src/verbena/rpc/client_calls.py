# SPDX-License-Identifier: Apache-2.0
"""The calls of a client: from the arguments to the result.

``ClientCalls`` takes the frames of a link. A call that is cancelled, or whose deadline has passed,
keeps its number and its memory until the server has answered, since the server may still use both;
its place among the calls under way is free after that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import ceil
from typing import Any, Protocol

from verbena.cm.arguments import MOST_SECONDS
from verbena.peers.errors import Ended
from verbena.verbs import MR

from .bulk import Fetch, nbytes_of, payload_bytes
from .codecs import Encode
from .errors import CallStatus, DeadlinePassed, RpcError, ServerGone, failure_of
from .flows import FlowEnded, Inflow, Outflow
from .frames import TOKEN, FrameFlags, FrameKind
from .link import Link
from .server_calls import CURRENT
from .strategies import RequestWay, Strategies, request_way, wants_memory
from .stubs import RemoteMethod
from .waiter import CallWaiter

__all__ = ["ClientCalls", "PendingCall", "RequestPath"]

_REQUEST, _RESPONSE = int(FrameKind.REQUEST), int(FrameKind.RESPONSE)
_NAMED, _REPLY = int(FrameFlags.NAMED), int(FrameFlags.REPLY)
_OK = int(CallStatus.OK)
_ITEM, _GRANT, _WRITTEN = int(FrameKind.ITEM), int(FrameKind.GRANT), int(FrameFlags.WRITTEN)
_FAIR = 128  # calls that did not suspend, between two iterations of the loop
_LEAST_REPLY = 4096


class RequestPath(Protocol):
    """A way for requests besides the link: the ring, or datagrams."""

    room: int

    def send(self, flags: int, method: int, call: int, count: int, data: bytes) -> bool:
        """Send a request; False if there is no room at present."""

    def forget(self, call: int) -> None:
        """The call has its response."""


class PendingCall:
    """A call under way."""

    # Defaults of the class: an instance sets what it needs, which makes it in half the time.
    done = False
    status = _OK
    value: Any = b""
    waiter: CallWaiter | None = None
    reply: MR | None = None  # memory for the response
    given_up = False
    error: BaseException | None = None  # it ends the call, whatever the server answers
    has_ended = False  # the client's items
    inflow: Inflow | None = None
    outflow: Outflow | None = None
    path: RequestPath | None = None
    is_simple = False  # nothing but its place has to be given back

    def __init__(self, call: int, method: RemoteMethod) -> None:
        self.call = call
        self.method = method


class ClientCalls:
    """The calls of one connection. ``most`` may be under way at a time."""

    def __init__(self, link: Link, most: int, plan: Strategies, encode: Encode) -> None:
        self.link = link
        self.ring: RequestPath | None = None
        self.datagrams: RequestPath | None = None
        self.plan = plan
        self.loop = asyncio.get_running_loop()
        self.pending: dict[int, PendingCall] = {}
        self.served = Strategies()  # the server's, for responses
        self.least_reply = _LEAST_REPLY if plan.response == "write" else 0  # of each request
        self._encode = encode
        self._free = most
        self._next = 1
        self._for_room: list[asyncio.Future[None]] = []
        self._fair = 0
        self._given_up = 0
        # Up to here a request needs no choice of its strategy.
        small = plan.request in ("auto", "inline") and plan.response != "write"
        self._fast_room = link.room if small else -1
        self._expects: dict[int, int] = {}  # bytes of the largest response of each method
        self._spare: PendingCall | None = None  # of a call that has ended, for the next one
        link.hold()
        link.waits = lambda: bool(self._given_up)

    def use_ring(self, ring: RequestPath) -> None:
        """Write requests into a ring, as far as they fit."""
        self.ring = ring
        if self.plan.response != "write":
            self._fast_room = min(ring.room, self.link.room)

    # ---- a call ----

    def caller(
        self, method: RemoteMethod, timeout: float | None, opened: object
    ) -> Callable[..., Any]:
        """Return the coroutine function that calls a method and returns its result.

        A call refers to ``opened``, whose end would be that of the connection.
        A small call without a deadline, which has neither memory nor a timer, takes a short path:
        it needs half of what ``request`` does for the others.
        """
        link, poller, pending_calls = self.link, self.link.poller, self.pending
        number, is_raw, returns_raw = method.number, method.raw, method.returns_raw
        expects = self._expects

        async def call(*args: Any, **named: Any) -> Any:
            if is_raw and len(args) == 1 and not named:
                data, flags = args[0], 0
            else:
                data, flags = method.encode(args, named, self._encode)
            current = CURRENT.get()
            if (
                timeout is not None
                or (current is not None and current.deadline is not None)
                or type(data) is not bytes
                or len(data) > self._fast_room
                or number in expects
                or self._free <= 0
                or self._for_room
                or link.ended is not None
            ):
                return await self.request(method, data, flags, timeout)
            pending = self._spare
            if pending is None:
                pending = PendingCall(self._next, method)
                pending.is_simple = True
            else:
                self._spare = None
                pending.call = self._next
                pending.method = method
                pending.done = False
            self._next += 1
            self._free -= 1
            pending_calls[pending.call] = pending
            try:
                ring = self.ring
                if ring is None or not ring.send(flags, number, pending.call, 0, data):
                    link.send(_REQUEST, flags, number, pending.call, 0, data)
            except BaseException:
                self._forget(pending)
                raise
            if link.held >= 0:
                link.give_back()
            if poller.spin and len(pending_calls) == 1:  # others could not begin while this polls
                poller.poll_for(pending, poller.spin)
            if not pending.done:
                await self._wait(pending, None)
            else:
                self._fair += 1
                if self._fair >= _FAIR:
                    self._fair = 0
                    await asyncio.sleep(0)
            value = pending.value
            if pending.status == _OK and type(value) is bytes and pending.error is None:
                pending.value = b""
                self._spare = pending
                return value if returns_raw else self._decoded(method, value)
            return self._result(pending)

        vars(call)["opened"] = opened  # so each of its coroutines refers to that, at no cost
        return call

    async def request(
        self, method: RemoteMethod, data: Any, flags: int, timeout: float | None
    ) -> Any:
        """Call a method with arguments that are encoded, and return its result."""
        until = _until(timeout)
        if self._free <= 0 or self._for_room:
            await self._room(until, method)
        pending = self._begin(method)
        try:
            self._request(pending, data, flags, until)
        except BaseException:
            self._forget(pending)
            raise
        if self.link.poller.spin and len(self.pending) == 1:
            moved = nbytes_of(data) + self._expects.get(method.number, 0)
            self.link.poller.poll_for(pending, self.link.poller.time_for(moved))
        if not pending.done:
            await self._wait(pending, until)
        else:
            self._fair += 1
            if self._fair >= _FAIR:
                self._fair = 0
                await asyncio.sleep(0)
        return self._result(pending)

    async def _room(self, until: float | None, method: RemoteMethod) -> None:
        """Wait until one more call may be under way."""
        self.check()
        try:
            async with asyncio.timeout_at(until):
                await self.link.poller.until(
                    lambda: self._free > 0 or self.link.ended is not None, self._for_room
                )
        except TimeoutError:
            raise self._too_late(method, "it has not begun") from None

    def _begin(self, method: RemoteMethod) -> PendingCall:
        self.check()
        pending = PendingCall(self._next, method)
        self._next += 1
        self._free -= 1
        self.pending[pending.call] = pending
        return pending

    def check(self) -> None:
        """Raise ServerGone if the connection has ended."""
        if self.link.ended is not None:
            raise ServerGone(f"{self.link.about}: {self.link.ended}", False)

    def _request(self, pending: PendingCall, data: Any, flags: int, until: float | None) -> None:
        link, method = self.link, pending.method
        count = 0
        if until is not None:
            # Rounded up, so that the server does not end the call before its deadline here.
            left = min(until - asyncio.get_running_loop().time(), MOST_SECONDS)
            count = max(1, ceil(left * 1e6))
        before = b""
        expects = self._expects.get(method.number, 0)
        least = self.least_reply
        if expects or least:
            expects = max(expects, least)
            pending.reply = link.pool.get(expects)
            before = TOKEN.pack(pending.reply.addr, pending.reply.length, pending.reply.rkey, 0)
            flags |= _REPLY
        size = nbytes_of(data)
        ring, datagrams = self.ring, self.datagrams
        if method.sends or method.receives:
            ring = datagrams = None  # the frames of the streams must come behind the request
        used = len(before)
        way = request_way(
            *(self.plan, size),
            ring.room - used if ring else 0,
            datagrams.room - used if datagrams else 0,
        )
        if way is RequestWay.RING or way is RequestWay.DATAGRAM:
            path = ring if way is RequestWay.RING else datagrams
            assert path is not None
            pending.path = path
            whole = before + bytes(payload_bytes(data))  # bytes(array(3)) would be three zeros
            if path.send(flags, method.number, pending.call, count, whole):
                return
            pending.path = None
            way = RequestWay.INLINE
        if way is RequestWay.INLINE:
            link.check_size(size)
            if before or type(data) is not bytes:
                data = before + bytes(payload_bytes(data))
            if len(data) <= link.room:
                link.send(_REQUEST, flags, method.number, pending.call, count, data)
            else:
                link.send_parts(_REQUEST, flags, method.number, pending.call, count, data)
        else:
            link.send_fetch(
                *(_REQUEST, flags, method.number, pending.call, count, data, _nothing, before)
            )

    async def _wait(self, pending: PendingCall, until: float | None) -> None:
        """Wait for the response; give the call up if this is cancelled or too late."""
        loop = asyncio.get_running_loop()
        if loop is not self.loop:
            self.give_up(pending)
            raise RuntimeError(
                f"{pending.method.name}: a client belongs to the event loop in which it connected,"
                " and this is another: connect in each loop"
            )
        poller = self.link.poller
        pending.waiter = waiter = CallWaiter(loop)
        timer = None
        if until is not None:
            timer = loop.call_at(until, poller.wake, waiter)
        poller.sleepers += 1
        try:
            poller.hear()
            await waiter
        except BaseException:
            self.give_up(pending)
            raise
        finally:
            poller.sleepers -= 1
            pending.waiter = None
            if timer is not None:
                timer.cancel()
        if not pending.done and pending.error is None:
            self.give_up(pending)
            raise self._too_late(pending.method, "the server is asked to stop")

    def _too_late(self, method: RemoteMethod, so: str) -> DeadlinePassed:
        return DeadlinePassed(f"{method.name} at {self.link.about}: the deadline has passed; {so}")

    def give_up(self, pending: PendingCall) -> None:
        """Nobody waits for a call any more, or takes its items: tell the server."""
        if pending.inflow is not None:
            pending.inflow.drop()
        if pending.done or pending.given_up:
            return
        pending.given_up = True
        self._given_up += 1
        if pending.outflow is not None:
            pending.outflow.end(FlowEnded)
        if self.link.ended is None:
            self.link.send(FrameKind.CANCEL, 0, 0, pending.call, 0, b"")
            self.link.poller.hear()

    def _result(self, pending: PendingCall) -> Any:
        if pending.error is not None:
            raise pending.error
        method, value = pending.method, pending.value
        if pending.status != _OK:
            text = bytes(value).decode(errors="replace")
            raise failure_of(pending.status, text, f"{method.name} at {self.link.about}")
        if type(value) is Fetch:
            if method.returns_raw:
                return self.link.lend(value)
            try:
                return self._decoded(method, value.view())
            finally:
                self.link.release(value)
        if type(value) is int:  # it was written into the memory of the reply
            assert pending.reply is not None
            reply, pending.reply = pending.reply, None
            view = self.link.lend_buffer(reply, value)
            return view if method.returns_raw else self._decoded(method, view)
        return value if method.returns_raw else self._decoded(method, value)

    def _decoded(self, method: RemoteMethod, data: Any) -> Any:
        try:
            return method.decode(data)
        except Exception as error:  # pickle raises anything
            raise RpcError(f"the result of {method.name}: {error}") from error

    # ---- frames ----

    def on_frame(
        self, kind: int, flags: int, method: int, call: int, count: int, payload: Any
    ) -> None:
        """Take a frame of the server."""
        pending = self.pending.get(call)
        if (
            kind == _RESPONSE
            and pending is not None
            and pending.is_simple
            and type(payload) is bytes
            and not pending.given_up
        ):
            # A call that keeps no memory needs half of what _finish does, in half the time.
            del self.pending[call]
            self._free += 1
            pending.status = method
            pending.value = payload
            pending.done = True
            if pending.waiter is not None:
                self.link.poller.wake(pending.waiter)
            if self._for_room:
                self.link.poller.wake_all(self._for_room)
            return
        if pending is None or (pending.given_up and kind != _RESPONSE):
            if type(payload) is Fetch:
                self.link.drop(payload)
            return
        if kind == _RESPONSE:
            pending.status = method
            self._learn(pending, count, payload)
            if type(payload) is Fetch:
                payload.then = lambda fetch: self._finish(pending, fetch)
            elif flags & _WRITTEN:
                self._finish(pending, count)
            else:
                self._finish(pending, payload)
        elif kind == _ITEM and pending.inflow is not None:
            pending.inflow.put(payload)
        elif kind == _GRANT and pending.outflow is not None:
            pending.outflow.granted(count)
        else:
            raise ValueError(f"a frame of kind {kind} that call {call} does not take")

    def _learn(self, pending: PendingCall, count: int, payload: Any) -> None:
        """Remember how large the responses of a method are, to name memory for the next one."""
        size = payload.length if type(payload) is Fetch else max(count, len(payload))
        known = self._expects.get(pending.method.number, 0)
        if size > known and wants_memory(self.served, size, self.link.room):
            self._expects[pending.method.number] = 1 << (size - 1).bit_length()

    def _finish(self, pending: PendingCall, value: Any) -> None:
        if pending.done:
            return
        pending.value = value
        if pending.given_up:
            self._given_up -= 1
            if type(value) is Fetch:
                self.link.release(value)
        self._forget(pending)
        pending.done = True
        self._end_flows(pending)
        if pending.waiter is not None:
            self.link.poller.wake(pending.waiter)

    def _end_flows(self, pending: PendingCall) -> None:
        if pending.outflow is not None:
            pending.outflow.end(FlowEnded)
        if pending.inflow is not None:
            pending.inflow.end(FlowEnded())

    def _forget(self, pending: PendingCall) -> None:
        """The server has done with a call: its place and its memory are free."""
        if self.pending.pop(pending.call, None) is None:
            return
        self._free += 1
        if self._for_room:
            self.link.poller.wake_all(self._for_room)
        if pending.path is not None:
            pending.path.forget(pending.call)
        if pending.reply is not None and type(pending.value) is not int:
            reply, pending.reply = pending.reply, None
            if self.link.ended is None:
                self.link.pool.put(reply)

    # ---- streams ----

    async def begin_stream(
        self,
        method: RemoteMethod,
        args: tuple[Any, ...],
        named: dict[str, Any],
        timeout: float | None,
    ) -> tuple[PendingCall, float | None]:
        """Begin a call with items in one direction or both."""
        data, flags = method.encode(args, named, self._encode)
        until = _until(timeout)
        if self._free <= 0 or self._for_room:
            await self._room(until, method)
        pending = self._begin(method)
        if method.receives:
            pending.inflow = Inflow(self.link, pending.call, _item_decoder(method))
        if method.sends:
            pending.outflow = Outflow(self.link, pending.call, self._encode, self.plan)
        try:
            self._request(pending, data, flags, until)
        except BaseException:
            self._forget(pending)
            raise
        return pending, until

    def end_items(self, pending: PendingCall) -> None:
        """Tell the server that the client sends no more items."""
        if not pending.has_ended and pending.outflow is not None and not pending.done:
            pending.has_ended = True
            self.link.send(FrameKind.END, 0, 0, pending.call, 0, b"")

    async def result_of(self, pending: PendingCall, until: float | None) -> Any:
        """Wait for the response of a call with streams."""
        if not pending.done and pending.error is None:
            await self._wait(pending, until)
        return self._result(pending)

    def end_by_items(self, pending: PendingCall, error: BaseException) -> None:
        """End a call whose items raised ``error``: its caller gets this, and the server is told."""
        if pending.done or pending.given_up:
            return
        pending.error = error
        self.give_up(pending)
        if pending.waiter is not None:
            self.link.poller.wake(pending.waiter)

    # ---- the end ----

    def lost(self, reason: Ended) -> None:
        """The connection has ended: all calls fail."""
        about = self.link.about
        for pending in list(self.pending.values()):
            if pending.error is None:
                pending.error = ServerGone(
                    f"{pending.method.name} at {about}: {reason}; it may have run", True
                )
            self._finish(pending, b"")
        self.link.poller.wake_all(self._for_room)


def _item_decoder(method: RemoteMethod) -> Callable[[Any], Any]:
    """Return what decodes the items that a method yields. It raises RpcError."""

    def decode(data: Any) -> Any:
        try:
            return method.decode_item(data)
        except Exception as error:  # pickle raises anything
            raise RpcError(f"an item of {method.name}: {error}") from error

    return decode


def _until(timeout: float | None) -> float | None:
    """Return the deadline, at most that of the call in which this one is made."""
    current = CURRENT.get()
    outer = None if current is None else current.deadline
    if timeout is None:
        return outer
    until = asyncio.get_running_loop().time() + min(timeout, MOST_SECONDS)
    return until if outer is None else min(until, outer)


def _nothing() -> None:
    """The arguments are kept by the offer until they were read."""
