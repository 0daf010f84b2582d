# SPDX-License-Identifier: Apache-2.0
"""Attributes of subnet management packets (IBA 14.2.5), and their attribute modifiers.

A node's agent and the subnet manager read and write them; SA records contain most of them. Notices
are in ``notices.py``. In a Set, codes whose name is NO_CHANGE leave the component as it is.
"""

from __future__ import annotations

from typing import Self

from .attribute_ids import SmpAttribute
from .codes import (
    CapabilityMask,
    CapabilityMask2,
    Code,
    IbMtu,
    InitialType,
    LinkDownState,
    LinkSpeed,
    LinkSpeedExtended,
    LinkSpeedFdr10,
    LinkWidth,
    NodeType,
    PortPhysicalState,
    PortState,
    SmState,
    VirtualLanes,
)
from .errors import MadError
from .record import (
    Record,
    bits,
    code,
    flag,
    guid_field,
    key,
    lid_field,
    numbers,
    octets,
    parts,
    table,
    text,
)

__all__ = [
    "NO_PATH",
    "ExtendedPortInfo",
    "GuidInfo",
    "GuidInfoModifier",
    "LedInfo",
    "LidPortBlock",
    "LinearForwardingModifier",
    "LinearForwardingTable",
    "Modifier",
    "MulticastForwardingModifier",
    "MulticastForwardingTable",
    "NodeDescription",
    "NodeInfo",
    "PKeyTable",
    "PKeyTableModifier",
    "PortInfo",
    "PortInfoModifier",
    "RandomForwardingTable",
    "SlToVlModifier",
    "SlToVlTable",
    "SmInfo",
    "SmInfoControl",
    "SwitchInfo",
    "VendorDiag",
    "VlArbitrationModifier",
    "VlArbitrationTable",
    "VlWeight",
]

NO_PATH = 0xFF  # an entry of the linear forwarding table: drop


class NodeDescription(Record, size=64, attribute=SmpAttribute.NODE_DESCRIPTION):
    """The node's name, for people (IBA 14.2.5.2)."""

    name: str = text(0, 64, "The node's name.")


class NodeInfo(Record, size=40, attribute=SmpAttribute.NODE_INFO):
    """What the node is, and which of its ports answers (IBA 14.2.5.3)."""

    base_version: int = bits(0, 0, 8, "Version of the MAD header that it supports.", 1)
    class_version: int = bits(1, 0, 8, "Version of SMPs that it supports.", 1)
    node_type: NodeType = code(2, 0, 8, NodeType, "CA, switch or router.", NodeType.CA)
    num_ports: int = bits(3, 0, 8, "Physical ports; a switch does not count its port 0.")
    system_image_guid: int = guid_field(4, "The system that the node is part of; 0 if unknown.")
    node_guid: int = guid_field(12, "The node's GUID.")
    port_guid: int = guid_field(20, "GUID of the port that answers; of a switch always port 0's.")
    partition_cap: int = bits(28, 0, 16, "Entries of each port's P_Key table.")
    device_id: int = key(30, 16, "The vendor's number of the device.")
    revision: int = key(32, 32, "The vendor's number of the revision.")
    local_port_num: int = bits(36, 0, 8, "The port by which this SMP came in.")
    vendor_id: int = key(37, 24, "The vendor, by its OUI.")


class SwitchInfo(Record, size=20, attribute=SmpAttribute.SWITCH_INFO):
    """What a switch can do, and how it forwards (IBA 14.2.5.4)."""

    linear_fdb_cap: int = bits(0, 0, 16, "Entries of the linear forwarding table.")
    random_fdb_cap: int = bits(2, 0, 16, "Entries of the random forwarding table; 0: none.")
    multicast_fdb_cap: int = bits(4, 0, 16, "Entries of the multicast forwarding table.")
    linear_fdb_top: int = bits(6, 0, 16, "The highest LID that the linear table forwards.")
    default_port: int = bits(8, 0, 8, "Port for LIDs that no table has.")
    default_multicast_primary_port: int = bits(9, 0, 8, "Port for unknown multicast LIDs.")
    default_multicast_not_primary_port: int = bits(
        10, 0, 8, "Port for unknown multicast LIDs that came by the primary port."
    )
    life_time_value: int = bits(11, 0, 5, "Time code of a packet's life inside; 20 or more: none.")
    port_state_change: bool = flag(
        11, 5, "A port's state has changed; the subnet manager writes 1 to clear it."
    )
    optimized_sl_to_vl: int = bits(11, 6, 2, "Support of one Set for several SLtoVL tables.")
    lids_per_port: int = bits(12, 0, 16, "LIDs of one port in the random table.")
    partition_enforcement_cap: int = bits(14, 0, 16, "P_Keys that each port can enforce.")
    inbound_enforcement_cap: bool = flag(16, 0, "It can enforce partitions on receipt.")
    outbound_enforcement_cap: bool = flag(16, 1, "It can enforce partitions on sending.")
    filter_raw_inbound_cap: bool = flag(16, 2, "It can drop raw packets on receipt.")
    filter_raw_outbound_cap: bool = flag(16, 3, "It can drop raw packets on sending.")
    enhanced_port_0: bool = flag(16, 4, "Port 0 is an end port with the features of a CA's.")
    multicast_fdb_top: int = bits(18, 0, 16, "The highest MLID in use; 0xbfff: none.")


class GuidInfo(Record, size=64, attribute=SmpAttribute.GUID_INFO):
    """A block of eight GUIDs of a port; the first of block 0 is the port's (IBA 14.2.5.5)."""

    guids: tuple[int, ...] = numbers(0, 64, 8, "The GUIDs of the block.", "guid")


class PortInfo(Record, size=64, attribute=SmpAttribute.PORT_INFO):
    """State and settings of a port (IBA 14.2.5.6).

    On a switch LID, LMC, M_Key and the like mean something on port 0 alone.
    """

    m_key: int = key(0, 64, "Management key; SMPs must have it as M_KeyProtectBits say.")
    gid_prefix: int = guid_field(8, "The subnet's prefix.")
    lid: int = lid_field(16, "The port's first LID; 0 before the subnet manager gave one.")
    master_sm_lid: int = lid_field(18, "LID of the master subnet manager, to which traps go.")
    capability_mask: CapabilityMask = code(20, 0, 32, CapabilityMask, "What the port supports.")
    diag_code: int = key(24, 16, "Diagnosis as the vendor says; 0 if all is well.")
    m_key_lease_period: int = bits(26, 0, 16, "Seconds until an M_Key lapses; 0: never.")
    local_port_num: int = bits(28, 0, 8, "The port by which this SMP came in.")
    link_width_enabled: LinkWidth = code(29, 0, 8, LinkWidth, "Widths allowed; 255: all.")
    link_width_supported: LinkWidth = code(30, 0, 8, LinkWidth, "Widths that the port can do.")
    link_width_active: LinkWidth = code(31, 0, 8, LinkWidth, "The link's width.")
    link_speed_supported: LinkSpeed = code(32, 0, 4, LinkSpeed, "Speeds that the port can do.")
    port_state: PortState = code(32, 4, 4, PortState, "Logical state of the link.")
    port_physical_state: PortPhysicalState = code(
        33, 0, 4, PortPhysicalState, "Physical state of the link."
    )
    link_down_default_state: LinkDownState = code(
        33, 4, 4, LinkDownState, "Physical state after the link fails."
    )
    m_key_protect_bits: int = bits(34, 0, 2, "Whether a Get needs the M_Key; a Set always does.")
    lmc: int = bits(34, 5, 3, "LID mask control: the port has 2 to this power LIDs.")
    link_speed_active: LinkSpeed = code(
        35, 0, 4, LinkSpeed, "The link's speed; 0 if an extended speed is active."
    )
    link_speed_enabled: LinkSpeed = code(35, 4, 4, LinkSpeed, "Speeds allowed; 15: all.")
    neighbor_mtu: IbMtu = code(36, 0, 4, IbMtu, "The largest payload that may be sent.")
    master_sm_sl: int = bits(36, 4, 4, "Service level of packets to the master subnet manager.")
    vl_cap: VirtualLanes = code(37, 0, 4, VirtualLanes, "Data lanes that the port has.")
    init_type: InitialType = code(37, 4, 4, InitialType, "What the port wants kept.")
    vl_high_limit: int = bits(38, 0, 8, "4 KiB of high priority before a low one; 255: no limit.")
    vl_arb_high_cap: int = bits(39, 0, 8, "Entries of the high-priority arbitration table.")
    vl_arb_low_cap: int = bits(40, 0, 8, "Entries of the low-priority arbitration table.")
    init_type_reply: InitialType = code(41, 0, 4, InitialType, "What the SM kept.")
    mtu_cap: IbMtu = code(41, 4, 4, IbMtu, "The largest payload that the port can do.")
    vl_stall_count: int = bits(42, 0, 3, "Expired packets in a row that stall a lane.")
    hoq_life: int = bits(42, 3, 5, "Time code at the head of a queue; 20 or more: no limit.")
    operational_vls: VirtualLanes = code(43, 0, 4, VirtualLanes, "Data lanes in use.")
    partition_enforcement_inbound: bool = flag(43, 4, "A switch checks P_Keys on receipt.")
    partition_enforcement_outbound: bool = flag(43, 5, "A switch checks P_Keys on sending.")
    filter_raw_inbound: bool = flag(43, 6, "Raw packets are dropped on receipt.")
    filter_raw_outbound: bool = flag(43, 7, "Raw packets are dropped on sending.")
    m_key_violations: int = bits(44, 0, 16, "SMPs with a wrong M_Key.")
    p_key_violations: int = bits(46, 0, 16, "Packets with a wrong P_Key.")
    q_key_violations: int = bits(48, 0, 16, "Packets with a wrong Q_Key.")
    guid_cap: int = bits(50, 0, 8, "GUIDs that the port can have.")
    client_reregister: bool = flag(51, 0, "Clients are to subscribe and join again.")
    multicast_p_key_trap_suppression: int = bits(
        51, 1, 2, "Whether multicast packets with a wrong P_Key send no trap."
    )
    subnet_timeout: int = bits(51, 3, 5, "Time code of a packet's way through the subnet.")
    resp_time_value: int = bits(52, 3, 5, "Time code within which the node answers SMPs.")
    local_phy_errors: int = bits(53, 0, 4, "Errors of the link that make trap 129.")
    overrun_errors: int = bits(53, 4, 4, "Overruns of the buffer that make trap 130.")
    max_credit_hint: int = bits(54, 0, 16, "Credits, in blocks of 64 bytes, that suffice.")
    link_speed_ext_active2: int = bits(56, 1, 2, "1 if the link's speed is XDR.")
    link_speed_ext_supported2: int = bits(56, 3, 2, "1 if the port can do XDR.")
    link_speed_ext_enabled2: int = bits(56, 5, 3, "1 if XDR is allowed.")
    link_round_trip_latency: int = bits(57, 0, 24, "Round trip of the link, in units of 4 ns.")
    capability_mask2: CapabilityMask2 = code(60, 0, 16, CapabilityMask2, "What it also supports.")
    link_speed_ext_active: LinkSpeedExtended = code(
        62, 0, 4, LinkSpeedExtended, "The link's extended speed, or 0."
    )
    link_speed_ext_supported: LinkSpeedExtended = code(
        62, 4, 4, LinkSpeedExtended, "Extended speeds that the port can do."
    )
    link_speed_ext_enabled: LinkSpeedExtended = code(
        63, 3, 5, LinkSpeedExtended, "Extended speeds allowed; 30: none, 31: all."
    )


class PKeyTable(Record, size=64, attribute=SmpAttribute.P_KEY_TABLE):
    """A block of 32 entries of a P_Key table; 0 is an empty entry (IBA 14.2.5.7)."""

    p_keys: tuple[int, ...] = numbers(0, 16, 32, "The P_Keys; bit 15: full member.", "#x")


class SlToVlTable(Record, size=8, attribute=SmpAttribute.SL_TO_VL):
    """The virtual lane of each service level; 15 drops the packet (IBA 14.2.5.8)."""

    vls: tuple[int, ...] = numbers(0, 4, 16, "The lane of each service level, from 0.")


class VlWeight(Record, size=2):
    """An entry of an arbitration table (IBA 7.6.9)."""

    vl: int = bits(0, 4, 4, "The virtual lane.")
    weight: int = bits(1, 0, 8, "Blocks of 64 bytes that it may send at its turn; 0: skip.")


class VlArbitrationTable(Record, size=64, attribute=SmpAttribute.VL_ARBITRATION):
    """Half of a table of arbitration between lanes (IBA 14.2.5.9)."""

    entries: tuple[VlWeight, ...] = parts(0, VlWeight, 32, "The entries, in their order.")


class LinearForwardingTable(Record, size=64, attribute=SmpAttribute.LINEAR_FORWARDING):
    """The output port of 64 LIDs from 64 times the block on (IBA 14.2.5.10)."""

    ports: bytes = table(0, 64, "The output port of each LID; 255: no path.", NO_PATH)


class LidPortBlock(Record, size=4):
    """An entry of a random forwarding table (IBA 14.2.5.11)."""

    lid: int = lid_field(0, "The first LID of the entry.")
    valid: bool = flag(2, 0, "The entry counts.")
    lmc: int = bits(2, 1, 3, "The entry is for 2 to this power LIDs.")
    port: int = bits(3, 0, 8, "The output port.")


class RandomForwardingTable(Record, size=64, attribute=SmpAttribute.RANDOM_FORWARDING):
    """A block of 16 entries of a random forwarding table (IBA 14.2.5.11)."""

    entries: tuple[LidPortBlock, ...] = parts(0, LidPortBlock, 16, "The entries.")


class MulticastForwardingTable(Record, size=64, attribute=SmpAttribute.MULTICAST_FORWARDING):
    """Output ports of 32 multicast LIDs from 0xc000 + 32 times the block on (IBA 14.2.5.12).

    Bit k of an entry, from the least significant, is port 16 times the position plus k.
    """

    masks: tuple[int, ...] = numbers(0, 16, 32, "The port mask of each multicast LID.", "#x")


class SmInfo(Record, size=24, attribute=SmpAttribute.SM_INFO):
    """The state of a subnet manager (IBA 14.2.5.13)."""

    guid: int = guid_field(0, "GUID of the port where it runs.")
    sm_key: int = key(8, 64, "Its key; 0 to those who do not know it.")
    act_count: int = bits(16, 0, 32, "Grows as the manager works, as a sign of life.")
    priority: int = bits(20, 0, 4, "0 to 15; the highest becomes master, then the lowest GUID.")
    sm_state: SmState = code(20, 4, 4, SmState, "Its state.")


class SmInfoControl(Code):
    """The modifier of a Set of SMInfo: what a subnet manager tells another one (IBA 14.4.1)."""

    HANDOVER = 1, "Become master."
    ACKNOWLEDGE = 2, "You are master now, and I am not."
    DISABLE = 3, "Do not take part."
    STANDBY = 4, "Take part again."
    DISCOVER = 5, "Look at the subnet anew."


class VendorDiag(Record, size=64, attribute=SmpAttribute.VENDOR_DIAG):
    """Diagnosis as the vendor says (IBA 14.2.5.14)."""

    next_index: int = bits(0, 0, 16, "Modifier of the next Get; 0: there is no more.")
    diag_data: bytes = octets(2, 62, "Of the vendor.")


class LedInfo(Record, size=4, attribute=SmpAttribute.LED_INFO):
    """The light of a port (IBA 14.2.5.15)."""

    led_mask: bool = flag(0, 0, "The light blinks, to show the port.")


class ExtendedPortInfo(Record, size=64, attribute=SmpAttribute.MELLANOX_EXTENDED_PORT_INFO):
    """Mellanox's attribute for FDR10; the modifier is the port, and no IBA section has it."""

    state_change_enable: int = key(3, 8, "Which of the settings a Set changes.")
    link_speed_supported: LinkSpeedFdr10 = code(7, 0, 8, LinkSpeedFdr10, "Speeds it can do.")
    link_speed_enabled: LinkSpeedFdr10 = code(11, 0, 8, LinkSpeedFdr10, "Speeds allowed.")
    link_speed_active: LinkSpeedFdr10 = code(15, 0, 8, LinkSpeedFdr10, "The link's speed.")


class Modifier(Record, size=4):
    """An AttributeModifier in its parts; ``value`` is the number in the header."""

    @property
    def value(self) -> int:
        """The AttributeModifier."""
        return int.from_bytes(self._raw, "big")

    @classmethod
    def of(cls, value: int) -> Self:
        """Return the parts of an AttributeModifier. Raises MadError for one over 32 bits."""
        if not 0 <= value < 1 << 32:
            raise MadError(f"an AttributeModifier has 32 bits, and this is {value}")
        return cls.unpack(value.to_bytes(4, "big"))


class GuidInfoModifier(Modifier):
    """The modifier of GUIDInfo."""

    block: int = bits(0, 0, 32, "Block of 8 GUIDs.")


class PortInfoModifier(Modifier):
    """The modifier of PortInfo."""

    extended_speeds: bool = flag(0, 0, "The requester understands extended speeds.")
    port: int = bits(3, 0, 8, "The port; 0 on a CA is the one by which the SMP came.")


class PKeyTableModifier(Modifier):
    """The modifier of P_KeyTable."""

    port: int = bits(0, 0, 16, "Port of a switch; 0 on a CA.")
    block: int = bits(2, 0, 16, "Block of 32 entries.")


class SlToVlModifier(Modifier):
    """The modifier of SLtoVLMappingTable; 0 on a CA."""

    all_inputs: bool = flag(1, 6, "In a Set with OptimizedSLtoVL: for every input port.")
    all_outputs: bool = flag(1, 7, "In a Set with OptimizedSLtoVL: for every output port.")
    input_port: int = bits(2, 0, 8, "Port of a switch by which a packet came.")
    output_port: int = bits(3, 0, 8, "Port of a switch by which a packet leaves.")


class VlArbitrationModifier(Modifier):
    """The modifier of VLArbitrationTable."""

    block: int = bits(0, 0, 16, "1 and 2: low priority; 3 and 4: high; each half of a table.")
    port: int = bits(2, 0, 16, "Output port of a switch; 0 on a CA.")


class LinearForwardingModifier(Modifier):
    """The modifier of LinearForwardingTable and RandomForwardingTable."""

    block: int = bits(0, 0, 32, "Block of 64 LIDs.")


class MulticastForwardingModifier(Modifier):
    """The modifier of MulticastForwardingTable."""

    position: int = bits(0, 0, 4, "Block of 16 ports.")
    block: int = bits(2, 7, 9, "Block of 32 multicast LIDs.")
