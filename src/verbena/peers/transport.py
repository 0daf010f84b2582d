# SPDX-License-Identifier: Apache-2.0
"""Queue pairs of connections: made by the connection manager, or by an exchange over a socket.

Sessions call this. A transport is one queue pair, in RTS, with the receives of the session posted
before the peer could send. A session may have one after the other, all in one protection domain:
that of its ``Home``.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict

from verbena import aio, cm
from verbena.cm.arguments import CONNECT_SECONDS
from verbena.cm.manager import manager_of_loop
from verbena.verbs import PD, QP, SRQ, Context, QPCap, QPInfo, open_device
from verbena.verbs.forked import follow
from verbena.verbs.local_carrier import check_local_carriers

from .errors import Ended, PeerError, UnknownSession
from .wire import HELLO_SIZE, NO_ROOM, OTHER_PURPOSE, UNKNOWN, Hello

__all__ = [
    "CmHome",
    "CmTransport",
    "Dialing",
    "Home",
    "Seat",
    "Sharing",
    "SocketHome",
    "SocketTransport",
    "Transport",
    "dial",
    "let_go",
    "over_streams",
]


class Sharing(TypedDict, total=False):
    """What a queue pair shares with others: the CQ, and the receives."""

    cq: aio.AsyncCQ
    srq: SRQ


class Home(Protocol):
    """What keeps the device and the protection domain open while sessions use them."""

    def leave(self) -> None:
        """One less uses it."""


class Seat(Protocol):
    """What a queue pair is made for: a session of messages, or a link of verbena.rpc."""

    hello: Hello
    home: CmHome | SocketHome

    @property
    def cap(self) -> QPCap:
        """How much the queue pair has to hold."""

    def prepare(self, qp: Any) -> object:
        """Post receives to a new queue pair, before the peer can send."""

    def sharing(self, pd: PD) -> Sharing:
        """Return what the queue pair shares with others, in its protection domain."""


class Transport(Protocol):
    """A queue pair of a connection."""

    aqp: aio.AsyncQP
    acq: aio.AsyncCQ
    pd: PD
    peer: Hello
    about: str
    local: str

    async def wait_lost(self) -> None:
        """Wait until it is known that the peer is gone."""

    def close(self) -> None:
        """Disconnect, and close the queue pair."""


def host_and_port(host: str, port: int) -> str:
    """Return "host:port", with brackets around an IPv6 address (RFC 3986, 3.2.2)."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# ---- the connection manager ----------------------------------------------------------------------


class CmHome:
    """The devices of the loop's connection manager."""

    def __init__(self) -> None:
        self._manager = manager_of_loop(None)

    async def enter(self) -> CmHome:
        """One more uses it. Raises ManagerAbsent."""
        await self._manager.enter()
        return self

    def leave(self) -> None:
        self._manager.leave()


class CmTransport:
    """Over a connection of verbena.cm."""

    def __init__(self, conn: cm.Connection, peer: Hello) -> None:
        self._conn = conn
        self.peer = peer
        self.aqp, self.acq, self.pd = conn.aqp, conn.acq, conn.pd
        self.about = str(conn.remote_address)
        if (address := conn.remote_address) is not None:
            self.about = host_and_port(address.host, address.port)
        here = conn.local_address
        self.local = "" if here is None else host_and_port(here.host, here.port)

    async def wait_lost(self) -> None:
        reason = await self._conn.wait_closed()
        if reason is cm.Closed.MANAGER:  # the queue pair goes on
            await asyncio.get_running_loop().create_future()

    def close(self) -> None:
        self._conn.close()


# ---- a socket ------------------------------------------------------------------------------------


class SocketHome:
    """A device that was opened for a listener or a connection."""

    def __init__(self, device: str | None) -> None:
        self.context: Context = open_device(device) if device else open_device()
        self.pd = self.context.alloc_pd()
        self._users = 0

    def enter(self) -> SocketHome:
        """One more uses it."""
        self._users += 1
        return self

    def leave(self) -> None:
        self._users -= 1
        if not self._users:
            self.context.close()


def let_go(descriptor: int) -> None:
    """Have a forked child's descriptor be /dev/null, so that what it was ends with the parent.

    It is not closed, since its owner here will close it, and the number could be another one's.
    """
    with suppress(OSError), open(os.devnull, "r+b", buffering=0) as null:
        os.dup2(null.fileno(), descriptor, inheritable=False)


class SocketTransport:
    """Over a stream, which stays open: its end tells that the peer is gone."""

    def __init__(
        self, aqp: aio.AsyncQP, streams: Streams, peer: Hello, owns_cq: bool = True
    ) -> None:
        self.aqp, self.acq, self.pd = aqp, aqp.send_cq, aqp.qp.pd
        self._streams = streams
        self._owns_cq = owns_cq
        self.peer = peer
        self.about = streams.about
        self.local = streams.name("sockname")
        follow(self)

    def stay_with_parent(self) -> None:
        """In a forked child: the socket ends with the parent, which tells the peer."""
        let_go(self._streams.writer.get_extra_info("socket").fileno())

    async def wait_lost(self) -> None:
        with suppress(OSError, ssl.SSLError):
            while await self._streams.reader.read(64):
                pass

    def close(self) -> None:
        channel = self.acq.cq.channel
        self._streams.close()
        self.aqp.qp.close()
        if not self._owns_cq:
            return
        self.acq.close()
        self.acq.cq.close()
        if channel is not None:
            channel.close()


@dataclass
class Streams:
    """The two streams of a socket."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def about(self) -> str:
        """The peer's address."""
        return self.name("peername") or "a peer by a socket"

    def close(self) -> None:
        """Close them; of a loop that is closed, shut the socket down, which tells the peer."""
        try:
            self.writer.close()
        except RuntimeError:
            with suppress(OSError):
                self.writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    def name(self, which: str) -> str:
        """Return an address of the socket; empty where it has none."""
        name = self.writer.get_extra_info(which)
        return host_and_port(name[0], name[1]) if isinstance(name, tuple) else ""

    async def say(self, hello: Hello) -> None:
        """Send a hello."""
        self.writer.write(hello.to_bytes())
        await self.writer.drain()

    @property
    def has_tls(self) -> bool:
        """Whether TLS protects them."""
        return self.writer.get_extra_info("ssl_object") is not None

    async def hear(self) -> Hello:
        """Receive the peer's. Raises PeerError, ConnectionError."""
        try:
            return Hello.from_bytes(await self.reader.readexactly(HELLO_SIZE))
        except asyncio.IncompleteReadError as error:
            if error.partial:
                return Hello.from_bytes(error.partial)
        except ConnectionResetError:
            pass
        raise ConnectionRefusedError(
            errno.ECONNREFUSED, f"{self.about} closed the socket at once: {_why(self.has_tls)}"
        )


def _why(has_tls: bool) -> str:
    """Return why a peer may have closed a socket before there was a connection."""
    if not has_tls:
        return (
            "it may expect TLS (tls=), speak another protocol, have no memory for another"
            " connection, or have been stopped"
        )
    return (
        "it may ask for a certificate of this side that it trusts (load_cert_chain of tls=), have"
        " no TLS, or have been stopped"
    )


async def over_streams(
    home: SocketHome, streams: Streams, seat: Seat, peer: Hello
) -> SocketTransport:
    """Make a queue pair and connect it by the streams. Raises VerbsError, ConnectError."""
    cap, shared = seat.cap, seat.sharing(home.pd)
    given = shared.get("cq")
    channel = given.cq.channel if given is not None else home.context.create_comp_channel()
    assert channel is not None
    acq = given
    if acq is None:
        acq = aio.AsyncCQ(home.context.create_cq(cap.max_send_wr + cap.max_recv_wr, channel))
    try:
        qp = home.pd.create_qp(
            send_cq=acq.cq,
            srq=shared.get("srq"),
            max_send_wr=cap.max_send_wr,
            max_recv_wr=cap.max_recv_wr,
            max_inline_data=cap.max_inline_data,
        )
        made = SocketTransport(aio.AsyncQP(qp, acq), streams, peer, given is None)
    except BaseException:
        if given is None:
            acq.close()
            acq.cq.close()
            channel.close()
        raise
    try:
        qp.to_init()
        seat.prepare(qp)
        found = await aio.connect_rc(qp, streams.reader, streams.writer)
        _check_is_other(qp, found, streams.about)
    except BaseException:
        made.close()
        raise
    return made


def _check_is_other(qp: QP, found: QPInfo, about: str) -> None:
    """Raise PeerError if what came back is this side's own queue pair."""
    address = qp.query().ah_attr
    assert address is not None
    own = qp.context.query_gid(address.port_num, address.sgid_index)
    if found.qp_num == qp.qp_num and found.gid == own.raw:
        raise PeerError(
            errno.EPROTO,
            f"{about} sends back what it gets, as an echo server does: connect to a program with"
            " verbena.listen",
        )


# ---- both ----------------------------------------------------------------------------------------


@dataclass
class Dialing:
    """Where and how a side connects. ``via`` is "cm", "socket" or None: as it turns out.

    ``seconds`` is the limit for everything; None: there is none.
    """

    host: str
    port: int
    via: str | None
    tls: ssl.SSLContext | None
    device: str | None
    seconds: float | None = CONNECT_SECONDS

    async def home(self) -> CmHome | SocketHome:
        """Return the home of the kind that there is. Raises VerbsError."""
        if self.via != "socket" and self.tls is None:
            try:
                return await CmHome().enter()
            except cm.ManagerAbsent:
                if self.via == "cm":
                    raise
        return SocketHome(self.device).enter()


async def dial(to: Dialing, seat: Seat, hello: Hello) -> Transport:
    """Connect once. Raises ConnectionManagerError, OSError, PeerError, VerbsError."""
    home = seat.home
    if isinstance(home, CmHome):
        # A timeout that the caller gives also limits each step, and the default one does not.
        limit_of_cm: Any = {} if to.seconds == CONNECT_SECONDS else {"timeout": to.seconds}
        try:
            conn = await cm.connect(
                to.host,
                to.port,
                private_data=hello.to_bytes(),
                cap=seat.cap,
                prepare=seat.prepare,
                **limit_of_cm,
            )
        except cm.Rejected as error:
            if error.private_data.startswith(UNKNOWN):
                raise UnknownSession(errno.ENOTCONN, Ended.RESTARTED) from error
            if error.private_data.startswith(OTHER_PURPOSE):
                raise _other_purpose() from error
            if error.private_data.startswith(NO_ROOM):
                raise _no_room(f"{to.host}:{to.port}") from error
            raise
        try:
            peer = Hello.from_bytes(conn.private_data)
            _check_carrier(conn.qp, peer)
            return CmTransport(conn, peer)
        except BaseException:
            conn.close()
            raise
    limit = asyncio.timeout(to.seconds)
    try:
        async with limit:
            return await _over_socket(to, home, seat, hello)
    except TimeoutError:
        if not limit.expired():
            raise
        raise PeerError(
            errno.ETIMEDOUT,
            f"{to.host}:{to.port} has not answered in {to.seconds:g} seconds: see whether"
            " verbena.listen runs there, and whether its program accepts",
        ) from None


async def _over_socket(to: Dialing, home: SocketHome, seat: Seat, hello: Hello) -> Transport:
    options: dict[str, Any] = {} if to.tls is None else {"ssl": to.tls}
    try:
        streams = Streams(*await asyncio.open_connection(to.host, to.port, **options))
    except ConnectionResetError as error:
        raise ConnectionResetError(
            error.errno or errno.ECONNRESET,
            f"{to.host}:{to.port} closed the socket before there was a connection:"
            f" {_why(to.tls is not None)}",
        ) from error
    except ConnectionRefusedError as error:
        raise ConnectionRefusedError(
            error.errno,
            f"no socket listens at {to.host}:{to.port}: a listener has one with tls=, device= or"
            " via='socket', and without a connection manager",
        ) from error
    except (socket.gaierror, UnicodeError) as error:
        code = error.errno if isinstance(error, OSError) else socket.EAI_NONAME
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise socket.gaierror(code, f"{to.host}: {said}: check the host's name") from error
    except ssl.SSLError:
        raise
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, f"{to.host}:{to.port}: {os.strerror(error.errno)}") from error
    try:
        await streams.say(hello)
        peer = await streams.hear()
        if peer.purpose != hello.purpose:
            raise _other_purpose()
        if not peer.is_known:
            raise UnknownSession(errno.ENOTCONN, Ended.RESTARTED)
        return await over_streams(home, streams, seat, peer)
    except BaseException:
        streams.writer.close()
        raise


def _check_carrier(qp: QP, peer: Hello) -> None:
    """Raise ConnectError if the peer is on this host and has another VERBENA_CARRIER."""
    address = None if peer.local_packets is None else qp.query().ah_attr
    if address is not None:
        check_local_carriers(qp.context, address.dgid, peer.local_packets)


def _no_room(about: str) -> PeerError:
    return PeerError(
        errno.ECONNREFUSED,
        f"{about} has no memory for another connection, or its device has no room: its program says"
        " why; fewer slots (slots=), or smaller ones (slot_size=), need less",
    )


def _other_purpose() -> PeerError:
    return PeerError(
        errno.EPROTO,
        "the listener gives other connections: verbena.connect reaches verbena.listen, and"
        " verbena.rpc.connect reaches verbena.rpc.serve",
    )
