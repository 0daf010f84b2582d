# SPDX-License-Identifier: Apache-2.0
"""The subnet management agent (SMA) of a node: what it answers to SMPs (IBA 14.2, 14.3).

``answer_smp`` takes the bytes of an SMP that has arrived and returns those of the response.
``ATTRIBUTES`` is the table of attributes and what carries out their Get and Set; those of tables
are in ``sma_tables.py``, and the rules of PortInfo in ``port_info_rules.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..attribute_ids import Method, SmpAttribute, StatusCode, response_method
from ..codes import CapabilityMask, CapabilityMask2
from ..smp_attributes import ExtendedPortInfo, LedInfo, PortInfo, SmInfo, SwitchInfo
from .management_key import key_permits
from .packets import Drop
from .port_info_quick import quick_port_set
from .port_info_rules import read_port_info, write_port_info
from .sma_tables import TABLE_ATTRIBUTES, port_of

if TYPE_CHECKING:
    from .node_agent import NodeAgent
    from .node_ports import NodePort

__all__ = ["ATTRIBUTES", "TAKEN", "answer_smp"]

# Each gets the node, the port by which the SMP came, the modifier and the MAD, and returns the
# attribute, or a status as an int.
Handler = Callable[["NodeAgent", "NodePort", int, bytes], "bytes | bytearray | int"]

TAKEN = b""  # instead of a response: the SMP was for the SMA, and it has none

GET, SET, TRAP, TRAP_REPRESS = (
    int(method) for method in (Method.GET, Method.SET, Method.TRAP, Method.TRAP_REPRESS)
)
INVALID = int(StatusCode.INVALID_VALUE)
UNSUPPORTED = int(StatusCode.METHOD_ATTRIBUTE_UNSUPPORTED)
BAD_METHOD = int(StatusCode.METHOD_UNSUPPORTED)
BAD_VERSION = int(StatusCode.BAD_VERSION)
DATA, DATA_END = 64, 128
DIRECTED, LID_ROUTED = 0x81, 0x01
PORT_INFO = int(SmpAttribute.PORT_INFO)
SM_INFO = int(SmpAttribute.SM_INFO)
HIGHEST_CONTROL = 5
TIMEOUT_BYTE, REREGISTER = 51, 0x80  # of PortInfo


def get_node_info(node: NodeAgent, port: NodePort, modifier: int, mad: bytes) -> bytearray:
    data = bytearray(node.node_info)
    data[36] = port.number
    if not node.is_switch:
        data[20:28] = port.guids[:8]
    return data


def get_description(node: NodeAgent, port: NodePort, modifier: int, mad: bytes) -> bytearray:
    return node.description


def set_description(
    node: NodeAgent, port: NodePort, modifier: int, mad: bytes
) -> bytes | bytearray | int:
    can = PortInfo.get(port.end_port.info, "capability_mask2")
    if not can & CapabilityMask2.SET_NODE_DESCRIPTION:
        return UNSUPPORTED
    node.description[:] = mad[DATA:DATA_END]
    return node.description


def get_switch_info(
    node: NodeAgent, port: NodePort, modifier: int, mad: bytes
) -> bytes | bytearray | int:
    return node.switch_info if node.is_switch else UNSUPPORTED


def set_switch_info(
    node: NodeAgent, port: NodePort, modifier: int, mad: bytes
) -> bytes | bytearray | int:
    if not node.is_switch:
        return UNSUPPORTED
    old, new = SwitchInfo.unpack(node.switch_info), SwitchInfo.unpack(mad, DATA)
    if new.linear_fdb_top >= old.linear_fdb_cap:
        return INVALID
    SwitchInfo.put(
        node.switch_info,
        0,
        linear_fdb_top=new.linear_fdb_top,
        default_port=new.default_port,
        default_multicast_primary_port=new.default_multicast_primary_port,
        default_multicast_not_primary_port=new.default_multicast_not_primary_port,
        life_time_value=new.life_time_value,
        port_state_change=old.port_state_change and not new.port_state_change,
        multicast_fdb_top=new.multicast_fdb_top,
    )
    if old.linear_fdb_top != new.linear_fdb_top or old.multicast_fdb_top != new.multicast_fdb_top:
        node.surroundings.routing_changed()
    return node.switch_info


def get_port_info(
    node: NodeAgent, port: NodePort, modifier: int, mad: bytes
) -> bytes | bytearray | int:
    which = port_of(node, port, modifier & 0xFF)
    if which is None:
        return INVALID
    return read_port_info(which, port.number, int.from_bytes(mad[24:32], "big"))


def set_port_info(
    node: NodeAgent, port: NodePort, modifier: int, mad: bytes
) -> bytes | bytearray | int:
    which = port_of(node, port, modifier & 0xFF)
    if which is None:
        return INVALID
    was_key = which.m_key
    if not quick_port_set(which, mad):
        status = write_port_info(which, PortInfo.unpack(mad, DATA))
        if status:
            return status
    key = int.from_bytes(mad[24:32], "big")
    # Whoever has set a new key has it, so the response shows it (IBA 14.2.4).
    data = read_port_info(which, port.number, which.m_key if key == was_key else key)
    if mad[DATA + TIMEOUT_BYTE] & REREGISTER and which.is_end:
        data[TIMEOUT_BYTE] |= REREGISTER
    return data


def get_led_info(
    node: NodeAgent, port: NodePort, modifier: int, mad: bytes
) -> bytes | bytearray | int:
    which = port_of(node, port, modifier & 0xFF)
    return INVALID if which is None else LedInfo(led_mask=which.is_blinking).pack()


def set_led_info(
    node: NodeAgent, port: NodePort, modifier: int, mad: bytes
) -> bytes | bytearray | int:
    which = port_of(node, port, modifier & 0xFF)
    if which is None:
        return INVALID
    which.is_blinking = bool(LedInfo.get(mad, "led_mask", DATA))
    return LedInfo(led_mask=which.is_blinking).pack()


def get_extended_info(
    node: NodeAgent, port: NodePort, modifier: int, mad: bytes
) -> bytes | bytearray | int:
    if not node.profile.fdr10:
        return UNSUPPORTED
    which = port_of(node, port, modifier & 0xFF)
    return INVALID if which is None else which.extended_info


def set_extended_info(
    node: NodeAgent, port: NodePort, modifier: int, mad: bytes
) -> bytes | bytearray | int:
    if not node.profile.fdr10:
        return UNSUPPORTED
    which = port_of(node, port, modifier & 0xFF)
    if which is None:
        return INVALID
    new = ExtendedPortInfo.unpack(mad, DATA)
    if new.state_change_enable & 1:
        can = ExtendedPortInfo.get(which.extended_info, "link_speed_supported")
        if new.link_speed_enabled & ~can:
            return INVALID
        ExtendedPortInfo.put(which.extended_info, 0, link_speed_enabled=new.link_speed_enabled)
    return which.extended_info


def get_sm_info(
    node: NodeAgent, port: NodePort, modifier: int, mad: bytes
) -> bytes | bytearray | int:
    return node.managers[port.end_port.number].sm_info().pack()


def set_sm_info(
    node: NodeAgent, port: NodePort, modifier: int, mad: bytes
) -> bytes | bytearray | int:
    if not 1 <= modifier <= HIGHEST_CONTROL:
        return INVALID
    manager = node.managers[port.end_port.number]
    done = manager.set_sm_info(modifier, SmInfo.unpack(mad, DATA))
    return INVALID if done is None else done.pack()


def get_notice(node: NodeAgent, port: NodePort, modifier: int, mad: bytes) -> bytes:
    return node.traps.first_notice(port.end_port).pack()


def set_notice(node: NodeAgent, port: NodePort, modifier: int, mad: bytes) -> bytes:
    return node.traps.clear_notice(port.end_port, mad[DATA:DATA_END]).pack()


# AttributeID: what carries out a Get, and a Set. None: the attribute has no such method.
ATTRIBUTES: dict[int, tuple[Handler | None, Handler | None]] = {
    SmpAttribute.NOTICE: (get_notice, set_notice),
    SmpAttribute.NODE_DESCRIPTION: (get_description, set_description),
    SmpAttribute.NODE_INFO: (get_node_info, None),
    SmpAttribute.SWITCH_INFO: (get_switch_info, set_switch_info),
    SmpAttribute.PORT_INFO: (get_port_info, set_port_info),
    SmpAttribute.SM_INFO: (get_sm_info, set_sm_info),
    SmpAttribute.LED_INFO: (get_led_info, set_led_info),
    SmpAttribute.MELLANOX_EXTENDED_PORT_INFO: (get_extended_info, set_extended_info),
    **TABLE_ATTRIBUTES,
}
_GETS = {int(number): handlers[0] for number, handlers in ATTRIBUTES.items()}
_SETS = {int(number): handlers[1] for number, handlers in ATTRIBUTES.items()}


def answer_smp(
    node: NodeAgent, mad: bytes, ingress: int, now: float, slid: int = 0xFFFF
) -> bytearray | bytes | Drop | None:
    """Return the response to an SMP that came to this node by port ``ingress``.

    None: it is not for the SMA, but for a program of the node. A ``Drop``: it was lost. ``TAKEN``,
    which is empty: there is no response. ``slid`` is the sender's LID, for trap 256. The response
    to a directed-route SMP has the direction bit and the request's hop pointer.
    """
    method = mad[3]
    if method & 0x80 or method == TRAP:
        return None
    mgmt_class = mad[1]
    if mgmt_class != DIRECTED and mgmt_class != LID_ROUTED:
        return Drop.WRONG_QP
    port = node.ports.get(ingress)
    if port is None:
        return Drop.ROUTE_INVALID
    if mad[2] != 1:
        return _response(mad, BAD_VERSION)
    attribute = mad[16] << 8 | mad[17]
    end = port.end_port
    if (end.m_key or end.lease_end is not None) and not key_permits(end, mad, now, slid):
        return Drop.M_KEY
    if attribute == PORT_INFO and mad[23] != ingress and not node.is_switch and mad[23]:
        other = node.ports.get(mad[23])  # its own key has to permit it, too
        if other is not None and not key_permits(other, mad, now, slid):
            return Drop.M_KEY
    if attribute == SM_INFO and end.number not in node.managers:
        is_for_program = _is_sm(end) and end.number in node.receivers
        return None if is_for_program else _response(mad, UNSUPPORTED)
    if method == GET:
        handler = _GETS.get(attribute)
    elif method == SET:
        handler = _SETS.get(attribute)
    elif method == TRAP_REPRESS:
        return TAKEN if node.traps.repress(mad) else None
    else:
        return _response(mad, BAD_METHOD)
    if handler is None:
        return _response(mad, UNSUPPORTED)
    done = handler(node, port, int.from_bytes(mad[20:24], "big"), mad)
    if isinstance(done, int):
        return _response(mad, done)
    response = bytearray(mad)
    response[3] = 0x81
    response[4] = 0x80 if mgmt_class == DIRECTED else 0
    response[5] = 0
    response[64:128] = done.ljust(64, b"\0")
    return response


def _is_sm(end: NodePort) -> bool:
    return bool(PortInfo.get(end.info, "capability_mask") & CapabilityMask.IS_SM)


def _response(mad: bytes, status: int) -> bytearray:
    """Return a response with the request's data and a status."""
    response = bytearray(mad)
    response[3] = response_method(mad[3])
    response[4] = 0x80 if mad[1] == DIRECTED else 0
    response[5] = status
    return response
