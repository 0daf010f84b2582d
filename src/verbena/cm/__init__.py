# SPDX-License-Identifier: Apache-2.0
"""Connections by the connection manager, as librdmacm makes them, for asyncio.

    async with cm.connect("server", 7174, private_data=b"hello") as conn:
        await conn.aqp.write(mr, remote_addr, rkey)

    async with cm.listen(7174) as listener:
        async for request in listener:
            conn = await request.accept(private_data=b"welcome")

``verbena.cm.sync`` has the same without asyncio. The connection manager is Verbena's agent, which
needs no ``verbena run``; with the system's libibverbs it is the kernel's, by
/dev/infiniband/rdma_cm. Peers may be programs in C that use librdmacm.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, Protocol, Self, TypeVar, Unpack

from verbena.manage.cm.rdma_events import RdmaEventKind

from .arguments import (
    CONNECT_BYTES,
    CONNECT_SECONDS,
    DATAGRAM_BYTES,
    MOST_BACKLOG,
    SIDR_REPLY_BYTES,
    check_group,
    check_host,
    check_port,
    check_range,
    keywords,
)
from .connection import (
    AcceptOptions,
    Closed,
    ConnectionBase,
    ConnectionOptions,
    connect_to,
)
from .datagrams import DatagramBase, DatagramTarget, GroupBase, join_group, resolve_peer
from .device import ConnectionManagerDevice, DeviceAnswer, KernelDevice
from .errors import (
    AddressInUse,
    ConnectionManagerError,
    ConnectTimeout,
    ManagerAbsent,
    ManagerEnded,
    NoListener,
    NoSuchAddress,
    ParentsConnection,
    PeerGone,
    Rejected,
    Unreachable,
)
from .identifier import Address, Id
from .manager import DeviceOpener, HasConnectionManager, choose_device, manager_of_loop
from .queues import QueueOptions
from .requests import ListenerBase, RequestBase, listen_at

__all__ = [
    "AcceptOptions",
    "Address",
    "AddressInUse",
    "Closed",
    "ConnectTimeout",
    "Connection",
    "ConnectionManagerDevice",
    "ConnectionManagerError",
    "ConnectionOptions",
    "ConnectionRequest",
    "DatagramPeer",
    "DatagramTarget",
    "DeviceAnswer",
    "HasConnectionManager",
    "Id",
    "KernelDevice",
    "Listener",
    "ManagerAbsent",
    "ManagerEnded",
    "MulticastGroup",
    "NoListener",
    "NoSuchAddress",
    "Opening",
    "ParentsConnection",
    "PeerGone",
    "QueueOptions",
    "RdmaEventKind",
    "Rejected",
    "Unreachable",
    "choose_device",
    "connect",
    "create_id",
    "join",
    "listen",
    "resolve_datagram",
]


class Closable(Protocol):
    """What a ``with`` block closes at its end."""

    def close(self) -> None:
        """Close it."""


T = TypeVar("T", bound=Closable)


class Opening(Generic[T]):
    """What ``connect``, ``listen`` and others return: for ``async with``, or to await."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._make = make
        self._made: T | None = None

    def __await__(self) -> Generator[Any, Any, T]:
        return self._make().__await__()

    async def __aenter__(self) -> T:
        self._made = await self._make()
        return self._made

    async def __aexit__(self, *error: object) -> None:
        assert self._made is not None
        self._made.close()


class _Closing:
    def close(self) -> None:
        """Each subclass has it."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()


class Connection(ConnectionBase, _Closing):
    """A connection. ``qp`` is in RTS.

    ``private_data`` is what the peer's program said when it connected or accepted, with the zeros
    that fill it. ``aqp`` and ``acq`` are for await; there are none where the caller gave a ``qp``
    or a plain CQ. It is a context manager, which closes it.
    """

    async def disconnect(self, timeout: float | None = None) -> Closed:
        """Disconnect, and wait until the peer has answered; returns why it is closed.

        Requests that have not completed complete with an error. Raises ConnectTimeout when the
        peer has not answered after ``timeout`` seconds.
        """
        return await self._disconnect(timeout)

    async def wait_closed(self, timeout: float | None = None) -> Closed:
        """Wait until it is closed, and return why. Raises ConnectTimeout."""
        return await self._wait(self.id.deadline(timeout))


class DatagramPeer(DatagramBase, _Closing):
    """A UD queue pair, ``qp``, in RTS, and a peer.

    At the side that has asked, ``qpn``, ``qkey`` and ``ah`` are the peer's. At the side that has
    answered they are not known before the peer's first datagram: ``qpn`` is 0 and ``ah`` None.
    ``aqp`` and ``acq`` are as those of a connection.
    """


class MulticastGroup(GroupBase, _Closing):
    """A multicast group: ``to`` addresses a SEND to all of its members.

    ``gid`` is the group's; the queue pair is attached to it unless it only sends. ``lost`` is True
    when the membership has ended.
    """


class ConnectionRequest(RequestBase):
    """A peer's request to connect. ``private_data`` is what it said, with the zeros that fill it.

    ``initiator_depth`` and ``responder_resources`` are what this side may have under way, and has
    to serve, at most.
    """

    @keywords(AcceptOptions)
    async def accept(self, **options: Unpack[AcceptOptions]) -> Connection:
        """Accept it, and return the connection as soon as the peer knows that.

        The connection is a context manager. Raises ConnectionManagerError: PeerGone if the peer
        has given up.
        """
        return await self._accept(Connection, options)

    @keywords(AcceptOptions, SIDR_REPLY_BYTES)
    async def accept_datagrams(self, **options: Unpack[AcceptOptions]) -> DatagramPeer:
        """Tell the peer the queue pair to which it can send, of a listener for datagrams.

        Raises ConnectionManagerError.
        """
        return await self._accept_datagrams(DatagramPeer, options)


class Listener(ListenerBase, _Closing):
    """A listener: ``async for`` gives its requests until it is closed.

    ``address`` is where it listens, with the port that it got.
    """

    async def get_request(self, timeout: float | None = None) -> ConnectionRequest:
        """Wait for the next request. Raises ConnectTimeout, ManagerEnded."""
        return await self._next_request(ConnectionRequest, timeout)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConnectionRequest:
        try:
            return await self.get_request()
        except ConnectionManagerError:
            if self.id.closed:
                raise StopAsyncIteration from None
            raise


@keywords(ConnectionOptions, CONNECT_BYTES, timeout=CONNECT_SECONDS)
def connect(host: str, port: int, **options: Unpack[ConnectionOptions]) -> Opening[Connection]:
    """Connect to a listener: ``async with`` closes the connection at the end of its block.

    A cancelled or failed attempt leaves nothing behind, and the peer is told. Raises
    ConnectionManagerError: Rejected, NoListener, Unreachable, ConnectTimeout and others.
    """
    check_host(host)
    check_port(port)
    opener = options.get("open_device")
    return Opening(lambda: connect_to(manager_of_loop(opener), Connection, host, port, options))


def listen(
    port: int,
    host: str | None = None,
    *,
    backlog: int = 0,
    datagram: bool = False,
    open_device: DeviceOpener | None = None,
) -> Opening[Listener]:
    """Listen at a port (0: any that is free) of an address, or of every one.

    So many requests as ``backlog`` wait at most; 0: as many as the connection manager allows. A
    listener for datagrams tells peers of a UD queue pair. Raises ConnectionManagerError, as
    AddressInUse and NoSuchAddress.
    """
    check_port(port)
    if host is not None:
        check_host(host)
    check_range("backlog", backlog, MOST_BACKLOG)
    return Opening(
        lambda: listen_at(manager_of_loop(open_device), Listener, host, port, backlog, datagram)
    )


@keywords(ConnectionOptions, DATAGRAM_BYTES, timeout=CONNECT_SECONDS)
def resolve_datagram(
    host: str, port: int, **options: Unpack[ConnectionOptions]
) -> Opening[DatagramPeer]:
    """Ask a listener for datagrams for its queue pair. ``private_data`` is up to 180 bytes.

    Raises ConnectionManagerError.
    """
    check_host(host)
    check_port(port)
    opener = options.get("open_device")
    return Opening(lambda: resolve_peer(manager_of_loop(opener), DatagramPeer, host, port, options))


@keywords(ConnectionOptions, timeout=CONNECT_SECONDS)
def join(
    group: str, *, send_only: bool = False, **options: Unpack[ConnectionOptions]
) -> Opening[MulticastGroup]:
    """Join a multicast group with a UD queue pair; ``source`` chooses the interface.

    With ``send_only`` the queue pair does not receive what is sent to the group. Raises
    ConnectionManagerError.
    """
    check_group(group)
    opener = options.get("open_device")
    return Opening(
        lambda: join_group(manager_of_loop(opener), MulticastGroup, group, send_only, options)
    )


def create_id(*, datagram: bool = False, open_device: DeviceOpener | None = None) -> Opening[Id]:
    """Make an identifier, for those who take every step themselves, as with librdmacm."""
    return Opening(lambda: Id.make(manager_of_loop(open_device), datagram))
