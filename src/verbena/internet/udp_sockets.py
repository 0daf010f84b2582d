# SPDX-License-Identifier: Apache-2.0
"""The UDP sockets of one node: which port's datagrams go where.

The node gives every datagram of UDP to ``receive``; a port without a socket is answered with port
unreachable. A port has one socket.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from verbena._arguments import checked_class
from verbena.internet.errors import (
    AddressError,
    InternetError,
    InternetTypeError,
    PacketError,
)
from verbena.internet.icmp import Kind, Message, Unreachable, is_group
from verbena.internet.ipv4 import Datagram, Protocol
from verbena.internet.udp import EPHEMERAL, MAX_UDP_PAYLOAD, UdpPacket

if TYPE_CHECKING:
    from verbena.internet.interface import Interface
    from verbena.internet.node import Node


@dataclass(frozen=True, slots=True)
class UdpArrival:
    """A datagram that a socket has received; ``ttl`` is that of its arrival."""

    payload: bytes
    source: IPv4Address
    source_port: int
    destination: IPv4Address
    interface: Interface | None
    ttl: int


@checked_class(InternetTypeError)
class UdpSocket:
    """A port of a node. ``on_error`` gets ICMP errors about what was sent from it, with the
    destination's address and port. For peers that ``admits`` does not want the port has no socket.
    """

    def __init__(self, node: Node, port: int, receive: Callable[[UdpArrival], None]) -> None:
        self._node = node
        self.port = port
        self.receive = receive
        self.on_error: Callable[[Message, IPv4Address, int], None] | None = None
        self.admits: Callable[[IPv4Address], bool] | None = None
        self._closed = False

    def send(
        self,
        payload: bytes,
        destination: IPv4Address,
        port: int,
        *,
        source: IPv4Address | None = None,
        ttl: int = 64,
        dont_fragment: bool = False,
        interface: Interface | None = None,
    ) -> None:
        """Raises what ``Node.send`` raises, and InternetError after ``close``."""
        if self._closed:
            raise InternetError(f"{self._node.name}: the socket of UDP port {self.port} is closed")
        if source is None:
            source = interface.address if interface else self._node.source_for(destination)
        if not 0 < port < 65536:
            raise AddressError(f"{port} is no port of a destination: ports are 1 to 65535")
        if len(payload) > MAX_UDP_PAYLOAD:
            raise PacketError(
                f"a datagram of UDP has at most {MAX_UDP_PAYLOAD} bytes, and not {len(payload)}"
            )
        packet = UdpPacket(self.port, port, payload).encode(source, destination)
        self._node.send(
            Protocol.UDP,
            source,
            destination,
            packet,
            ttl=ttl,
            dont_fragment=dont_fragment,
            interface=interface,
        )

    def close(self) -> None:
        if not self._closed:  # later the port may be another socket's
            self._closed = True
            self._node.udp.remove(self.port)


@checked_class(InternetTypeError, but=("receive", "receive_error", "remove"))
class UdpSockets:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._sockets: dict[int, UdpSocket] = {}
        self._next = 0

    def open(self, receive: Callable[[UdpArrival], None], port: int = 0) -> UdpSocket:
        """A socket; port 0 is any free one. Raises AddressError for a port that is taken."""
        port = port or self._free_port()
        if not 0 < port < 65536:
            raise AddressError(
                f"{port} is no port: ports are 1 to 65535, and 0 asks for a free one"
            )
        if port in self._sockets:
            raise AddressError(f"{self._node.name}: UDP port {port} has a socket already")
        self._sockets[port] = UdpSocket(self._node, port, receive)
        return self._sockets[port]

    def remove(self, port: int) -> None:
        self._sockets.pop(port, None)

    def _free_port(self) -> int:
        for _ in EPHEMERAL:
            port = EPHEMERAL[self._next % len(EPHEMERAL)]
            self._next += 1
            if port not in self._sockets:
                return port
        raise AddressError(f"{self._node.name}: all {len(EPHEMERAL)} ports for programs are taken")

    def receive(self, datagram: Datagram, interface: Interface | None) -> None:
        try:
            packet = UdpPacket.decode(datagram.payload, datagram.source, datagram.destination)
        except PacketError:
            self._node.counters["damaged"] += 1
            return
        socket = self._sockets.get(packet.destination_port)
        admits = None if socket is None else socket.admits
        if socket is None or (admits is not None and not admits(datagram.source)):
            group = is_group(datagram.destination) or bool(
                interface and interface.is_broadcast(datagram.destination)
            )
            self._node.counters["no port"] += 1
            self._node.complain(datagram, group, Kind.UNREACHABLE, Unreachable.PORT)
            return
        socket.receive(
            UdpArrival(
                packet.payload,
                datagram.source,
                packet.source_port,
                datagram.destination,
                interface,
                datagram.ttl,
            )
        )

    def receive_error(self, message: Message, quoted: Datagram) -> None:
        source = int.from_bytes(quoted.payload[:2], "big")
        socket = self._sockets.get(source)
        if socket is not None and socket.on_error is not None:
            port = int.from_bytes(quoted.payload[2:4], "big")
            socket.on_error(message, quoted.destination, port)
