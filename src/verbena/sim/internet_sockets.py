# SPDX-License-Identifier: Apache-2.0
"""Sockets of programs on hosts of an internet: asyncio's streams and datagrams over TCP and UDP.

``loop.Loop`` has an ``InternetNetwork`` when ``sim.run`` was given an internet. Packets take the
ways that its routers know, and what becomes of them is what programs see. ``internet_streams.py``
has the transports.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import suppress
from ipaddress import IPv4Address
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from verbena.internet import AddressError, Node, NoRouteError
from verbena.internet.tcp_connection import TcpConnection

from .hosts import Hosts
from .internet_hosts import InternetHost, InternetHosts
from .internet_streams import InternetDatagrams, InternetStream
from .network import (
    ANY,
    OWN,
    Factory,
    Network,
    Server,
    bound_to,
    own_host,
    port_number,
    refuse_ipv6,
)

if TYPE_CHECKING:
    from .loop import Loop

__all__ = ["InternetNetwork"]


def own_node() -> Node:
    """Return the node on which the calling program runs."""
    host = own_host()
    assert isinstance(host, InternetHost)
    return host.node


class InternetNetwork(Network):
    """The servers and sockets of all hosts of an internet."""

    whole = "the internet"

    def __init__(self, loop: Loop, hosts: Hosts, delay: float) -> None:
        super().__init__(loop, hosts, delay)
        assert isinstance(hosts, InternetHosts)
        self._clock = hosts.clock
        self._numbers = count(1)
        self._open: WeakValueDictionary[int, Any] = WeakValueDictionary()  # what has close()

    def keep(self, opened: Server | InternetStream | InternetDatagrams) -> None:
        """Remember what is to be closed at the end of the programs."""
        self._open[next(self._numbers)] = opened

    def end(self) -> None:
        """Close what programs left open, as the end of a process does. The internet goes on."""
        for _, opened in sorted(self._open.items()):
            opened.close()

    def soon(self, call: Any, *args: Any, context: Any = None) -> None:
        """Have the loop call a program's function, and stop the time for it. Nothing happens after
        the end of the programs."""
        if self.loop.is_closed():
            return
        self.loop.call_soon(call, *args, context=context)
        self._clock.wake()

    def look_up(self, name: Any, port: Any) -> list[tuple[Any, ...]]:
        kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [(*kind, (str(self.address_of(name)), port_number(port)))]

    def address_of(self, name: Any) -> IPv4Address:
        """Return the address of a host, or an address that is given as text, whether somebody has
        it or not. Raises socket.gaierror."""
        text = name.decode() if isinstance(name, bytes) else name
        if text in OWN or text is None:
            return IPv4Address(own_host().address)
        refuse_ipv6(text)
        with suppress(ValueError):
            return IPv4Address(str(text))
        return IPv4Address(self._find(text).address)

    def listen(self, factory: Factory, name: Any, port: Any) -> Server:
        """Return a server of the calling host, at all of its addresses. Raises OSError."""
        own = own_host()
        node = own_node()
        for one in name if isinstance(name, list | tuple) else [name]:
            if one not in ANY and self.address_of(one) not in node.addresses:
                raise OSError(errno.EADDRNOTAVAIL, f"{one!r} is not the address of {own.name}")

        def accept(connection: TcpConnection, address: IPv4Address, peer_port: int) -> None:
            self._accept(server, connection, (str(address), peer_port))

        def admits(peer: IPv4Address) -> bool:
            return server.takes(peer in node.addresses)

        try:
            number = node.tcp.listen(accept, port_number(port), admits=admits)
        except AddressError as error:
            raise OSError(errno.EADDRINUSE, str(error)) from None
        server = Server(self, own, number, factory, bound_to(name))
        self.keep(server)
        return server

    def _accept(self, server: Server, connection: TcpConnection, peer: tuple[str, int]) -> None:
        """A SYN has come: the program gets the connection when it is established."""
        stream = InternetStream(self, connection, server.address, peer)
        connection.on_open = lambda: self.soon(start)

        def start() -> None:
            if server.is_serving():
                server.accept_tcp(lambda factory: stream.start(factory()))
            else:
                connection.abort()

    def forget(self, server: Server) -> None:
        assert isinstance(server.host, InternetHost)
        server.host.node.tcp.stop_listening(server.port)

    async def connect(
        self, factory: Factory, name: Any, port: Any, local: tuple[Any, Any] | None = None
    ) -> tuple[Any, Any]:
        """Connect the calling host. Raises OSError: ECONNREFUSED, ETIMEDOUT, ENETUNREACH and
        EHOSTUNREACH; for ``local`` EADDRINUSE and EADDRNOTAVAIL."""
        node, address, number = own_node(), self.address_of(name), port_number(port)
        source, own_port = self._local(node, local)
        if number == 0:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens at port 0 of {name}")
        try:
            source = source or node.source_for(address)
            connection = node.tcp.connect(address, number, source, own_port=own_port)
        except NoRouteError as error:
            raise OSError(errno.ENETUNREACH, str(error)) from None
        except AddressError as error:
            raise OSError(errno.EADDRINUSE, str(error)) from None
        here = (str(source), connection.ports[0])
        stream = InternetStream(self, connection, here, (str(address), number))
        try:
            await self._established(connection)
        except BaseException:
            connection.abort()
            raise
        protocol = factory()
        stream.start(protocol)
        return stream, protocol

    async def _established(self, connection: TcpConnection) -> None:
        opened: asyncio.Future[None] = self.loop.create_future()

        def settle(error: OSError | None) -> None:
            if opened.done():
                return
            if error is None:
                opened.set_result(None)
            else:
                opened.set_exception(error)

        later = connection.on_close
        connection.on_open = lambda: self.soon(settle, None)
        connection.on_close = lambda error: self.soon(settle, error or ConnectionAbortedError())
        try:
            await opened
        finally:
            # Set back now: a RST that comes before the program runs on is the stream's.
            connection.on_close = later

    def _local(self, node: Node, local: tuple[Any, Any] | None) -> tuple[IPv4Address | None, int]:
        """The address and the port of ``local_addr``. Raises OSError."""
        if local is None:
            return None, 0
        name, port = local
        if name in ANY:
            return None, port_number(port)
        address = self.address_of(name)
        if address not in node.addresses:
            raise OSError(errno.EADDRNOTAVAIL, f"{name!r} is not an address of {node.name}")
        return address, port_number(port)

    async def open_datagrams(
        self, factory: Factory, local: tuple[Any, Any] | None, remote: tuple[Any, Any] | None
    ) -> tuple[Any, Any]:
        """Return the transport and the protocol of a datagram endpoint. Raises OSError."""
        node = own_node()
        source, number = self._local(node, local)
        peer = None
        if remote is not None:
            peer = (self.address_of(remote[0]), port_number(remote[1]))
        protocol = factory()
        try:
            at = bound_to(local[0]) if local else None
            made = InternetDatagrams(self, node, protocol, source, number, peer, at)
        except AddressError as error:
            raise OSError(errno.EADDRINUSE, str(error)) from None
        made.start()
        return made, protocol
