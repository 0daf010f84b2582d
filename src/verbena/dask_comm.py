# SPDX-License-Identifier: Apache-2.0
"""Dask over Verbena: the comm backend ``verbena://`` of ``distributed``, by verbena.peers.

``distributed`` finds ``VerbenaBackend`` by the entry point ``distributed.comm.backends``. The
frames of a Dask message that are small go together in one message of the connection; each large one
is a message of its own, which the receiver's device fetches from where it lies into memory that the
deserialised array then keeps: one copy.

``write`` must not wait until the peer reads (Dask writes and reads from one task), so a task sends
what does not find a credit; beyond 64 MiB ``write`` waits.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from distributed.comm import core
from distributed.comm.addressing import parse_host_port, unparse_host_port
from distributed.comm.core import Comm, CommClosedError, Connector
from distributed.comm.registry import Backend
from distributed.comm.utils import ensure_concrete_host, from_frames, to_frames
from distributed.utils import ensure_ip, ensure_memoryview, get_ip, nbytes

from verbena import peers
from verbena.peers import PeerConnection, PeerError, PeerListener, PeerOptions

__all__ = ["PREFIX", "VerbenaBackend", "VerbenaComm", "VerbenaConnector", "VerbenaListener"]

PREFIX = "verbena://"
_OPTIONS: PeerOptions = {"slots": 16, "slot_size": 16 << 10}
_LARGE = 16 << 10  # bytes from which a frame is a message of its own
_OWN = 1 << 63  # set in the size of a frame that must not share memory with others
_LITTLE = 2048  # bytes that an array may keep beside its own
_WHOLE = 1 << 62  # frames are not split, since the receiver would copy the parts together
_OUTSTANDING = 64 << 20  # bytes that write() leaves to the task
_FLUSH = 30.0  # seconds that close() waits until the peer has what was written
_ACCEPTING = 4  # connections that are set up at a time
_COUNT = struct.Struct("<Q")
_ONE_SIZE = 2 * _COUNT.size  # bytes before a message's only frame
_PLAIN_ITEMS = 256
_SCALARS = frozenset((int, float, bool, type(None)))
_logger = logging.getLogger(__name__)
Frame = bytes | memoryview


class VerbenaComm(Comm):  # type: ignore[misc]
    """An established connection."""

    def __init__(
        self, conn: PeerConnection, local_addr: str, peer_addr: str, deserialize: bool = True
    ) -> None:
        super().__init__(deserialize=deserialize)
        # core.connect reads these names
        self._local_addr = local_addr
        self._peer_addr = peer_addr
        self._conn = conn
        self._is_closed = False
        self._queue: deque[Frame] = deque()
        self._queued = 0
        self._sender: asyncio.Task[None] | None = None
        self._sent = asyncio.Event()
        self._finalizer = weakref.finalize(
            self, _close_dangling, conn, asyncio.get_running_loop(), repr(self)
        )
        self._finalizer.atexit = False

    @property
    def local_address(self) -> str:
        """The address of this side, with the scheme."""
        return self._local_addr

    @property
    def peer_address(self) -> str:
        """The address of the peer, with the scheme."""
        return self._peer_addr

    @property
    def extra_info(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    async def read(self, deserializers: Any = None) -> Any:
        """Return the next message. Raises CommClosedError."""
        if self._is_closed:
            raise CommClosedError("the comm is closed")
        try:
            frames = await self._read_frames()
        except OSError as error:
            self.abort()
            raise CommClosedError(str(error)) from error
        except BaseException:
            self.abort()  # a message that was read in part
            raise
        try:
            return await from_frames(
                frames,
                deserialize=self.deserialize,
                deserializers=deserializers,
                allow_offload=self.allow_offload,
            )
        except EOFError as error:
            self.abort()
            raise CommClosedError("the message is truncated") from error

    async def _read_frames(self) -> list[memoryview]:
        first = await self._conn.recv_copy()
        if first is None:  # the small frames of a message of many
            async with self._conn.recv() as view:
                first = _host_array(len(view))
                first[:] = view
        (count,) = _COUNT.unpack_from(first)
        if count == 1 and len(first) > _ONE_SIZE:  # a small message without data of its own
            return [first[_ONE_SIZE:]]
        sizes = struct.unpack_from(f"<{count}Q", first, _COUNT.size)
        at = _COUNT.size * (1 + count)
        frames: list[memoryview] = []
        for size in sizes:
            is_own, size = size & _OWN, size & (_OWN - 1)
            if size < _LARGE:
                frame = first[at : at + size]
                at += size
                if is_own:
                    frame, shared = _host_array(size), frame
                    frame[:] = shared
                frames.append(frame)
                continue
            async with self._conn.recv() as view:
                frames.append(np.asarray(view).data)  # it stays, and the connection takes others
        return frames

    async def write(self, msg: Any, serializers: Any = None, on_error: str = "message") -> int:
        """Send a message, and return its size. Raises CommClosedError."""
        if self._is_closed:
            raise CommClosedError("the comm is closed")
        frames = await to_frames(
            msg,
            # It measures the message for this, which takes as long as to serialise it.
            allow_offload=self.allow_offload and _plain_items(msg, _PLAIN_ITEMS) < 0,
            serializers=serializers,
            on_error=on_error,
            context={
                "sender": self.local_info,
                "recipient": self.remote_info,
                **self.handshake_options,
            },
            frame_split_size=_WHOLE,
        )
        sizes = [nbytes(frame) for frame in frames]
        head = struct.pack(f"<{len(sizes) + 1}Q", len(sizes), *marked(frames, sizes))
        sized = list(zip(frames, sizes, strict=True))
        small = [ensure_memoryview(frame) for frame, size in sized if size < _LARGE]
        large = [ensure_memoryview(frame) for frame, size in sized if size >= _LARGE]
        try:
            await self._send([head, *small], large)
        except OSError as error:
            self.abort()
            raise CommClosedError(str(error)) from error
        except BaseException:
            self.abort()
            raise
        return sum(sizes)

    async def _send(self, small: list[Frame], large: list[Frame]) -> None:
        if self._conn.closed is not None or self._is_closed:
            raise CommClosedError(f"the connection has ended: {self._conn.closed}")
        if self._sender is None and self._conn.post_now(*small):
            messages = large
        else:
            messages = [b"".join(small), *large]
        for message in messages:
            if self._sender is None and self._conn.may_post:
                await self._conn.post(message)
                continue
            self._queue.append(message)
            self._queued += len(message)
            if self._sender is None:
                self._sender = asyncio.get_running_loop().create_task(self._send_queued())
        while self._queued > _OUTSTANDING and not self._is_closed:
            self._sent.clear()
            await self._sent.wait()

    async def _send_queued(self) -> None:
        """Send what found no credit, in order."""
        try:
            while self._queue:
                message = self._queue.popleft()
                await self._conn.post(message)
                self._queued -= len(message)
                self._sent.set()
        except OSError:
            self.abort()
        finally:
            self._sender = None
            self._sent.set()

    async def close(self) -> None:
        """Wait until the peer has what was written, and disconnect."""
        if self._is_closed:
            return
        self._is_closed = True
        self._finalizer.detach()
        if self._sender is not None and self._conn.closed is None:
            await asyncio.wait([self._sender], timeout=_FLUSH)
        await _deliver_and_close(self._conn)

    def abort(self) -> None:
        """Disconnect at once."""
        self._is_closed = True
        if self._finalizer.detach() is None:
            return
        if self._sender is not None:
            self._sender.cancel()
        self._sent.set()
        self._conn.abort()

    def closed(self) -> bool:
        """Whether it was closed, here or by the peer."""
        return self._is_closed or self._conn.closed is not None


def _host_array(size: int) -> memoryview:
    """Return memory of so many bytes, which is not set to zero."""
    return np.empty(size, np.uint8).data


def _plain_items(msg: Any, left: int) -> int:
    """Return what is left of so many items after those of a message, each of at most 1 KiB.

    Negative: it has more, or items of another type, so it may be a large message.
    """
    kind = type(msg)
    if kind is str or kind is bytes:
        return left - 1 - (len(msg) >> 10)
    if kind in _SCALARS:
        return left - 1
    if kind is dict:
        msg = msg.values()
    elif kind is not list and kind is not tuple:
        return -1
    left -= 1
    for item in msg:
        left = _plain_items(item, left)
        if left < 0:
            return -1
    return left


def marked(frames: list[Frame], sizes: list[int]) -> list[int]:
    """Mark the frames that get memory of their own at the receiver, if they are small.

    Arrays must not keep each other's memory; only the first one may share that of what is before
    it, if that is little.
    """
    told, before, has_array = [], 0, False
    for frame, size in zip(frames, sizes, strict=True):
        is_array = not isinstance(frame.obj if isinstance(frame, memoryview) else frame, bytes)
        is_own = is_array and (has_array or before > _LITTLE)
        has_array |= is_array
        before += size
        told.append(size | _OWN if is_own else size)
    return told


def _close_dangling(conn: PeerConnection, loop: asyncio.AbstractEventLoop, about: str) -> None:
    """Close a comm that was dropped without close(); any thread may collect it.

    The peer gets what was written before, as it would over TCP.
    """
    if loop.is_closed():
        return
    if conn.closed is None:
        _logger.warning("Closing dangling connection in %s", about)
    with suppress(RuntimeError):  # the loop is closed since
        loop.call_soon_threadsafe(_close_soon, conn)


def _close_soon(conn: PeerConnection) -> None:
    # The timer of close() holds the task.
    asyncio.get_running_loop().create_task(_deliver_and_close(conn))


async def _deliver_and_close(conn: PeerConnection) -> None:
    """Wait until the peer has what was sent; it is told what it does not get."""
    with suppress(PeerError):
        await conn.close(_FLUSH)


def _check_encryption(address: str, connection_args: dict[str, Any]) -> None:
    if connection_args.get("require_encryption"):
        raise RuntimeError(
            f"encryption is required by Dask's configuration, and {PREFIX}{address} has none: RDMA"
            " does not encrypt, use tls://"
        )


class VerbenaConnector(Connector):  # type: ignore[misc]
    """Connects to listeners."""

    comm_class = VerbenaComm

    async def connect(
        self, address: str, deserialize: bool = True, **connection_args: Any
    ) -> VerbenaComm:
        """Connect to ``"host:port"``. Raises OSError."""
        _check_encryption(address, connection_args)
        host, port = parse_host_port(address)
        conn = await peers.connect(unparse_host_port(ensure_ip(host), port), **_OPTIONS)
        return self.comm_class(conn, PREFIX + conn.local, PREFIX + address, deserialize)


# Releases before 2023.9 have no BaseListener: the handshakes that abort_handshaking_comms() ends
# have a timeout there.
_BaseListener: Any = getattr(core, "BaseListener", core.Listener)


class VerbenaListener(_BaseListener):  # type: ignore[misc]
    """Listens, and gives each comm to a handler."""

    prefix = PREFIX  # Worker reads it
    comm_class = VerbenaComm

    def __init__(
        self,
        address: str,
        comm_handler: Callable[[VerbenaComm], Awaitable[None]],
        deserialize: bool = True,
        allow_offload: bool = True,
        default_host: str | None = None,
        default_port: int = 0,
        **connection_args: Any,
    ) -> None:
        super().__init__()
        _check_encryption(address, connection_args)
        self.ip, self.port = parse_host_port(address, default_port)
        self.default_host = default_host
        self.comm_handler = comm_handler
        self.deserialize = deserialize
        self.allow_offload = allow_offload
        self._listener: PeerListener | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen from now on. Raises OSError."""
        address = unparse_host_port(self.ip, self.port) if self.ip else f":{self.port}"
        self._listener = await peers.listen(address, **_OPTIONS)
        self.port = self._listener.port
        for _ in range(_ACCEPTING):
            self._spawn(self._accept(self._listener))

    def stop(self) -> None:
        """Listen no more; comms that were accepted go on."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    async def _accept(self, listener: PeerListener) -> None:
        while self._listener is listener:
            try:
                conn = await listener.accept()
            except OSError as error:
                if self._listener is listener:
                    _logger.warning("Listener at %s: %s", self.listen_address, error)
                    await asyncio.sleep(0.1)
                continue
            if self._listener is not listener:
                conn.abort()  # nobody would end its handshake
                return
            self._spawn(self._handle(conn))

    async def _handle(self, conn: PeerConnection) -> None:
        comm = self.comm_class(conn, PREFIX + conn.local, PREFIX + conn.peer, self.deserialize)
        comm.allow_offload = self.allow_offload
        try:
            await self.on_connection(comm)
        except CommClosedError:
            _logger.info("%s closed before its handshake was complete", comm.peer_address)
            return
        await self.comm_handler(comm)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(partial(_forget, self._tasks))

    @property
    def listen_address(self) -> str:
        """Where it listens, with the scheme."""
        return PREFIX + str(unparse_host_port(*self.get_host_port()))

    @property
    def contact_address(self) -> str:
        """Where others reach it, with the scheme."""
        host, port = self.get_host_port()
        host = ensure_concrete_host(host, default_host=self.default_host)
        return PREFIX + str(unparse_host_port(host, port))

    def get_host_port(self) -> tuple[str, int]:
        """Return host and port. Raises ValueError before start()."""
        if self._listener is None:
            raise ValueError("invalid operation on non-started VerbenaListener")
        return self.ip or "0.0.0.0", self.port


def _forget(tasks: set[asyncio.Task[None]], task: asyncio.Task[None]) -> None:
    tasks.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        _logger.error("a comm's handler failed", exc_info=error)


class VerbenaBackend(Backend):  # type: ignore[misc]
    """What the entry point names: connectors, listeners and addresses of ``verbena://``."""

    _connector_class = VerbenaConnector
    _listener_class = VerbenaListener

    def get_connector(self) -> VerbenaConnector:
        """Return a connector."""
        return self._connector_class()

    def get_listener(
        self,
        loc: str,
        handle_comm: Callable[[VerbenaComm], Awaitable[None]],
        deserialize: bool,
        **connection_args: Any,
    ) -> VerbenaListener:
        """Return a listener that was not started."""
        return self._listener_class(loc, handle_comm, deserialize, **connection_args)

    def get_address_host(self, loc: str) -> str:
        """Return the host of an address without the scheme."""
        return str(parse_host_port(loc)[0])

    def get_address_host_port(self, loc: str) -> tuple[str, int]:
        """Return host and port of an address without the scheme."""
        host, port = parse_host_port(loc)
        return host, port

    def resolve_address(self, loc: str) -> str:
        """Return the address with an IP address for its name."""
        host, port = parse_host_port(loc)
        return str(unparse_host_port(ensure_ip(host), port))

    def get_local_address_for(self, loc: str) -> str:
        """Return this machine's address towards another one. Raises OSError."""
        host = ensure_ip(parse_host_port(loc)[0])
        return str(unparse_host_port(_ipv6_towards(host) if ":" in host else get_ip(host)))


def _ipv6_towards(host: str) -> str:
    """Return the address from which this machine sends to an IPv6 address; nothing is sent.

    distributed's get_ip takes IPv4 alone in old releases, and get_ipv6 is deprecated in new ones.
    """
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as trial:
        trial.connect((host, 80))
        return str(trial.getsockname()[0])
