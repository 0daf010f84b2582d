# SPDX-License-Identifier: Apache-2.0
"""Where a multicast packet goes by the tables of the switches (IBA 18.2.4.3.3).

``Subnet.multicast_path`` calls ``spread``. Each switch sends copies by all ports of the LID's mask
but the one by which the packet came.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..smp_attributes import NO_PATH, SwitchInfo
from .lid_routes import entering_problem, leaving_problem
from .packets import Drop

if TYPE_CHECKING:
    from .node_agent import NodeAgent
    from .node_ports import NodePort

__all__ = ["MulticastRoute", "spread"]


@dataclass
class MulticastRoute:
    """Where copies arrive: ``ends``, in the order in which they are reached.

    ``links`` are the two ports of each link that a copy passes, and ``lost`` has copies that do not
    arrive, with the reason and the port.
    """

    ends: list[NodePort] = field(default_factory=list)
    links: list[tuple[NodePort, NodePort]] = field(default_factory=list)
    lost: list[tuple[Drop, NodePort]] = field(default_factory=list)


def spread(
    origin: NodePort, mlid: int, *, sl: int = 0, p_key: int = 0xFFFF, moves: bool = False
) -> MulticastRoute:
    """Return where the copies of a packet go that an end port sends to a multicast LID.

    ``moves``: a packet really goes, which makes ARMED ports ACTIVE. A switch that a second copy
    reaches is a loop: that copy is lost.
    """
    route = MulticastRoute()
    to_send: deque[tuple[NodePort, int]] = deque()  # the output port and the input port, or 0
    seen: set[NodeAgent] = set()
    if origin.node.is_switch:
        seen.add(origin.node)
        _copies(origin.node, mlid, 0, route, to_send)
    else:
        to_send.append((origin, 0))
    while to_send:
        port, came = to_send.popleft()
        problem, at = leaving_problem(port, came, sl, p_key, smp=False), port
        peer = port.peer
        if problem is None and peer is not None:
            problem, at = entering_problem(peer, p_key, smp=False, moves=moves), peer
        if problem is not None or peer is None:
            route.lost.append((problem or Drop.LINK_DOWN, at))
            continue
        route.links.append((port, peer))
        if not peer.node.is_switch:
            route.ends.append(peer)
        elif peer.node in seen:
            route.lost.append((Drop.LOOP, peer))
        else:
            seen.add(peer.node)
            _copies(peer.node, mlid, peer.number, route, to_send)
    return route


def _copies(
    node: NodeAgent,
    mlid: int,
    came: int,
    route: MulticastRoute,
    to_send: deque[tuple[NodePort, int]],
) -> None:
    """Send the copies of a packet that came to a switch by a port; 0 is the switch itself."""
    for number in output_ports(node, mlid, came):
        port = node.ports.get(number)
        if number == came or port is None:
            continue
        if number == 0:
            route.ends.append(port)
        else:
            to_send.append((port, came))


def output_ports(node: NodeAgent, mlid: int, came: int) -> list[int]:
    """Return the output ports of a switch for a multicast LID: the table's, else the default's."""
    assert node.forwarding is not None
    info = SwitchInfo.unpack(node.switch_info)
    top = info.multicast_fdb_top
    ports = node.forwarding.multicast_ports(mlid) if not top or mlid <= top else []
    if ports:
        return ports
    primary = info.default_multicast_primary_port
    default = info.default_multicast_not_primary_port if came == primary else primary
    return [default] if default not in (0, NO_PATH) else []
