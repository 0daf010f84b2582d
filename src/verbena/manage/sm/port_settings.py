# SPDX-License-Identifier: Apache-2.0
"""What a sweep writes into PortInfo and SwitchInfo, and whether that differs from what is there.

Each function returns the attribute's bytes for a Set, or None if nothing has to change. They begin
with the bytes that the node gave, and change single bytes of them, as the table in
``smp_attributes`` has them: a sweep of 2,000 hosts makes 8,000 of these.
"""

from __future__ import annotations

from struct import Struct

from ..codes import PortState
from .discovered import SubnetNode, SubnetPort
from .settings import SmSettings

__all__ = [
    "activated_port",
    "cleared_switch",
    "end_port_settings",
    "enforcement_bits",
    "link_mtu",
    "link_vls",
    "switch_port_settings",
    "switch_settings",
]

_KEYS_AND_LIDS = Struct("!QQHH")
_NO_CHANGE, _INIT = int(PortState.NO_CHANGE), int(PortState.INIT)
_ARMED, _ACTIVE = int(PortState.ARMED), int(PortState.ACTIVE)
_REREGISTRATION = 0x02  # of byte 20: bit 25 of CapabilityMask
_MULTICAST_TOP = 0x40  # of byte 20: bit 30 of CapabilityMask
_CHANGED = 0x04  # of SwitchInfo's byte 11: PortStateChange


def link_mtu(port: SubnetPort) -> int:
    """Return the MTU code that both ends of a port's link can do; the port's own without a link."""
    own = port.info[41] & 15
    if port.peer is not None and port.peer.info:
        own = min(own, port.peer.info[41] & 15)
    return own


def link_vls(port: SubnetPort, settings: SmSettings) -> int:
    """Return the code of OperationalVLs: what both ends have, at most what the settings say."""
    own = port.info[37] >> 4
    if port.peer is not None and port.peer.info:
        own = min(own, port.peer.info[37] >> 4)
    return min(own, settings.most_operational_vls) if settings.most_operational_vls else own


def _unchanged(port: SubnetPort) -> bytearray:
    """PortInfo that changes nothing in a Set."""
    made = bytearray(port.info)
    made[32] &= 0xF0  # PortState: NO_CHANGE
    made[33] &= 0x0F  # PortPhysicalState: NO_CHANGE
    made[51] &= 0x7F  # ClientReregister
    return made


def end_port_settings(
    port: SubnetPort, settings: SmSettings, sm_lid: int, reregister: bool
) -> bytes | None:
    """Return PortInfo of an end port: its LID, keys and limits, and ARMED if it was in INIT.

    ``reregister``: ask its clients to subscribe and join again, if it supports that.
    """
    made = _unchanged(port)
    before = bytes(made)
    _KEYS_AND_LIDS.pack_into(made, 0, settings.m_key, settings.gid_prefix, port.lid, sm_lid)
    made[26:28] = settings.m_key_lease_period.to_bytes(2, "big")
    made[34] = settings.m_key_protect_bits << 6 | port.lmc
    is_link = bool(port.number) or port.node.switch.enhanced_port_0
    if is_link:
        made[36] = link_mtu(port) << 4
        made[38] = settings.vl_high_limit
        made[43] = link_vls(port, settings) << 4 | made[43] & 15
        made[53] = settings.local_phy_errors << 4 | settings.overrun_errors
    made[51] = made[51] & 0x60 | settings.subnet_timeout
    if reregister and made[20] & _REREGISTRATION:
        made[51] |= 0x80
    if is_link and port.state == _INIT and (port.peer is not None or not port.number):
        made[32] |= _ARMED
    return bytes(made) if made != before else None


def switch_port_settings(port: SubnetPort, settings: SmSettings) -> bytes | None:
    """Return PortInfo of a switch's external port with a link: its limits, and ARMED after INIT."""
    peer = port.peer
    if peer is None:
        return None
    made = _unchanged(port)
    before = bytes(made)
    hoq_life = settings.hoq_life if peer.node.is_switch else settings.leaf_hoq_life
    made[36] = link_mtu(port) << 4 | made[36] & 15
    made[38] = settings.vl_high_limit
    made[42] = settings.vl_stall_count << 5 | hoq_life
    made[43] = link_vls(port, settings) << 4 | enforcement_bits(port, settings) | made[43] & 3
    made[53] = settings.local_phy_errors << 4 | settings.overrun_errors
    if port.state == _INIT:
        made[32] |= _ARMED
    return bytes(made) if made != before else None


def enforcement_bits(port: SubnetPort, settings: SmSettings) -> int:
    """Return the bits of PortInfo's byte 43 by which a switch checks P_Keys at a port.

    It does so where the neighbour is an end port, in both directions if the switch can, and has
    room for the neighbour's P_Keys.
    """
    peer = port.peer
    if not settings.switches_check_p_keys or peer is None or peer.node.is_switch:
        return 0
    info = port.node.switch_info
    room = info[14] << 8 | info[15]
    if len(peer.all_p_keys) > room:
        return 0
    return info[16] >> 4 & 0x0C  # InboundEnforcementCap and OutboundEnforcementCap


def activated_port(port: SubnetPort) -> bytes | None:
    """Return PortInfo that makes an ARMED port ACTIVE, if the other end is ready, too."""
    peer = port.peer
    if port.state != _ARMED or (peer is not None and peer.state < _ARMED):
        return None
    made = _unchanged(port)
    made[32] |= _ACTIVE
    return bytes(made)


def switch_settings(node: SubnetNode, settings: SmSettings, linear_top: int) -> bytes | None:
    """Return SwitchInfo with the highest LID of the subnet, and the life of packets inside.

    MulticastFDBTop, where the switch has it, covers its whole table.
    """
    made = bytearray(node.switch_info)
    made[11] &= ~_CHANGED
    before = bytes(made)
    made[6:8] = linear_top.to_bytes(2, "big")
    made[11] = settings.packet_life_time << 3 | made[11] & 3
    if node.ports[0].info and node.ports[0].info[20] & _MULTICAST_TOP:
        entries = made[4] << 8 | made[5]
        made[18:20] = min(0xBFFF + entries, 0xFFFE).to_bytes(2, "big")
    return bytes(made) if made != before else None


def cleared_switch(node: SubnetNode) -> bytes | None:
    """Return SwitchInfo that clears PortStateChange, if it is set."""
    return node.switch_info if node.switch_info[11] & _CHANGED else None
