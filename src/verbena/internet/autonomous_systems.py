# SPDX-License-Identifier: Apache-2.0
"""Autonomous systems of an internet: which routers are whose, and what systems are to each other.

Programs add systems and connect them; this makes the interior protocol of each and the BGP speakers
of its border routers. Links and networks inside a system are made before it is added.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network
from itertools import groupby, pairwise
from typing import Any

from verbena._arguments import checked_class
from verbena.internet.bgp import BgpSpeaker
from verbena.internet.bgp_policy import Policy, Relation, is_valley_free
from verbena.internet.bgp_session import BgpSettings
from verbena.internet.distance_vector import DistanceVector
from verbena.internet.errors import AddressError, InternetError, InternetTypeError
from verbena.internet.internet import Internet
from verbena.internet.link_state import LinkState
from verbena.internet.links import PointToPoint
from verbena.internet.network import parse_network
from verbena.internet.node import Node


class Interior(StrEnum):
    """The routing protocol inside a system."""

    LINK_STATE = "link state"
    DISTANCE_VECTOR = "distance vector"


@checked_class(InternetTypeError)
class AutonomousSystem:
    """A system with a number, its routers, and what runs on them. ``AutonomousSystems`` makes it.

    ``speakers`` are the BGP speakers of its border routers.
    """

    def __init__(
        self,
        net: Internet,
        number: int,
        routers: Sequence[Node],
        interior: Interior,
        policy: Policy | None,
        settings: BgpSettings | None,
    ) -> None:
        self.number = number
        self.routers = list(routers)
        self.networks: list[IPv4Network] = [
            one.prefix
            for one in net.networks
            if any(member in routers for member in one.members.values())
        ]
        self.protocols: dict[Node, LinkState | DistanceVector] = {}
        self.speakers: dict[Node, BgpSpeaker] = {}
        self._net = net
        self._policy = policy
        self._settings = settings
        for router in routers:
            self._run_interior(router, interior)

    def __repr__(self) -> str:
        return f"<system {self.number}: {', '.join(one.name for one in self.routers)}>"

    def originate(self, prefix: str | IPv4Network) -> None:
        """Announce one more network of the system, which some router of it reaches. Raises
        AddressError for a text that is no network."""
        network = parse_network(prefix)
        for speaker in self.speakers.values():
            speaker.originate(network)
        self.networks.append(network)

    def speaker(self, router: Node) -> BgpSpeaker:
        """The speaker of a border router; the first call makes it one."""
        if router in self.speakers:
            return self.speakers[router]
        if router not in self.protocols:
            raise InternetError(f"{router.name} is no router of {self!r}")
        made = BgpSpeaker(
            router,
            self.number,
            self._net.random,
            policy=self._policy,
            settings=self._settings,
            interior=self.protocols[router],
            router=_steady_address(router),
        )
        for prefix in self.networks:
            made.originate(prefix)
        for other in self.speakers.values():
            other.add_neighbour(made.router, self.number)
            made.add_neighbour(other.router, self.number)
        self.speakers[router] = made
        return made

    def _run_interior(self, router: Node, interior: Interior) -> None:
        protocol = (
            LinkState(router, router.address)
            if interior is Interior.LINK_STATE
            else DistanceVector(router, self._net.random)
        )
        for interface in router.interfaces:
            protocol.add_interface(interface)
        self.protocols[router] = protocol


@checked_class(InternetTypeError)
class AutonomousSystems:
    """The systems of an internet, by number. ``relations[a, b]`` is what system b is to a."""

    def __init__(self, net: Internet, settings: BgpSettings | None = None) -> None:
        self.net = net
        self.systems: dict[int, AutonomousSystem] = {}
        self.relations: dict[tuple[int, int], Relation] = {}
        self._settings = settings
        self._of_router: dict[Node, AutonomousSystem] = {}

    def add(
        self,
        number: int,
        *routers: str | Node,
        interior: Interior | str = Interior.LINK_STATE,
        policy: Policy | None = None,
    ) -> AutonomousSystem:
        """A system of these routers, with all networks that they are on. ``policy`` is that of
        Gao and Rexford if there is none. Raises AddressError and InternetError."""
        nodes = [self.net.node(router) for router in routers]
        if number in self.systems:
            raise AddressError(f"there is a system {number} already: {self.systems[number]!r}")
        if not 1 <= number <= 65535:
            raise AddressError(f"{number} is no number of an autonomous system: 1 to 65535")
        self._check_routers(nodes)
        if interior not in list(Interior):
            known = " and ".join(repr(one.value) for one in Interior)
            raise InternetError(f"the interior protocols are {known}, and not {interior!r}")
        made = AutonomousSystem(self.net, number, nodes, Interior(interior), policy, self._settings)
        self.systems[number] = made
        self._of_router.update(dict.fromkeys(nodes, made))
        return made

    def provide(self, provider: str | Node, customer: str | Node, **line: Any) -> PointToPoint:
        """A link between border routers, by which one system sells transit to another one."""
        return self._connect(provider, customer, Relation.CUSTOMER, line)

    def peer(self, left: str | Node, right: str | Node, **line: Any) -> PointToPoint:
        """A link between border routers of two systems that exchange their customers' traffic.

        ``line`` are the keywords of ``Internet.link``.
        """
        return self._connect(left, right, Relation.PEER, line)

    def of(self, router: str | Node) -> AutonomousSystem:
        """The system of a router. Raises AddressError if it is in none."""
        node = self.net.node(router)
        if node not in self._of_router:
            raise AddressError(f"{node.name} is a router of no system: add it to one")
        return self._of_router[node]

    def crossed(self, addresses: Iterable[IPv4Address | None]) -> list[int]:
        """The numbers of the systems whose routers have these addresses, as of a traceroute; each
        once for routers in a row."""
        nodes = self.net.nodes
        names = [self.net.name_of(address) for address in addresses if address is not None]
        found = [self._of_router.get(nodes[name]) for name in names if name in nodes]
        return [number for number, _ in groupby(one.number for one in found if one is not None)]

    def is_valley_free(self, path: Sequence[int]) -> bool:
        """Whether a way through these systems leads up, over at most one peer, and down. Raises
        InternetError for systems in a row that are not connected."""
        for one, next_ in pairwise(path):
            if (one, next_) not in self.relations:
                raise InternetError(f"systems {one} and {next_} are not connected")
        return is_valley_free([self.relations[step] for step in pairwise(path)])

    def _check_routers(self, nodes: Sequence[Node]) -> None:
        if not nodes:
            raise InternetError("a system needs a router")
        for node in nodes:
            if not node.forwards:
                raise InternetError(f"{node.name} is a host: systems consist of routers")
            if node in self._of_router:
                raise InternetError(f"{node.name} is in {self._of_router[node]!r} already")
            if not node.interfaces:
                raise InternetError(
                    f"{node.name} has no network: make networks and links inside a system first"
                )

    def _connect(
        self, left: str | Node, right: str | Node, relation: Relation, line: dict[str, Any]
    ) -> PointToPoint:
        one, other = self.net.node(left), self.net.node(right)
        here, there = self.of(one), self.of(other)
        if here is there:
            raise InternetError(
                f"{one.name} and {other.name} are both in system {here.number}: make links inside "
                "a system with Internet.link, before the system"
            )
        known = self.relations.get((here.number, there.number), relation)
        if known is not relation:
            raise InternetError(
                f"system {there.number} is a {known.name.lower()} of {here.number} already: two "
                "systems have one relation"
            )
        link = self.net.link(one, other, **line)
        self.relations[here.number, there.number] = relation
        self.relations[there.number, here.number] = relation.reverse
        ends = one.interfaces[-1].address, other.interfaces[-1].address
        here.speaker(one).add_neighbour(ends[1], there.number, relation)
        there.speaker(other).add_neighbour(ends[0], here.number, relation.reverse)
        return link


def _steady_address(router: Node) -> IPv4Address:
    """An address that is reached as long as the router is: of a network, and not of a link."""
    on_network = (one.address for one in router.interfaces if one.is_ethernet)
    return next(on_network, router.address)
