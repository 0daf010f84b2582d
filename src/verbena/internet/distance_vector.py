# SPDX-License-Identifier: Apache-2.0
"""A distance-vector protocol: RIP version 2 (RFC 2453) on the interfaces of one router.

Routers tell their neighbours how far each network is, every 30 s and soon after a change. Each
believes the nearest offer. Split horizon with poisoned reverse tells a neighbour that what was
learnt from it is unreachable; without it, two routers count to infinity, which is 16.

    event of a route                         then
    a nearer offer, or news of its gateway   take it; restart its timeout
    timeout of 180 s, or a distance of 16    unreachable: announce that, remove it after 120 s
    an offer while it is being removed       take it as a new route
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network
from random import Random

from verbena._arguments import checked_class
from verbena.internet.errors import InternetError, InternetTypeError, NoRouteError, PacketError
from verbena.internet.interface import Interface
from verbena.internet.node import Node, check_own_interface, check_router
from verbena.internet.table import Origin, Route
from verbena.internet.timer import SECOND, Timer
from verbena.internet.udp_sockets import UdpArrival

RIP_PORT = 520
RIP_GROUP = IPv4Address("224.0.0.9")
RIP_HEADER = struct.Struct("!BBH")
RIP_ENTRY = struct.Struct("!HH4s4s4sI")
RIP_REQUEST, RIP_RESPONSE, RIP_VERSION = 1, 2, 2
FAMILY_IPV4 = 2
INFINITY = 16
ENTRIES_PER_MESSAGE = 25
LEAST_UPDATE_S = 0.1
# Half a sixth off either way, so that routers do not send in step (RFC 2453, section 3.8).
UPDATE_SPREAD = (5 / 6, 7 / 6)
Asker = tuple[IPv4Address, int]  # its address and port
ALL_ROUTERS: Asker = (RIP_GROUP, RIP_PORT)


class SplitHorizon(StrEnum):
    """What a router tells the neighbour from whom it has a route."""

    OFF = "off"
    SIMPLE = "simple"
    POISONED = "poisoned"


@checked_class(InternetTypeError)
@dataclass(frozen=True)
class DistanceVectorSettings:
    """Times in seconds, of RFC 2453, section 3.8. ``triggered``: send changes at once (after
    1 to 5 s if that was done shortly before) and not only every ``update_s``."""

    split_horizon: SplitHorizon = SplitHorizon.POISONED
    triggered: bool = True
    update_s: float = 30.0
    timeout_s: float = 180.0
    garbage_s: float = 120.0

    def __post_init__(self) -> None:
        """Raises InternetError."""
        if self.update_s < LEAST_UPDATE_S:
            raise InternetError(
                f"update_s is {self.update_s}: updates are {LEAST_UPDATE_S} s or more apart"
            )
        longest = self.update_s * UPDATE_SPREAD[1]
        if self.timeout_s <= longest:
            raise InternetError(
                f"timeout_s is {self.timeout_s}: a timeout is longer than the longest pause between"
                f" two updates, which is {longest:g} s if update_s is {self.update_s}"
            )
        if self.garbage_s < 0:
            raise InternetError(f"garbage_s is {self.garbage_s}: it is 0 s or more")


@dataclass(slots=True)
class Distance:
    """What is known of a network; ``gateway`` and its interface are None for an own one."""

    prefix: IPv4Network
    metric: int
    gateway: IPv4Address | None
    interface: Interface | None
    timer: Timer
    changed: bool = True


def encode_response(entries: Iterable[tuple[IPv4Network, int]]) -> bytes:
    """A response of RIP version 2 with at most 25 networks and their distances."""
    return RIP_HEADER.pack(RIP_RESPONSE, RIP_VERSION, 0) + b"".join(
        RIP_ENTRY.pack(
            FAMILY_IPV4, 0, prefix.network_address.packed, prefix.netmask.packed, bytes(4), metric
        )
        for prefix, metric in entries
    )


def encode_whole_table_request() -> bytes:
    """RFC 2453, section 3.9.1: one entry with family 0 and distance 16 asks for everything."""
    entry = RIP_ENTRY.pack(0, 0, bytes(4), bytes(4), bytes(4), INFINITY)
    return RIP_HEADER.pack(RIP_REQUEST, RIP_VERSION, 0) + entry


def decode_message(data: bytes) -> tuple[int, list[tuple[IPv4Network, int]]]:
    """The command, and the networks with their distances; an entry that is none is left out (RFC
    2453, section 3.9.2). Raises PacketError."""
    if len(data) < RIP_HEADER.size or (len(data) - RIP_HEADER.size) % RIP_ENTRY.size:
        raise PacketError(f"{len(data)} bytes are no message of RIP")
    command, version, _ = RIP_HEADER.unpack_from(data)
    if version != RIP_VERSION:
        raise PacketError(f"version {version} of RIP, and not {RIP_VERSION}")
    entries = []
    for family, _, address, mask, _, metric in RIP_ENTRY.iter_unpack(data[RIP_HEADER.size :]):
        prefix = _network(address, mask) if family == FAMILY_IPV4 else None
        if prefix is not None and 1 <= metric <= INFINITY:
            entries.append((prefix, metric))
    return command, entries


def _network(address: bytes, mask: bytes) -> IPv4Network | None:
    """None for what is no network of hosts."""
    try:
        prefix = IPv4Network((address, str(IPv4Address(mask))))
    except ValueError:
        return None
    return None if prefix.is_loopback or prefix.is_multicast else prefix


def _check_cost(cost: int) -> None:
    if not 1 <= cost < INFINITY:
        raise InternetError(
            f"a cost of {cost}: it is 1 to {INFINITY - 1}, and {INFINITY} is unreachable"
        )


@checked_class(InternetTypeError)
class DistanceVector:
    """The protocol of one router; ``add_interface`` starts it on an interface. Raises InternetError
    for a host."""

    def __init__(
        self, node: Node, random: Random, settings: DistanceVectorSettings | None = None
    ) -> None:
        check_router(node)
        self._node = node
        self._random = random
        self._settings = settings or DistanceVectorSettings()
        self._interfaces: dict[Interface, int] = {}
        self._socket = node.udp.open(self._receive, RIP_PORT)
        self._update = Timer(node.agenda, self._update_all)
        self._trigger = Timer(node.agenda, self._send_changes)
        self._quiet_until = 0
        self.distances: dict[IPv4Network, Distance] = {}
        self.messages = 0
        node.join_group(RIP_GROUP)

    def add_interface(self, interface: Interface, cost: int = 1) -> None:
        """Announce the interface's network, and exchange routes on it. ``cost``, 1 to 15, is what
        the network adds to a distance (RFC 2453, section 3.5). Raises InternetError."""
        _check_cost(cost)
        check_own_interface(self._node, interface, self._interfaces)
        if not self._interfaces:
            self._update.start(self._update_delay())
        self._interfaces[interface] = cost
        interface.on_carrier.append(self._carrier_changed)
        self.announce(interface.network, cost)
        agenda = self._node.agenda
        agenda.add(agenda.now, lambda: self._ask(interface))

    def announce(self, prefix: IPv4Network, cost: int = 1) -> None:
        """Announce a network of this router, at distance ``cost``. Raises InternetError."""
        _check_cost(cost)
        known = self.distances.get(prefix)
        if known is not None and known.gateway is None and known.metric == cost:
            return
        if known is not None:
            known.timer.stop()
            self._node.table.withdraw(prefix, Origin.DISTANCE_VECTOR)
        timer = Timer(self._node.agenda, lambda: self._expire(prefix))
        self.distances[prefix] = Distance(prefix, cost, None, None, timer)
        self._changed()

    def retract(self, prefix: IPv4Network) -> None:
        """Announce a network of this router no more; what neighbours say of it counts again."""
        known = self.distances.get(prefix)
        if known is not None and known.gateway is None and known.metric < INFINITY:
            self._lose(known)

    def _ask(self, interface: Interface) -> None:
        self._send(interface, encode_whole_table_request())

    def _carrier_changed(self, interface: Interface) -> None:
        if interface.up:
            self.announce(interface.network, self._interfaces[interface])
            self._ask(interface)
            return
        for distance in list(self.distances.values()):
            if distance.interface is interface:
                self._lose(distance)
        own = self.distances.get(interface.network)
        if own is not None and own.gateway is None:
            self._lose(own)

    def _receive(self, arrival: UdpArrival) -> None:
        interface = arrival.interface
        if interface not in self._interfaces or arrival.source in self._node.addresses:
            return
        assert interface is not None
        try:
            command, entries = decode_message(arrival.payload)
        except PacketError:
            self._node.counters["damaged"] += 1
            return
        if command == RIP_REQUEST:
            asker = arrival.source, arrival.source_port
            self._send_table(interface, self.distances.values(), asker)
        elif arrival.source_port == RIP_PORT and arrival.source in interface.network:
            cost = self._interfaces[interface]
            for prefix, metric in entries:
                self._hear(prefix, min(metric + cost, INFINITY), arrival.source, interface)

    def _hear(
        self, prefix: IPv4Network, metric: int, gateway: IPv4Address, interface: Interface
    ) -> None:
        """RFC 2453, section 3.9.2: an offer of a neighbour, whose distance has been added."""
        known = self.distances.get(prefix)
        if known is None:
            if metric < INFINITY:
                timer = Timer(self._node.agenda, lambda: self._expire(prefix))
                known = Distance(prefix, INFINITY, gateway, interface, timer)
                self.distances[prefix] = known
                self._take(known, metric, gateway, interface)
            return
        if known.gateway is None and known.metric < INFINITY:
            return
        if known.gateway == gateway and known.interface is interface:
            if metric < INFINITY:
                self._take(known, metric, gateway, interface)
            elif known.metric < INFINITY:
                self._lose(known)
        elif metric < known.metric:
            self._take(known, metric, gateway, interface)

    def _take(
        self, known: Distance, metric: int, gateway: IPv4Address, interface: Interface
    ) -> None:
        known.timer.start(round(self._settings.timeout_s * SECOND))
        if (known.metric, known.gateway, known.interface) == (metric, gateway, interface):
            return
        known.metric, known.gateway, known.interface = metric, gateway, interface
        route = Route(known.prefix, Origin.DISTANCE_VECTOR, gateway, interface, metric)
        self._node.table.offer(route)
        self._mark(known)

    def _lose(self, known: Distance) -> None:
        """Unreachable: announce it so until it is removed."""
        known.metric = INFINITY
        known.timer.start(round(self._settings.garbage_s * SECOND))
        self._node.table.withdraw(known.prefix, Origin.DISTANCE_VECTOR)
        self._mark(known)

    def _expire(self, prefix: IPv4Network) -> None:
        known = self.distances[prefix]
        if known.metric < INFINITY:
            self._lose(known)
        else:
            del self.distances[prefix]

    def _mark(self, known: Distance) -> None:
        known.changed = True
        self._changed()

    def _changed(self) -> None:
        """Tell the neighbours soon: at once, or when the pause after the last time is over."""
        if self._settings.triggered and not self._trigger.running:
            self._trigger.start(max(0, self._quiet_until - self._node.agenda.now))

    def _send_changes(self) -> None:
        changed = [one for one in self.distances.values() if one.changed]
        for interface in self._interfaces:
            self._send_table(interface, changed)
        for one in changed:
            one.changed = False
        pause = round(self._random.uniform(1, 5) * SECOND)
        self._quiet_until = self._node.agenda.now + pause

    def _update_all(self) -> None:
        for interface in self._interfaces:
            self._send_table(interface, self.distances.values())
        for one in self.distances.values():
            one.changed = False
        self._trigger.stop()
        self._update.start(self._update_delay())

    def _update_delay(self) -> int:
        return round(self._settings.update_s * self._random.uniform(*UPDATE_SPREAD) * SECOND)

    def _send_table(
        self, interface: Interface, distances: Iterable[Distance], to: Asker = ALL_ROUTERS
    ) -> None:
        entries = [
            (one.prefix, metric)
            for one in distances
            if (metric := self._told(one, interface)) is not None
        ]
        for at in range(0, len(entries), ENTRIES_PER_MESSAGE):
            self._send(interface, encode_response(entries[at : at + ENTRIES_PER_MESSAGE]), to)

    def _told(self, one: Distance, interface: Interface) -> int | None:
        """The distance that is announced on an interface; None: nothing."""
        if one.interface is interface:
            if self._settings.split_horizon is SplitHorizon.SIMPLE:
                return None
            if self._settings.split_horizon is SplitHorizon.POISONED:
                return INFINITY
        return one.metric

    def _send(self, interface: Interface, message: bytes, to: Asker = ALL_ROUTERS) -> None:
        if not interface.up:
            return
        self.messages += 1
        try:
            self._socket.send(message, *to, ttl=1, interface=interface)
        except NoRouteError:
            self._node.counters["no route"] += 1
