# SPDX-License-Identifier: Apache-2.0
"""Dijkstra's algorithm over the LSAs of a link-state database (RFC 2328, section 16.1).

Each router computes its own paths. A link counts only if both of its routers announce it. Of equal
paths the one whose first hop has the lowest identifier is taken, so that results do not depend on
the order in which LSAs came.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network

from verbena.internet.lsa import Lsa, LsaLinkKind

Paths = dict[IPv4Network, tuple[int, IPv4Address | None]]


def shortest_paths(lsas: Mapping[IPv4Address, Lsa], root: IPv4Address) -> Paths:
    """The cost of each network, and the neighbour of ``root`` that is first on the way to it; None
    for networks of ``root`` itself."""
    reached: dict[IPv4Address, tuple[int, int]] = {}
    heap = [(0, 0, int(root))]
    edges = {router: _router_links(lsa) for router, lsa in lsas.items()}
    while heap:
        cost, first, identity = heapq.heappop(heap)
        router = IPv4Address(identity)
        if router in reached or router not in lsas:
            continue
        reached[router] = (cost, first)
        for other, link_cost in edges[router].items():
            if other not in reached and router in edges.get(other, {}):
                heapq.heappush(heap, (cost + link_cost, first or int(other), int(other)))
    return _networks(lsas, reached)


def _router_links(lsa: Lsa) -> dict[IPv4Address, int]:
    """The cheapest link to each neighbour."""
    found: dict[IPv4Address, int] = {}
    for link in lsa.links:
        if link.kind is LsaLinkKind.ROUTER:
            found[link.identity] = min(link.cost, found.get(link.identity, link.cost))
    return found


def _networks(
    lsas: Mapping[IPv4Address, Lsa], reached: Mapping[IPv4Address, tuple[int, int]]
) -> Paths:
    best: dict[IPv4Network, tuple[int, int]] = {}
    for router, (cost, first) in reached.items():
        for link in lsas[router].links:
            if link.kind is LsaLinkKind.STUB:
                offer = (cost + link.cost, first)
                best[link.network] = min(offer, best.get(link.network, offer))
    return {
        prefix: (cost, IPv4Address(first) if first else None)
        for prefix, (cost, first) in best.items()
    }
