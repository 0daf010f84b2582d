# SPDX-License-Identifier: Apache-2.0
"""SLtoVL and VL arbitration tables of a sweep.

``Sweep`` sends what ``lane_table_sets`` returns, if the routing engine needs several lanes or the
settings ask for it. SLtoVL tables are the engine's. The arbitration tables are OpenSM's default
ones: VL 0 is the only one with a weight in the high-priority table, the others have it in the low
one, so that no lane starves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..attribute_ids import SmpAttribute
from ..codes import CapabilityMask, VirtualLanes
from .discovered import DiscoveredSubnet, SubnetNode, SubnetPort
from .port_settings import link_vls
from .settings import SmSettings
from .sweep_routing import SubnetRoutes

__all__ = ["LaneTableSet", "lane_table_sets", "lanes_of_link"]

_SL_TO_VL, _VL_ARBITRATION = int(SmpAttribute.SL_TO_VL), int(SmpAttribute.VL_ARBITRATION)
_SL_MAPPING = int(CapabilityMask.SL_MAPPING)
_WEIGHT = 4
_ALL_INPUTS_AND_OUTPUTS = 0x30000
_LOW, _HIGH = 1, 3


class LaneTableSet(NamedTuple):
    """A table that a port is to have: the attribute, its modifier and its bytes."""

    port: SubnetPort
    attribute: int
    modifier: int
    data: bytes


def lanes_of_link(port: SubnetPort, settings: SmSettings) -> int:
    """Return how many data lanes the link of a port uses, or will use after the sweep."""
    return VirtualLanes(link_vls(port, settings)).lanes if port.info else 0


def lane_table_sets(
    subnet: DiscoveredSubnet, routes: SubnetRoutes, settings: SmSettings
) -> Iterator[LaneTableSet]:
    """Return the tables that differ from those that the nodes have, as far as these are known."""
    lanes = routes.lanes
    if lanes <= 1 and not settings.lane_tables:
        return
    for node in subnet.nodes.values():
        if node.failed:
            continue
        ports = _linked(node)
        for port in ports:
            yield from _changed(node, _arbitration(port, settings))
        if node.is_switch:
            yield from _changed(node, _switch_mapping(node, ports, routes, settings))
        else:
            for port in ports:
                if int.from_bytes(port.info[20:24], "big") & _SL_MAPPING:
                    data = _mapping_bytes(_host_lanes(port, routes, settings))
                    yield from _changed(node, iter((LaneTableSet(port, _SL_TO_VL, 0, data),)))


def _linked(node: SubnetNode) -> list[SubnetPort]:
    return [port for port in node.ports.values() if port.peer is not None and port.info]


def _changed(node: SubnetNode, sets: Iterator[LaneTableSet]) -> Iterator[LaneTableSet]:
    for each in sets:
        if node.lane_blocks.get(lane_block_key(each)) != each.data:
            yield each


def lane_block_key(table: LaneTableSet) -> tuple[int, int, int]:
    """Return the key of a table in ``SubnetNode.lane_blocks``."""
    return table.port.number, table.attribute, table.modifier


def _mapping_bytes(lanes: NDArray[np.uint8]) -> bytes:
    return (lanes[0::2] << 4 | lanes[1::2]).astype(np.uint8).tobytes()


def _host_lanes(port: SubnetPort, routes: SubnetRoutes, settings: SmSettings) -> NDArray[np.uint8]:
    if routes.lanes > 1:
        made: NDArray[np.uint8] = routes.routes.lanes.lane[0, 0]
        return made
    return _spread_lanes(lanes_of_link(port, settings))


def _spread_lanes(lanes: int) -> NDArray[np.uint8]:
    """OpenSM's default: VL n for SL n, and VL 7 for SL 15, as far as there are lanes."""
    lanes = max(1, lanes)
    made = np.arange(16, dtype=np.uint8)
    made[15] = 7
    return (made % lanes).astype(np.uint8)


def _switch_mapping(
    node: SubnetNode, ports: list[SubnetPort], routes: SubnetRoutes, settings: SmSettings
) -> Iterator[LaneTableSet]:
    """The SLtoVL tables of a switch; one for all ports if it can take that, and they are equal."""
    lanes = routes.routes.lanes
    row = routes.rows.get(node.guid)
    if row is None:
        return
    kind = lanes.kind[row]
    made: dict[tuple[int, int], bytes] = {}
    optimized = node.switch_info[11] & 3
    if optimized and len(lanes.lane) == 1 and routes.lanes > 1:
        data = _mapping_bytes(lanes.lane[0, 0])
        yield LaneTableSet(node.ports[0], _SL_TO_VL, _ALL_INPUTS_AND_OUTPUTS, data)
        return
    inputs = [0, *(port.number for port in ports)]
    for out in ports:
        spread = _mapping_bytes(_spread_lanes(lanes_of_link(out, settings)))
        for into in inputs:
            data = spread
            if routes.lanes > 1:
                pair = int(kind[into]), int(kind[out.number])
                data = made.get(pair) or _mapping_bytes(lanes.lane[pair])
                made[pair] = data
            if into != out.number:
                yield LaneTableSet(out, _SL_TO_VL, into << 8 | out.number, data)


def _arbitration(port: SubnetPort, settings: SmSettings) -> Iterator[LaneTableSet]:
    """OpenSM's tables for the lanes of a port, cut to the entries that it has."""
    lanes = lanes_of_link(port, settings)
    low_entries, high_entries = port.info[40], port.info[39]
    if lanes <= 1 or not low_entries:
        return
    number = port.number if port.node.is_switch else 0
    for block, entries, is_high in ((_LOW, low_entries, False), (_HIGH, high_entries, True)):
        weights = bytearray()
        for vl in range(min(lanes, entries, 32)):
            weights += bytes((vl, _WEIGHT if (vl == 0) == is_high else 0))
        if weights:
            data = bytes(weights).ljust(64, b"\0")
            yield LaneTableSet(port, _VL_ARBITRATION, block << 16 | number, data)
