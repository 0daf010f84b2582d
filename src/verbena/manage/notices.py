# SPDX-License-Identifier: Apache-2.0
"""Notices, and the details of each trap (IBA 13.4.8.2, 14.2.5.1).

Agents send them as Trap, and the SA forwards them to subscribers as Report. ``trap_notice`` builds
one of its details, and ``Notice.detail`` returns them as the record of its trap number.
"""

from __future__ import annotations

from .attribute_ids import CongestionAttribute, SmpAttribute
from .codes import CapabilityMask, CapabilityMask2, Code
from .record import Record, bits, code, flag, gid_field, guid_field, key, lid_field, octets

__all__ = [
    "TRAP_DETAILS",
    "BadKeyTrap",
    "BadMKeyTrap",
    "BadPKeyAtSwitchTrap",
    "CcKeyTrap",
    "GidTrap",
    "LinkStateTrap",
    "LocalChangesTrap",
    "Notice",
    "NoticeReport",
    "NoticeType",
    "PortErrorTrap",
    "ProducerType",
    "SystemImageGuidTrap",
    "TrapNumber",
    "trap_notice",
]

DETAIL_BYTES = 54


class NoticeType(Code):
    """Notice:Type."""

    FATAL = 0
    URGENT = 1
    SECURITY = 2
    SUBNET_MANAGEMENT = 3
    INFORMATIONAL = 4
    EMPTY = 0x7F, "There is no notice."


class ProducerType(Code):
    """Notice:ProducerType of a generic notice."""

    CA = 1
    SWITCH = 2
    ROUTER = 3
    CLASS_MANAGER = 4
    ALL = 0xFFFFFF, "In an InformInfo: any."


class TrapNumber(Code):
    """TrapNumber of a generic notice of the SM and SA classes (IBA 14.2.5.1)."""

    GID_IN_SERVICE = 64, "A port has become reachable."
    GID_OUT_OF_SERVICE = 65, "A port is no longer reachable."
    MULTICAST_GROUP_CREATED = 66, "A multicast group has been made."
    MULTICAST_GROUP_DELETED = 67, "A multicast group has gone."
    LINK_STATE = 128, "The link of a switch's port has changed its state."
    LOCAL_LINK_INTEGRITY = 129, "Errors of a link have reached LocalPhyErrors."
    BUFFER_OVERRUN = 130, "Overruns of a port's buffer have reached OverrunErrors."
    FLOW_CONTROL_WATCHDOG = 131, "A link had no flow control packet for too long."
    LOCAL_CHANGES = 144, "Capability mask, name, link settings or SM priority have changed."
    SYSTEM_IMAGE_GUID = 145, "The SystemImageGUID has changed."
    BAD_M_KEY = 256, "An SMP had a wrong M_Key."
    BAD_P_KEY = 257, "A packet had a wrong P_Key."
    BAD_Q_KEY = 258, "A packet had a wrong Q_Key."
    BAD_P_KEY_AT_SWITCH = 259, "A switch's port dropped a packet with a wrong P_Key."


class GidTrap(Record, size=DETAIL_BYTES):
    """Details of traps 64 to 67."""

    gid: bytes = gid_field(6, "GID of the port or of the multicast group.")


class LinkStateTrap(Record, size=DETAIL_BYTES):
    """Details of trap 128."""

    lid: int = lid_field(0, "LID of the switch.")


class PortErrorTrap(Record, size=DETAIL_BYTES):
    """Details of traps 129, 130 and 131."""

    lid: int = lid_field(2, "LID of the node.")
    port: int = bits(4, 0, 8, "The port.")


class LocalChangesTrap(Record, size=DETAIL_BYTES):
    """Details of trap 144. The change bits count if ``other_local_changes`` is set."""

    lid: int = lid_field(2, "LID of the port.")
    other_local_changes: bool = flag(5, 7, "One of the change bits is set.")
    capability_mask: CapabilityMask = code(6, 0, 32, CapabilityMask, "The mask as it is now.")
    capability_mask2_changed: bool = flag(11, 2, "CapabilityMask2 has changed.")
    hierarchy_info_changed: bool = flag(11, 3, "HierarchyInfo has changed.")
    sm_priority_changed: bool = flag(11, 4, "The priority of the port's SM has changed.")
    link_speed_enabled_changed: bool = flag(11, 5, "LinkSpeedEnabled has changed.")
    link_width_enabled_changed: bool = flag(11, 6, "LinkWidthEnabled has changed.")
    node_description_changed: bool = flag(11, 7, "NodeDescription has changed.")
    capability_mask2: CapabilityMask2 = code(12, 0, 16, CapabilityMask2, "The mask as it is now.")


class SystemImageGuidTrap(Record, size=DETAIL_BYTES):
    """Details of trap 145."""

    lid: int = lid_field(2, "LID of the node.")
    system_image_guid: int = guid_field(6, "The new SystemImageGUID.")


class BadMKeyTrap(Record, size=DETAIL_BYTES):
    """Details of trap 256: the SMP that had the wrong key."""

    lid: int = lid_field(2, "LID of its sender.")
    dr_slid: int = lid_field(4, "Its DrSLID.")
    method: int = bits(6, 0, 8, "Its method.")
    attribute_id: int = key(8, 16, "Its attribute.")
    attribute_modifier: int = key(10, 32, "Its modifier.")
    m_key: int = key(14, 64, "Its M_Key.")
    dr_notice: bool = flag(23, 0, "It was a directed-route SMP; the path is valid.")
    dr_path_truncated: bool = flag(23, 1, "The path was longer than 30 hops.")
    dr_hop_count: int = bits(23, 2, 6, "Hops of the return path.")
    dr_return_path: bytes = octets(24, 30, "Its return path.")


class BadKeyTrap(Record, size=DETAIL_BYTES):
    """Details of traps 257 and 258: the packet that had the wrong P_Key or Q_Key."""

    lid1: int = lid_field(2, "Its source LID.")
    lid2: int = lid_field(4, "Its destination LID.")
    offending_key: int = key(6, 32, "Its Q_Key, or its P_Key in the lower 16 bits.")
    sl: int = bits(10, 0, 4, "Its service level.")
    qp1: int = bits(11, 0, 24, "Its source QP.", show="#x")
    qp2: int = bits(15, 0, 24, "Its destination QP.", show="#x")
    gid1: bytes = gid_field(18, "Its source GID, or 0.")
    gid2: bytes = gid_field(34, "Its destination GID, or 0.")


class BadPKeyAtSwitchTrap(Record, size=DETAIL_BYTES):
    """Details of trap 259: the packet that a switch dropped. ``data_valid`` says what counts."""

    data_valid: int = key(0, 16, "Bits for LID1, LID2, P_Key, SL, QP1, QP2, GID1 and GID2.")
    lid1: int = lid_field(2, "Its source LID.")
    lid2: int = lid_field(4, "Its destination LID.")
    p_key: int = key(6, 16, "Its P_Key.")
    sl: int = bits(8, 0, 4, "Its service level.")
    qp1: int = bits(9, 0, 24, "Its source QP.", show="#x")
    qp2: int = bits(13, 0, 24, "Its destination QP.", show="#x")
    gid1: bytes = gid_field(16, "Its source GID.")
    gid2: bytes = gid_field(32, "Its destination GID.")
    switch_lid: int = lid_field(48, "LID of the switch.")
    port: int = bits(50, 0, 8, "The switch's port.")


class CcKeyTrap(Record, size=DETAIL_BYTES):
    """Details of trap 0 of congestion control: the MAD that had the wrong CC_Key (annex A10)."""

    slid: int = lid_field(0, "Its source LID.")
    method: int = bits(2, 0, 8, "Its method.")
    attribute_id: int = key(4, 16, "Its attribute.")
    attribute_modifier: int = key(8, 32, "Its modifier.")
    qp: int = bits(13, 0, 24, "Its source QP.", show="#x")
    cc_key: int = key(16, 64, "Its CC_Key.")
    source_gid: bytes = gid_field(24, "Its source GID, or 0.")


TRAP_DETAILS: dict[int, type[Record]] = {
    **dict.fromkeys(range(64, 68), GidTrap),
    128: LinkStateTrap,
    **dict.fromkeys(range(129, 132), PortErrorTrap),
    144: LocalChangesTrap,
    145: SystemImageGuidTrap,
    256: BadMKeyTrap,
    **dict.fromkeys(range(257, 259), BadKeyTrap),
    259: BadPKeyAtSwitchTrap,
}
_TYPES = {
    **dict.fromkeys(range(64, 68), NoticeType.INFORMATIONAL),
    **dict.fromkeys(range(128, 132), NoticeType.URGENT),
    **dict.fromkeys(range(144, 146), NoticeType.INFORMATIONAL),
    **dict.fromkeys(range(256, 260), NoticeType.SECURITY),
}


class Notice(Record, size=64, attribute=SmpAttribute.NOTICE):
    """A notice as an SMP has it (IBA 13.4.8.2). One that is not generic is a vendor's."""

    is_generic: bool = flag(0, 0, "TrapNumber is IBA's; else it is a vendor's DeviceID.", True)
    notice_type: NoticeType = code(0, 1, 7, NoticeType, "How urgent it is, or EMPTY.")
    producer: ProducerType = code(1, 0, 24, ProducerType, "Kind of node, or the vendor's OUI.")
    trap_number: TrapNumber = code(4, 0, 16, TrapNumber, "What has happened, or the DeviceID.")
    issuer_lid: int = lid_field(6, "LID of the port that sends it.")
    toggle: bool = flag(8, 0, "Changes with each notice, where the count is 0.")
    count: int = bits(8, 1, 15, "Notices that wait behind this one.")
    data_details: bytes = octets(10, DETAIL_BYTES, "Details, as the trap number says.")

    @property
    def detail(self) -> Record | None:
        """The details as the record of a generic notice's trap number; None for another one."""
        kind = TRAP_DETAILS.get(self.trap_number) if self.is_generic else None
        return kind.unpack(self._raw, 10) if kind else None


class NoticeReport(Notice, size=80):
    """A notice as the SA's Report has it, with the sender's GID (IBA 15.2.5.2)."""

    issuer_gid: bytes = gid_field(64, "GID of the port that sends it.")


class CcNotice(Notice, attribute=CongestionAttribute.NOTICE):
    """A notice of congestion control; its trap number 0 has the details ``CcKeyTrap``."""

    @property
    def detail(self) -> Record | None:
        """The details as the record of a generic notice's trap number; None for another one."""
        return CcKeyTrap.unpack(self._raw, 10) if self.is_generic and not self.trap_number else None


def trap_notice(
    number: int, detail: Record, *, issuer_lid: int, producer: int = ProducerType.CA
) -> Notice:
    """Return the generic notice of a trap, with the type that IBA gives it. Raises MadError."""
    return Notice(
        notice_type=_TYPES.get(number, NoticeType.INFORMATIONAL),
        producer=ProducerType(producer),
        trap_number=TrapNumber(number),
        issuer_lid=issuer_lid,
        data_details=detail.pack(),
    )
