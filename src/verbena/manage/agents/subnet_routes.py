# SPDX-License-Identifier: Apache-2.0
"""Ways of management packets that a ``Subnet`` has computed, and the packets counted on them.

A subnet manager asks along the same routes again and again, so a way is traced once and kept until
something changes. Packets are counted on the way, and ``RouteBook.settle`` adds them to the ports
when somebody reads counters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lid_routes import LidRoute, walk
from .lossy_links import is_lossy
from .packets import Drop, MadPacket

if TYPE_CHECKING:
    from .node_agent import NodeAgent
    from .node_ports import NodePort

__all__ = ["DirectedWay", "RouteBook", "blamed_counters", "combined_way", "trace"]

INVALID = Drop.ROUTE_INVALID
PERMISSIVE = b"\xff\xff"
MOST_WAYS = 1 << 17  # that are kept; more are forgotten, and traced again


class DirectedWay:
    """Where a route leads: node and port of arrival, or the problem that ends it.

    ``came_by`` has the input port of each hop, as a directed route's return path does. ``links``
    are the two ports of each link that is passed, and ``blamed`` a port's counters of a loss.
    ``is_lossy``: a packet may be damaged on one of them.
    """

    __slots__ = (
        "blamed",
        "came_by",
        "end",
        "ingress",
        "is_lossy",
        "links",
        "node",
        "problem",
        "requests",
        "responses",
    )

    def __init__(
        self,
        node: NodeAgent,
        ingress: int,
        came_by: bytes,
        links: list[tuple[NodePort, NodePort]],
        problem: Drop | None = None,
        blamed: tuple[NodePort, tuple[str, ...]] | None = None,
    ) -> None:
        self.node = node
        self.ingress = ingress
        self.end = node.end_port(ingress)
        self.came_by = came_by
        self.links = links
        self.problem = problem
        self.blamed = blamed
        self.is_lossy = is_lossy(links)
        self.requests = 0
        self.responses = 0

    @classmethod
    def of_route(cls, route: LidRoute, origin: NodeAgent) -> DirectedWay:
        """Return the way of a packet by its LIDs."""
        blamed = None
        if route.problem is not None and route.at is not None:
            blamed = route.at, blamed_counters(route.problem, route.at, route.charges)
        if route.end is None:
            first = next(iter(origin.ports))
            return cls(origin, first, b"", route.charges, route.problem, blamed)
        last = route.hops[-1].input_port
        ingress = route.end.number if last is None else last
        return cls(route.end.node, ingress, b"", route.charges)

    def count_request(self, book: RouteBook) -> None:
        """Count a packet on the way."""
        if not self.requests and not self.responses:
            book.uncounted.append(self)
        self.requests += 1

    def count_response(self, book: RouteBook) -> None:
        """Count a packet on the way back."""
        if not self.requests and not self.responses:
            book.uncounted.append(self)
        self.responses += 1

    def count(self, book: RouteBook, with_response: bool) -> None:
        """Count a packet on the way, and one on the way back if there was one."""
        if not self.requests and not self.responses:
            book.uncounted.append(self)
        self.requests += 1
        self.responses += with_response


# Counters of the port where a packet is lost.
BLAMED: dict[Drop, tuple[str, ...]] = {
    Drop.NO_PATH: ("rcv_switch_relay_errors", "dlid_mapping_errors"),
    Drop.LOOP: ("rcv_switch_relay_errors", "looping_errors"),
    Drop.VL_15: ("xmit_discards",),
    Drop.PORT_NOT_ACTIVE: ("xmit_discards", "inactive_discards"),
    Drop.LINK_DOWN: ("xmit_discards", "inactive_discards"),
}


def blamed_counters(
    problem: Drop, at: NodePort, passed: list[tuple[NodePort, NodePort]]
) -> tuple[str, ...]:
    """Return the counters of a loss at a port, behind the links that the packet has passed."""
    if problem is Drop.P_KEY_AT_SWITCH:
        came = not passed or passed[-1][1].node is not at.node
        return ("rcv_constraint_errors",) if came else ("xmit_constraint_errors",)
    return BLAMED.get(problem, ())


class RouteBook:
    """The ways that are known, by their origin."""

    def __init__(self) -> None:
        self._directed: dict[tuple[NodeAgent, int], dict[bytes, DirectedWay]] = {}
        self._by_lid: dict[NodeAgent, dict[tuple[int, int, int, int], DirectedWay]] = {}
        self.uncounted: list[DirectedWay] = []

    def directed(self, node: NodeAgent, port: int) -> dict[bytes, DirectedWay]:
        """The directed routes from a node's end port, by their ports: always the same dict."""
        found = self._directed.get((node, port))
        if found is None:
            found = self._directed[node, port] = {}
        elif len(found) > MOST_WAYS:
            found.clear()
        return found

    def by_lid(self, node: NodeAgent) -> dict[tuple[int, int, int, int], DirectedWay]:
        """The ways from a node by source port, DLID, service level (-1: VL15) and P_Key."""
        found = self._by_lid.get(node)
        if found is None or len(found) > MOST_WAYS:
            found = self._by_lid[node] = {}
        return found

    def forget_lids(self) -> None:
        """Forget the ways by LIDs: tables, LIDs or settings of ports have changed."""
        self._by_lid.clear()

    def forget_all(self) -> None:
        """Forget all ways: a link has gone or come."""
        for ways in self._directed.values():
            ways.clear()
        self._by_lid.clear()

    def settle(self, words: int) -> None:
        """Add the packets on all ways to their ports; each has so many words of 4 bytes."""
        for way in self.uncounted:
            there, back = way.requests, way.responses
            way.requests = way.responses = 0
            for out, into in way.links:
                out.tally.sent(there, there * words)
                into.tally.received(there, there * words)
                if back:
                    into.tally.sent(back, back * words)
                    out.tally.received(back, back * words)
            if way.blamed is not None:
                port, names = way.blamed
                for name in names:
                    port.tally.count(name, there)
        self.uncounted.clear()


def trace(node: NodeAgent, port: int, path: bytes) -> DirectedWay:
    """Return where a directed route from an end port leads.

    It needs links that are up, and switches between its ends. An adapter's SMP leaves by the port
    that its program uses, so the first port of the path has to be that one.
    """
    here, ingress, came_by = node, port, bytearray()
    links: list[tuple[NodePort, NodePort]] = []
    for number, output in enumerate(path):
        at = here.ports.get(output)
        if not here.is_switch and (number or output != port):
            return DirectedWay(
                here, ingress, bytes(came_by), links, Drop.ROUTE_THROUGH_HOST if number else INVALID
            )
        if at is None or output == 0:
            return DirectedWay(here, ingress, bytes(came_by), links, INVALID)
        if not at.is_up or at.peer is None:
            blamed = at, BLAMED[Drop.LINK_DOWN]
            return DirectedWay(here, ingress, bytes(came_by), links, Drop.LINK_DOWN, blamed)
        peer = at.peer
        links.append((at, peer))
        here, ingress = peer.node, peer.number
        came_by.append(ingress)
    return DirectedWay(here, ingress, bytes(came_by), links)


def combined_way(node: NodeAgent, packet: MadPacket, path: bytes) -> DirectedWay:
    """Return the way of an SMP whose directed part has a LID-routed one before or behind it.

    DrSLID says that it goes to the packet's DLID first, and DrDLID is where it goes at the end;
    permissive is no such part (IBA 14.2.2.1). Both parts need a switch where they meet the other.
    """
    mad = packet.mad
    start, ingress, links = node, packet.port, []
    if mad[32:34] != PERMISSIVE:
        route = walk(node.end_port(packet.port), packet.dlid, smp=True)
        if route.end is None or not (route.end.node.is_switch or not path):
            problem = route.problem or Drop.ROUTE_THROUGH_HOST
            return DirectedWay(node, packet.port, b"", route.charges, problem)
        links += route.charges
        start, ingress = route.end.node, route.hops[-1].input_port or route.end.number
    way = trace(start, ingress, path)
    way.links = links + way.links
    if way.problem is None and mad[34:36] != PERMISSIVE:
        if not way.node.is_switch:
            way.problem = Drop.ROUTE_THROUGH_HOST
            return way
        route = walk(way.node.ports[0], mad[34] << 8 | mad[35], smp=True)
        if route.end is None:
            way.problem = route.problem
            return way
        way.links += route.charges
        way.node, way.end = route.end.node, route.end
        way.ingress = route.hops[-1].input_port or route.end.number
    way.is_lossy = is_lossy(way.links)
    return way
