# SPDX-License-Identifier: Apache-2.0
"""A discovered subnet as a Fabric of ``verbena.fabrics``, for routing engines and for programs.

``sweep_routing`` calls it. Hosts are CAs and routers; nodes have their GUIDs, and their LIDs if the
sweep has chosen them. Names are those of a node-name map, else of NodeDescription.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verbena.fabrics.fabric import Fabric
from verbena.fabrics.rates import GIGA, LANES, Rate, infiniband

from .discovered import DiscoveredSubnet, SubnetNode, SubnetPort

__all__ = ["discovered_fabric", "port_rate", "name_nodes"]

_WIDTHS = {1: 1, 2: 4, 4: 8, 8: 12, 16: 2}
_SPEEDS = {1: "SDR", 2: "DDR", 4: "QDR"}
_EXTENDED_SPEEDS = {1: "FDR", 2: "EDR", 4: "HDR", 8: "NDR"}


def port_rate(info: bytes) -> Rate:
    """Return the active rate of a port from PortInfo's bytes; 4x EDR if it says none."""
    width = _WIDTHS.get(info[31], 4)
    if info[56] >> 5 & 3:
        speed = "XDR"
    else:
        speed = _EXTENDED_SPEEDS.get(info[62] >> 4) or _SPEEDS.get(info[35] >> 4, "EDR")
    if width == 2:
        return Rate(f"2x{speed}", LANES[speed] * 2 * GIGA)
    return infiniband(speed, width)


def name_nodes(subnet: DiscoveredSubnet, names: Mapping[int, str]) -> None:
    """Give every node a name of its own: from ``names`` by GUID, else its NodeDescription.

    A name that another node has already gets the GUID behind it.
    """
    used = set[str]()
    for node in subnet.nodes.values():
        name = names.get(node.guid) or node.description.strip() or f"{node.guid:016x}"
        if name in used:
            name = f"{name} {node.guid:016x}"
        node.name = name
        used.add(name)


def discovered_fabric(
    subnet: DiscoveredSubnet, attributes: Mapping[int, Mapping[str, Any]]
) -> Fabric:
    """Return the fabric. ``attributes`` has what engines need of a node, by its GUID.

    Nodes have to be named. CAs without a link, but not the only node, are left out.
    """
    fabric = Fabric("subnet")
    for node in subnet.nodes.values():
        more = dict(attributes.get(node.guid, {}))
        ports = max(1, node.info[3], *node.ports)
        if node.is_switch:
            fabric.add_switch(node.name, ports=ports, guid=node.guid, lid=node.lid, **more)
        elif _is_linked(node):
            lids = {number: port.lid for number, port in node.ports.items()}
            fabric.add_host(node.name, ports=ports, guid=node.guid, lids=lids, **more)
    rates: dict[tuple[int, int, int, int], Rate] = {}
    for one, other in subnet.links():
        if one.node is not other.node:
            info = one.info
            key = (info[31], info[35] >> 4, info[56] >> 5 & 3, info[62] >> 4)
            rate = rates.get(key)
            if rate is None:
                rates[key] = rate = port_rate(info)
            fabric.connect(
                one.node.name, other.node.name, a_port=one.number, b_port=other.number, rate=rate
            )
    return fabric


def _is_linked(node: SubnetNode) -> bool:
    ports: list[SubnetPort] = list(node.ports.values())
    return any(port.peer is not None for port in ports)
