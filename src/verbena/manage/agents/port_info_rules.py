# SPDX-License-Identifier: Apache-2.0
"""Get and Set of PortInfo: which components a Set changes, and which values it refuses (14.2.5.6).

The SMA calls these. A Set with one value that is not allowed changes nothing and is answered with
status 0x1C. ``END_PORT_FIELDS`` and ``LINK_FIELDS`` are written as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..attribute_ids import StatusCode
from ..codes import PortPhysicalState, PortState
from ..smp_attributes import PortInfo
from .management_key import hides_key
from .packets import PortEvent
from .port_states import STATE_SETS, link_down

if TYPE_CHECKING:
    from .node_ports import NodePort

__all__ = ["read_port_info", "write_port_info"]

INVALID = int(StatusCode.INVALID_VALUE)
LAST_UNICAST = 0xBFFF
# Written as they are on a port with LIDs, and ignored on the external ports of a switch.
END_PORT_FIELDS = (
    *("m_key", "gid_prefix", "m_key_lease_period", "m_key_protect_bits", "master_sm_sl"),
    *("init_type_reply", "multicast_p_key_trap_suppression", "subnet_timeout"),
)
# Written as they are on a port with a link.
LINK_FIELDS = ("vl_high_limit", "vl_stall_count", "hoq_life", "local_phy_errors", "overrun_errors")
# On the external ports of a switch; the first two if it can enforce partitions.
ENFORCEMENT_FIELDS = ("partition_enforcement_inbound", "partition_enforcement_outbound")
FILTER_FIELDS = ("filter_raw_inbound", "filter_raw_outbound")
# Zero sets the counter back; another value leaves it as it is.
VIOLATIONS = ("m_key_violations", "p_key_violations", "q_key_violations")
# Settings: the field of what is supported, and the value that stands for all of it.
ENABLED = {
    "link_width_enabled": ("link_width_supported", 0xFF),
    "link_speed_enabled": ("link_speed_supported", 0xF),
    "link_speed_ext_enabled": ("link_speed_ext_supported", 0x1F),
    "link_speed_ext_enabled2": ("link_speed_ext_supported2", 0x7),
}
NO_EXTENDED = 30  # in LinkSpeedExtEnabled
# PortPhysicalStates that a Set may want.
PHYSICAL_SETS = (
    PortPhysicalState.NO_CHANGE,
    PortPhysicalState.SLEEP,
    PortPhysicalState.POLLING,
    PortPhysicalState.DISABLED,
)


class RefusedError(Exception):
    """A Set has a value that is not allowed."""


def read_port_info(port: NodePort, ingress: int, key: int) -> bytearray:
    """Return PortInfo as a Get by port ``ingress`` with this M_Key sees it."""
    data = bytearray(port.info)
    data[28] = ingress
    if port.m_key and hides_key(port, key):
        data[:8] = bytes(8)
    return data


def write_port_info(port: NodePort, new: PortInfo) -> int:
    """Carry out a Set and return the status: 0, or 0x1C and nothing is changed."""
    old = PortInfo.unpack(port.info)
    try:
        state = _wanted_state(port, old, new)
        changes: dict[str, Any] = {}
        if port.is_end:
            changes |= _end_changes(port, old, new)
        if port.number or port.node.profile.enhanced_port_0:
            changes |= _lane_changes(port, old, new)
        if port.number:
            changes |= _link_changes(port, old, new)
        if port.number and port.node.is_switch:
            changes |= _enforcement(port, new)
    except RefusedError:
        return INVALID
    PortInfo.put(port.info, 0, **changes)
    port.m_key = int.from_bytes(port.info[:8], "big")
    if any(changes.get(name, False) != getattr(old, name) for name in ENFORCEMENT_FIELDS):
        port.node.surroundings.routing_changed()
    if port.is_end:
        _tell(port, old, new)
    _take_state(port, state, new)
    return 0


def _check(allowed: bool) -> None:
    if not allowed:
        raise RefusedError


def _wanted_state(port: NodePort, old: PortInfo, new: PortInfo) -> int:
    """Return the PortState that a Set leads to."""
    base_port_0 = port.number == 0 and not port.node.profile.enhanced_port_0
    if base_port_0:
        return int(old.port_state)
    physical = new.port_physical_state
    _check(physical in PHYSICAL_SETS)
    _check(new.link_down_default_state <= 2)
    if physical:
        _check(new.port_state in (PortState.NO_CHANGE, PortState.DOWN))
    state = STATE_SETS.get((PortState(old.port_state), PortState(new.port_state)))
    if state is None:
        raise RefusedError
    return int(state)


def _end_changes(port: NodePort, old: PortInfo, new: PortInfo) -> dict[str, Any]:
    changes = {name: getattr(new, name) for name in END_PORT_FIELDS}
    for name in ("lid", "master_sm_lid"):
        value = getattr(new, name)
        _check(value == getattr(old, name) or 0 < value <= LAST_UNICAST)
        changes[name] = value
    base_port_0 = port.number == 0 and not port.node.profile.enhanced_port_0
    _check(not (new.lmc and base_port_0))
    _check(not new.lid or new.lid + (1 << new.lmc) - 1 <= LAST_UNICAST)
    changes["lmc"] = new.lmc
    changes |= {name: 0 for name in VIOLATIONS if not getattr(new, name)}
    return changes


def _lane_changes(port: NodePort, old: PortInfo, new: PortInfo) -> dict[str, Any]:
    changes: dict[str, Any] = {name: getattr(new, name) for name in LINK_FIELDS}
    _check(new.operational_vls <= old.vl_cap)
    if new.operational_vls:
        changes["operational_vls"] = new.operational_vls
    _check(new.neighbor_mtu == old.neighbor_mtu or 0 < new.neighbor_mtu <= old.mtu_cap)
    changes["neighbor_mtu"] = new.neighbor_mtu
    return changes


def _link_changes(port: NodePort, old: PortInfo, new: PortInfo) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for name, (supported, everything) in ENABLED.items():
        value, can = int(getattr(new, name)), int(getattr(old, supported))
        if name == "link_speed_ext_enabled" and value == NO_EXTENDED:
            changes[name] = value
        elif value:
            _check(value == everything or not value & ~can)
            changes[name] = can if value == everything else value
    if new.link_down_default_state:
        changes["link_down_default_state"] = new.link_down_default_state
    return changes


def _enforcement(port: NodePort, new: PortInfo) -> dict[str, Any]:
    enforces = port.node.profile.partition_enforcement_cap > 0
    names = FILTER_FIELDS + (ENFORCEMENT_FIELDS if enforces else ())
    return {name: getattr(new, name) for name in names}


def _tell(port: NodePort, old: PortInfo, new: PortInfo) -> None:
    """Tell the surroundings of an end port what has changed."""
    tell = port.node.surroundings.port_event
    if (old.lid, old.lmc) != (new.lid, new.lmc):
        port.node.surroundings.routing_changed()
        tell(port, PortEvent.LID)
    if (old.master_sm_lid, old.master_sm_sl) != (new.master_sm_lid, new.master_sm_sl):
        tell(port, PortEvent.SM)
    if old.gid_prefix != new.gid_prefix:
        tell(port, PortEvent.GUIDS)
    if new.client_reregister:
        tell(port, PortEvent.CLIENT_REREGISTER)


def _take_state(port: NodePort, state: int, new: PortInfo) -> None:
    if port.number == 0 and not port.node.profile.enhanced_port_0:
        return
    surroundings = port.node.surroundings
    physical = int(new.port_physical_state)
    if new.port_state == PortState.DOWN or physical:
        if port.number == 0:  # an enhanced port 0 has no link: it comes up again at once
            port.put_state(PortState.INIT)
            surroundings.routing_changed()
            return
        if port.is_up:  # the other end counts it, too: ``link_commanded``
            surroundings.read_counters()
            port.tally.count("link_downed")
        link_down(port, physical=physical or None, by_set=True)
        surroundings.routing_changed()
        surroundings.link_commanded(port, port.physical_state)
    elif state != port.state:
        port.put_state(state)
        surroundings.routing_changed()
        surroundings.port_event(port, PortEvent.STATE)
