# SPDX-License-Identifier: Apache-2.0
"""The server: listens, greets its clients, and runs their calls.

``serve`` gives an ``RpcServer`` for an object of a service. All its clients share a CQ and, unless
it is asked otherwise, the receives. When it is closed, calls that run may end within ``grace``.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Self, TypedDict

import msgspec

from verbena.cm.arguments import check_seconds, limited
from verbena.cm.errors import ManagerEnded
from verbena.peers.backlog import Accept
from verbena.peers.connection import parse_address
from verbena.peers.errors import Ended, PeerError
from verbena.peers.listening import PeerListener, listen_for_peers
from verbena.peers.transport import CmHome, Sharing, SocketHome, host_and_port
from verbena.peers.wire import CALLS
from verbena.verbs import PD, ConnectError, VerbsError
from verbena.verbs.forked import follow

from .client import MAX_MESSAGE, calls_hello, check_numbers, peer_options, spin_seconds
from .codecs import codec_named
from .datagrams import DATAGRAM_ROOM
from .frames import PROTOCOL, FrameKind, LinkHello, LinkWelcome, MethodEntry
from .link import Link, LinkPlan
from .memory import SharedReceives
from .methods import ServiceMethod, methods_of
from .ring import RING_SLOTS
from .server_calls import ServerCalls
from .stations import Station
from .strategies import Strategies

__all__ = ["RpcServer", "ServerOptions", "start_server"]


_QUEUED = 512  # frames that wait for credits of a client, for each call that it may have


class ServerOptions(TypedDict, total=False):
    """Keywords of ``serve``.

    ``calls``: how many calls of one client may be under way (64); the client's others wait.
    ``pickle``: whether clients may choose codec="pickle", by which they can run any code here.
    ``strategies``: a Strategies, for responses. ``receives``: "shared" by all clients, or "own" for
    each. ``spin``: seconds for which the server polls before it sleeps (20 µs; 0 on simulated
    hosts). ``max_message``: bytes of the largest arguments (256 MiB). ``via``, ``tls``, ``device``,
    ``slots`` and ``slot_size`` are those of ``verbena.listen``.
    """

    calls: int
    pickle: bool
    strategies: Strategies
    receives: str
    spin: float | None
    max_message: int
    via: str | None
    tls: Any
    device: str | None
    slots: int
    slot_size: int


class _Guest:
    """A client's connection at the server."""

    def __init__(self, link: Link, station: Station) -> None:
        self.link = link
        self.station = station
        self.calls: ServerCalls | None = None
        self.datagrams = 0


class RpcServer:
    """A server. ``port`` is its port; it is an asynchronous context manager, which closes it."""

    def __init__(self, target: object, options: ServerOptions) -> None:
        check_numbers(options)
        self._target = target
        self._options = options
        self._tables = self._made_tables()
        self._listener: PeerListener | None = None
        self._host: str | None = None
        self._home: CmHome | SocketHome | None = None
        self._stations: dict[PD, Station] = {}
        # What clients use whose agent has ended: the devices of its listener, and its stations.
        self._retired: list[tuple[CmHome | SocketHome, list[Station]]] = []
        self._guests: dict[Link, _Guest] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = asyncio.Event()
        self._is_parents = False  # in a forked child
        self._takes_no_more = asyncio.Event()
        self._failure: OSError | None = None  # why it takes no more clients
        follow(self)
        self._hello = calls_hello(peer_options(options))
        self.strategies = options.get("strategies", Strategies())
        self._most = options.get("calls", 64)
        if options.get("receives", "shared") not in ("shared", "own"):
            raise ValueError('receives is "shared" or "own"')

    def _made_tables(self) -> dict[str, list[ServiceMethod]]:
        names = ["msgpack", *(["pickle"] if self._options.get("pickle") else [])]
        kind = type(self._target)
        if isinstance(self._target, type):
            name = self._target.__name__
            raise TypeError(f"{name} is a class: give an object of {name}: rpc.serve({name}(), …)")
        return {
            name: list(methods_of(kind, self._target, codec_named(name)).values()) for name in names
        }

    @property
    def port(self) -> int:
        """The port at which it listens."""
        assert self._listener is not None
        return self._listener.port

    @property
    def clients(self) -> list[str]:
        """The addresses of the clients that are connected."""
        return [each.link.about for each in self._guests.values() if each.calls is not None]

    @property
    def running(self) -> int:
        """How many calls run, or wait for their arguments."""
        return sum(len(each.calls.running) for each in self._guests.values() if each.calls)

    @property
    def served(self) -> int:
        """How many requests the clients that are connected have made."""
        return sum(each.calls.served for each in self._guests.values() if each.calls)

    def __repr__(self) -> str:
        return f"<RpcServer of {type(self._target).__name__}: {len(self._guests)} clients>"

    # ---- clients ----

    async def open(self, address: str | int) -> Self:
        """Listen. Raises OSError."""
        self._listener = await listen_for_peers(address, peer_options(self._options), CALLS)
        self._host, _ = parse_address(address)
        try:
            self._home = await self._listener.enter()
        except BaseException:
            self._listener.close()
            raise
        self._spawn(self._accept())
        return self

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _accept(self) -> None:
        assert self._listener is not None
        while True:
            try:
                asking = await self._listener.next_request()
            except ManagerEnded:
                if not await self._listen_again():
                    return
                continue
            except PeerError:
                return
            task = self._spawn(self._admit(asking.accept))
            task.add_done_callback(asking.refuse_if_cancelled)

    async def _listen_again(self) -> bool:
        """Listen at the same port by the next agent, which starts by itself; clients stay."""
        assert self._listener is not None
        address = host_and_port(self._host or "", self.port)
        self._retire()
        self._listener.close()
        try:
            self._listener = await listen_for_peers(address, peer_options(self._options), CALLS)
            self._home = await self._listener.enter()
        except OSError as error:
            self._failure = error
            self._takes_no_more.set()
            return False
        return True

    def _retire(self) -> None:
        """Stations of the agent that ended are closed when their clients are gone."""
        assert self._home is not None
        stations = [each for each in self._stations.values() if not each.is_retired]
        for each in stations:
            each.is_retired = True
        self._retired.append((self._home, stations))
        self._home = None
        self._close_retired()

    def _close_retired(self) -> None:
        """Close stations before their devices, of which the loop still watches descriptors."""
        for home, stations in self._retired.copy():
            if all(each.is_idle for each in stations):
                for each in stations:
                    del self._stations[each.pd]
                    with suppress(VerbsError):
                        each.close()
                self._retired.remove((home, stations))
                home.leave()

    async def _admit(self, accept: Accept) -> None:
        """Connect a client that asks."""
        assert self._listener is not None
        found: list[Station] = []
        qpns: list[int] = []

        def sharing(pd: PD) -> tuple[Sharing, SharedReceives | None]:
            station = self._station(pd)
            station.enter()
            found.append(station)
            return station.sharing(), station.receives

        def on_prepare(qpn: int) -> None:
            found[0].expect(qpn)
            qpns.append(qpn)

        plan = LinkPlan(await self._listener.enter(), self._hello, sharing)
        plan.on_prepare = on_prepare
        try:
            transport = await accept(plan, plan.hello)
        except BaseException as error:
            for number in qpns:
                found[0].poller.targets.pop(number, None)
            for station in found:
                station.abandon()
            plan.abandon()
            if isinstance(error, VerbsError) and not isinstance(error, ConnectError):
                about = f"{self!r} could not take a client: {error}"
                asyncio.get_running_loop().call_exception_handler({"message": about})
                return
            if isinstance(error, OSError):  # the client has given up, or cannot be reached
                return
            raise
        station = found[0]
        early = station.poller.targets.get(transport.aqp.qp.qp_num)
        link = Link(plan, transport, station.poller)
        guest = self._guests[link] = _Guest(link, station)
        link.queue_most = self._most * _QUEUED
        link.takes_at_most = self._options.get("max_message", MAX_MESSAGE)
        link.on_frame = lambda *frame: self._first(guest, frame)
        link.on_lost = lambda reason: self._lost(guest, reason)
        link.start()
        station.replay(early, link)
        station.poller.start()

    def _station(self, pd: PD) -> Station:
        found = self._stations.get(pd)
        if found is None:
            found = self._stations[pd] = Station(
                pd,
                spin_seconds(self._options.get("spin")),
                self._hello.slot_size,
                self._options.get("receives", "shared") == "shared",
            )
        return found

    def _first(self, guest: _Guest, frame: Any) -> None:
        """Take the first frame of a client, which is its HELLO."""
        kind, _, _, _, _, data = frame
        if kind != FrameKind.HELLO:
            raise ValueError("the first frame is not a HELLO")
        hello = msgspec.msgpack.decode(data, type=LinkHello)
        welcome = self._welcome(guest, hello)
        guest.link.send_parts(FrameKind.WELCOME, 0, 0, 0, 0, msgspec.msgpack.encode(welcome))

    def _welcome(self, guest: _Guest, hello: LinkHello) -> LinkWelcome:
        most = guest.link.takes_at_most
        if hello.protocol != PROTOCOL:
            return LinkWelcome(PROTOCOL, "it has another version of Verbena", most)
        table = self._tables.get(hello.codec)
        if table is None:
            how = "; a server accepts pickle if it was started with pickle=True"
            return LinkWelcome(PROTOCOL, f"it does not accept codec={hello.codec!r}{how}", most)
        link = guest.link
        link.max_message = hello.max_message
        calls = guest.calls = ServerCalls(link, table, self._most, self.strategies)
        link.on_frame = calls.on_frame
        made = LinkWelcome(
            PROTOCOL,
            "",
            most,
            self._most,
            methods=[_entry(method) for method in table],
            name=type(self._target).__name__,
            response=self.strategies.response,
            inline_most=self.strategies.inline_most,
        )
        if hello.wants_ring:
            slots = min(RING_SLOTS, self._most)
            ring = guest.station.ring(link, calls, slots, (hello.wake_addr, hello.wake_rkey))
            return msgspec.structs.replace(
                made,
                ring_addr=ring.region.addr,
                ring_rkey=ring.region.rkey,
                ring_slots=ring.slots,
                ring_slot_size=ring.size,
            )
        if hello.datagram_qpn:
            port = link.qp.query().ah_attr
            assert port is not None
            datagrams = guest.station.datagrams(port.port_num)
            guest.datagrams = datagrams.add(link, calls, hello.datagram_qpn)
            return msgspec.structs.replace(
                made,
                client=guest.datagrams,
                datagram_qpn=datagrams.qp.qp_num,
                datagram_room=DATAGRAM_ROOM,
            )
        return made

    def _lost(self, guest: _Guest, reason: Ended) -> None:
        if guest.calls is not None:
            guest.calls.lost(reason)
        self._guests.pop(guest.link, None)
        guest.station.leave(guest.link)
        guest.station.forget_sender(guest.datagrams)
        if self._retired:
            asyncio.get_running_loop().call_soon(self._close_retired)

    # ---- the end ----

    def stay_with_parent(self) -> None:
        """In a forked child the server is the parent's, which goes on."""
        self._is_parents = True

    async def wait_closed(self) -> None:
        """Wait until it was closed. Raises OSError when it can take no more clients: the agent has
        ended, and it could not listen by another one."""
        await self._takes_no_more.wait()
        if self._failure is not None:
            raise self._failure

    async def close(self, grace: float = 5.0) -> None:
        """Take no more calls, let those that run end within ``grace`` seconds, and disconnect.

        If this is cancelled, it disconnects at once. Raises TypeError and ValueError for what is
        no number of seconds.
        """
        check_seconds("grace", grace)
        if self._listener is None or self._closed.is_set() or self._is_parents:
            return
        self._closed.set()
        self._takes_no_more.set()
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        try:
            await self._drain(grace)
            await asyncio.gather(*[guest.link.close() for guest in self._guests.values()])
        finally:
            for guest in list(self._guests.values()):
                guest.link.abort()
            # The loop closes the links' queue pairs first, which complete to the stations' queues.
            asyncio.get_running_loop().call_soon(self._release)
        await asyncio.sleep(0)

    async def _drain(self, grace: float) -> None:
        guests = [each for each in self._guests.values() if each.calls is not None]
        with suppress(TimeoutError):
            async with asyncio.timeout(limited(grace)):
                for each in guests:
                    assert each.calls is not None
                    await each.calls.drain()

    def _release(self) -> None:
        for station in self._stations.values():
            with suppress(VerbsError):
                station.close()
        self._stations.clear()
        for home, _ in self._retired:
            home.leave()
        self._retired.clear()
        if self._home is not None:
            self._home.leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *error: object) -> None:
        await self.close(5.0 if kind is None else 0.0)


def _entry(method: ServiceMethod) -> MethodEntry:
    return MethodEntry(
        method.name,
        method.parameters,
        method.raw,
        method.sends,
        method.receives,
        method.returns_raw,
    )


async def start_server(target: object, address: str | int, options: ServerOptions) -> RpcServer:
    """Start a server for an object of a service. Raises OSError, TypeError, ValueError."""
    return await RpcServer(target, options).open(address)
