# SPDX-License-Identifier: Apache-2.0
"""Attributes of subnet administration (IBA 15.2.5): records with their keys, paths and groups.

The SA answers with them, and programs ask for them. Most are an attribute of SMPs behind the LID of
the port that has it. ``sa_query.py`` has ComponentMasks. A table has its records at a stride of
``record_stride`` bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntFlag
from typing import TypeVar

from .attribute_ids import SaAttribute, response_method
from .codes import Code, IbMtu, IbRate
from .errors import MadError
from .mad import SaHeader, SaMad
from .notices import NoticeType, ProducerType, TrapNumber
from .record import Record, bits, code, flag, gid_field, key, lid_field, numbers, octets, part, text
from .smp_attributes import (
    GuidInfo,
    LinearForwardingTable,
    MulticastForwardingTable,
    NodeDescription,
    NodeInfo,
    PKeyTable,
    PortInfo,
    RandomForwardingTable,
    SlToVlTable,
    SmInfo,
    SwitchInfo,
    VlArbitrationTable,
)

__all__ = [
    "SA_RECORDS",
    "GuidInfoRecord",
    "InformInfo",
    "InformInfoRecord",
    "JoinState",
    "LinearForwardingRecord",
    "LinkRecord",
    "McMemberRecord",
    "MultiPathRecord",
    "MulticastForwardingRecord",
    "NodeRecord",
    "PKeyTableRecord",
    "PathRecord",
    "PortInfoRecord",
    "RandomForwardingRecord",
    "Selector",
    "ServiceAssociationRecord",
    "ServiceRecord",
    "SlToVlRecord",
    "SmInfoRecord",
    "SwitchInfoRecord",
    "TraceRecord",
    "VlArbitrationRecord",
    "pack_table",
    "read_table",
    "record_stride",
    "table_message",
    "unpack_table",
]

_R = TypeVar("_R", bound=Record)


class Selector(Code):
    """How an MTU, rate or lifetime of a query is compared (IBA 15.2.5.16)."""

    GREATER_THAN = 0
    LESS_THAN = 1
    EXACTLY = 2
    LARGEST = 3, "The largest that there is; of a lifetime, the smallest."


class JoinState(IntFlag):
    """MCMemberRecord:JoinState."""

    FULL = 1
    NON_MEMBER = 2
    SEND_ONLY_NON_MEMBER = 4
    SEND_ONLY_FULL = 8


class NodeRecord(Record, size=108, attribute=SaAttribute.NODE_RECORD):
    """A port's node (IBA 15.2.5.2)."""

    lid: int = lid_field(0, "LID of the port.")
    node_info: NodeInfo = part(4, NodeInfo, "NodeInfo, as the port answers it.")
    node_description: NodeDescription = part(44, NodeDescription, "The node's name.")


class PortInfoRecord(Record, size=68, attribute=SaAttribute.PORT_INFO_RECORD):
    """A port (IBA 15.2.5.3)."""

    endport_lid: int = lid_field(0, "LID of the port, or of its switch.")
    port_num: int = bits(2, 0, 8, "The port; of a CA its own number.")
    options: int = bits(3, 0, 8, "In a query: bit 7, CapabilityMask matches one bit of it.")
    port_info: PortInfo = part(4, PortInfo, "PortInfo.")


class SlToVlRecord(Record, size=16, attribute=SaAttribute.SL_TO_VL_RECORD):
    """A table of virtual lanes by service level (IBA 15.2.5.4)."""

    lid: int = lid_field(0, "LID of the port, or of its switch.")
    input_port: int = bits(2, 0, 8, "Port of a switch by which a packet came.")
    output_port: int = bits(3, 0, 8, "Port of a switch by which a packet leaves.")
    sl_to_vl: SlToVlTable = part(8, SlToVlTable, "The table.")


class SwitchInfoRecord(Record, size=24, attribute=SaAttribute.SWITCH_INFO_RECORD):
    """A switch (IBA 15.2.5.5)."""

    lid: int = lid_field(0, "LID of the switch.")
    switch_info: SwitchInfo = part(4, SwitchInfo, "SwitchInfo.")


class LinearForwardingRecord(Record, size=72, attribute=SaAttribute.LINEAR_FORWARDING_RECORD):
    """A block of a linear forwarding table (IBA 15.2.5.6)."""

    lid: int = lid_field(0, "LID of the switch.")
    block: int = bits(2, 0, 16, "Block of 64 LIDs.")
    table: LinearForwardingTable = part(8, LinearForwardingTable, "The block.")


class RandomForwardingRecord(Record, size=72, attribute=SaAttribute.RANDOM_FORWARDING_RECORD):
    """A block of a random forwarding table (IBA 15.2.5.7)."""

    lid: int = lid_field(0, "LID of the switch.")
    block: int = bits(2, 0, 16, "Block of 16 entries.")
    table: RandomForwardingTable = part(8, RandomForwardingTable, "The block.")


class MulticastForwardingRecord(Record, size=72, attribute=SaAttribute.MULTICAST_FORWARDING_RECORD):
    """A block of a multicast forwarding table (IBA 15.2.5.8)."""

    lid: int = lid_field(0, "LID of the switch.")
    position: int = bits(2, 0, 4, "Block of 16 ports.")
    block: int = bits(2, 7, 9, "Block of 32 multicast LIDs.")
    table: MulticastForwardingTable = part(8, MulticastForwardingTable, "The block.")


class SmInfoRecord(Record, size=28, attribute=SaAttribute.SM_INFO_RECORD):
    """A subnet manager (IBA 15.2.5.10)."""

    lid: int = lid_field(0, "LID of the port where it runs.")
    sm_info: SmInfo = part(4, SmInfo, "SMInfo.")


class LinkRecord(Record, size=8, attribute=SaAttribute.LINK_RECORD):
    """A link, in one direction (IBA 15.2.5.13)."""

    from_lid: int = lid_field(0, "LID of one end's node.")
    from_port: int = bits(2, 0, 8, "Its port.")
    to_port: int = bits(3, 0, 8, "The other end's port.")
    to_lid: int = lid_field(4, "LID of the other end's node.")


class GuidInfoRecord(Record, size=72, attribute=SaAttribute.GUID_INFO_RECORD):
    """A block of a port's GUIDs (IBA 15.2.5.18)."""

    lid: int = lid_field(0, "LID of the port.")
    block: int = bits(2, 0, 8, "Block of 8 GUIDs.")
    guid_info: GuidInfo = part(8, GuidInfo, "The block.")


class PKeyTableRecord(Record, size=72, attribute=SaAttribute.P_KEY_TABLE_RECORD):
    """A block of a P_Key table (IBA 15.2.5.11)."""

    lid: int = lid_field(0, "LID of the port, or of its switch.")
    block: int = bits(2, 0, 16, "Block of 32 entries.")
    port_num: int = bits(4, 0, 8, "Port of a switch.")
    table: PKeyTable = part(8, PKeyTable, "The block.")


class VlArbitrationRecord(Record, size=72, attribute=SaAttribute.VL_ARBITRATION_RECORD):
    """Half of a table of arbitration between lanes (IBA 15.2.5.9)."""

    lid: int = lid_field(0, "LID of the port, or of its switch.")
    output_port: int = bits(2, 0, 8, "Port of a switch.")
    block: int = bits(3, 0, 8, "1 and 2: low priority; 3 and 4: high.")
    table: VlArbitrationTable = part(8, VlArbitrationTable, "The entries.")


class PathRecord(Record, size=64, attribute=SaAttribute.PATH_RECORD):
    """A path between two ports (IBA 15.2.5.16)."""

    service_id: int = key(0, 64, "The service for which the path is, or 0.")
    dgid: bytes = gid_field(8, "GID of the destination.")
    sgid: bytes = gid_field(24, "GID of the source.")
    dlid: int = lid_field(40, "LID of the destination, or of the router to it.")
    slid: int = lid_field(42, "LID of the source.")
    raw_traffic: bool = flag(44, 0, "Raw packets may use it.")
    flow_label: int = bits(44, 4, 20, "Flow label of packets with a GRH.", show="#x")
    hop_limit: int = bits(47, 0, 8, "Hop limit of packets with a GRH.")
    traffic_class: int = bits(48, 0, 8, "Traffic class of packets with a GRH.")
    reversible: bool = flag(49, 0, "The way back is the same.")
    numb_path: int = bits(49, 1, 7, "In a query: how many paths are wanted.")
    p_key: int = key(50, 16, "Partition in which both ports are.")
    qos_class: int = bits(52, 0, 12, "Class of service that is wanted, or 0.")
    sl: int = bits(53, 4, 4, "Service level.")
    mtu_selector: Selector = code(54, 0, 2, Selector, "How MTU is compared.", 2)
    mtu: IbMtu = code(54, 2, 6, IbMtu, "Largest payload.")
    rate_selector: Selector = code(55, 0, 2, Selector, "How the rate is compared.", 2)
    rate: IbRate = code(55, 2, 6, IbRate, "Rate of the slowest link.")
    packet_life_time_selector: Selector = code(56, 0, 2, Selector, "How the life is compared.", 2)
    packet_life_time: int = bits(56, 2, 6, "Time code of a packet's way.")
    preference: int = bits(57, 0, 8, "0 is the best of several paths.")


class McMemberRecord(Record, size=52, attribute=SaAttribute.MC_MEMBER_RECORD):
    """A port's membership in a multicast group (IBA 15.2.5.17).

    Set joins, and makes the group if the query has what that needs; Delete leaves.
    """

    mgid: bytes = gid_field(0, "GID of the group; 0 in a Set: the SA chooses.")
    port_gid: bytes = gid_field(16, "GID of the member; 0 if the requester may not see it.")
    qkey: int = key(32, 32, "Q_Key of the group's datagrams.")
    mlid: int = key(36, 16, "Multicast LID of the group.")
    mtu_selector: Selector = code(38, 0, 2, Selector, "How MTU is compared.", 2)
    mtu: IbMtu = code(38, 2, 6, IbMtu, "Largest payload of the group.")
    traffic_class: int = bits(39, 0, 8, "Traffic class of the group.")
    p_key: int = key(40, 16, "Partition of the group.")
    rate_selector: Selector = code(42, 0, 2, Selector, "How the rate is compared.", 2)
    rate: IbRate = code(42, 2, 6, IbRate, "Rate of the group.")
    packet_life_time_selector: Selector = code(43, 0, 2, Selector, "How the life is compared.", 2)
    packet_life_time: int = bits(43, 2, 6, "Time code of a packet's way.")
    sl: int = bits(44, 0, 4, "Service level of the group.")
    flow_label: int = bits(44, 4, 20, "Flow label of the group.", show="#x")
    hop_limit: int = bits(47, 0, 8, "Hop limit of the group.")
    scope: int = bits(48, 0, 4, "Scope of the MGID; 2 is link-local.")
    join_state: JoinState = code(48, 4, 4, JoinState, "Kinds of membership.")
    proxy_join: bool = flag(49, 0, "Another port joined for the member.")


class ServiceRecord(Record, size=176, attribute=SaAttribute.SERVICE_RECORD):
    """A service that a port offers (IBA 15.2.5.14)."""

    service_id: int = key(0, 64, "The service.")
    service_gid: bytes = gid_field(8, "GID of the port.")
    service_p_key: int = key(24, 16, "Partition in which it is offered.")
    service_lease: int = bits(28, 0, 32, "Seconds until it lapses; all ones: never.", show="#x")
    service_key: bytes = octets(32, 16, "Key without which the record cannot be changed.")
    service_name: str = text(48, 64, "The service's name.")
    data8: tuple[int, ...] = numbers(112, 8, 16, "Of the service.")
    data16: tuple[int, ...] = numbers(128, 16, 8, "Of the service.")
    data32: tuple[int, ...] = numbers(144, 32, 4, "Of the service.")
    data64: tuple[int, ...] = numbers(160, 64, 2, "Of the service.")


class InformInfo(Record, size=36, attribute=SaAttribute.INFORM_INFO):
    """A subscription to notices (IBA 13.4.8.3, 15.2.5.12)."""

    gid: bytes = gid_field(0, "GID of the producer; 0: the LIDs count.")
    lid_range_begin: int = lid_field(16, "First LID of producers; 0xffff: all.")
    lid_range_end: int = lid_field(18, "Last LID of producers.")
    is_generic: int = bits(22, 0, 8, "1: of generic notices; 0: of a vendor's.", 1)
    subscribe: int = bits(23, 0, 8, "1: subscribe; 0: end the subscription.")
    notice_type: NoticeType = code(24, 0, 16, NoticeType, "Type of notices; 0xffff: all.")
    trap_number: TrapNumber = code(26, 0, 16, TrapNumber, "Trap, or DeviceID; 0xffff: all.")
    qpn: int = bits(28, 0, 24, "QP to which reports go; 0 or 1: QP 1.")
    resp_time_value: int = bits(31, 3, 5, "Time code within which the subscriber answers.")
    producer: ProducerType = code(33, 0, 24, ProducerType, "Kind of node, or the vendor's OUI.")


class InformInfoRecord(Record, size=60, attribute=SaAttribute.INFORM_INFO_RECORD):
    """A subscription, with its subscriber (IBA 15.2.5.12)."""

    subscriber_gid: bytes = gid_field(0, "GID of the subscriber.")
    enumeration: int = bits(16, 0, 16, "Number of the subscription.")
    inform_info: InformInfo = part(24, InformInfo, "The subscription.")


class MultiPathRecord(Record, size=200, attribute=SaAttribute.MULTI_PATH_RECORD):
    """A query of GetMulti: paths between several ports (IBA 15.2.5.20); the SA answers PathRecords.

    ``gids`` has first the sources and then the destinations; there is room for eleven.
    """

    raw_traffic: bool = flag(0, 0, "Raw packets may use the paths.")
    flow_label: int = bits(0, 4, 20, "Flow label of packets with a GRH.", show="#x")
    hop_limit: int = bits(3, 0, 8, "Hop limit of packets with a GRH.")
    traffic_class: int = bits(4, 0, 8, "Traffic class of packets with a GRH.")
    reversible: bool = flag(5, 0, "The way back is the same.")
    numb_path: int = bits(5, 1, 7, "How many paths are wanted.")
    p_key: int = key(6, 16, "Partition in which all ports are.")
    qos_class: int = bits(8, 0, 12, "Class of service that is wanted, or 0.")
    sl: int = bits(9, 4, 4, "Service level.")
    mtu_selector: Selector = code(10, 0, 2, Selector, "How MTU is compared.", 2)
    mtu: IbMtu = code(10, 2, 6, IbMtu, "Largest payload.")
    rate_selector: Selector = code(11, 0, 2, Selector, "How the rate is compared.", 2)
    rate: IbRate = code(11, 2, 6, IbRate, "Rate of the slowest link.")
    packet_life_time_selector: Selector = code(12, 0, 2, Selector, "How the life is compared.", 2)
    packet_life_time: int = bits(12, 2, 6, "Time code of a packet's way.")
    service_id_high: int = key(13, 8, "The upper 8 bits of the service, or 0.")
    independence_selector: int = bits(14, 0, 2, "Whether the paths are to share nothing.")
    sgid_count: int = bits(15, 0, 8, "GIDs of sources.")
    dgid_count: int = bits(16, 0, 8, "GIDs of destinations.")
    service_id_low: int = key(17, 56, "The lower 56 bits of the service, or 0.")
    gids: tuple[int, ...] = numbers(24, 128, 11, "GIDs, as numbers of 128 bits.", "#x")


class TraceRecord(Record, size=48, attribute=SaAttribute.TRACE_RECORD):
    """A node on a path (IBA 15.2.5.19)."""

    gid_prefix: int = key(0, 64, "The subnet's prefix.")
    id_generation: int = key(8, 16, "Number of the SA's view, in which the IDs are valid.")
    node_type: int = bits(11, 0, 8, "CA, switch or router.")
    node_id: int = key(12, 64, "The node, by a number of the SA's.")
    chassis_id: int = key(20, 64, "Its chassis, by a number of the SA's.")
    entry_port_id: int = key(28, 64, "The port by which the path comes in.")
    exit_port_id: int = key(36, 64, "The port by which the path leaves.")
    entry_port: int = bits(44, 0, 8, "Number of the port by which the path comes in.")
    exit_port: int = bits(45, 0, 8, "Number of the port by which the path leaves.")


class ServiceAssociationRecord(Record, size=80, attribute=SaAttribute.SERVICE_ASSOCIATION_RECORD):
    """The key and name of a service (IBA 15.2.5.15)."""

    service_key: bytes = octets(0, 16, "Key of the ServiceRecord.")
    service_name: str = text(16, 64, "The service's name.")


SA_RECORDS: dict[int, type[Record]] = {
    record.ATTRIBUTE: record
    for record in (
        *(NodeRecord, PortInfoRecord, SlToVlRecord, SwitchInfoRecord, LinearForwardingRecord),
        *(
            RandomForwardingRecord,
            MulticastForwardingRecord,
            SmInfoRecord,
            LinkRecord,
            GuidInfoRecord,
            PKeyTableRecord,
        ),
        *(VlArbitrationRecord, PathRecord, McMemberRecord, ServiceRecord, InformInfo),
        *(InformInfoRecord, MultiPathRecord, TraceRecord, ServiceAssociationRecord),
    )
}


def record_stride(record: type[Record]) -> int:
    """Return the bytes from one record of a table to the next: AttributeOffset times 8."""
    return (record.SIZE + 7) // 8 * 8


def pack_table(records: Iterable[Record]) -> bytes:
    """Return the data of a table, each record filled up with zeros to its stride."""
    return b"".join(each.pack().ljust(record_stride(type(each)), b"\0") for each in records)


def unpack_table(record: type[_R], data: bytes, attribute_offset: int) -> list[_R]:
    """Return the records of a table: one every ``attribute_offset`` times 8 bytes.

    Bytes behind the last whole stride are not read. An AttributeOffset of 0, which some SAs send
    with an empty table, is the record's own stride. Raises MadError for one that is too small.
    """
    stride = attribute_offset * 8 or record_stride(record)
    if stride < record.SIZE:
        raise MadError(
            f"AttributeOffset {attribute_offset} is {stride} bytes, and {record.__name__} has"
            f" {record.SIZE}"
        )
    return [record.unpack(data, at) for at in range(0, len(data) - stride + 1, stride)]


def table_message(request: SaMad, kind: type[Record], records: Iterable[Record]) -> bytes:
    """Return the answer to a GetTable as a message for RMPP; ``kind`` is that of all records.

    Errors are no tables: an SA answers with ``request.response(status=...)`` then. Raises MadError
    for a record of another kind.
    """
    header = SaHeader.unpack(request.pack()).replace(
        method=response_method(request.method),
        status=0,
        attribute_id=kind.ATTRIBUTE,
        attribute_offset=record_stride(kind) // 8,
    )
    listed = list(records)
    if other := next((each for each in listed if type(each) is not kind), None):
        raise MadError(f"a table of {kind.__name__} cannot have a {type(other).__name__}")
    return header.pack() + pack_table(listed)


def read_table(kind: type[_R], message: bytes) -> list[_R]:
    """Return the records of a table's message. Raises MadError for one that is too short."""
    header = SaHeader.unpack(message)
    return unpack_table(kind, message[SaHeader.SIZE :], header.attribute_offset)
