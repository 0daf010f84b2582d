# SPDX-License-Identifier: Apache-2.0
"""Get and Set of the tables of ports and switches: GUIDs, P_Keys, lanes and forwarding.

The SMA has ``TABLE_ATTRIBUTES`` in its own table. Modifiers that name a block or a port that does
not exist are answered with status 0x1C, and tables of a switch on another node with 0xC.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..attribute_ids import SmpAttribute, StatusCode
from ..codes import VirtualLanes
from ..smp_attributes import PortInfo
from .packets import PortEvent

if TYPE_CHECKING:
    from .node_agent import NodeAgent
    from .node_ports import NodePort

__all__ = ["TABLE_ATTRIBUTES", "port_of"]

INVALID = int(StatusCode.INVALID_VALUE)
UNSUPPORTED = int(StatusCode.METHOD_ATTRIBUTE_UNSUPPORTED)
BLOCK = 64
DATA, DATA_END = 64, 128
OPTIMIZED = 0x3 << 16  # bits of SLtoVL's modifier that stand for all ports
ARBITRATION_HALF = 32  # entries of a block


def port_of(node: NodeAgent, ingress: NodePort, number: int) -> NodePort | None:
    """Return the port that a modifier names: on a CA 0 is the one by which the SMP came."""
    if number == 0 and not node.is_switch:
        return ingress
    return node.ports.get(number)


def _block(table: bytearray, block: int) -> bytes | None:
    """A block of 64 bytes of a table, or None if there is no such block."""
    at = block * BLOCK
    return bytes(table[at : at + BLOCK]) if at < len(table) else None


def _write_block(table: bytearray, block: int, data: bytes) -> bool:
    """Write a block; what exceeds the table has to be zero. Returns whether that is so."""
    at = block * BLOCK
    room = min(len(table) - at, BLOCK)
    if room <= 0 or any(data[room:]):
        return False
    table[at : at + room] = data[:room]
    return True


# ---- GUIDs and P_Keys --------------------------------------------------------------------------


def get_guids(node: NodeAgent, port: NodePort, modifier: int, mad: bytes) -> bytes | int:
    found = _block(port.end_port.guids, modifier)
    return INVALID if found is None else found


def set_guids(node: NodeAgent, port: NodePort, modifier: int, mad: bytes) -> bytes | int:
    end = port.end_port
    data = mad[DATA:DATA_END]
    if modifier == 0:  # the first is the port's own and is read only
        data = bytes(end.guids[:8]) + data[8:]
    if not _write_block(end.guids, modifier, data):
        return INVALID
    node.surroundings.port_event(end, PortEvent.GUIDS)
    return get_guids(node, port, modifier, mad)


def _p_key_port(node: NodeAgent, port: NodePort, modifier: int) -> NodePort | None:
    return node.ports.get(modifier >> 16) if node.is_switch else port


def get_p_keys(node: NodeAgent, port: NodePort, modifier: int, mad: bytes) -> bytes | int:
    which = _p_key_port(node, port, modifier)
    found = _block(which.p_keys, modifier & 0xFFFF) if which else None
    return INVALID if found is None else found


def set_p_keys(node: NodeAgent, port: NodePort, modifier: int, mad: bytes) -> bytes | int:
    which = _p_key_port(node, port, modifier)
    if which is None or not _write_block(which.p_keys, modifier & 0xFFFF, mad[DATA:DATA_END]):
        return INVALID
    node.surroundings.routing_changed()
    if which.is_end:
        node.surroundings.port_event(which, PortEvent.P_KEYS)
    return get_p_keys(node, port, modifier, mad)


# ---- lanes -------------------------------------------------------------------------------------


def _lane_rows(node: NodeAgent, port: NodePort, modifier: int) -> tuple[NodePort, int] | None:
    """The output port and the row of its map that a modifier of SLtoVL names."""
    if not node.is_switch:
        return port, 0
    output, row = node.ports.get(modifier & 0xFF), modifier >> 8 & 0xFF
    if output is None or row not in node.ports or modifier & OPTIMIZED:
        return None
    return output, row


def get_lanes(node: NodeAgent, port: NodePort, modifier: int, mad: bytes) -> bytes | int:
    found = _lane_rows(node, port, modifier)
    if found is None:
        return INVALID
    which, row = found
    return bytes(which.lane_map()[row * 8 : row * 8 + 8])


def set_lanes(node: NodeAgent, port: NodePort, modifier: int, mad: bytes) -> bytes | int:
    found = _lane_rows(node, port, modifier)
    if found is None:
        return INVALID
    which, row = found
    which.lane_map()[row * 8 : row * 8 + 8] = mad[DATA : DATA + 8]
    node.surroundings.routing_changed()
    return mad[DATA : DATA + 8]


def _arbitration_port(node: NodeAgent, port: NodePort, modifier: int) -> NodePort | int:
    """The port of a VLArbitrationTable, or a status; the block must be in what the port has."""
    which = node.ports.get(modifier & 0xFFFF) if node.is_switch else port
    if which is None or _arbitration_entries(which, modifier >> 16) == 0:
        return INVALID
    if PortInfo.get(which.info, "vl_cap") <= VirtualLanes.VL0:
        return UNSUPPORTED
    return which


def _arbitration_entries(port: NodePort, block: int) -> int:
    """How many entries a block has: each table has two halves of 32."""
    if not 1 <= block <= 4:
        return 0
    cap = PortInfo.get(port.info, "vl_arb_low_cap" if block <= 2 else "vl_arb_high_cap")
    return max(0, min(int(cap) - (1 - block % 2) * ARBITRATION_HALF, ARBITRATION_HALF))


def get_arbitration(node: NodeAgent, port: NodePort, modifier: int, mad: bytes) -> bytes | int:
    which = _arbitration_port(node, port, modifier)
    if isinstance(which, int):
        return which
    at = ((modifier >> 16) - 1) * BLOCK
    return bytes(which.arbitration()[at : at + BLOCK])


def set_arbitration(node: NodeAgent, port: NodePort, modifier: int, mad: bytes) -> bytes | int:
    which = _arbitration_port(node, port, modifier)
    if isinstance(which, int):
        return which
    block = modifier >> 16
    kept = 2 * _arbitration_entries(which, block)
    at = (block - 1) * BLOCK
    which.arbitration()[at : at + kept] = mad[DATA : DATA + kept]
    return get_arbitration(node, port, modifier, mad)


# ---- forwarding --------------------------------------------------------------------------------


def get_linear(node: NodeAgent, port: NodePort, modifier: int, mad: bytes) -> bytes | int:
    tables = node.forwarding
    if tables is None:
        return UNSUPPORTED
    return tables.linear_block(modifier) if tables.has_linear_block(modifier) else INVALID


def set_linear(node: NodeAgent, port: NodePort, modifier: int, mad: bytes) -> bytes | int:
    tables = node.forwarding
    if tables is None:
        return UNSUPPORTED
    if not tables.has_linear_block(modifier):
        return INVALID
    if tables.set_linear_block(modifier, mad[DATA:DATA_END]):
        node.surroundings.routing_changed()
    return mad[DATA:DATA_END]


def _multicast_place(node: NodeAgent, modifier: int) -> tuple[int, int] | None:
    """Block and position of a modifier, or None if the switch has no such part."""
    block, position = modifier & 0x1FF, modifier >> 28
    tables = node.forwarding
    fits = tables is not None and tables.has_multicast_block(block)
    return (block, position) if fits and position * 16 <= node.num_ports else None


def get_multicast(node: NodeAgent, port: NodePort, modifier: int, mad: bytes) -> bytes | int:
    if node.forwarding is None:
        return UNSUPPORTED
    place = _multicast_place(node, modifier)
    return INVALID if place is None else node.forwarding.multicast_block(*place)


def set_multicast(node: NodeAgent, port: NodePort, modifier: int, mad: bytes) -> bytes | int:
    if node.forwarding is None:
        return UNSUPPORTED
    place = _multicast_place(node, modifier)
    if place is None:
        return INVALID
    if node.forwarding.set_multicast_block(*place, mad[DATA:DATA_END]):
        node.surroundings.routing_changed()
    return mad[DATA:DATA_END]


Handler = Callable[["NodeAgent", "NodePort", int, bytes], Any]

TABLE_ATTRIBUTES: dict[int, tuple[Handler, Handler]] = {
    SmpAttribute.GUID_INFO: (get_guids, set_guids),
    SmpAttribute.P_KEY_TABLE: (get_p_keys, set_p_keys),
    SmpAttribute.SL_TO_VL: (get_lanes, set_lanes),
    SmpAttribute.VL_ARBITRATION: (get_arbitration, set_arbitration),
    SmpAttribute.LINEAR_FORWARDING: (get_linear, set_linear),
    SmpAttribute.MULTICAST_FORWARDING: (get_multicast, set_multicast),
}
