# SPDX-License-Identifier: Apache-2.0
"""Listeners: they give new connections to the program, and take peers back that come again.

New peers wait in a ``Backlog``. A peer that comes back is attached to its session at once, whether
the program waits for a connection or not.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

from verbena import cm
from verbena.cm.arguments import CONNECT_SECONDS
from verbena.verbs import QP, VerbsError
from verbena.verbs.forked import follow
from verbena.verbs.local_carrier import sends_local_packets

from .backlog import Accept, Asking, Backlog
from .connection import (
    PeerConnection,
    PeerOptions,
    Reconnect,
    check_way,
    new_hello,
    parse_address,
)
from .errors import Ended, PeerError
from .session import Session, Waiters
from .transport import (
    CmHome,
    CmTransport,
    Seat,
    SocketHome,
    Streams,
    Transport,
    let_go,
    over_streams,
)
from .wire import NO_ROOM, OTHER_PURPOSE, UNKNOWN, Hello

__all__ = ["PeerListener", "listen_for_peers"]

_FREE_PORTS = 20  # tries to find a port that is free at IPv4 and IPv6 addresses


class PeerListener:
    """A listener: ``async for`` gives connections until it is closed. ``port`` is its port."""

    def __init__(self, options: PeerOptions, purpose: int = 0) -> None:
        self.port = 0
        self._purpose = purpose
        self._options = options
        self._policy: Reconnect | None = options.get("reconnect")
        self._sessions: dict[int, Session] = {}
        self._backlog = Backlog()
        self._changed = Waiters()
        self._closed = False
        self._failure: OSError | None = None
        self._home: CmHome | SocketHome | None = None
        self._cm: cm.Listener | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        follow(self)

    def __repr__(self) -> str:
        return f"<PeerListener at port {self.port}: {'closed' if self._closed else 'open'}>"

    async def accept(self) -> PeerConnection:
        """Wait for the next peer. Raises PeerError after the listener's end, and OSError.

        The peer's ``connect`` ends when this is called. If this is cancelled, nothing is lost: a
        connection that is being made is what the next call returns.
        """
        if not self._has_ended():
            self._changed.check_loop()
        made = await self._backlog.take(self._connected)
        if made is None:
            raise self._why_ended()
        return made

    def give_back(self, conn: PeerConnection) -> None:
        """Have the next ``accept`` return a connection that its caller could not take."""
        self._backlog.give_back(conn)

    async def next_request(self) -> Asking:
        """Wait for the next peer that asks; the caller answers it. Raises as ``accept``."""
        await self._changed.until(lambda: self._backlog.has_asking or self._has_ended())
        if not self._backlog.has_asking:
            raise self._why_ended()
        return self._backlog.pop()

    def _why_ended(self) -> OSError:
        return self._failure or PeerError(9, "the listener was closed: listen again")

    async def _connected(self, asking: Asking) -> PeerConnection:
        """Connect a peer, in a task of the backlog."""
        hello = asking.hello
        home = await self.enter()
        session = Session(home, new_hello(self._options, hello.session), self._on_lost)
        try:
            session.attach(await asking.accept(session, session.hello))
        except BaseException:
            session.release()
            raise
        policy = self._policy if hello.comes_back else None
        if policy is not None:
            known = self._sessions.items()
            self._sessions = {number: each for number, each in known if each.ended is None}
            self._sessions[hello.session] = session
        return PeerConnection(session, False, policy)

    async def enter(self) -> CmHome | SocketHome:
        """Return the home of one more connection. Raises ManagerAbsent."""
        if isinstance(self._home, SocketHome):
            return self._home.enter()
        return await CmHome().enter()

    def _has_ended(self) -> bool:
        return self._closed or self._failure is not None

    # ---- sessions that were lost ----

    def _on_lost(self, session: Session) -> bool:
        if self._policy is None or self._closed or session.hello.session not in self._sessions:
            return False
        session.spawn(self._expect(session, self._policy.within))
        return True

    async def _expect(self, session: Session, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await session.ready()
        except TimeoutError:
            session.end(Ended.GIVEN_UP)
            self._sessions.pop(session.hello.session, None)
        except PeerError:
            self._sessions.pop(session.hello.session, None)

    def _known(self, hello: Hello) -> Session | None:
        found = self._sessions.get(hello.session)
        return found if found is not None and found.ended is None else None

    async def _take_back(self, session: Session, accept: Accept) -> None:
        if session.transport is not None:  # this side has not noticed the loss
            session._lost(session.transport, Ended.DIED)
        own = replace(session.hello, arrived=session.arrived)
        with contextlib.suppress(OSError):
            session.attach(await accept(session, own))

    def _offer(self, hello: Hello, accept: Accept, refuse: Callable[[], object]) -> None:
        self._backlog.offer(Asking(hello, accept, refuse))
        self._changed.wake()

    # ---- the connection manager ----

    async def _open_cm(self, host: str | None, port: int) -> None:
        """Listen by the connection manager. Raises ConnectionManagerError."""
        self._cm = await cm.listen(port, host)
        self.port = self._cm.port
        self._spawn(self._serve(self._cm))

    async def _serve(self, listener: cm.Listener) -> None:
        try:
            async for request in listener:
                self._on_request(request)
        except OSError as error:
            self._failure = error
            self._backlog.end()
            self._changed.wake()

    def _on_request(self, request: cm.ConnectionRequest) -> None:
        async def accept(seat: Seat, own: Hello) -> Transport:
            try:
                shared = seat.sharing(request.pd)
            except VerbsError:
                request.reject(NO_ROOM)
                raise

            def prepare(qp: QP) -> None:
                try:
                    seat.prepare(qp)
                except VerbsError:
                    request.id.reject(NO_ROOM)
                    raise

            said = replace(own, local_packets=sends_local_packets(request.pd.context))
            conn = await request.accept(
                private_data=said.to_bytes(), cap=seat.cap, prepare=prepare, **shared
            )
            return CmTransport(conn, hello)

        with contextlib.suppress(OSError):
            try:
                hello = Hello.from_bytes(request.private_data)
            except PeerError as error:
                request.reject(str(error).encode()[:148])
                return
            if hello.purpose != self._purpose:
                request.reject(OTHER_PURPOSE)
                return
            if not hello.is_return:
                self._offer(hello, accept, request.reject)
            elif (session := self._known(hello)) is not None:
                self._spawn(self._take_back(session, accept))
            else:
                request.reject(UNKNOWN)

    # ---- sockets ----

    async def _open_socket(self, host: str | None, port: int, tls: Any, device: str | None) -> None:
        """Listen at a socket. Raises OSError, VerbsError."""
        home = SocketHome(device).enter()
        self._home = home
        # In two steps: asyncio forgets the sockets of a server whose start is cancelled.
        self._server = await self._server_at(host, port, tls)
        await self._server.start_serving()
        self.port = port or self._server.sockets[0].getsockname()[1]

    async def _server_at(self, host: str | None, port: int, tls: Any) -> asyncio.Server:
        """Return a server with one port, also where it listens at IPv4 and IPv6 addresses.

        For port 0 asyncio gives each address a port of its own. Raises OSError.
        """
        options: dict[str, Any] = {} if tls is None else {"ssl": tls}

        async def start(at: int) -> asyncio.Server:
            return await asyncio.start_server(
                self._on_call, host, at, start_serving=False, **options
            )

        for _ in range(_FREE_PORTS):
            server = await start(port)
            ports = {each.getsockname()[1] for each in server.sockets}
            if len(ports) == 1:
                return server
            server.close()
            with contextlib.suppress(OSError):  # the port is taken at the other address
                return await start(ports.pop())
        raise OSError(errno.EADDRINUSE, "no port is free at all addresses: give one")

    def _on_call(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a client in a task of this listener: asyncio reports one of its own as an error
        when the loop ends first. The task may be cancelled before it begins."""
        if self._closed:
            writer.close()
            return
        task = self._spawn(self._answer(Streams(reader, writer)))
        task.add_done_callback(lambda ended: writer.close() if ended.cancelled() else None)

    async def _answer(self, streams: Streams) -> None:
        writer = streams.writer

        async def accept(seat: Seat, own: Hello) -> Transport:
            assert isinstance(seat.home, SocketHome)
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await streams.say(own)
                    return await over_streams(seat.home, streams, seat, hello)
            except BaseException:
                writer.close()
                raise

        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                hello = await streams.hear()
        except OSError:
            writer.close()
            return
        refusal = None
        if hello.purpose != self._purpose:
            refusal = replace(hello, purpose=self._purpose)
        elif not hello.is_return:
            self._offer(hello, accept, writer.close)
        elif (session := self._known(hello)) is not None:
            await self._take_back(session, accept)
        else:
            refusal = replace(hello, is_known=False)
        if refusal is not None:
            with contextlib.suppress(OSError):
                await streams.say(refusal)
            writer.close()

    # ---- its end ----

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def stay_with_parent(self) -> None:
        """In a forked child the peers that wait, and those that come, are the parent's."""
        self._closed = True
        self._failure = PeerError(
            errno.ECHILD,
            "the listener belongs to the process that forked: listen at another port in the child",
        )
        self._backlog.stay_with_parent()
        for each in self._server.sockets if self._server is not None else ():
            let_go(each.fileno())

    def close(self) -> None:
        """Listen no more, and disconnect peers that no ``accept`` has returned; others go on.

        Raises RuntimeError in another loop, or when its own is closed.
        """
        if self._closed:
            return
        self._changed.check_loop_of_end()
        self._closed = True
        self._backlog.close()
        for task in self._tasks:
            task.cancel()
        if self._cm is not None:
            self._cm.close()
        if self._server is not None:
            self._server.close()
        if self._home is not None:
            self._home.leave()
        self._changed.wake()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PeerConnection:
        try:
            return await self.accept()
        except PeerError:
            if self._closed:
                raise StopAsyncIteration from None
            raise


async def listen_for_peers(
    address: str | int, options: PeerOptions, purpose: int = 0
) -> PeerListener:
    """Listen at an address, for connections of messages or for another purpose."""
    host, port = parse_address(address)
    via, tls = check_way(options)
    new_hello(options)
    listener = PeerListener(options, purpose)
    try:
        if via != "socket":
            try:
                await listener._open_cm(host, port)
                return listener
            except cm.ManagerAbsent:
                if via == "cm":
                    raise
        await listener._open_socket(host, port, tls, options.get("device"))
    except BaseException:
        listener.close()
        raise
    return listener
