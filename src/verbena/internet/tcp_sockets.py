# SPDX-License-Identifier: Apache-2.0
"""The TCP connections and listeners of one node: which segment is whose.

The node gives every datagram of TCP to ``receive``; a segment that belongs to nothing is answered
with a RST. Routing protocols and programs open connections and listen.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from verbena._arguments import checked_class
from verbena.internet.errors import AddressError, InternetTypeError, NoRouteError, PacketError
from verbena.internet.icmp import Kind, Message, Unreachable
from verbena.internet.ipv4 import Datagram, Protocol, check_ttl
from verbena.internet.tcp_connection import TcpConnection
from verbena.internet.tcp_segment import SEQUENCES, TcpFlag, TcpSegment, unwrap
from verbena.internet.tcp_sender import TcpSettings
from verbena.internet.tcp_states import TcpState
from verbena.internet.timer import MICROSECOND
from verbena.internet.udp import EPHEMERAL

if TYPE_CHECKING:
    from verbena.internet.interface import Interface
    from verbena.internet.node import Node

NO_WAY: dict[int, int] = {
    Unreachable.NETWORK: errno.ENETUNREACH,
    Unreachable.HOST: errno.EHOSTUNREACH,
}
TCP_HEADERS = 40  # of IPv4 and TCP, without options
# An own address and port, and the peer's.
TcpKey = tuple[IPv4Address, int, IPv4Address, int]
TcpAcceptor = Callable[[TcpConnection, IPv4Address, int], None]


def _check_port(port: int) -> None:
    if not 0 < port < 65536:
        raise AddressError(f"{port} is no port: ports are 1 to 65535")


@checked_class(InternetTypeError, but=("receive", "receive_error", "stop_listening"))
class TcpSockets:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._listeners: dict[int, tuple[TcpAcceptor, TcpSettings]] = {}
        self._admits: dict[int, Callable[[IPv4Address], bool]] = {}  # of some listeners
        self._next = 0
        self.connections: dict[TcpKey, TcpConnection] = {}

    def listen(
        self,
        accept: TcpAcceptor,
        port: int = 0,
        settings: TcpSettings | None = None,
        admits: Callable[[IPv4Address], bool] | None = None,
    ) -> int:
        """Give ``accept`` each connection to a port, with the peer's address and port, when its
        SYN has come; it sets the connection's calls, and may write and end it. Port 0 is any free
        one. Peers whose address ``admits`` does not want are refused. Returns the port. Raises
        AddressError for a port that is taken."""
        port = port or self._free_port()
        _check_port(port)
        if port in self._listeners:
            raise AddressError(f"{self._node.name}: somebody listens at TCP port {port} already")
        self._listeners[port] = (accept, settings or TcpSettings())
        if admits is not None:
            self._admits[port] = admits
        return port

    def stop_listening(self, port: int) -> None:
        """Accept no more; connections stay."""
        self._listeners.pop(port, None)
        self._admits.pop(port, None)

    def connect(
        self,
        address: IPv4Address,
        port: int,
        source: IPv4Address | None = None,
        settings: TcpSettings | None = None,
        own_port: int = 0,
        ttl: int = 64,
    ) -> TcpConnection:
        """A connection whose SYN leaves now. Raises NoRouteError if no ``source`` is given and
        there is no route, AddressError for no port and when ports are used up, and InternetError
        for no TTL."""
        _check_port(port)
        if own_port:
            _check_port(own_port)
        check_ttl(ttl)
        source = source or self._node.source_for(address)
        key = (source, own_port or self._free_port(), address, port)
        if key in self.connections:
            raise AddressError(f"{self._node.name} has a connection from port {own_port} already")
        made = self._make(key, settings or TcpSettings(), ttl)
        made.open()
        return made

    def _make(self, key: TcpKey, settings: TcpSettings, ttl: int) -> TcpConnection:
        source, own, address, port = key
        fitting = self._fitting(settings, address)

        def transmit(segment: TcpSegment) -> None:
            self._send(segment, source, address, ttl)

        made = TcpConnection(
            self._node.agenda,
            (own, port),
            # RFC 9293, 3.4.1: a clock of 4 us.
            self._node.agenda.now // (4 * MICROSECOND) % SEQUENCES,
            fitting,
            transmit,
            lambda: self._forget(key, made),
            self._node.random,
        )
        made.peer = address
        self.connections[key] = made
        return made

    def _fitting(self, settings: TcpSettings, address: IPv4Address) -> TcpSettings:
        """With segments that the first link carries whole."""
        try:
            room = self._node.path_mtu(address) - TCP_HEADERS
        except NoRouteError:
            return settings
        return replace(settings, mss=min(settings.mss, room))

    def _forget(self, key: TcpKey, connection: TcpConnection) -> None:
        if self.connections.get(key) is connection:
            del self.connections[key]

    def _free_port(self) -> int:
        used = {key[1] for key in self.connections} | set(self._listeners)
        for _ in EPHEMERAL:
            port = EPHEMERAL[self._next % len(EPHEMERAL)]
            self._next += 1
            if port not in used:
                return port
        raise AddressError(f"{self._node.name}: all {len(EPHEMERAL)} ports for programs are taken")

    def _send(
        self, segment: TcpSegment, source: IPv4Address, address: IPv4Address, ttl: int = 64
    ) -> None:
        """A segment that has no way is lost, as on the way: it is sent again."""
        data = segment.encode(source, address)
        try:
            self._node.send(Protocol.TCP, source, address, data, ttl=ttl)
        except NoRouteError:
            self._node.counters["no route"] += 1

    def receive(self, datagram: Datagram, interface: Interface | None) -> None:
        if datagram.destination not in self._node.addresses:
            return
        try:
            segment = TcpSegment.decode(datagram.payload, datagram.source, datagram.destination)
        except PacketError:
            self._node.counters["damaged"] += 1
            return
        own, port = segment.destination_port, segment.source_port
        key = (datagram.destination, own, datagram.source, port)
        connection = self.connections.get(key)
        if connection is not None and connection.state is TcpState.TIME_WAIT:
            connection = self._reused(connection, segment)
        if connection is not None:
            connection.receive(segment)
        elif TcpFlag.SYN in segment.flags and TcpFlag.ACK not in segment.flags:
            self._take_syn(key, segment)
        else:
            self._refuse(key, segment)

    @staticmethod
    def _reused(connection: TcpConnection, segment: TcpSegment) -> TcpConnection | None:
        """RFC 9293, 3.10.7.4: a SYN ends TIME-WAIT, unless it may be an old one (RFC 6191)."""
        is_new = unwrap(segment.sequence, connection.next) >= connection.next
        if is_new and TcpFlag.SYN in segment.flags and TcpFlag.ACK not in segment.flags:
            connection.leave()
            return None
        return connection

    def _take_syn(self, key: TcpKey, segment: TcpSegment) -> None:
        listener = self._listeners.get(key[1])
        admits = self._admits.get(key[1])
        is_refused = admits is not None and not admits(key[2])
        if listener is None or TcpFlag.RST in segment.flags or is_refused:
            self._refuse(key, segment)
            return
        accept, settings = listener
        made = self._make(key, settings, 64)
        made.accept(segment)
        accept(made, key[2], key[3])
        made.answer()

    def _refuse(self, key: TcpKey, segment: TcpSegment) -> None:
        """RFC 9293, 3.10.7.1."""
        if TcpFlag.RST in segment.flags:
            return
        own, own_port, address, port = key
        if TcpFlag.ACK in segment.flags:
            answer = TcpSegment(own_port, port, segment.acknowledgement, 0, TcpFlag.RST, 0)
        else:
            flags = TcpFlag.RST | TcpFlag.ACK
            answer = TcpSegment(own_port, port, 0, segment.sequence + segment.length, flags, 0)
        self._send(answer, own, address)

    def receive_error(self, message: Message, quoted: Datagram) -> None:
        """RFC 1122, 4.2.3.9: port and protocol unreachable end a connection; network and host
        unreachable do not, as the way may come back. But while a SYN has no answer these end it,
        too, as in Linux (RFC 5461)."""
        own = int.from_bytes(quoted.payload[:2], "big")
        port = int.from_bytes(quoted.payload[2:4], "big")
        connection = self.connections.get((quoted.source, own, quoted.destination, port))
        if connection is None or message.kind != Kind.UNREACHABLE:
            return
        text = f"{connection.peer_text}: {message.text}"
        if message.code in (Unreachable.PROTOCOL, Unreachable.PORT):
            connection.fail(ConnectionRefusedError(errno.ECONNREFUSED, text))
        elif message.code in NO_WAY and connection.state is TcpState.SYN_SENT:
            connection.fail(OSError(NO_WAY[message.code], text))
