# SPDX-License-Identifier: Apache-2.0
"""The way of a packet by its LIDs, as the tables of the switches have it (IBA 18.2.4).

``Subnet`` sends LID-routed management packets by ``walk``, and its ``path`` shows the result. A
walk ends at an end port, or with a problem at a place. Nothing is changed but an ARMED port that a
real packet makes ACTIVE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..smp_attributes import NO_PATH, PortInfo, SwitchInfo
from .packets import Drop
from .port_states import ACTIVE, ARMED, data_arrived

if TYPE_CHECKING:
    from .node_agent import NodeAgent
    from .node_ports import NodePort

__all__ = ["LidRoute", "RouteHop", "entering_problem", "leaving_problem", "walk"]

DROP_LANE = 15


class RouteHop(NamedTuple):
    """A node on the way: the ports by which the packet comes and leaves.

    The first node has no input port and the last one no output port: they are None.
    """

    node: NodeAgent
    input_port: int | None
    output_port: int | None

    def __str__(self) -> str:
        ports = [str(port) for port in (self.input_port, self.output_port) if port is not None]
        return f"{self.node.name}[{'>'.join(ports)}]"


@dataclass
class LidRoute:
    """The hops of a way; ``end`` is where it arrives, or ``problem`` says why it does not.

    ``lanes`` are the virtual lanes of the links, and ``at`` is the port of a problem. ``charges``
    are the two ports of each link that the packet passes.
    """

    hops: list[RouteHop]
    lanes: list[int]
    charges: list[tuple[NodePort, NodePort]]
    end: NodePort | None = None
    problem: Drop | None = None
    at: NodePort | None = None

    @property
    def arrives(self) -> bool:
        """Whether a packet reaches the port that has its LID."""
        return self.problem is None

    def __str__(self) -> str:
        way = " ".join(str(hop) for hop in self.hops)
        return way if self.problem is None else f"{way}: {self.problem.value}".lstrip(": ")

    def failed(self, problem: Drop, at: NodePort | None) -> LidRoute:
        """Return this way as one that ends with a problem at a port."""
        self.problem, self.at = problem, at
        return self


def walk(
    origin: NodePort,
    dlid: int,
    *,
    sl: int = 0,
    p_key: int = 0xFFFF,
    smp: bool = False,
    moves: bool = False,
) -> LidRoute:
    """Return the way of a packet from an end port to a LID.

    ``smp``: it is on VL15, which needs no ACTIVE port, has no lane of a service level and no P_Key.
    ``moves``: a packet really goes, which makes ARMED ports ACTIVE.
    """
    route = LidRoute([], [], [])
    node, came = origin.node, None
    port: NodePort | None = None if node.is_switch else origin
    if origin.has_lid(dlid):
        route.hops.append(RouteHop(node, None, None))
        route.end = origin
        return route
    seen: set[NodeAgent] = set()
    while True:
        if node.is_switch:
            if node in seen:
                return route.failed(Drop.LOOP, node.ports[came or 0])
            seen.add(node)
            output = _output(node, dlid)
            problem = _relay_problem(node, output, came)
            if problem:
                return route.failed(problem, node.ports[came or 0])
            port = node.ports[output] if output else None
        if port is None:
            return _arrived(route, node, came, dlid)
        route.hops.append(RouteHop(node, came, port.number))
        problem = leaving_problem(port, came, sl, p_key, smp)
        peer = port.peer
        if problem or peer is None:
            return route.failed(problem or Drop.LINK_DOWN, port)
        problem = entering_problem(peer, p_key, smp, moves)
        if problem:
            return route.failed(problem, peer)
        route.charges.append((port, peer))
        route.lanes.append(DROP_LANE if smp else port.lane_of(sl, came or 0))
        node, came, port = peer.node, peer.number, None


def _output(node: NodeAgent, dlid: int) -> int:
    """The output port of a switch for a LID, or 255."""
    assert node.forwarding is not None
    if dlid > SwitchInfo.get(node.switch_info, "linear_fdb_top"):
        return NO_PATH
    return node.forwarding.output_port(dlid)


def _relay_problem(node: NodeAgent, output: int, came: int | None) -> Drop | None:
    if output == NO_PATH or output not in node.ports:
        return Drop.NO_PATH
    return Drop.LOOP if output == came else None


def leaving_problem(
    port: NodePort, came: int | None, sl: int, p_key: int, smp: bool
) -> Drop | None:
    """Return why a packet that came by ``came`` cannot leave by a port, or None."""
    if smp:
        return None if port.is_up else Drop.LINK_DOWN
    state = port.state
    if state != ACTIVE:
        return Drop.PORT_NOT_ACTIVE if port.is_up else Drop.LINK_DOWN
    if port.lane_of(sl, came or 0) == DROP_LANE:
        return Drop.VL_15
    if not port.is_end and _enforces(port, "partition_enforcement_outbound"):
        return None if port.in_partition(p_key) else Drop.P_KEY_AT_SWITCH
    return None


def entering_problem(port: NodePort, p_key: int, smp: bool, moves: bool) -> Drop | None:
    """Return why a packet that comes by a port is not taken, or None."""
    if smp:
        return None if port.is_up else Drop.LINK_DOWN
    if port.state == ARMED and moves:
        data_arrived(port)
    if port.state not in (ARMED, ACTIVE):
        return Drop.PORT_NOT_ACTIVE if port.is_up else Drop.LINK_DOWN
    if not port.is_end and _enforces(port, "partition_enforcement_inbound"):
        return None if port.in_partition(p_key) else Drop.P_KEY_AT_SWITCH
    return None


def _enforces(port: NodePort, name: str) -> bool:
    return bool(PortInfo.get(port.info, name))


def _arrived(route: LidRoute, node: NodeAgent, came: int | None, dlid: int) -> LidRoute:
    route.hops.append(RouteHop(node, came, None))
    end = node.end_port(came or 0)
    if not end.has_lid(dlid):
        return route.failed(Drop.WRONG_PORT, end)
    route.end = end
    return route
