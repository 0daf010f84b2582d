# SPDX-License-Identifier: Apache-2.0
"""The client: connects to a server, and has its methods as its own.

``connect`` gives a ``Client``. A call of a method without streams is a coroutine; one with streams
gives a ``CallStream``.
"""

from __future__ import annotations

import asyncio
import errno
import warnings
from collections.abc import AsyncIterable, Coroutine, Generator, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Self, TypedDict, cast

import msgspec

from verbena.cm.arguments import CONNECT_SECONDS, check_seconds, check_whole
from verbena.peers.connection import PeerOptions, check_way, new_hello, parse_address
from verbena.peers.errors import Ended
from verbena.peers.forgetting import Forgetting
from verbena.peers.transport import Dialing, dial
from verbena.peers.wire import CALLS, Hello
from verbena.verbs.here import place

from .client_calls import ClientCalls, PendingCall
from .codecs import codec_named
from .errors import NoSuchMethod, RpcError, ServerGone, WrongArguments
from .flows import FlowEnded
from .frames import FRAME_SIZE, PROTOCOL, FrameKind, LinkHello, LinkWelcome
from .link import Link, LinkPlan
from .methods import methods_of
from .paths import ClientPaths
from .poller import Poller
from .strategies import EXPLANATIONS, RequestWay, Strategies, explain_response, explain_strategy
from .stubs import RemoteMethod
from .unary import UnaryCall

__all__ = ["MAX_MESSAGE", "SPIN", "CallStream", "Client", "ClientOptions", "spin_seconds"]

SPIN = 20e-6
MAX_MESSAGE = 256 << 20
"""Bytes of the largest message that a side takes, where it says nothing else."""

_LONGEST_SPIN = 1.0  # the event loop does nothing else meanwhile
_LARGEST_SLOT = (1 << 32) - 1


class ClientOptions(TypedDict, total=False):
    """Keywords of ``connect``.

    ``codec``: "msgpack" or "pickle". ``timeout``: seconds for each call, which ``within(seconds)``
    of the client replaces; connecting has limits of its own, 10 s each for the connection and the
    server's first answer. ``strategies``: a Strategies. ``spin``: seconds for which a
    call polls before its task sleeps (20 µs; 0 on simulated hosts; 1 s at most). ``max_message``:
    bytes of the largest result (256 MiB). ``via``, ``tls``, ``device``, ``slots`` and ``slot_size``
    are those of ``verbena.connect``.
    """

    codec: str
    timeout: float | None
    strategies: Strategies
    spin: float | None
    max_message: int
    via: str | None
    tls: Any
    device: str | None
    slots: int
    slot_size: int


def check_within(seconds: object) -> None:
    """Raise TypeError or ValueError unless it is a time for a call, or None."""
    check_seconds("within", seconds, may_be_none=True, may_be_infinite=False)


def check_numbers(options: Any) -> None:
    """Raise TypeError or ValueError for numbers of ``connect`` and ``serve`` that cannot be."""
    for name, least in (("calls", 1), ("max_message", 1)):
        value = options.get(name)
        if value is not None and value < least:
            raise ValueError(f"{name} is {least} or more, and not {value}")
    check_seconds("spin", options.get("spin"), _LONGEST_SPIN, may_be_none=True)


def check_service(service: object) -> None:
    """Raise TypeError unless it is a class, as ``connect`` and ``service`` take, or None."""
    if service is not None and not isinstance(service, type):
        raise TypeError(f"a service is a class with @rpc.service before it, and not {service!r}")


def spin_seconds(spin: float | None) -> float:
    """Return for how long a side polls."""
    if place.get() is not None:
        return 0.0
    return SPIN if spin is None else spin


class CallStream:
    """A call with items: the client's by ``send`` and ``end``, the server's by ``async for``.

    ``await`` gives the method's result, after ``end``; of a call that returns items, whose block or
    loop has not begun, it is a TypeError. Leaving its ``async with`` block before the
    call has ended cancels it at the server; so does a task that is cancelled in ``await``.
    """

    # Also where a signal's handler has interrupted __init__: __del__ reads it.
    _pending: PendingCall | None = None

    def __init__(self, client: Client, method: RemoteMethod, args: Any, named: Any) -> None:
        self._client = client
        self._method = method
        self._given: Any = None
        if method.sends and len(args) > len(method.parameters):
            *args, self._given = args
            if not _is_iterable(self._given):
                raise WrongArguments(
                    f"{method.name} takes items, and {self._given!r} is not iterable; a call"
                    " without them has send(item) and end()"
                )
        self._args, self._named = tuple(args), named
        self._until: float | None = None
        self._feeding: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()

    async def _begun(self) -> PendingCall:
        if self._pending is None:
            async with self._starting:
                if self._pending is None:
                    calls = self._client._calls
                    self._pending, self._until = await calls.begin_stream(
                        self._method, self._args, self._named, self._client._timeout
                    )
                    if self._given is not None:
                        feeding = _feed(calls, self._pending, self._given)
                        self._feeding = asyncio.get_running_loop().create_task(feeding)
        return self._pending

    def __del__(self) -> None:
        """Nobody can take the rest: cancel the call at the server, and drop what is here."""
        pending = self._pending
        if pending is None or pending.given_up:
            return
        if pending.done and (pending.inflow is None or pending.inflow.is_empty):
            return
        loop = self._client._calls.loop
        if not loop.is_closed():
            loop.call_soon_threadsafe(_give_up, self._client._calls, pending, self._feeding)

    async def send(self, item: Any) -> None:
        """Send an item, as soon as the server takes it.

        Raises the call's error, or RpcError if the method has ended without the rest.
        """
        pending = await self._begun()
        if pending.outflow is None or pending.has_ended:
            raise RpcError(f"{self._method.name} takes no more items")
        try:
            await pending.outflow.send(item)
        except FlowEnded:
            self._client._calls._result(pending)
            raise RpcError(f"{self._method.name} has ended, and takes no more items") from None

    async def end(self) -> None:
        """Say that there are no more items."""
        self._client._calls.end_items(await self._begun())

    def cancel(self) -> None:
        """Cancel the call at the server, if it has not ended; items that are here are dropped."""
        if self._pending is not None:
            _give_up(self._client._calls, self._pending, self._feeding)

    async def _result(self) -> Any:
        pending = await self._begun()
        try:
            return await self._client._calls.result_of(pending, self._until)
        finally:
            if self._feeding is not None:
                self._feeding.cancel()

    def __await__(self) -> Generator[Any, Any, Any]:
        if self._method.receives and self._pending is None:
            name = self._method.name
            raise TypeError(
                f"{name} returns items: async for item in client.{name}(…), and not await"
            )
        return self._result().__await__()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        pending = await self._begun()
        if pending.inflow is None:
            raise RpcError(f"{self._method.name} returns no items")
        try:
            async with asyncio.timeout_at(self._until):
                return await pending.inflow.take()
        except FlowEnded:
            self._client._calls._result(pending)
            raise StopAsyncIteration from None
        except TimeoutError:
            self.cancel()
            raise self._client._calls._too_late(
                self._method, "the server is asked to stop"
            ) from None

    async def __aenter__(self) -> Self:
        await self._begun()
        return self

    async def __aexit__(self, *error: object) -> None:
        self.cancel()


def _is_iterable(items: object) -> bool:
    return isinstance(items, Iterable | AsyncIterable) or hasattr(items, "__getitem__")


async def _feed(
    calls: ClientCalls, pending: PendingCall, items: Iterable[Any] | AsyncIterable[Any]
) -> None:
    """Send the items that a call was given; it has no reference to the CallStream.

    An exception of the items, or of sending one, ends the call with this exception.
    """
    outflow = pending.outflow
    assert outflow is not None
    try:
        if isinstance(items, AsyncIterable):
            async for item in items:
                await outflow.send(item)
        else:
            for item in items:
                await outflow.send(item)
        calls.end_items(pending)
    except FlowEnded:
        pass  # the method has ended, and takes no more
    except BaseException as error:
        calls.end_by_items(pending, error)
        if not isinstance(error, Exception):
            raise


def _give_up(calls: ClientCalls, pending: PendingCall, feeding: asyncio.Task[None] | None) -> None:
    if feeding is not None:
        feeding.cancel()
    calls.give_up(pending)


class OpenLink:
    """The link of a client, and of those by its ``within``: closed when nothing refers to it."""

    _is_closed = True  # until it is made: __del__ reads it

    def __init__(self, link: Link, paths: ClientPaths, service: str) -> None:
        self.link = link
        self.paths = paths
        self.service = service
        self._forgetting = Forgetting()
        self._is_closed = False

    def __del__(self) -> None:
        if self._is_closed or self.link.ended is Ended.FORKED:
            return
        if self.link.ended is None:
            warnings.warn(
                f"unclosed <Client of {self.service} at {self.link.about}>: use `async with`, or"
                " close()",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )
        link, paths = self.link, self.paths
        self._forgetting.end(partial(_close, link, paths), partial(_release, link, paths))

    async def close(self) -> None:
        """Disconnect."""
        self._is_closed = True
        await _close(self.link, self.paths)


async def _close(link: Link, paths: ClientPaths) -> None:
    try:
        await link.close()
    finally:
        _release(link, paths)


def _release(link: Link, paths: ClientPaths) -> None:
    """Close everything, also if it was done before."""
    if link.ended is None:
        link.abort()
    paths.close()
    link.poller.close()


class Client:
    """A connection to a server; the server's methods are its attributes.

    ``await client.add(1, 2)``; ``client.within(0.5).add(1, 2)`` with a deadline. It is an
    asynchronous context manager, which closes it.

    One to which the program has no reference any more is closed, with a ResourceWarning if it had
    not ended. Its methods, calls that wait, streams, and clients by ``within`` refer to it.
    """

    def __init__(
        self, opened: OpenLink, calls: ClientCalls, methods: dict[str, RemoteMethod]
    ) -> None:
        self._opened = opened
        self._link = opened.link
        self._calls = calls
        self._methods = methods
        self._service = opened.service
        self._timeout: float | None = None

    def __getattr__(self, name: str) -> Any:
        """Return the method of the server. Raises NoSuchMethod, an AttributeError."""
        method = self.__dict__.get("_methods", {}).get(name)
        if method is None:
            raise NoSuchMethod(
                f"{self.__dict__.get('_service', 'the server')} has no method {name!r}; it has"
                f" {', '.join(self.__dict__.get('_methods', ()))}"
            )
        made = self._bound(method)
        if not (method.sends or method.receives):  # those refer to the client
            self.__dict__[name] = made
        return made

    def _bound(self, method: RemoteMethod) -> Any:
        calls, timeout = self._calls, self._timeout
        if method.sends or method.receives:
            return lambda *args, **named: CallStream(self, method, args, named)
        begin, name = calls.caller(method, timeout, self._opened), method.name

        def call(*args: Any, **named: Any) -> Coroutine[Any, Any, Any]:
            return UnaryCall(begin(*args, **named), name)

        return call

    def within(self, seconds: float | None) -> Client:
        """Return the same client with another time for each call; None: no limit.

        Raises TypeError for what is no number, and ValueError for one that is less than 0.
        """
        check_within(seconds)
        other = Client(self._opened, self._calls, self._methods)
        other._timeout = seconds
        return other

    def explain(self, nbytes: int, response: bool = False) -> str:
        """Say how a request with so many bytes of arguments travels, and why.

        With ``response``: how a response with so many bytes travels, by the server's strategies.
        Raises TypeError and ValueError for what is no number of bytes.
        """
        check_whole("nbytes", nbytes, 0, (1 << 63) - 1)
        calls = self._calls
        ring_room = calls.ring.room if calls.ring else 0
        datagram_room = calls.datagrams.room if calls.datagrams else 0
        if not response:
            return explain_strategy(calls.plan, nbytes, ring_room, datagram_room)
        if calls.datagrams and nbytes <= datagram_room:
            return f"datagram, as the answer to one: {EXPLANATIONS[RequestWay.DATAGRAM]}"
        return explain_response(calls.served, nbytes, self._link.room, calls.least_reply)

    @property
    def peer(self) -> str:
        """The server's address."""
        return self._link.about

    @property
    def is_connected(self) -> bool:
        """Whether calls are possible."""
        return self._link.ended is None

    def __repr__(self) -> str:
        state = self._link.ended or "connected"
        return f"<Client of {self._service} at {self.peer}: {state}>"

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._methods]

    async def close(self) -> None:
        """Disconnect. Calls under way fail with ServerGone."""
        if self._link.ended is Ended.FORKED:
            return
        await self._opened.close()
        await asyncio.sleep(0)  # the loop closes the queue pair

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


# ---- connecting ----------------------------------------------------------------------------------


def peer_options(options: Any) -> PeerOptions:
    """Return the options that verbena.peers has as well."""
    names = ("via", "tls", "device", "slots", "slot_size")
    found: Any = {name: options[name] for name in names if name in options}
    return cast(PeerOptions, found)


def calls_hello(options: PeerOptions) -> Hello:
    """Return the hello of a side. A slot has room for a header besides its ``slot_size`` bytes.

    So 4 KiB go in one frame: that takes half the time of two.
    """
    made = new_hello(options)
    return replace(made, purpose=CALLS, slot_size=min(made.slot_size + FRAME_SIZE, _LARGEST_SLOT))


async def connect_client(address: str, service: type | None, options: ClientOptions) -> Client:
    """Connect to a server. Raises OSError, RpcError, ValueError."""
    host, port = parse_address(address)
    if host is None:
        raise ValueError(f'{address!r} has no host: "localhost:{port}"')
    codec = options.get("codec", "msgpack")
    codec_named(codec)
    check_numbers(options)
    check_service(service)
    asked = peer_options(options)
    via, tls = check_way(asked)
    to = Dialing(host, port, via, tls, options.get("device"))
    plan = LinkPlan(await to.home(), calls_hello(asked))
    try:
        transport = await dial(to, plan, plan.hello)
    except BaseException:
        plan.abandon()
        raise
    poller = Poller(transport.acq.cq, spin_seconds(options.get("spin")), False)
    link = Link(plan, transport, poller)
    try:
        return await _greet(link, service, codec, options)
    except BaseException:
        try:
            await link.close()
        finally:
            poller.close()
        raise


async def _greet(link: Link, service: type | None, codec: str, options: ClientOptions) -> Client:
    """Exchange HELLO and WELCOME, and make the client."""
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def on_frame(kind: int, flags: int, method: int, call: int, count: int, data: Any) -> None:
        if kind == FrameKind.WELCOME and not answered.done():
            answered.set_result(bytes(data))

    def on_lost(reason: Any) -> None:
        if not answered.done():
            answered.set_exception(ServerGone(f"{link.about}: {reason}", False))

    link.on_frame, link.on_lost = on_frame, on_lost
    link.start()
    strategies = options.get("strategies", Strategies())
    link.takes_at_most = options.get("max_message", MAX_MESSAGE)
    paths = ClientPaths(link, strategies)
    try:
        paths.open()
        said = paths.hello(LinkHello(PROTOCOL, codec, link.takes_at_most))
        link.send_parts(FrameKind.HELLO, 0, 0, 0, 0, msgspec.msgpack.encode(said))
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await link.poller.sleep(answered)
        except TimeoutError:
            raise TimeoutError(
                errno.ETIMEDOUT,
                f"{link.about} has accepted the connection, and not answered its first message"
                f" within {CONNECT_SECONDS:g} s: see whether the server still runs",
            ) from None
        welcome = msgspec.msgpack.decode(answered.result(), type=LinkWelcome)
        if welcome.refused:
            raise RpcError(f"{link.about} refuses: {welcome.refused}")
        return _client(link, welcome, service, codec, strategies, options, paths)
    except BaseException:
        paths.close()
        raise


def _client(
    link: Link,
    welcome: LinkWelcome,
    service: type | None,
    codec: str,
    strategies: Strategies,
    options: ClientOptions,
    paths: ClientPaths,
) -> Client:
    link.max_message = welcome.max_message
    chosen = codec_named(codec)
    known = {} if service is None else methods_of(service, None, chosen)
    methods = {
        entry.name: RemoteMethod(number, entry, chosen, known.get(entry.name))
        for number, entry in enumerate(welcome.methods)
    }
    calls = ClientCalls(link, welcome.calls, strategies, chosen.encode)
    calls.served = Strategies(response=welcome.response, inline_most=welcome.inline_most)
    paths.use(calls, welcome)

    link.on_frame, link.on_lost = calls.on_frame, calls.lost
    client = Client(OpenLink(link, paths, welcome.name), calls, methods)
    client._timeout = options.get("timeout")
    return client
