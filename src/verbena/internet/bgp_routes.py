# SPDX-License-Identifier: Apache-2.0
"""Routes of BGP, and the decision which of several to a network is used (RFC 4271, section 9.1).

A speaker keeps what each neighbour has told and asks ``best_route`` again whenever that changes.
``DECISION`` is the whole process: the first step in which two routes differ decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from verbena.internet.bgp_messages import PathAttributes, PathOrigin
from verbena.internet.bgp_policy import Relation
from verbena.internet.icmp import UNSPECIFIED


@dataclass(frozen=True, slots=True)
class BgpRoute:
    """A route that a neighbour has told, or an own one (without ``source``).

    ``learnt``: from what kind of system one's own system has it; None: the network is its own.
    ``interior``: told by a router of the own system, whose distance is ``cost``. ``router`` is the
    identifier of who told it.
    """

    prefix: IPv4Network
    path: tuple[int, ...]
    next_hop: IPv4Address
    preference: int
    learnt: Relation | None = None
    origin: PathOrigin = PathOrigin.INTERIOR
    source: IPv4Address | None = None
    router: IPv4Address = UNSPECIFIED
    interior: bool = False
    cost: int = 0

    def __str__(self) -> str:
        path = " ".join(map(str, self.path)) or "local"
        return f"{self.prefix!s:18} via {self.next_hop} path {path} preference {self.preference}"

    def attributes(self, system: int, next_hop: IPv4Address) -> PathAttributes:
        """What another router of the own system is told: a community says where it came from."""
        mark = () if self.learnt is None else ((system, int(self.learnt)),)
        return PathAttributes(self.path, next_hop, self.origin, self.preference, mark)

    def abroad(self, system: int, next_hop: IPv4Address) -> PathAttributes:
        """What a neighbouring system is told."""
        return PathAttributes((system, *self.path), next_hop, self.origin)


# The route with the least value stays. There is no MULTI_EXIT_DISC: all neighbours are compared.
DECISION: tuple[tuple[str, Callable[[BgpRoute], int]], ...] = (
    ("the network is the own system's", lambda one: one.source is not None),
    ("highest local preference", lambda one: -one.preference),
    ("shortest path", lambda one: len(one.path)),
    ("lowest origin", lambda one: one.origin),
    ("from another system before the own one", lambda one: one.interior),
    ("nearest next hop", lambda one: one.cost),
    ("lowest router identifier", lambda one: int(one.router)),
    ("lowest address of the neighbour", lambda one: int(one.source or 0)),
)


def best_route(routes: Iterable[BgpRoute]) -> BgpRoute | None:
    """None if there is no route."""
    return min(routes, key=lambda one: [rank(one) for _, rank in DECISION], default=None)


def deciding_step(one: BgpRoute, other: BgpRoute) -> str:
    """The first step of the decision in which two routes differ; "" if there is none."""
    return next((name for name, rank in DECISION if rank(one) != rank(other)), "")
