# SPDX-License-Identifier: Apache-2.0
"""``PeerConnection``, and the side that connects.

Programs get connections from ``verbena.connect`` and from listeners. With a ``Reconnect`` policy at
both sides a connection outlasts the loss of its queue pair.
"""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
import warnings
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, replace
from math import inf, prod
from operator import index
from typing import Any, Self, TypedDict

import numpy as np
from numpy.typing import DTypeLike, NDArray

from verbena.cm.arguments import CONNECT_SECONDS, check_port, check_seconds, limited
from verbena.verbs.here import place

from .arrays import SESSIONS, Lending, RemoteArray, named_memory
from .errors import Ended, PeerConnectionEnded, PeerError, UnknownSession
from .loan import Loan
from .session import PATIENCE, Arrived, Session
from .transport import Dialing, Transport, dial
from .wire import HEADER_SIZE, Hello

__all__ = [
    *("Caller", "ConnectOptions", "PeerConnection", "PeerOptions", "Posted"),
    *("Receiving", "Reconnect"),
    *("check_way", "connect_peer", "new_hello", "parse_address"),
]

_MOST_ITEMS = 1 << 48


@dataclass(frozen=True, slots=True)
class Reconnect:
    """Come back when the queue pair is lost, for ``within`` seconds; both sides need a policy.

    The side that has connected tries again after ``first`` seconds, then after twice that, and so
    on up to ``most``. Messages that the peer has not confirmed are sent again, and each arrives
    once. Requests for arrays that are under way fail, since they may have been done.
    """

    within: float = 60.0
    first: float = 0.05
    most: float = 2.0

    def __post_init__(self) -> None:
        for name in ("within", "first", "most"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{name} is seconds, and not {value!r}")
            if not value > 0 or (value == inf and name != "within"):
                raise ValueError(f"{name} is seconds, more than 0, and not {value}")
        if self.first > self.most:
            raise ValueError(
                f"first is {self.first} seconds, and most {self.most}: the first wait is not longer"
                " than the longest"
            )


class PeerOptions(TypedDict, total=False):
    """Keywords of ``connect`` and ``listen``.

    ``via``: "cm" or "socket"; by default the connection manager where there is one. ``tls``: an
    SSLContext for the exchange over a socket, which it chooses (the data of RDMA is not encrypted).
    ``device``: the name of the device, which also chooses the exchange over a socket (the
    connection manager takes the device of the address). ``slots``: how many messages may
    wait for the peer's program; ``slot_size``: the bytes of a slot, and longer messages are fetched
    by the peer. ``reconnect``: a Reconnect.
    """

    via: str | None
    tls: ssl.SSLContext | None
    device: str | None
    slots: int
    slot_size: int
    reconnect: Reconnect | None


class ConnectOptions(PeerOptions, total=False):
    """Keywords of ``connect``.

    ``timeout``: the seconds until there is a connection, by default 10; None: no limit of its own.
    """

    timeout: float | None


class Receiving(Coroutine[Any, Any, bytes]):
    """The next message: ``await`` gives its bytes, ``async with`` lends its memory.

    It is also a coroutine, since ``asyncio.create_task`` requires one. One that nobody uses takes
    no message, and one that is used again raises RuntimeError. It keeps its connection open.
    """

    def __init__(self, session: Session, conn: PeerConnection) -> None:
        self._session = session
        self._conn = conn
        self._message: Arrived | None = None
        self._loan: Loan | None = None
        self._stepped: Coroutine[Any, Any, bytes] | None = None  # by a task
        self._is_used = False

    def send(self, value: Any) -> Any:
        """Take the next step, as a task does."""
        return self._steps().send(value)

    def throw(self, *error: Any) -> Any:
        """Take the next step with an exception, as a cancelled task does."""
        return self._steps().throw(*error)

    def close(self) -> None:
        """End a wait that was begun; the message is the next one's."""
        if self._stepped is not None:
            self._stepped.close()

    def _steps(self) -> Coroutine[Any, Any, bytes]:
        if self._stepped is None:
            self._stepped = self._bytes()
        return self._stepped

    def _use(self) -> None:
        if self._is_used:
            raise RuntimeError("this recv() was used already: call recv() for each message")
        self._is_used = True

    async def _bytes(self) -> bytes:
        self._use()
        session = self._session
        message = self._message = await session.receive()
        try:
            data = session.content(message).tobytes()
        except MemoryError:
            session.put_back(message)
            raise MemoryError(
                f"there is no memory for a copy of the message, which has {message.header.length}"
                " bytes and stays the next one: receive it as a loan, which needs no copy (async"
                " with conn.recv() as view; with conn.borrow() of verbena.peers.sync)"
            ) from None
        except BaseException:
            session.put_back(message)
            raise
        session.give_back(message)
        return data

    def put_back(self, taken: bytes | memoryview) -> None:
        """Have the next recv give the message that this one has given to nobody."""
        assert self._message is not None
        if self._loan is not None:
            self._loan.put_back()
            return
        self._session.put_back(self._message, bytes(taken))

    def __await__(self) -> Generator[Any, Any, bytes]:
        return self._bytes().__await__()

    async def __aenter__(self) -> memoryview:
        self._use()
        self._message = await self._session.receive()
        self._loan = Loan(self._session, self._message)
        return self._loan.view

    async def __aexit__(self, *error: object) -> None:
        assert self._loan is not None
        self._loan.end()


class Posted:
    """A message that was posted: ``await`` returns when the peer has it, or need not fetch it.

    Raises PeerConnectionEnded.
    """

    def __init__(self, session: Session, conn: PeerConnection, number: int) -> None:
        self._session = session
        self._conn = conn  # stays open
        self._number = number

    def __await__(self) -> Generator[Any, Any, None]:
        return self._fetched().__await__()

    async def _fetched(self) -> None:
        """Wait, in a coroutine that has a reference to this."""
        await self._session.fetched(self._number)


class PeerConnection:
    """A connection to a peer: messages, arrays and windows.

    It is an asynchronous context manager, which closes it; ``async for`` gives its messages until
    it is closed at either side.

    One to which the program has no reference any more is closed, with a ResourceWarning if it had
    not ended. Calls that wait, and blocks, refer to it; arrays and their names do not.
    """

    def __init__(self, session: Session, is_active: bool, reconnect: Reconnect | None) -> None:
        self._session = session
        self._is_active = is_active
        self._policy = reconnect
        SESSIONS.add(self, session.hello.session, is_active)

    def __del__(self) -> None:
        if self._session.is_released:
            return
        if self.closed is None:
            text = f"unclosed {self!r}: use `async with`, or close()"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)
        self._session.forget()

    @property
    def session(self) -> Session:
        """What it is made of, for the other parts of this package."""
        return self._session

    @property
    def closed(self) -> Ended | None:
        """Why it has ended; None while it has not."""
        return self._session.ended

    @property
    def is_connected(self) -> bool:
        """Whether there is a queue pair; False also while a side comes back."""
        return self._session.transport is not None

    @property
    def peer(self) -> str:
        """The peer's address."""
        return self._session.about

    @property
    def local(self) -> str:
        """This side's address; empty where there is none."""
        transport = self._session.transport
        return transport.local if transport is not None else ""

    def __repr__(self) -> str:
        return f"<PeerConnection with {self.peer}: {self.closed or 'open'}>"

    # ---- messages ----

    async def send(self, data: Any) -> None:
        """Send a message: bytes, or any dense array by the buffer protocol or DLPack.

        It waits for a credit, which the peer gives back when its program takes a message. A small
        message is copied; a large one is fetched by the peer, and this returns when it was: at
        once, or, beyond 16 MiB that the peer's program has not received, when it receives. If it
        is cancelled before the message has its credit, nothing is sent; later the message goes on,
        and its memory must not change until the peer has it.

        Raises PeerConnectionEnded, also while ``close`` waits: then for each message that begins,
        or has no credit yet. Nothing of such a message is sent.
        """
        await self._session.send(data)

    async def post(self, data: Any) -> Posted:
        """Begin to send a message, and return what to await until the peer has it.

        It waits for a credit alone; messages arrive in the order in which this was called. The
        memory of a large message must not change until the peer has it. Raises as ``send``.
        """
        return Posted(self._session, self, await self._session.post(data))

    def post_now(self, *parts: bytes | memoryview) -> bool:
        """Send a small message, whose bytes are copied from parts, if there is a credit.

        Return whether it was sent; ``post`` is for the others, and says why if the connection has
        ended or is being closed.
        """
        return self._session.post_now(*parts)

    @property
    def may_post(self) -> bool:
        """Whether there is a credit, so that ``post`` does not wait."""
        return self._session.may_post

    def recv(self) -> Receiving:
        """Receive the next message: ``await`` for bytes, ``async with`` for its memory as a loan.

        ``await`` raises MemoryError where there is no room for a copy; the message stays the next
        one, and a loan needs no copy. Both raise PeerConnectionEnded.

        A loan holds the message's credit. Its view ends with the block; an array over it that the
        program keeps stays as it is.
        """
        return Receiving(self._session, self)

    async def recv_copy(self) -> memoryview | None:
        """Wait for the next message; return it, in new memory of NumPy, if it is a small one.

        None: it is a large one, which ``recv`` gives. This is quicker than ``recv``. Raises
        PeerConnectionEnded.
        """
        return await self._session.receive_copy()

    async def settle(self) -> None:
        """Wait until the peer knows what was received, for a program whose loop stops now."""
        session = self._session
        await session.changed.until(lambda: session.ended is not None or session.has_told)

    def peek_last(self) -> bytes | None:
        """Return the last message that has arrived and was not received, if it is a small one."""
        return self._session.peek_last()

    def peek(self) -> memoryview | None:
        """Return the next message, if it has arrived and is a small one; until it is received."""
        return self._session.peek()

    def note(self, value: int) -> None:
        """Tell the peer a number of 64 bits, outside the order of messages and without a credit.

        It does not wait. The note is lost where the connection is, also while ``close`` waits, and
        where the peer's device has not taken earlier ones.
        """
        self._session.note(value)

    def call_when_noted(self, call: Callable[[int], object]) -> None:
        """Have ``call(value)`` called in the loop for each note; at once for the last so far."""
        self._session.on_note = call
        if self._session.last_note is not None:
            call(self._session.last_note)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self.recv()
        except PeerConnectionEnded as error:
            if error.reason in (Ended.PEER, Ended.HERE):
                raise StopAsyncIteration from None
            raise

    # ---- arrays ----

    def array(self, shape: int | tuple[int, ...], dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """Return a new array of zeros in memory that the peer may be given access to.

        The peer's access ends when the array and all parts of it are gone. Raises TypeError,
        ValueError and PeerError.
        """
        kind = np.dtype(dtype)
        dims = shape_of(shape)
        if kind.hasobject:
            raise TypeError(f"a peer cannot use Python objects ({kind}): use numbers or bytes")
        nbytes = int(np.prod(dims, dtype=object)) * kind.itemsize
        return self._session.regions.new_array_region(nbytes).array(kind, dims)

    def share(self, array: Any) -> RemoteArray:
        """Name a dense part of an array of ``conn.array`` for the peer, to send it by pickle.

        The peer may read and write it as long as the array lives here.
        """
        dense, region = named_memory(self._session, array)
        number = self._session.hello.session, self._is_active
        addr = dense.ctypes.data
        return RemoteArray(number, addr, region.rkey, dense.dtype, dense.shape, kept=dense)

    def lend(self, array: Any, *, write: bool = False) -> Lending:
        """Lend a part of an array to this peer for the time of an ``async with`` block.

        The block's value is a RemoteArray to send. After the block the device refuses the peer,
        whatever it does; an access then ends the connection. The block does not begin, and raises
        PeerConnectionEnded, once ``close`` has begun.
        """
        return Lending(self, self._is_active, array, write)

    # ---- its end ----

    def call_when_closed(self, call: Callable[[Ended], object]) -> None:
        """Have ``call(reason)`` called in the loop as soon as it ends; at once if it has ended."""
        if self.closed is not None:
            call(self.closed)
        else:
            self._session.when_ended.append(call)

    async def wait_closed(self) -> Ended:
        """Wait until it has ended, and return why."""
        session = self._session
        await session.changed.until(lambda: session.ended is not None)
        assert session.ended is not None
        return session.ended

    async def close(self, patience: float = PATIENCE) -> None:
        """Wait until the peer has what was sent, for so many seconds at most, and disconnect.

        From its beginning on, nothing new is sent: ``send`` and ``post``, requests for arrays and
        ``lend`` raise PeerConnectionEnded, as does a ``send`` that has no credit yet. A ``send``
        that has one is waited for, so no message is lost whose ``send`` returned. Messages can be
        received until it disconnects.

        Raises PeerError if the peer does not have all of it then; its ``recv`` says so as well,
        after what it has. Raises TypeError and ValueError for what is no number of seconds.
        """
        check_seconds("patience", patience)
        session = self._session
        if session.ended is Ended.FORKED:
            return
        session.changed.check_loop()
        left = await session.finish(patience)
        if left:
            raise PeerError(
                errno.ETIMEDOUT,
                f"{self.peer} did not take {left} of the messages that were sent within"
                f" {patience:g} seconds, and they are lost with the connection: the peer has to"
                " receive them, or close(patience=…) has to wait for longer",
            )

    def abort(self) -> None:
        """Disconnect at once."""
        self._session.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *error: object) -> None:
        if kind is None:
            await self.close()
        else:
            self.abort()


# ---- the side that connects ----------------------------------------------------------------------


def parse_address(address: str | int) -> tuple[str | None, int]:
    """Return host and port of "host:port", "[IPv6]:port", ":port" or a port.

    Raises TypeError and ValueError.
    """
    if isinstance(address, int) and not isinstance(address, bool):
        check_port(address)
        return None, address
    if not isinstance(address, str):
        raise TypeError(f'{address!r} is not an address: "host:7174", ":7174", or a port to listen')
    host, colon, port = address.rpartition(":")
    is_host = "\0" not in host and (":" not in host or host.startswith("["))
    if not colon or not port.isdigit() or not is_host:
        raise ValueError(f'{address!r} is not an address: "host:7174", "[::1]:7174" or ":7174"')
    check_port(int(port))
    return host.strip("[]") or None, int(port)


def new_hello(options: PeerOptions, session: int | None = None) -> Hello:
    """Return the hello of a new session. Raises TypeError and ValueError."""
    slots, size = options.get("slots", 32), options.get("slot_size", 4096)
    for name, value, least, most in (
        ("slots", slots, 1, 4096),
        ("slot_size", size, HEADER_SIZE + 8, (1 << 32) - 1),
    ):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} is a whole number, and not {value!r}")
        if not least <= value <= most:
            raise ValueError(f"{name} is from {least} to {most}, and not {value}")
    number = _random() if session is None else session
    return Hello(number, slots, size, comes_back=options.get("reconnect") is not None)


def shape_of(shape: Any) -> tuple[int, ...]:
    """Return the shape of an array that is wanted. Raises TypeError and ValueError."""
    try:
        if any(isinstance(each, bool) for each in (shape if np.iterable(shape) else [shape])):
            raise TypeError
        dims = tuple(map(index, shape)) if np.iterable(shape) else (index(shape),)
    except TypeError:
        raise TypeError(f"shape is a number, or a tuple of numbers, and not {shape!r}") from None
    if min(dims, default=0) < 0:
        raise ValueError(f"shape has no negative numbers: {shape!r}")
    if prod(dims) > _MOST_ITEMS:
        raise ValueError(f"shape {shape!r} is of more items than a memory has")
    return dims


def _random() -> int:
    here = place.get()
    return int.from_bytes(here.random_bytes(8) if here else os.urandom(8), "little")


class Caller:
    """Connects a session, and again after a loss."""

    def __init__(self, to: Dialing, options: PeerOptions) -> None:
        self._to = to
        self._policy = options.get("reconnect")
        self._hello = new_hello(options)

    async def connect(self) -> PeerConnection:
        """Connect for the first time."""
        home = await self._to.home()
        session = Session(home, self._hello, self._on_lost)
        try:
            session.attach(self._checked(await self._dial(session, self._hello)))
        except BaseException:
            session.release()
            raise
        return PeerConnection(session, True, self._policy)

    def _checked(self, transport: Transport) -> Transport:
        """Return it. Raises PeerError unless the listener reconnects where this side would."""
        if self._policy is None or transport.peer.comes_back:
            return transport
        transport.close()
        raise PeerError(
            errno.EOPNOTSUPP,
            f"{self._to.host}:{self._to.port} does not reconnect: give reconnect= to the listener,"
            " too, or leave it out here",
        )

    async def _dial(self, session: Session, hello: Hello) -> Transport:
        return await dial(self._to, session, hello)

    def _on_lost(self, session: Session) -> bool:
        if self._policy is None:
            return False
        session.spawn(self._come_back(session, self._policy))
        return True

    async def _come_back(self, session: Session, policy: Reconnect) -> None:
        delay = policy.first
        try:
            async with asyncio.timeout(policy.within):
                while session.ended is None:
                    await asyncio.sleep(delay)
                    delay = min(2 * delay, policy.most)
                    if await self._try(session):
                        return
        except TimeoutError:
            session.end(Ended.GIVEN_UP)

    async def _try(self, session: Session) -> bool:
        hello = replace(self._hello, arrived=session.arrived, is_return=True)
        try:
            transport = await self._dial(session, hello)
        except UnknownSession:
            session.end(Ended.HERE if session.has_said_bye else Ended.RESTARTED)
            return True
        except OSError:
            return False
        session.attach(transport)
        return True


async def connect_peer(address: str, options: ConnectOptions) -> PeerConnection:
    """Connect to a listener."""
    host, port = parse_address(address)
    if host is None:
        raise ValueError(f'{address!r} has no host: "localhost:{port}"')
    via, tls = check_way(options)
    seconds = limited(options.get("timeout", CONNECT_SECONDS))
    to = Dialing(host, port, via, tls, options.get("device"), seconds)
    return await Caller(to, options).connect()


def check_way(options: PeerOptions) -> tuple[str | None, ssl.SSLContext | None]:
    """Return ``via`` and ``tls``. Raises TypeError and ValueError."""
    via, tls, device = options.get("via"), options.get("tls"), options.get("device")
    if via not in (None, "cm", "socket"):
        raise ValueError(f'via is "cm", "socket" or None, and not {via!r}')
    if tls is not None and not isinstance(tls, ssl.SSLContext):
        raise TypeError(f"tls is an ssl.SSLContext or None, and not {tls!r}")
    if via == "cm" and tls is not None:
        raise ValueError("tls is for the exchange over a socket, and via='cm' has none")
    if via == "cm" and device is not None:
        raise ValueError(
            f"device={device!r} is for the exchange over a socket: with via='cm' the connection"
            " manager takes the device of the address"
        )
    return ("socket" if tls is not None or device is not None else via), tls
