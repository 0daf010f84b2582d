# SPDX-License-Identifier: Apache-2.0
"""An internet: nodes, networks and links on one agenda, made in a few lines.

Programs build one, run it for some virtual time, and ask: ``ping``, ``traceroute``, ``routes``.
Names, addresses and prefixes are unique in it. The same seed gives the same run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from itertools import islice
from math import inf
from random import Random
from typing import Any

from verbena._arguments import checked_class
from verbena.host.clock import NEVER, Agenda
from verbena.internet.errors import (
    AddressError,
    InternetError,
    InternetTypeError,
    NotConvergedError,
)
from verbena.internet.interface import Interface, check_unicast
from verbena.internet.lan_segment import LanSegment
from verbena.internet.links import LineSettings, Links, PointToPoint, Segment
from verbena.internet.network import Network, parse_network
from verbena.internet.network_capture import NetworkCapture
from verbena.internet.node import Node
from verbena.internet.probes import (
    MOST_ECHOES,
    Hop,
    PathMtu,
    PingReply,
    run_until,
    search_path_mtu,
)
from verbena.internet.probes import ping as ping_from
from verbena.internet.probes import traceroute as traceroute_from
from verbena.internet.timer import SECOND
from verbena.lan import Lan

# RFC 6598's shared address space, which no network of an example has.
LINK_PREFIXES = "100.64.0.0/10"
QUIET_S = 200.0
CONVERGENCE_LIMIT_S = 3600.0


@checked_class(InternetTypeError)
class Internet:
    """``agenda`` may be shared with other simulated parts; ``link_prefixes`` is where links without
    a prefix get theirs."""

    def __init__(
        self,
        seed: int = 1,
        agenda: Agenda | None = None,
        link_prefixes: str | IPv4Network = LINK_PREFIXES,
    ) -> None:
        self.agenda = agenda if agenda is not None else Agenda()
        self.random = Random(seed)
        self._seed = seed
        self.nodes: dict[str, Node] = {}
        self.networks: list[Network] = []
        self.links = Links()
        self.changed_at = 0
        self._link_prefixes = parse_network(link_prefixes)
        self._next_link = int(self._link_prefixes.network_address)
        self._prefixes: list[IPv4Network] = []
        self._names: dict[IPv4Address, str] = {}
        self._router_ids: dict[IPv4Address, str] = {}
        self._macs = 0
        self._echoes = 0

    @property
    def now_s(self) -> float:
        """Virtual seconds since the beginning."""
        return self.agenda.now / SECOND

    def host(self, name: str) -> Node:
        return self._add_node(name, False)

    def router(self, name: str) -> Node:
        return self._add_node(name, True)

    def node(self, node: str | Node) -> Node:
        """By its name. Raises AddressError."""
        if isinstance(node, Node):
            return node
        if node not in self.nodes:
            raise AddressError(f"no node is called {node!r}; there are {', '.join(self.nodes)}")
        return self.nodes[node]

    def network(
        self, prefix: str | IPv4Network, *members: str | Node, name: str = "", **line: Any
    ) -> Network:
        """An Ethernet with a prefix; the members get its first addresses, in their order.

        Keywords are those of ``LineSettings``. Raises AddressError when the prefix overlaps that of
        another network or link.
        """
        network = self._unused(parse_network(prefix))
        nodes = [self.node(member) for member in members]
        _check_members(network, nodes)
        settings = LineSettings(**line)
        name = self._link_name(name or str(network))
        self._prefixes.append(network)
        segment = Segment(name, self.agenda, settings, self.random)
        self.links[name] = segment
        made = Network(network, segment, self._new_mac)
        made.on_attach.append(self._note_interface)
        self.networks.append(made)
        for node in nodes:
            made.attach(node)
        return made

    def lan_network(
        self,
        prefix: str | IPv4Network,
        lan: Lan,
        members: Iterable[str] | Mapping[str, str],
        name: str = "",
    ) -> Network:
        """A network over a LAN with this internet's agenda; the members get its first addresses.

        ``members`` are nodes whose stations have the same names, or a mapping from each node to
        its station. Raises AddressError and InternetError.
        """
        if lan.agenda is not self.agenda:
            raise InternetError("make the LAN with this internet's clock: Lan(agenda=net.agenda)")
        pairs = dict(members) if isinstance(members, Mapping) else {one: one for one in members}
        network = self._unused(parse_network(prefix))
        nodes = [self.node(member) for member in pairs]
        _check_members(network, nodes)
        name = self._link_name(name or str(network))
        segment = LanSegment(name, lan)
        stations = segment.add(list(pairs.values()))
        self._prefixes.append(network)
        self.links[name] = segment
        made = Network(network, None, self._new_mac, segment)
        made.on_attach.append(self._note_interface)
        self.networks.append(made)
        for node, station in zip(nodes, stations, strict=True):
            made.attach(node, mac=station.station.mac, link=station)
        return made

    def link(
        self,
        left: str | Node,
        right: str | Node,
        prefix: str | IPv4Network | None = None,
        name: str = "",
        **line: Any,
    ) -> PointToPoint:
        """A point-to-point link. Its two ends are the first two hosts of the prefix, by default of
        a free prefix of 31 bits."""
        one, two = self.node(left), self.node(right)
        if one is two:
            raise InternetError(f"a link from {one.name} to itself: name two nodes")
        settings = LineSettings(**line)
        name = self._link_name(name or f"{one.name}-{two.name}")
        network = self._unused(self._free_link() if prefix is None else parse_network(prefix))
        if network.prefixlen > 31:
            raise AddressError(f"{network} has one address, and a link needs two")
        _check_members(network, [one, two])
        self._prefixes.append(network)
        link = PointToPoint(name, self.agenda, settings, self.random)
        for node, port, address in zip((one, two), link.ports, network.hosts(), strict=False):
            interface = node.attach(port, IPv4Interface((address, network.prefixlen)))
            self._note_interface(node, interface)
        self.links[name] = link
        return link

    def run(self, seconds: float) -> None:
        """Let virtual time pass. Raises InternetError below 0, or if time would reach 2^63 ps."""
        if seconds < 0:
            raise InternetError(f"time goes on: {seconds} s are below 0")
        self.agenda.run_due(self._after(seconds))

    def _after(self, seconds: float) -> int:
        """The time so much later; InternetError if there is none."""
        time = self.agenda.now + round(seconds * SECOND)
        if time >= NEVER:
            raise InternetError(
                f"time ends at 2^63 ps, {NEVER // SECOND} s: {seconds:g} s more are too long"
            )
        return time

    def run_until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Run until ``done`` says so, at most so long. Returns ``done()``. Raises InternetError
        if time would reach 2^63 ps."""
        return run_until(self.agenda, done, self._after(seconds))

    def converge(self, quiet_s: float = QUIET_S, limit_s: float = CONVERGENCE_LIMIT_S) -> float:
        """Run until no routing table has changed for ``quiet_s``; return the seconds from the call
        to the last change. Raises NotConvergedError when tables still change after ``limit_s``,
        and InternetError for a time below 0 or a limit below ``quiet_s``."""
        _check_convergence(quiet_s, limit_s)
        begin = self.agenda.now
        quiet, limit = self._after(quiet_s) - begin, self._after(limit_s)
        while True:
            since = max(begin, self.changed_at)
            if self.agenda.now >= since + quiet:
                return max(0, self.changed_at - begin) / SECOND
            if since + quiet > limit:
                raise NotConvergedError(
                    f"routes still change {limit_s:g} s after the beginning; the last change was "
                    f"at {self.changed_at / SECOND:g} s of virtual time"
                )
            self.agenda.run_due(since + quiet)

    def ping(
        self,
        source: str | Node,
        destination: str | Node | IPv4Address,
        count: int = 1,
        size: int = 56,
        dont_fragment: bool = False,
    ) -> list[PingReply]:
        """Send echoes with ``size`` bytes, one a second, and say what came back for each."""
        if count < 1 or size < 0:
            raise InternetError(f"{count} echoes of {size} bytes: at least one, of 0 bytes or more")
        if count > MOST_ECHOES:
            raise InternetError(
                f"{count:,} echoes: a ping has at most {MOST_ECHOES:,}, since their sequence number"
                " has 16 bits; ping again for more"
            )
        self._echoes += 1
        to = self.address_of(destination)
        node = self.node(source)
        return ping_from(node, to, count, size, self._echoes & 0xFFFF, dont_fragment)

    def traceroute(
        self, source: str | Node, destination: str | Node | IPv4Address, max_ttl: int = 30
    ) -> list[Hop]:
        """Who answers on the way, by TTL. Raises NoRouteError."""
        if not 1 <= max_ttl <= 255:
            raise InternetError(f"a TTL is 1 to 255: max_ttl is {max_ttl}")
        to = self.address_of(destination)
        return traceroute_from(self.node(source), to, self.name_of, max_ttl)

    def path_mtu(self, source: str | Node, destination: str | Node | IPv4Address) -> PathMtu:
        """Search the largest datagram that passes without fragmentation."""
        self._echoes += 1
        to = self.address_of(destination)
        return search_path_mtu(self.node(source), to, self._echoes & 0xFFFF)

    def routes(self, node: str | Node) -> str:
        """A node's routing table, a route on each line."""
        return str(self.node(node).table)

    def capture(
        self, file: str | os.PathLike[str], links: Iterable[str] | None = None
    ) -> NetworkCapture:
        """Write what links carry, by default all of them, to a pcapng file until it is closed."""
        names = list(self.links) if links is None else list(links)
        return NetworkCapture(file, [self.links[name] for name in names])

    def address_of(self, destination: str | Node | IPv4Address) -> IPv4Address:
        """Of a node, its name, or an address in text."""
        if isinstance(destination, IPv4Address):
            return destination
        if isinstance(destination, Node):
            return destination.address
        if destination in self.nodes:
            return self.nodes[destination].address
        try:
            return IPv4Address(destination)
        except ValueError:
            raise AddressError(
                f"{destination!r} is neither a node nor an address; nodes are "
                f"{', '.join(self.nodes)}"
            ) from None

    def name_of(self, address: IPv4Address) -> str:
        """The node that has an address; the address if none has it."""
        return self._names.get(address, str(address))

    def _add_node(self, name: str, forwards: bool) -> Node:
        if not name:
            raise AddressError("a node has a name that is not empty")
        if name in self.nodes:
            raise AddressError(f"a node is called {name!r} already")
        random = Random(f"{self._seed} {name}")
        node = Node(name, self.agenda, forwards, self._router_ids, random)
        node.table.on_change.append(self._note_change)
        self.nodes[name] = node
        return node

    def _note_change(self, prefix: IPv4Network) -> None:
        self.changed_at = self.agenda.now

    def _note_interface(self, node: Node, interface: Interface) -> None:
        if interface.address in self._names:
            raise AddressError(
                f"{interface.address} is of {self._names[interface.address]} already"
            )
        self._names[interface.address] = node.name

    def _unused(self, prefix: IPv4Network) -> IPv4Network:
        check_unicast(prefix)
        for other in self._prefixes:
            if other.overlaps(prefix):
                raise AddressError(
                    f"{prefix} overlaps {other}, which another network has: addresses are unique"
                )
        return prefix

    def _free_link(self) -> IPv4Network:
        while self._next_link + 1 <= int(self._link_prefixes.broadcast_address):
            prefix = IPv4Network((self._next_link, 31))
            self._next_link += 2
            if not any(other.overlaps(prefix) for other in self._prefixes):
                return prefix
        raise AddressError(f"{self._link_prefixes} has no free prefix for a link: name one")

    def _link_name(self, name: str) -> str:
        if name in self.links:
            raise InternetError(f"a link is called {name!r} already: give the second one a name")
        return name

    def _new_mac(self) -> bytes:
        """A locally administered address."""
        self._macs += 1
        return b"\x02\x00" + self._macs.to_bytes(4, "big")


def _check_members(network: IPv4Network, nodes: list[Node]) -> None:
    """Whether each node can have its address, before anything is changed. Raises AddressError."""
    addresses = list(islice(network.hosts(), len(nodes)))
    if len(addresses) < len(nodes):
        raise AddressError(f"{network} has {len(addresses)} addresses for {len(nodes)} nodes")
    for at, (node, address) in enumerate(zip(nodes, addresses, strict=True)):
        if node in nodes[:at]:
            raise AddressError(f"{node.name} is named twice in {network}: one interface is enough")
        node.check_address(IPv4Interface((address, network.prefixlen)))


def _check_convergence(quiet_s: float, limit_s: float) -> None:
    """Raises InternetError for times that ``converge`` does not take."""
    for name, value in (("quiet_s", quiet_s), ("limit_s", limit_s)):
        if not 0 <= value < inf:
            raise InternetError(f"{name} is {value:g} s: it is a time from 0 on")
    if limit_s < quiet_s:
        raise InternetError(
            f"limit_s is {limit_s:g} s, and below quiet_s, {quiet_s:g} s: routes have converged"
            " when no table has changed for quiet_s, so raise limit_s or lower quiet_s"
        )
