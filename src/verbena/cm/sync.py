# SPDX-License-Identifier: Apache-2.0
"""verbena.cm without asyncio: the same names, for ``with`` and ``for``, and calls that block.

    with cm.sync.connect("server", 7174) as conn:
        conn.qp.write(mr, remote_addr, rkey)

Each connection has an event channel of its own, and a request becomes another one's as soon as it
comes. So a thread may serve each connection; one object belongs to one thread at a time.
"""

from __future__ import annotations

from typing import Self, Unpack

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
from .channel import run_now
from .connection import AcceptOptions, Closed, ConnectionBase, ConnectionOptions, connect_to
from .datagrams import DatagramBase, GroupBase, join_group, resolve_peer
from .errors import ConnectionManagerError
from .manager import DeviceOpener, Manager, OpenDevices
from .requests import ListenerBase, RequestBase, listen_at

__all__ = [
    "SyncConnection",
    "SyncDatagramPeer",
    "SyncListener",
    "SyncMulticastGroup",
    "SyncRequest",
    "connect",
    "join",
    "listen",
    "resolve_datagram",
]


class _SyncClosing:
    def close(self) -> None:
        """Each subclass has it."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class SyncConnection(ConnectionBase, _SyncClosing):
    """As ``verbena.cm.Connection``, with calls that block."""

    def disconnect(self, timeout: float | None = None) -> Closed:
        """Disconnect, and wait until the peer has answered; returns why it is closed.

        Requests that have not completed complete with an error. Raises ConnectTimeout.
        """
        return run_now(self._disconnect(timeout))

    def wait_closed(self, timeout: float | None = None) -> Closed:
        """Wait until it is closed, and return why. Raises ConnectTimeout."""
        return run_now(self._wait(self.id.deadline(timeout)))


class SyncDatagramPeer(DatagramBase, _SyncClosing):
    """As ``verbena.cm.DatagramPeer``, with calls that block."""


class SyncMulticastGroup(GroupBase, _SyncClosing):
    """As ``verbena.cm.MulticastGroup``, with calls that block."""


class SyncRequest(RequestBase):
    """As ``verbena.cm.ConnectionRequest``, with calls that block."""

    @keywords(AcceptOptions)
    def accept(self, **options: Unpack[AcceptOptions]) -> SyncConnection:
        """Accept it, and return the connection as soon as the peer knows that.

        Raises ConnectionManagerError: PeerGone if the peer has given up.
        """
        return run_now(self._accept(SyncConnection, options))

    @keywords(AcceptOptions, SIDR_REPLY_BYTES)
    def accept_datagrams(self, **options: Unpack[AcceptOptions]) -> SyncDatagramPeer:
        """Tell the peer the queue pair to which it can send, of a listener for datagrams.

        Raises ConnectionManagerError.
        """
        return run_now(self._accept_datagrams(SyncDatagramPeer, options))


class SyncListener(ListenerBase, _SyncClosing):
    """A listener: ``for`` gives its requests.

    ``address`` is where it listens, with the port that it got.
    """

    def get_request(self, timeout: float | None = None) -> SyncRequest:
        """Wait for the next request. Raises ConnectTimeout, ManagerEnded."""
        return run_now(self._next_request(SyncRequest, timeout))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> SyncRequest:
        try:
            return self.get_request()
        except ConnectionManagerError:
            if self.id.closed:
                raise StopIteration from None
            raise


def _manager(open_device: DeviceOpener | None) -> Manager:
    return Manager(OpenDevices(), open_device, False)


@keywords(ConnectionOptions, CONNECT_BYTES, timeout=CONNECT_SECONDS)
def connect(host: str, port: int, **options: Unpack[ConnectionOptions]) -> SyncConnection:
    """Connect to a listener: ``with`` closes the connection at the end of its block.

    Raises ConnectionManagerError: Rejected, NoListener, Unreachable, ConnectTimeout and others.
    """
    check_host(host)
    check_port(port)
    manager = _manager(options.get("open_device"))
    return run_now(connect_to(manager, SyncConnection, host, port, options))


def listen(
    port: int,
    host: str | None = None,
    *,
    backlog: int = 0,
    datagram: bool = False,
    open_device: DeviceOpener | None = None,
) -> SyncListener:
    """Listen at a port (0: any that is free) of an address, or of every one.

    So many requests as ``backlog`` wait at most; 0: as many as the connection manager allows. A
    listener for datagrams tells peers of a UD queue pair. Raises ConnectionManagerError, as
    AddressInUse and NoSuchAddress.
    """
    check_port(port)
    if host is not None:
        check_host(host)
    check_range("backlog", backlog, MOST_BACKLOG)
    manager = _manager(open_device)
    return run_now(listen_at(manager, SyncListener, host, port, backlog, datagram))


@keywords(ConnectionOptions, DATAGRAM_BYTES, timeout=CONNECT_SECONDS)
def resolve_datagram(
    host: str, port: int, **options: Unpack[ConnectionOptions]
) -> SyncDatagramPeer:
    """Ask a listener for datagrams for its queue pair. Raises ConnectionManagerError."""
    check_host(host)
    check_port(port)
    manager = _manager(options.get("open_device"))
    return run_now(resolve_peer(manager, SyncDatagramPeer, host, port, options))


@keywords(ConnectionOptions, timeout=CONNECT_SECONDS)
def join(
    group: str, *, send_only: bool = False, **options: Unpack[ConnectionOptions]
) -> SyncMulticastGroup:
    """Join a multicast group with a UD queue pair; ``source`` chooses the interface.

    With ``send_only`` the queue pair does not receive what is sent to the group. Raises
    ConnectionManagerError.
    """
    check_group(group)
    manager = _manager(options.get("open_device"))
    return run_now(join_group(manager, SyncMulticastGroup, group, send_only, options))
