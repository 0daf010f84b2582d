# SPDX-License-Identifier: Apache-2.0
"""A node of an internet: the IP layer of a host or a router (RFC 791, 1122 and 1812).

Interfaces call ``receive``; transports and routing protocols call ``send`` and register a handler
for their protocol. A router forwards what is not for it; a host drops it. A datagram that is not
delivered is answered by an ICMP error, where the rules allow one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from random import Random

from verbena._arguments import checked_class
from verbena.host.clock import MOST_AT_ONCE, Agenda
from verbena.internet.errors import (
    AddressError,
    InternetError,
    InternetTypeError,
    MessageTooLongError,
    NoRouteError,
    PacketError,
)
from verbena.internet.fragments import Reassembler, fragments
from verbena.internet.icmp import (
    Exceeded,
    Kind,
    Message,
    Unreachable,
    error_about,
    is_group,
    may_complain,
)
from verbena.internet.interface import EthernetInterface, Interface, check_interface_address
from verbena.internet.ipv4 import MIN_MTU, Datagram, Protocol, check_ttl
from verbena.internet.links import LinkEnd
from verbena.internet.path_mtu import PathMtuCache
from verbena.internet.table import Origin, Route, RoutingTable
from verbena.internet.tcp_sockets import TcpSockets
from verbena.internet.udp_sockets import UdpSockets

DEFAULT_ROUTE = IPv4Network("0.0.0.0/0")
# Of datagrams at one time, each sent when the one before arrived. The agenda's limit for events is
# higher, and its error knows nothing of datagrams.
MOST_TO_ITSELF = MOST_AT_ONCE // 4

Handler = Callable[[Datagram, Interface | None], None]
ErrorHandler = Callable[[Message, Datagram], None]


@checked_class(
    InternetTypeError, but=("check_address", "complain", "next_hop_is_silent", "receive")
)
class Node:
    """``counters`` count datagrams by what became of them; "queue full" are frames.

    ``errors_filtered`` makes a node that neither sends nor forwards ICMP errors, as a careless
    firewall does: paths through it may be black holes for path MTU discovery.
    ``router_ids`` has the nodes of one internet by the identifiers of their link-state routers.
    ``random`` draws the jitter of its TCP connections; by default its seed is the node's name.
    """

    def __init__(
        self,
        name: str,
        agenda: Agenda,
        forwards: bool = False,
        router_ids: dict[IPv4Address, str] | None = None,
        random: Random | None = None,
    ) -> None:
        self.name = name
        self.agenda = agenda
        self.random = Random(name) if random is None else random
        self.forwards = forwards
        self.errors_filtered = False
        self.interfaces: list[Interface] = []
        self.addresses: set[IPv4Address] = set()
        self.table = RoutingTable()
        self.path_mtus = PathMtuCache(agenda)
        self.counters: Counter[str] = Counter()
        self.udp = UdpSockets(self)
        self.tcp = TcpSockets(self)
        self._router_ids = {} if router_ids is None else router_ids
        self._groups: set[IPv4Address] = set()
        self._handlers: dict[int, Handler] = {}
        self._error_handlers: dict[int, ErrorHandler] = {}
        self._icmp_listeners: list[Callable[[Message, Datagram], None]] = []
        self._reassembler = Reassembler(agenda, self._reassembly_expired)
        self._identification = 0
        self._to_itself = 0  # of datagrams that led to the one that arrives now
        self.on_datagram(Protocol.ICMP, self._receive_icmp)
        self.on_datagram(Protocol.UDP, self.udp.receive)
        self.on_error(Protocol.UDP, self.udp.receive_error)
        self.on_datagram(Protocol.TCP, self.tcp.receive)
        self.on_error(Protocol.TCP, self.tcp.receive_error)

    def __repr__(self) -> str:
        return f"<{'router' if self.forwards else 'host'} {self.name}>"

    @property
    def address(self) -> IPv4Address:
        """The first interface's. Raises AddressError for a node without interfaces."""
        if not self.interfaces:
            raise AddressError(f"{self.name} has no interface: connect it to a network or a link")
        return self.interfaces[0].address

    def take_router_id(self, router: IPv4Address) -> None:
        """Give the node's link-state router its identifier. Raises AddressError if another node of
        the internet has it: two routers with one identifier replace each other's LSAs."""
        other = self._router_ids.setdefault(router, self.name)
        if other != self.name:
            raise AddressError(
                f"{self.name}: the router identifier {router} is {other}'s already; identifiers are"
                " unique, as a router's own address is"
            )

    def attach(
        self, link: LinkEnd, address: str | IPv4Interface, mac: bytes | None = None
    ) -> Interface:
        """Add an interface with an address such as "10.0.0.1/24"; with a MAC address the link is
        an Ethernet. Raises AddressError."""
        try:
            wanted = IPv4Interface(address)
        except ValueError as error:
            raise AddressError(f"{address!r} is no address with a prefix: {error}") from None
        self.check_address(wanted)
        name = f"{self.name}.{len(self.interfaces)}"
        interface = (
            Interface(self, name, wanted, link)
            if mac is None
            else EthernetInterface(self, name, wanted, link, mac)
        )
        self.interfaces.append(interface)
        self.addresses.add(interface.address)
        interface.on_carrier.append(lambda _: self.table.refresh())
        self.table.offer(Route(interface.network, Origin.CONNECTED, None, interface))
        return interface

    def check_address(self, wanted: IPv4Interface) -> None:
        """Raises AddressError for an address that ``attach`` would not give to an interface."""
        check_interface_address(wanted)
        for interface in self.interfaces:
            if interface.network.overlaps(wanted.network):
                raise AddressError(
                    f"{self.name} already has {interface.address} in {interface.network}, which "
                    f"overlaps {wanted.network}: a node has one interface in each network"
                )

    def add_static_route(self, prefix: str | IPv4Network, next_hop: str | IPv4Address) -> None:
        """Raises AddressError for a bad prefix, or a next hop that is in none of its networks."""
        try:
            network, neighbour = IPv4Network(prefix), IPv4Address(next_hop)
        except ValueError as error:
            raise AddressError(f"a route to {prefix} via {next_hop}: {error}") from None
        for interface in self.interfaces:
            if neighbour in interface.network and neighbour != interface.address:
                self.table.offer(Route(network, Origin.STATIC, neighbour, interface))
                return
        known = ", ".join(str(one.network) for one in self.interfaces) or "none"
        raise AddressError(
            f"{self.name}: the next hop {neighbour} is no neighbour; its networks are {known}"
        )

    def set_default_gateway(self, next_hop: str | IPv4Address) -> None:
        self.add_static_route(DEFAULT_ROUTE, next_hop)

    def on_datagram(self, protocol: int, call: Handler) -> None:
        """Give ``call`` each whole datagram of a protocol for this node, and its interface."""
        self._handlers[protocol] = call

    def on_error(self, protocol: int, call: ErrorHandler) -> None:
        """Give ``call`` each ICMP error, and the header that it quotes, about a protocol."""
        self._error_handlers[protocol] = call

    def listen_icmp(self, call: Callable[[Message, Datagram], None]) -> Callable[[], None]:
        """Give ``call`` every ICMP message for this node; the result ends that."""
        self._icmp_listeners.append(call)
        return lambda: self._icmp_listeners.remove(call)

    def join_group(self, group: IPv4Address) -> None:
        """Receive what is sent to a multicast group, on every interface."""
        self._groups.add(group)

    def source_for(self, destination: IPv4Address) -> IPv4Address:
        """The address by which this node reaches a destination. Raises NoRouteError."""
        if destination in self.addresses:
            return destination
        found = self.table.resolve(destination)
        if found is None:
            raise self._no_route(destination)
        return found[0].address

    def _no_route(self, destination: IPv4Address) -> NoRouteError:
        down = [one.name for one in self.interfaces if not one.up]
        if not self.interfaces:
            advice = "it has no interface, so connect it to a network or a link"
        elif down:
            advice = f"its interface to {down[0]} is down, so restore that, or add another route"
        else:
            advice = "add a route, or a default gateway"
        return NoRouteError(f"{self.name} has no route to {destination}: {advice}")

    def path_mtu(self, destination: IPv4Address) -> int:
        """Bytes of the largest datagram that is known to pass. Raises NoRouteError."""
        if destination in self.addresses:
            return 65535
        found = self.table.resolve(destination)
        if found is None:
            raise self._no_route(destination)
        return min(found[0].mtu, self.path_mtus.known(destination))

    def send(
        self,
        protocol: int,
        source: IPv4Address | None,
        destination: IPv4Address,
        payload: bytes,
        *,
        ttl: int = 64,
        dont_fragment: bool = False,
        ignore_path_mtu: bool = False,
        interface: Interface | None = None,
        tos: int = 0,
    ) -> None:
        """Send a datagram.

        ``source`` None is the address of the interface by which it leaves. A datagram for a group
        needs its ``interface``. With ``dont_fragment`` it must not exceed what is known of the
        path's MTU; with ``ignore_path_mtu`` only the interface's. Raises NoRouteError,
        MessageTooLongError, PacketError for more than 65,535 bytes, and InternetError for a
        ``ttl`` that is not 1 to 255, and for answers of a node to itself that have no end.
        """
        check_ttl(ttl)
        source = source or (interface.address if interface else self.source_for(destination))
        self._identification = (self._identification + 1) & 0xFFFF
        datagram = Datagram(
            protocol,
            source,
            destination,
            payload,
            ttl,
            self._identification,
            dont_fragment,
            tos=tos,
        )
        if datagram.length > 65535:
            raise PacketError(f"a datagram has at most 65535 bytes, and not {datagram.length}")
        self.counters["sent"] += 1
        if destination in self.addresses:
            self._send_to_itself(datagram)
            return
        if interface is None:
            found = self.table.resolve(destination)
            if found is None:
                raise self._no_route(destination)
            interface, next_hop = found
        else:
            next_hop = destination
        limit = interface.mtu
        if dont_fragment and not ignore_path_mtu:
            limit = min(limit, self.path_mtus.known(destination))
        for piece in fragments(datagram, limit):
            interface.transmit(piece, next_hop)

    def _send_to_itself(self, datagram: Datagram) -> None:
        """It takes no time. Raises InternetError when each of many is an answer to the one before,
        which would have no end."""
        depth = self._to_itself + 1
        if depth > MOST_TO_ITSELF:
            raise InternetError(
                f"{self.name} has sent {MOST_TO_ITSELF:,} datagrams to itself at one time, each "
                "when the one before arrived: what a node sends to itself takes no time, so such "
                "answers have no end. Do not answer the node's own addresses, or answer later: "
                "net.agenda.add(net.agenda.now + 10**6, call) calls after a microsecond"
            )

        def deliver() -> None:
            self._to_itself = depth
            try:
                self._deliver(datagram, None, False)
            finally:
                self._to_itself = 0

        self.agenda.add(self.agenda.now, deliver)

    def receive(self, datagram: Datagram, interface: Interface, to_several: bool) -> None:
        """What an interface has received: deliver it here, forward it, or drop it."""
        self.counters["received"] += 1
        source, destination = datagram.source, datagram.destination
        if is_group(source) or source.is_loopback or interface.is_broadcast(source):
            self.counters["bad source"] += 1  # RFC 1122, 3.2.1.3, and RFC 1812, 5.3.7
            return
        if to_several and destination in self.addresses:
            self.counters["broadcast frame"] += 1  # RFC 1122, 3.3.6
            return
        if destination in self.addresses or to_several or is_group(destination):
            if (
                destination in self.addresses
                or destination in self._groups
                or (interface.is_broadcast(destination))
            ):
                self._deliver(datagram, interface, to_several)
            return
        if not self.forwards:
            self.counters["not ours"] += 1
            return
        self._forward(datagram)

    def _forward(self, datagram: Datagram) -> None:
        if self.errors_filtered and self._is_error(datagram):
            self.counters["filtered"] += 1
            return
        if datagram.ttl <= 1:
            self._refuse("expired", datagram, Kind.TIME_EXCEEDED, Exceeded.TTL)
            return
        found = self.table.resolve(datagram.destination)
        if found is None:
            self._refuse("no route", datagram, Kind.UNREACHABLE, Unreachable.NETWORK)
            return
        interface, next_hop = found
        if interface.is_broadcast(datagram.destination):
            # RFC 2644: a router does not forward what is for all hosts of a network.
            self.counters["directed broadcast"] += 1
            return
        try:
            pieces = fragments(replace(datagram, ttl=datagram.ttl - 1), interface.mtu)
        except MessageTooLongError as error:
            code = Unreachable.FRAGMENTATION_NEEDED
            self._refuse("too long", datagram, Kind.UNREACHABLE, code, error.mtu)
            return
        self.counters["forwarded"] += 1
        for piece in pieces:
            interface.transmit(piece, next_hop)

    @staticmethod
    def _is_error(datagram: Datagram) -> bool:
        if datagram.protocol != Protocol.ICMP or datagram.offset or not datagram.payload:
            return False
        return Message(datagram.payload[0]).is_error

    def _refuse(
        self, counter: str, datagram: Datagram, kind: Kind, code: int, mtu: int = 0
    ) -> None:
        self.counters[counter] += 1
        self.complain(datagram, False, kind, code, mtu)

    def complain(
        self, about: Datagram, to_several: bool, kind: Kind, code: int, mtu: int = 0
    ) -> None:
        """Send an ICMP error about a datagram, if one is allowed and there is a way back."""
        if self.errors_filtered or not may_complain(about, to_several):
            return
        message = error_about(about, kind, code, mtu)
        self.counters["errors sent"] += 1
        try:
            self.send(Protocol.ICMP, None, about.source, message.encode())
        except NoRouteError:
            self.counters["errors without a way"] += 1

    def next_hop_is_silent(self, datagram: Datagram) -> None:
        """ARP has no answer for a datagram."""
        self._refuse("next hop silent", datagram, Kind.UNREACHABLE, Unreachable.HOST)

    def queue_is_full(self) -> None:
        """A link of the node had no room for a frame, which is lost without an error."""
        self.counters["queue full"] += 1

    def _reassembly_expired(self, first: Datagram) -> None:
        self._refuse("incomplete", first, Kind.TIME_EXCEEDED, Exceeded.REASSEMBLY)

    def _deliver(self, datagram: Datagram, interface: Interface | None, to_several: bool) -> None:
        whole = self._reassembler.add(datagram)
        if whole is None:
            return
        handler = self._handlers.get(whole.protocol)
        if handler is None:
            self.counters["no protocol"] += 1
            self.complain(whole, to_several, Kind.UNREACHABLE, Unreachable.PROTOCOL)
            return
        self.counters["delivered"] += 1
        handler(whole, interface)

    def _receive_icmp(self, datagram: Datagram, interface: Interface | None) -> None:
        try:
            message = Message.decode(datagram.payload)
            if message.is_error:
                self._receive_error(message)
        except PacketError:
            self.counters["damaged"] += 1
            return
        if message.kind == Kind.ECHO and not is_group(datagram.source):
            self._answer_echo(message, datagram)
        for call in list(self._icmp_listeners):
            call(message, datagram)

    def _answer_echo(self, message: Message, datagram: Datagram) -> None:
        """An echo by broadcast is not answered (RFC 1122, 3.2.2.6, allows that)."""
        if datagram.destination not in self.addresses:
            return
        reply = replace(message, kind=Kind.ECHO_REPLY)
        try:
            self.send(Protocol.ICMP, datagram.destination, datagram.source, reply.encode())
        except NoRouteError:
            self.counters["no route"] += 1

    def _receive_error(self, message: Message) -> None:
        """Learn from an ICMP error, and hand it to the protocol that it concerns."""
        quoted = message.quoted()
        if (message.kind, message.code) == (Kind.UNREACHABLE, Unreachable.FRAGMENTATION_NEEDED):
            self.path_mtus.learn(message, quoted.destination)
        handler = self._error_handlers.get(quoted.protocol)
        if handler is not None:
            handler(message, quoted)


def check_router(node: Node) -> None:
    """Raises InternetError for a host, which would attract datagrams that it does not forward."""
    if not node.forwards:
        raise InternetError(f"{node.name} is a host: routing protocols run on routers")


def check_own_interface(node: Node, interface: Interface, running: Collection[Interface]) -> None:
    """Raises InternetError unless a routing protocol can begin on an interface of its node."""
    if interface not in node.interfaces:
        names = ", ".join(one.name for one in node.interfaces) or "none"
        raise InternetError(f"{interface.name} is no interface of {node.name}, which has {names}")
    if interface in running:
        raise InternetError(f"the protocol runs on {interface.name} already")


__all__ = ["DEFAULT_ROUTE", "MIN_MTU", "Node", "check_own_interface", "check_router"]
