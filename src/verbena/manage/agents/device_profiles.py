# SPDX-License-Identifier: Apache-2.0
"""What the hardware of a node is: the capabilities that its agent reports and keeps to.

``Subnet`` and ``NodeAgent`` take a profile; ``dataclasses.replace`` makes another one.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..codes import CapabilityMask, CapabilityMask2, IbMtu, NodeType, VirtualLanes

__all__ = ["ADAPTER", "ENHANCED_SWITCH", "ROUTER", "SWITCH", "DeviceProfile"]

Can = CapabilityMask
COMMON = (
    Can.NOTICE
    | Can.TRAP
    | Can.SL_MAPPING
    | Can.LED_INFO
    | Can.SYSTEM_IMAGE_GUID
    | Can.EXTENDED_SPEEDS
    | Can.CAPABILITY_MASK_2
    | Can.DR_NOTICE
    | Can.CAPABILITY_MASK_NOTICE
    | Can.CLIENT_REREGISTRATION
    | Can.OTHER_LOCAL_CHANGES_NOTICE
)
COMMON_2 = (
    CapabilityMask2.SET_NODE_DESCRIPTION
    | CapabilityMask2.LINK_WIDTH_2X
    | CapabilityMask2.HDR
    | CapabilityMask2.NDR
)


@dataclass(frozen=True, kw_only=True)
class DeviceProfile:
    """Numbers of NodeInfo, SwitchInfo and PortInfo that hardware fixes.

    ``partition_cap`` counts P_Keys of each end port (of a switch: of port 0), ``guid_cap`` GUIDs of
    a port. ``linear_fdb_cap`` and ``multicast_fdb_cap`` count entries of a switch's tables, and
    ``partition_enforcement_cap`` P_Keys of its external ports. ``fdr10`` adds the vendor's speed.
    ``additional_extended_counters`` gives PortCountersExtended the error counters, in 64 bits.
    """

    node_type: NodeType = NodeType.CA
    vendor_id: int = 0
    device_id: int = 0
    revision: int = 0
    partition_cap: int = 128
    guid_cap: int = 8
    mtu_cap: IbMtu = IbMtu.BYTES_4096
    vl_cap: VirtualLanes = VirtualLanes.VL0_7
    vl_arb_high_cap: int = 8
    vl_arb_low_cap: int = 8
    resp_time_value: int = 8
    capability_mask: CapabilityMask = COMMON
    capability_mask2: CapabilityMask2 = COMMON_2
    linear_fdb_cap: int = 0
    multicast_fdb_cap: int = 0
    partition_enforcement_cap: int = 0
    enhanced_port_0: bool = False
    fdr10: bool = True
    additional_extended_counters: bool = False


ADAPTER = DeviceProfile(
    capability_mask=COMMON
    | Can.AUTOMATIC_MIGRATION
    | Can.COMMUNICATION_MANAGEMENT
    | Can.VENDOR_CLASS
    | Can.MULTICAST_P_KEY_TRAP_SUPPRESSION
)
SWITCH = DeviceProfile(
    node_type=NodeType.SWITCH,
    partition_cap=8,
    guid_cap=1,
    capability_mask=COMMON
    | Can.VENDOR_CLASS
    | Can.MULTICAST_FDB_TOP
    | Can.P_KEY_SWITCH_EXTERNAL_PORT_TRAP,
    linear_fdb_cap=0xC000,
    multicast_fdb_cap=1024,
    partition_enforcement_cap=64,
)
ENHANCED_SWITCH = DeviceProfile(
    node_type=NodeType.SWITCH,
    guid_cap=8,
    partition_cap=64,
    capability_mask=SWITCH.capability_mask,
    linear_fdb_cap=0xC000,
    multicast_fdb_cap=1024,
    partition_enforcement_cap=64,
    enhanced_port_0=True,
)
ROUTER = DeviceProfile(node_type=NodeType.ROUTER, capability_mask=COMMON | Can.VENDOR_CLASS)
