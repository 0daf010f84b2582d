# SPDX-License-Identifier: Apache-2.0
"""A BGP-4 speaker (RFC 4271): the path-vector protocol of one border router.

It learns paths to networks from neighbouring systems and from the other border routers of its own,
uses the best one for each network, and tells neighbours as its policy allows. Inside the system
border routers form a full mesh, and each announces what it has from outside in the interior
protocol. Withdrawals wait for the advertisement timer as announcements do (section 9.2.1.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network
from random import Random
from typing import Protocol

from verbena._arguments import checked_class
from verbena.internet.bgp_messages import BgpUpdate, PathAttributes, updates
from verbena.internet.bgp_policy import GaoRexford, Policy, Relation, check_preference
from verbena.internet.bgp_routes import BgpRoute, best_route
from verbena.internet.bgp_session import (
    BGP_PORT,
    BgpPeering,
    BgpSession,
    BgpSettings,
    BgpState,
)
from verbena.internet.errors import AddressError, InternetTypeError
from verbena.internet.interface import Interface
from verbena.internet.network import parse_network
from verbena.internet.node import Node
from verbena.internet.table import Origin, Route
from verbena.internet.tcp_connection import TcpConnection
from verbena.internet.timer import SECOND, Timer

MOST_SYSTEMS = 65535
# Of a route that another system announces in the interior protocol.
REDISTRIBUTED_COST = 1
OWN_PREFERENCE = 1 << 31


class InteriorProtocol(Protocol):
    """What a speaker needs of the routing protocol inside its system."""

    def announce(self, prefix: IPv4Network, cost: int = 1) -> None: ...

    def retract(self, prefix: IPv4Network) -> None: ...


@dataclass(eq=False, repr=False)
class BgpNeighbour:
    """A neighbour: ``received`` is what it has told (Adj-RIB-In), ``told`` what it was told
    (Adj-RIB-Out). ``relation`` is None for a router of the own system."""

    address: IPv4Address
    system: int
    relation: Relation | None
    interface: Interface | None
    session: BgpSession
    advertise: Timer
    received: dict[IPv4Network, BgpRoute] = field(default_factory=dict)
    told: dict[IPv4Network, PathAttributes] = field(default_factory=dict)
    pending: set[IPv4Network] = field(default_factory=set)

    def __repr__(self) -> str:
        return f"<neighbour {self.address} of system {self.system}, {self.session.state.value}>"

    @property
    def is_up(self) -> bool:
        return self.session.state is BgpState.ESTABLISHED


@checked_class(InternetTypeError)
class BgpSpeaker:
    """The speaker of a router in system number ``system``. ``best`` is the Loc-RIB: the route to
    each network; ``changes`` counts how often one of them has changed."""

    def __init__(
        self,
        node: Node,
        system: int,
        random: Random,
        *,
        policy: Policy | None = None,
        settings: BgpSettings | None = None,
        interior: InteriorProtocol | None = None,
        router: IPv4Address | None = None,
    ) -> None:
        if not 1 <= system <= MOST_SYSTEMS:
            raise AddressError(f"{system} is no number of an autonomous system: 1 to 65535")
        self.node = node
        self.system = system
        self.policy = policy or GaoRexford()
        self.router = router or node.address
        self.neighbours: dict[IPv4Address, BgpNeighbour] = {}
        self.best: dict[IPv4Network, BgpRoute] = {}
        self.changes = 0
        self._random = random
        self._settings = settings or BgpSettings()
        self._interior = interior
        self._originated: set[IPv4Network] = set()
        self._redistributed: set[IPv4Network] = set()
        self._review = Timer(node.agenda, self._review_interior)
        node.tcp.listen(self._accept, BGP_PORT)
        node.table.on_change.append(self._table_changed)

    # ---- what is set up ----

    def add_neighbour(
        self, address: str | IPv4Address, system: int, relation: Relation | None = None
    ) -> BgpNeighbour:
        """Talk to a router: of another system, to which the own one has a ``relation``, over the
        link that both are on; or of the own system, wherever it is. Raises AddressError."""
        other = IPv4Address(address)
        if other in self.neighbours:
            raise AddressError(f"{self.node.name}: {other} is a neighbour already")
        if (relation is None) != (system == self.system):
            raise AddressError(
                f"{self.node.name}: a neighbour of another system needs a relation (customer, "
                f"peer or provider), and one of the own system {self.system} has none"
            )
        interface = None if relation is None else self._interface_to(other)
        own = self.router if interface is None else interface.address
        peering = BgpPeering(self.system, self.router, own, system, other)
        made = BgpNeighbour(
            other,
            system,
            relation,
            interface,
            BgpSession(
                self.node,
                peering,
                self._settings,
                lambda: self._up(made),
                lambda reason: self._down(made),
                lambda update: self._take(made, update),
            ),
            Timer(self.node.agenda, lambda: self._advertise(made)),
        )
        self.neighbours[other] = made
        if interface is not None:
            interface.on_carrier.append(lambda _: self._carrier_changed(made))
        # Both sides are set up before the first packet.
        self.node.agenda.add(self.node.agenda.now, made.session.start)
        return made

    def originate(self, prefix: str | IPv4Network) -> None:
        """Announce a network of the own system, while this router has a route to it."""
        network = parse_network(prefix)
        self._originated.add(network)
        self._decide(network)

    def _interface_to(self, other: IPv4Address) -> Interface:
        for interface in self.node.interfaces:
            if other in interface.network and other != interface.address:
                return interface
        raise AddressError(
            f"{self.node.name}: {other} is on none of its links; a neighbour of another system is"
        )

    # ---- sessions ----

    def _accept(self, connection: TcpConnection, address: IPv4Address, port: int) -> None:
        neighbour = self.neighbours.get(address)
        if neighbour is None or not neighbour.session.accept(connection):
            connection.on_open = connection.abort

    def _carrier_changed(self, neighbour: BgpNeighbour) -> None:
        assert neighbour.interface is not None
        if neighbour.interface.up:
            neighbour.session.start()
        else:
            neighbour.session.stop("the link is down", stay=True)

    def _up(self, neighbour: BgpNeighbour) -> None:
        neighbour.pending = set(self.best)
        neighbour.advertise.start(0)

    def _down(self, neighbour: BgpNeighbour) -> None:
        neighbour.advertise.stop()
        neighbour.told.clear()
        neighbour.pending.clear()
        lost, neighbour.received = list(neighbour.received), {}
        for prefix in lost:
            self._decide(prefix)

    # ---- what neighbours tell ----

    def _take(self, neighbour: BgpNeighbour, update: BgpUpdate) -> None:
        for prefix in update.withdrawn:
            if neighbour.received.pop(prefix, None) is not None:
                self._decide(prefix)
        if update.attributes is None:
            return
        for prefix in update.networks:
            route = self._accepted(neighbour, prefix, update.attributes)
            if route is None:
                neighbour.received.pop(prefix, None)
            else:
                neighbour.received[prefix] = route
            self._decide(prefix)

    def _accepted(
        self, neighbour: BgpNeighbour, prefix: IPv4Network, told: PathAttributes
    ) -> BgpRoute | None:
        """None for a path that leads through the own system, or that the policy refuses, and for a
        next hop that cannot be used (RFC 4271, section 6.3)."""
        if self.system in told.path or not self._is_usable(neighbour, told.next_hop):
            return None
        learnt, preference = neighbour.relation, told.local_preference
        if neighbour.relation is None:
            marks = [value for system, value in told.communities if system == self.system]
            learnt = Relation(marks[0]) if marks and marks[0] in set(Relation) else None
        elif told.path[:1] != (neighbour.system,):
            return None
        else:
            preference = self.policy.prefer(neighbour.relation, told.path)
            if preference is not None:
                kind = type(self.policy).__name__
                path = " ".join(map(str, told.path))
                check_preference(preference, f"{kind}.prefer of system {self.system}, path {path}:")
        if preference is None:
            return None
        return BgpRoute(
            prefix,
            told.path,
            told.next_hop,
            preference,
            learnt,
            told.origin,
            neighbour.address,
            neighbour.session.other_router,
            neighbour.relation is None,
        )

    def _is_usable(self, neighbour: BgpNeighbour, next_hop: IPv4Address) -> bool:
        """A next hop is not this router itself, and is on the link to another system's router."""
        network = None if neighbour.interface is None else neighbour.interface.network
        if next_hop not in self.node.addresses and (network is None or next_hop in network):
            return True
        self.node.counters["next hop cannot be used"] += 1
        return False

    # ---- the decision ----

    def _candidates(self, prefix: IPv4Network) -> Iterable[BgpRoute]:
        if prefix in self._originated and self._is_reached(prefix):
            yield BgpRoute(prefix, (), self.router, OWN_PREFERENCE)
        for neighbour in self.neighbours.values():
            route = neighbour.received.get(prefix)
            if route is None:
                continue
            if not route.interior:
                yield route
                continue
            way = self.node.table.lookup(route.next_hop)
            if way is not None and way.origin is not Origin.INTERNAL_BGP:
                yield replace(route, cost=way.metric)

    def _is_reached(self, prefix: IPv4Network) -> bool:
        """Whether the interior protocol, or a link, leads there."""
        route = self.node.table.best(prefix)
        bgp = (Origin.EXTERNAL_BGP, Origin.INTERNAL_BGP)
        return route is not None and route.origin not in bgp

    def _decide(self, prefix: IPv4Network) -> None:
        route = best_route(self._candidates(prefix))
        if route == self.best.get(prefix):
            return
        self.changes += 1
        if route is None:
            del self.best[prefix]
        else:
            self.best[prefix] = route
        self._use(prefix, route)
        for neighbour in self.neighbours.values():
            if neighbour.is_up:
                neighbour.pending.add(prefix)
                if not neighbour.advertise.running:
                    neighbour.advertise.start(0)

    def _use(self, prefix: IPv4Network, route: BgpRoute | None) -> None:
        """Put a route in the router's table; announce one from outside inside the system."""
        table, outside = self.node.table, False
        if route is None or route.source is None or not route.interior:
            table.withdraw(prefix, Origin.INTERNAL_BGP)
        if route is None or route.source is None or route.interior:
            table.withdraw(prefix, Origin.EXTERNAL_BGP)
        if route is not None and route.source is not None:
            outside = not route.interior
            interface = self.neighbours[route.source].interface
            origin = Origin.EXTERNAL_BGP if outside else Origin.INTERNAL_BGP
            table.offer(Route(prefix, origin, route.next_hop, interface, len(route.path)))
        if self._interior is not None and outside != (prefix in self._redistributed):
            if outside:
                self._redistributed.add(prefix)
                self._interior.announce(prefix, REDISTRIBUTED_COST)
            else:
                self._redistributed.remove(prefix)
                self._interior.retract(prefix)

    def _table_changed(self, prefix: IPv4Network) -> None:
        """The ways inside the system have changed, and with them what can be used."""
        if prefix in self._originated:
            self._decide(prefix)
        if self.best or any(one.received for one in self.neighbours.values()):
            self._review.start(0)

    def _review_interior(self) -> None:
        prefixes = {
            prefix
            for neighbour in self.neighbours.values()
            if neighbour.relation is None
            for prefix in neighbour.received
        }
        for prefix in sorted(prefixes):
            self._decide(prefix)

    # ---- what neighbours are told ----

    def _advertise(self, neighbour: BgpNeighbour) -> None:
        """Tell a neighbour what has changed, and then nothing for the advertisement interval."""
        gone: list[IPv4Network] = []
        reached: dict[PathAttributes, list[IPv4Network]] = {}
        for prefix in sorted(neighbour.pending):
            now = self._told(neighbour, self.best.get(prefix))
            if now == neighbour.told.get(prefix):
                continue
            if now is None:
                gone.append(prefix)
                del neighbour.told[prefix]
            else:
                reached.setdefault(now, []).append(prefix)
                neighbour.told[prefix] = now
        neighbour.pending.clear()
        for update in updates(gone, reached):
            neighbour.session.send(update)
        if gone or reached:
            settings = self._settings
            interior = neighbour.relation is None
            pause = settings.interior_advertisement_s if interior else settings.advertisement_s
            neighbour.advertise.start(round(pause * self._random.uniform(0.75, 1) * SECOND))

    def _told(self, neighbour: BgpNeighbour, route: BgpRoute | None) -> PathAttributes | None:
        """What a neighbour may know of a route; None: nothing."""
        if route is None:
            return None
        if neighbour.relation is None:
            return None if route.interior else route.attributes(self.system, self.router)
        assert neighbour.interface is not None
        if neighbour.system in route.path:
            return None
        if not self.policy.offers(route.learnt, neighbour.relation):
            return None
        return route.abroad(self.system, neighbour.interface.address)

    def __str__(self) -> str:
        return "\n".join(str(self.best[prefix]) for prefix in sorted(self.best))
