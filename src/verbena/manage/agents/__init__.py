# SPDX-License-Identifier: Apache-2.0
"""The agents of ports and switches, and a whole InfiniBand subnet as an object.

``Subnet`` has nodes, links and the ways of management packets; ``subnet_of_fabric`` and
``subnet_of_text`` make one. A ``NodeAgent`` is one node, for a simulator or a live fabric that has
the links itself. No socket, clock or thread: packets and times are parameters and results.
"""

from __future__ import annotations

from .device_profiles import ADAPTER, ENHANCED_SWITCH, ROUTER, SWITCH, DeviceProfile
from .lid_routes import LidRoute, RouteHop
from .link_speeds import LinkRate, link_rate
from .multicast_routes import MulticastRoute
from .node_agent import NodeAgent, NodeSurroundings, SmPort
from .node_ports import NodePort
from .packets import Drop, MadPacket, MadReceiver, PortEvent
from .subnet import Subnet
from .subnet_build import subnet_of_fabric, subnet_of_text
from .tallies import CounterSource, PortTally
from .violations import key_violated, p_key_violated_at_switch, port_failed

__all__ = [
    "ADAPTER",
    "CounterSource",
    "DeviceProfile",
    "Drop",
    "ENHANCED_SWITCH",
    "LidRoute",
    "LinkRate",
    "MadPacket",
    "MadReceiver",
    "MulticastRoute",
    "NodeAgent",
    "NodePort",
    "NodeSurroundings",
    "PortEvent",
    "PortTally",
    "ROUTER",
    "RouteHop",
    "SWITCH",
    "SmPort",
    "Subnet",
    "key_violated",
    "link_rate",
    "p_key_violated_at_switch",
    "port_failed",
    "subnet_of_fabric",
    "subnet_of_text",
]
