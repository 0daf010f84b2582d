# SPDX-License-Identifier: Apache-2.0
"""A node's routing table: what each source of routes offers, and the best offer for each prefix.

Routing protocols and the builder write it, and the node looks up every datagram in it. Of several
offers for a prefix the source's preference decides; an offer through an interface that is down
does not count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING

from verbena._arguments import checked_class
from verbena.internet.errors import InternetTypeError
from verbena.internet.prefixes import PrefixMap

if TYPE_CHECKING:
    from verbena.internet.interface import Interface

# A route's next hop may be found by another route, and that one's again.
MAX_RECURSION = 4


class Origin(IntEnum):
    """Who offers a route; the value is the preference, and the least one wins (as at Cisco's)."""

    CONNECTED = 0
    STATIC = 1
    EXTERNAL_BGP = 20
    LINK_STATE = 110
    DISTANCE_VECTOR = 120
    INTERNAL_BGP = 200

    @property
    def text(self) -> str:
        return self.name.lower().replace("_", " ").replace("bgp", "BGP")


@dataclass(frozen=True, slots=True)
class Route:
    """To ``prefix`` by ``next_hop``, or directly if that is None.

    ``interface`` is None for a route whose next hop is found by another route.
    """

    prefix: IPv4Network
    origin: Origin
    next_hop: IPv4Address | None = None
    interface: Interface | None = None
    metric: int = 0

    def __str__(self) -> str:
        way = "directly" if self.next_hop is None else f"via {self.next_hop}"
        name = "" if self.interface is None else f" on {self.interface.name}"
        return f"{self.prefix!s:18} {way}{name} [{self.origin.text}, {self.metric}]"


@checked_class(InternetTypeError, but=("lookup", "resolve"))
class RoutingTable:
    """``on_change`` are called with each prefix whose best route has changed."""

    def __init__(self) -> None:
        self._offers: dict[IPv4Network, dict[Origin, Route]] = {}
        self._best: PrefixMap[Route] = PrefixMap()
        self._chosen: dict[IPv4Network, Route] = {}
        self.on_change: list[Callable[[IPv4Network], None]] = []

    def offer(self, route: Route) -> None:
        """Add a route, in place of that of the same origin for the prefix."""
        self._offers.setdefault(route.prefix, {})[route.origin] = route
        self._choose(route.prefix)

    def withdraw(self, prefix: IPv4Network, origin: Origin) -> None:
        """Remove an offer, if there is one."""
        if self._offers.get(prefix, {}).pop(origin, None) is not None:
            self._choose(prefix)

    def replace(self, origin: Origin, routes: dict[IPv4Network, Route]) -> None:
        """Make these the only offers of an origin."""
        for prefix in [p for p, offers in self._offers.items() if origin in offers]:
            if prefix not in routes:
                self.withdraw(prefix, origin)
        for route in routes.values():
            self.offer(route)

    def offered(self, prefix: IPv4Network, origin: Origin) -> Route | None:
        return self._offers.get(prefix, {}).get(origin)

    def refresh(self) -> None:
        """Choose again, after an interface went up or down."""
        for prefix in list(self._offers):
            self._choose(prefix)

    def lookup(self, address: IPv4Address) -> Route | None:
        """The best route of the longest prefix."""
        found = self._best.longest(address)
        return None if found is None else found[1]

    def resolve(self, address: IPv4Address) -> tuple[Interface, IPv4Address] | None:
        """The interface, and the neighbour on it, by which to reach an address."""
        for _ in range(MAX_RECURSION):
            route = self.lookup(address)
            if route is None:
                return None
            address = address if route.next_hop is None else route.next_hop
            if route.interface is not None:
                return route.interface, address
        return None

    def best(self, prefix: IPv4Network) -> Route | None:
        return self._chosen.get(prefix)

    @property
    def routes(self) -> list[Route]:
        """The best route of each prefix, in order of prefixes."""
        return [self._chosen[prefix] for prefix in self._best]

    def __str__(self) -> str:
        return "\n".join(map(str, self.routes))

    def _choose(self, prefix: IPv4Network) -> None:
        offers = self._offers[prefix]
        usable = [
            route for route in offers.values() if route.interface is None or route.interface.up
        ]
        best = min(usable, key=lambda route: route.origin, default=None)
        if not offers:
            del self._offers[prefix]
        if best == self._chosen.get(prefix):
            return
        if best is None:
            del self._chosen[prefix]
            del self._best[prefix]
        else:
            self._chosen[prefix] = self._best[prefix] = best
        for call in self.on_change:
            call(prefix)
