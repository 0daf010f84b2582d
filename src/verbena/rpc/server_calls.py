# SPDX-License-Identifier: Apache-2.0
"""The calls of one client at the server: from the request's frame to the response's.

``ServerCalls`` takes the frames of a link. A plain method runs at once, where its request is taken;
an ``async`` one, or one with streams, has a task. Each request gets one response, also a call that
was cancelled, so that the client knows when its memory is not used any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from verbena.peers.errors import Ended

from .bulk import Fetch, nbytes_of
from .errors import CallStatus, MessageTooLarge, WrongArguments
from .flows import FlowEnded, Inflow, Outflow
from .frames import TOKEN, FrameFlags, FrameKind
from .link import Link
from .methods import ServiceMethod
from .strategies import ResponseWay, Strategies, response_way

__all__ = ["CURRENT", "CallInfo", "ServerCalls"]

_NAMED, _REPLY = int(FrameFlags.NAMED), int(FrameFlags.REPLY)
_REQUEST, _RESPONSE = int(FrameKind.REQUEST), int(FrameKind.RESPONSE)
_OK = int(CallStatus.OK)
_CANCEL, _ITEM = int(FrameKind.CANCEL), int(FrameKind.ITEM)
_END, _GRANT = int(FrameKind.END), int(FrameKind.GRANT)
_NO_TOKEN = (0, 0, 0, 0)

Answer = Callable[[int, int, Any], bool]
"""Sends a response by another way than the link: (call, status, payload); False if it cannot."""


@dataclass(frozen=True, slots=True)
class CallInfo:
    """What a method may ask about its call: the client's address, and the deadline.

    ``deadline`` is a time of the event loop's clock, or None.
    """

    peer: str
    deadline: float | None = None


CURRENT: ContextVar[CallInfo | None] = ContextVar("verbena_rpc_call", default=None)


class Execution:
    """A call that has a task, or waits for its arguments."""

    def __init__(self, call: int, method: ServiceMethod, reply: tuple[int, ...]) -> None:
        self.call = call
        self.method = method
        self.reply = reply
        self.task: asyncio.Task[Any] | None = None
        self.inflow: Inflow | None = None
        self.outflow: Outflow | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.answer: Answer | None = None
        self.is_cancelled = False
        self.why = CallStatus.CANCELLED  # what a cancellation of the task means

    def cancel(self, why: CallStatus) -> None:
        """Stop it: its task is cancelled, or will be when it has its arguments.

        A second reason changes nothing: what the method does to end must be able to wait.
        """
        if self.is_cancelled:
            return
        self.why = why
        self.is_cancelled = True
        if self.task is not None:
            self.task.cancel()


class ServerCalls:
    """The calls of one client. ``methods`` is the server's table."""

    def __init__(
        self, link: Link, methods: list[ServiceMethod], most: int, plan: Strategies
    ) -> None:
        self.link = link
        self._methods = methods
        self._most = most
        self._plan = plan
        # Up to here a response without memory that its request named needs no choice.
        self._fast_room = -1 if plan.response == "rendezvous" else link.room
        self.running: dict[int, Execution] = {}
        self.is_closing = False
        self.served = 0
        self.idle: list[asyncio.Future[None]] = []
        self.on_unknown_cancel: Callable[[int], None] = _unknown
        self._info = CallInfo(link.about)
        # Methods that run where their requests are taken, by number; none when this closes.
        self._plain_methods = [method if method.is_plain else None for method in methods]

    # ---- frames ----

    def on_frame(
        self, kind: int, flags: int, method: int, call: int, count: int, payload: Any
    ) -> None:
        """Take a frame of the client."""
        if kind == _REQUEST:
            plain = self._plain_methods
            if method < len(plain) and not flags & _REPLY and type(payload) is bytes:
                called = plain[method]
                if called is not None:
                    self.served += 1
                    self._plain(called, flags, call, payload, _NO_TOKEN, None)
                    return
            self.request(flags, method, call, count, payload, None)
            return
        found = self.running.get(call)
        if found is None and kind == _CANCEL:
            self.on_unknown_cancel(call)
            found = self.running.get(call)
        if found is None:
            if type(payload) is Fetch:
                self.link.drop(payload)
            return  # it has ended meanwhile
        if kind == _CANCEL:
            found.cancel(CallStatus.CANCELLED)
        elif kind == _ITEM and found.inflow is not None:
            found.inflow.put(payload)
        elif kind == _END and found.inflow is not None:
            found.inflow.end(FlowEnded())
        elif kind == _GRANT and found.outflow is not None:
            found.outflow.granted(count)
        else:
            raise ValueError(f"a frame of kind {kind} that call {call} does not take")

    def request(
        self, flags: int, number: int, call: int, count: int, payload: Any, answer: Answer | None
    ) -> None:
        """Take a request; ``answer`` sends the response by another way than the link."""
        self.served += 1
        method = self._methods[number] if number < len(self._methods) else None
        if (
            method is not None
            and method.is_plain
            and type(payload) is bytes
            and not flags & _REPLY
            and not self.is_closing
        ):
            self._plain(method, flags, call, payload, _NO_TOKEN, answer)
            return
        if self.is_closing or method is None or len(self.running) >= self._most:
            if type(payload) is Fetch:
                payload.then = self.link.release
            self._refuse(number, call, answer)
            return
        reply: tuple[int, ...] = _NO_TOKEN
        if type(payload) is Fetch:
            if flags & _REPLY:
                reply = TOKEN.unpack(payload.before)
            made = self._make(call, method, reply, count, answer)
            payload.then = lambda fetch: self._fetched(made, flags, fetch)
            return
        if flags & _REPLY:
            reply = TOKEN.unpack_from(payload)
            payload = payload[TOKEN.size :]
        if method.is_plain:
            self._plain(method, flags, call, payload, reply, answer)
            return
        self._begin(self._make(call, method, reply, count, answer), flags, payload)

    def _refuse(self, number: int, call: int, answer: Answer | None) -> None:
        if self.is_closing:
            self.fail(call, CallStatus.CLOSING, "", answer)
        elif number >= len(self._methods):
            self.fail(call, CallStatus.NO_METHOD, f"there is no method {number}", answer)
        else:
            text = f"TooManyCalls\nmore than {self._most} calls are under way"
            self.fail(call, CallStatus.FAILED, text, answer)

    # ---- plain methods ----

    def _plain(
        self,
        method: ServiceMethod,
        flags: int,
        call: int,
        payload: Any,
        reply: tuple[int, ...],
        answer: Answer | None,
    ) -> None:
        if CURRENT.get() is not self._info:
            CURRENT.set(self._info)
        try:
            if method.raw:
                result = method.function(payload)
            else:
                result = method.function(*method.arguments(payload, bool(flags & _NAMED)))
            data = result if method.returns_raw else method.encode(result)
        except WrongArguments as error:
            self.fail(call, CallStatus.WRONG_ARGUMENTS, str(error), answer)
        except BaseException as error:
            if self.link.ended is Ended.FORKED:
                raise  # the child has nobody to answer to
            self.fail(call, CallStatus.FAILED, _said(error), answer)
            if isinstance(error, KeyboardInterrupt | SystemExit):
                # It ends the program, but not in the middle of the completions of other clients.
                asyncio.get_running_loop().call_soon(_raise, error)
        else:
            room = self._fast_room
            if answer is None and type(data) is bytes and len(data) <= room and not reply[1]:
                self.link.send(_RESPONSE, 0, _OK, call, 0, data)
            else:
                self._respond(call, data, reply, answer)

    # ---- methods with a task ----

    def _make(
        self,
        call: int,
        method: ServiceMethod,
        reply: tuple[int, ...],
        count: int,
        answer: Answer | None,
    ) -> Execution:
        made = Execution(call, method, reply)
        made.answer = answer
        self.running[call] = made
        if method.sends:
            made.inflow = Inflow(self.link, call, method.decode_item)
        if method.receives:
            made.outflow = Outflow(self.link, call, method.encode, self._plan)
        if count:
            loop = asyncio.get_running_loop()
            made.timer = loop.call_later(count / 1e6, made.cancel, CallStatus.DEADLINE)
        return made

    def _fetched(self, made: Execution, flags: int, fetch: Fetch) -> None:
        if made.method.raw:
            self._begin(made, flags, self.link.lend(fetch))
            return
        self._begin(made, flags, fetch.view())
        self.link.release(fetch)

    def _begin(self, made: Execution, flags: int, payload: Any) -> None:
        method = made.method
        if made.is_cancelled:
            self._end(made)
            self.fail(made.call, made.why, "", made.answer)
            return
        if method.is_plain:
            self._end(made)
            self._plain(method, flags, made.call, payload, made.reply, made.answer)
            return
        try:
            arguments = method.arguments(payload, bool(flags & _NAMED))
        except WrongArguments as error:
            self._end(made)
            self.fail(made.call, CallStatus.WRONG_ARGUMENTS, str(error), made.answer)
            return
        deadline = made.timer.when() if made.timer is not None else None
        CURRENT.set(CallInfo(self.link.about, deadline))
        self.link.poller.tasks += 1
        made.task = asyncio.get_running_loop().create_task(self._run(made, arguments))
        made.task.add_done_callback(lambda task: self._ended(made, task))

    async def _run(self, made: Execution, arguments: tuple[Any, ...]) -> None:
        """Run a method and send its response, in the task of the call."""
        try:
            result = await self._called(made, arguments)
            data = result if made.method.returns_raw else made.method.encode(result)
        except asyncio.CancelledError:
            self._end(made)
            self.fail(made.call, made.why, "", made.answer)
            raise
        except MessageTooLarge as error:
            self._end(made)
            self.fail(made.call, CallStatus.TOO_LARGE, str(error), made.answer)
        except Exception as error:
            self._end(made)
            self.fail(made.call, CallStatus.FAILED, _said(error), made.answer)
        else:
            self._end(made)
            self._respond(made.call, data, made.reply, made.answer)

    async def _called(self, made: Execution, arguments: tuple[Any, ...]) -> Any:
        method = made.method
        if made.inflow is not None:
            arguments = (*arguments, _items(made.inflow))
        if made.outflow is not None:
            async with aclosing(method.function(*arguments)) as items:
                async for item in items:
                    await made.outflow.send(item)
            return None
        return await method.function(*arguments)

    def _ended(self, made: Execution, task: asyncio.Task[Any]) -> None:
        """A task has ended; it has sent no response if it was cancelled before its first step.

        Neither has one that raised what is no Exception, such as GeneratorExit.
        """
        self.link.poller.tasks -= 1
        error = None if task.cancelled() else task.exception()
        if made.call in self.running and self.running[made.call] is made:
            self._end(made)
            if error is None:
                self.fail(made.call, made.why, "", made.answer)
            else:
                self.fail(made.call, CallStatus.FAILED, _said(error), made.answer)

    def _end(self, made: Execution) -> None:
        self.running.pop(made.call, None)
        if made.timer is not None:
            made.timer.cancel()
        if made.inflow is not None:
            made.inflow.drop()
        if not self.running:
            self.link.poller.wake_all(self.idle)

    # ---- responses ----

    def fail(self, call: int, status: CallStatus, text: str, answer: Answer | None) -> None:
        """Send a response that says how a call has failed."""
        # A text may have surrogates, of the name of a file for example, which UTF-8 lacks.
        said = text.encode(errors="backslashreplace")[: min(self.link.room, 1024)]
        if answer is not None and answer(call, status, said):
            return
        if self.link.ended is None:
            self.link.send(_RESPONSE, 0, status, call, 0, said)

    def _respond(self, call: int, data: Any, reply: tuple[int, ...], answer: Answer | None) -> None:
        link = self.link
        if link.ended is not None:
            return
        if answer is not None and answer(call, _OK, data):
            return
        if type(data) is bytes and len(data) <= self._fast_room and not reply[1]:
            link.send(_RESPONSE, 0, _OK, call, 0, data)
            return
        try:
            data = b"" if data is None else data
            size = nbytes_of(data)
            link.check_size(size)
        except MessageTooLarge as error:
            self.fail(call, CallStatus.TOO_LARGE, str(error), None)
            return
        except (TypeError, ValueError) as error:
            self.fail(call, CallStatus.FAILED, _said(error), None)
            return
        way = response_way(self._plan, size, reply[1], link.room)
        if way is ResponseWay.WRITE:
            link.send_written(_OK, call, data, reply)
        elif way is ResponseWay.INLINE:
            link.send_parts(_RESPONSE, 0, _OK, call, 0, data)
        else:
            link.send_fetch(_RESPONSE, 0, _OK, call, 0, data, _nothing)

    # ---- the end ----

    def lost(self, reason: Ended) -> None:
        """The client has gone: its calls are cancelled."""
        del reason
        for each in list(self.running.values()):
            if each.task is None:
                self._end(each)
            each.cancel(CallStatus.CANCELLED)

    async def drain(self) -> None:
        """Take no more calls, and wait for those that run."""
        self.is_closing = True
        self._plain_methods = []
        await self.link.poller.until(lambda: not self.running, self.idle)


async def _items(inflow: Inflow) -> Any:
    while True:
        try:
            item = await inflow.take()
        except FlowEnded:
            return
        yield item


def _unknown(call: int) -> None:
    """The call has ended meanwhile."""


def _said(error: BaseException) -> str:
    """Return the name of an exception's type and its text, as a response of status FAILED."""
    try:
        text = str(error)
    except Exception as other:
        text = f"(its text is not known: its __str__ raises {type(other).__name__})"
    return f"{type(error).__name__}\n{text}"


def _raise(error: BaseException) -> None:
    raise error


def _nothing() -> None:
    """The result is kept by the offer until it was read."""
