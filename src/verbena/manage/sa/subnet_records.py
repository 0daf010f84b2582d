# SPDX-License-Identifier: Apache-2.0
"""The records of subnet administration that show the subnet itself, from a sweep's result.

``SubnetAdministration`` calls ``records_of``. Each record comes with its port, by which a requester
of another partition does not see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct

from ..attribute_ids import SaAttribute, SmpAttribute
from ..record import Record
from ..sa_records import (
    GuidInfoRecord,
    LinearForwardingRecord,
    LinkRecord,
    MulticastForwardingRecord,
    NodeRecord,
    PKeyTableRecord,
    PortInfoRecord,
    SlToVlRecord,
    SwitchInfoRecord,
    VlArbitrationRecord,
)
from ..sm.discovered import DiscoveredSubnet, SubnetNode, SubnetPort

__all__ = ["PortRecord", "records_of"]

PortRecord = tuple[SubnetPort, Record]
_LID = Struct("!H")
_PORT_GUID, _LOCAL_PORT = 20, 36  # bytes of NodeInfo


def records_of(attribute: int, subnet: DiscoveredSubnet) -> Iterator[PortRecord] | None:
    """Return the records of an attribute, or None if it is none of the subnet's own."""
    maker = _MAKERS.get(attribute)
    return None if maker is None else maker(subnet)


def _nodes(subnet: DiscoveredSubnet) -> Iterator[PortRecord]:
    for port in subnet.end_ports:
        info = bytearray(port.node.info)
        if not port.node.is_switch:
            info[_PORT_GUID : _PORT_GUID + 8] = port.guid.to_bytes(8, "big")
            info[_LOCAL_PORT] = port.number
        name = port.node.description.encode("utf-8", "surrogateescape")[:64].ljust(64, b"\0")
        raw = _LID.pack(port.lid) + bytes(2) + info + name
        yield port, NodeRecord.unpack(raw)


def _all_ports(subnet: DiscoveredSubnet) -> Iterator[tuple[SubnetPort, int, SubnetPort]]:
    """Every port with PortInfo: itself, the LID of its record, and the end port of its node."""
    for node in subnet.nodes.values():
        for number in sorted(node.ports):
            port = node.ports[number]
            if port.info:
                end = node.ports[0] if node.is_switch else port
                yield port, end.lid, end


def _port_infos(subnet: DiscoveredSubnet) -> Iterator[PortRecord]:
    for port, lid, end in _all_ports(subnet):
        raw = _LID.pack(lid) + bytes((port.number, 0)) + port.info
        yield end, PortInfoRecord.unpack(raw)


def _switch_infos(subnet: DiscoveredSubnet) -> Iterator[PortRecord]:
    for node in subnet.switches:
        raw = _LID.pack(node.lid) + bytes(2) + node.switch_info
        yield node.ports[0], SwitchInfoRecord.unpack(raw)


def _linear_tables(subnet: DiscoveredSubnet) -> Iterator[PortRecord]:
    for node in subnet.switches:
        for block, data in sorted(node.linear.items()):
            raw = _LID.pack(node.lid) + _LID.pack(block) + bytes(4) + data
            yield node.ports[0], LinearForwardingRecord.unpack(raw)


def _multicast_tables(subnet: DiscoveredSubnet) -> Iterator[PortRecord]:
    for node in subnet.switches:
        for (position, block), data in sorted(node.multicast.items()):
            raw = _LID.pack(node.lid) + _LID.pack(position << 12 | block) + bytes(4) + data
            yield node.ports[0], MulticastForwardingRecord.unpack(raw)


def _links(subnet: DiscoveredSubnet) -> Iterator[PortRecord]:
    for one, other in subnet.links():
        for near, far in ((one, other), (other, one)):
            end = _end_of(near)
            raw = _LID.pack(end.lid) + bytes((near.number, far.number)) + _LID.pack(_lid_of(far))
            yield end, LinkRecord.unpack(raw.ljust(8, b"\0"))


def _end_of(port: SubnetPort) -> SubnetPort:
    return port.node.ports[0] if port.node.is_switch else port


def _lid_of(port: SubnetPort) -> int:
    return _end_of(port).lid


def _guids(subnet: DiscoveredSubnet) -> Iterator[PortRecord]:
    for port in subnet.end_ports:
        raw = _LID.pack(port.lid) + bytes(6) + port.guid.to_bytes(8, "big")
        yield port, GuidInfoRecord.unpack(raw.ljust(72, b"\0"))


def _p_keys(subnet: DiscoveredSubnet) -> Iterator[PortRecord]:
    for port, lid, end in _all_ports(subnet):
        for block, data in sorted(port.p_keys.items()):
            raw = _LID.pack(lid) + _LID.pack(block) + bytes((port.number, 0, 0, 0)) + data
            yield end, PKeyTableRecord.unpack(raw)


def _lane_tables(
    subnet: DiscoveredSubnet, attribute: int
) -> Iterator[tuple[SubnetNode, int, int, bytes]]:
    for node in subnet.nodes.values():
        for (number, kind, modifier), data in sorted(node.lane_blocks.items()):
            if kind == attribute:
                yield node, number, modifier, data


def _sl_to_vl(subnet: DiscoveredSubnet) -> Iterator[PortRecord]:
    for node, number, modifier, data in _lane_tables(subnet, SmpAttribute.SL_TO_VL):
        end = node.ports[0] if node.is_switch else node.ports[number]
        if modifier >> 16:  # for all ports of a switch
            outputs = [each for each in node.ports if each]
            pairs = [(into, out) for out in outputs for into in node.ports]
        else:
            pairs = [(modifier >> 8 & 0xFF, modifier & 0xFF)]
        for into, out in pairs:
            raw = _LID.pack(end.lid) + bytes((into, out)) + bytes(4) + data
            yield end, SlToVlRecord.unpack(raw)


def _arbitration(subnet: DiscoveredSubnet) -> Iterator[PortRecord]:
    for node, number, modifier, data in _lane_tables(subnet, SmpAttribute.VL_ARBITRATION):
        end = node.ports[0] if node.is_switch else node.ports[number]
        raw = _LID.pack(end.lid) + bytes((number, modifier >> 16 & 0xFF)) + bytes(4) + data
        yield end, VlArbitrationRecord.unpack(raw)


_MAKERS: dict[int, Callable[[DiscoveredSubnet], Iterator[PortRecord]]] = {
    SaAttribute.NODE_RECORD: _nodes,
    SaAttribute.PORT_INFO_RECORD: _port_infos,
    SaAttribute.SWITCH_INFO_RECORD: _switch_infos,
    SaAttribute.LINEAR_FORWARDING_RECORD: _linear_tables,
    SaAttribute.MULTICAST_FORWARDING_RECORD: _multicast_tables,
    SaAttribute.LINK_RECORD: _links,
    SaAttribute.GUID_INFO_RECORD: _guids,
    SaAttribute.P_KEY_TABLE_RECORD: _p_keys,
    SaAttribute.SL_TO_VL_RECORD: _sl_to_vl,
    SaAttribute.VL_ARBITRATION_RECORD: _arbitration,
}
