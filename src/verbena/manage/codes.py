# SPDX-License-Identifier: Apache-2.0
"""Enumerations that several formats use, and the texts of GUIDs, GIDs and times.

The formats' modules import them, as do those who read records. An enumeration accepts a number
without a name: it becomes a member called ``UNKNOWN_n`` that keeps its value.
"""

from __future__ import annotations

import ipaddress
from enum import Enum, IntEnum, IntFlag
from typing import Self, TypeVar

from .errors import MadError

__all__ = [
    "CapabilityMask",
    "CapabilityMask2",
    "Code",
    "IbMtu",
    "IbRate",
    "InitialType",
    "LinkDownState",
    "LinkSpeed",
    "LinkSpeedExtended",
    "LinkSpeedFdr10",
    "LinkWidth",
    "NodeType",
    "PortPhysicalState",
    "PortState",
    "SmState",
    "VirtualLanes",
    "gid_from",
    "gid_of_address",
    "gid_text",
    "guid_text",
    "lifetime_seconds",
    "quick_members",
]


_Members = TypeVar("_Members", bound=type[Enum])


def quick_members(made: _Members) -> _Members:
    """Decorate an enumeration that is used often: its members become attributes of the class.

    They are so from Python 3.12 on. In Python 3.11 each ``State.IDLE`` is a call, and takes twice
    as long as with this.
    """
    for name, member in made.__members__.items():
        type.__setattr__(made, name, member)
    return made


class Code(IntEnum):
    """A number with a name and, where the name does not suffice, a sentence ``meaning``."""

    meaning: str

    def __new__(cls, value: int, meaning: str = "") -> Self:
        made = int.__new__(cls, value)
        made._value_ = value
        made.meaning = meaning
        return made

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, int) or value < 0:
            return None
        made = int.__new__(cls, value)
        made._name_, made._value_ = f"UNKNOWN_{value}", value
        made.meaning = "A number that this version does not know."
        return made


class NodeType(Code):
    """NodeInfo:NodeType."""

    CA = 1
    SWITCH = 2
    ROUTER = 3


class PortState(Code):
    """PortInfo:PortState, the logical state of a link (IBA 7.2)."""

    NO_CHANGE = 0, "In a Set: leave the state as it is."
    DOWN = 1, "The link is not up; nothing passes."
    INIT = 2, "Only SMPs pass; the subnet manager has not configured the port."
    ARMED = 3, "Configured; data packets are received, and the first makes the port ACTIVE."
    ACTIVE = 4, "Data packets pass."
    ACTIVE_DEFER = 5, "The link failed a moment ago and may recover."


class PortPhysicalState(Code):
    """PortInfo:PortPhysicalState."""

    NO_CHANGE = 0
    SLEEP = 1
    POLLING = 2
    DISABLED = 3
    TRAINING = 4
    LINK_UP = 5
    ERROR_RECOVERY = 6
    PHY_TEST = 7


class LinkDownState(Code):
    """PortInfo:LinkDownDefaultState, the physical state that a port takes when its link fails."""

    NO_CHANGE = 0
    SLEEP = 1
    POLLING = 2


@quick_members
class IbMtu(Code):
    """The code of a maximum payload; ``payload`` is in bytes."""

    BYTES_256 = 1
    BYTES_512 = 2
    BYTES_1024 = 3
    BYTES_2048 = 4
    BYTES_4096 = 5

    @property
    def payload(self) -> int:
        """In bytes; 0 for a code without a meaning."""
        return 128 << self if 1 <= self <= 5 else 0


class VirtualLanes(Code):
    """PortInfo:VLCap and OperationalVLs: which data lanes there are."""

    NO_CHANGE = 0
    VL0 = 1
    VL0_1 = 2
    VL0_3 = 3
    VL0_7 = 4
    VL0_14 = 5

    @property
    def lanes(self) -> int:
        """The number of data lanes; 0 for a code without a meaning."""
        return (0, 1, 2, 4, 8, 15)[self] if self <= 5 else 0


class SmState(Code):
    """SMInfo:SMState (IBA 14.4)."""

    NOT_ACTIVE = 0
    DISCOVERING = 1
    STANDBY = 2
    MASTER = 3


@quick_members
class IbRate(Code):
    """The code of a rate in path records, multicast groups and CM messages; its order is no order.

    The names have the nominal rate in Gb/s.
    """

    PORT_CURRENT = 0, "The rate of the port."
    GBPS_2_5 = 2
    GBPS_10 = 3
    GBPS_30 = 4
    GBPS_5 = 5
    GBPS_20 = 6
    GBPS_40 = 7
    GBPS_60 = 8
    GBPS_80 = 9
    GBPS_120 = 10
    GBPS_14 = 11
    GBPS_56 = 12
    GBPS_112 = 13
    GBPS_168 = 14
    GBPS_25 = 15
    GBPS_100 = 16
    GBPS_200 = 17
    GBPS_300 = 18
    GBPS_28 = 19
    GBPS_50 = 20
    GBPS_400 = 21
    GBPS_600 = 22
    GBPS_800 = 23
    GBPS_1200 = 24

    @property
    def gbps(self) -> float:
        """The nominal rate in Gb/s; 0 where there is none. It orders rates."""
        name = str(self.name)
        return float(name[5:].replace("_", ".")) if name.startswith("GBPS_") else 0.0


class LinkWidth(IntFlag):
    """Widths of a link; LinkWidthEnabled 0xff stands for all that are supported."""

    X1 = 1
    X4 = 2
    X8 = 4
    X12 = 8
    X2 = 16


class LinkSpeed(IntFlag):
    """Speeds of PortInfo's first set, per lane; 15 in LinkSpeedEnabled: all that are supported."""

    SDR = 1
    DDR = 2
    QDR = 4


class LinkSpeedExtended(IntFlag):
    """Speeds of PortInfo's extended set; in LinkSpeedExtEnabled 30 is none and 31 all."""

    FDR = 1
    EDR = 2
    HDR = 4
    NDR = 8


class LinkSpeedFdr10(IntFlag):
    """Speeds of the vendor attribute ExtendedPortInfo."""

    FDR10 = 1


class InitialType(IntFlag):
    """PortInfo:InitType and InitTypeReply: what a port kept while it was down (IBA 14.2.5.6)."""

    NO_LOAD = 1
    PRESERVE_CONTENT = 2
    PRESERVE_PRESENCE = 4
    NO_RESUSCITATE = 8


class CapabilityMask(IntFlag):
    """PortInfo:CapabilityMask, what a port supports (IBA 14.2.5.6)."""

    IS_SM = 1 << 1
    NOTICE = 1 << 2
    TRAP = 1 << 3
    OPTIONAL_IPD = 1 << 4
    AUTOMATIC_MIGRATION = 1 << 5
    SL_MAPPING = 1 << 6
    M_KEY_NVRAM = 1 << 7
    P_KEY_NVRAM = 1 << 8
    LED_INFO = 1 << 9
    SM_DISABLED = 1 << 10
    SYSTEM_IMAGE_GUID = 1 << 11
    P_KEY_SWITCH_EXTERNAL_PORT_TRAP = 1 << 12
    CABLE_INFO = 1 << 13
    EXTENDED_SPEEDS = 1 << 14
    CAPABILITY_MASK_2 = 1 << 15
    COMMUNICATION_MANAGEMENT = 1 << 16
    SNMP_TUNNELLING = 1 << 17
    REINIT = 1 << 18
    DEVICE_MANAGEMENT = 1 << 19
    VENDOR_CLASS = 1 << 20
    DR_NOTICE = 1 << 21
    CAPABILITY_MASK_NOTICE = 1 << 22
    BOOT_MANAGEMENT = 1 << 23
    LINK_ROUND_TRIP_LATENCY = 1 << 24
    CLIENT_REREGISTRATION = 1 << 25
    OTHER_LOCAL_CHANGES_NOTICE = 1 << 26
    LINK_SPEED_WIDTH_PAIRS = 1 << 27
    VENDOR_MADS = 1 << 28
    MULTICAST_P_KEY_TRAP_SUPPRESSION = 1 << 29
    MULTICAST_FDB_TOP = 1 << 30
    HIERARCHY_INFO = 1 << 31


class CapabilityMask2(IntFlag):
    """PortInfo:CapabilityMask2."""

    SET_NODE_DESCRIPTION = 1 << 0
    PORT_INFO_EXTENDED = 1 << 1
    VIRTUALIZATION = 1 << 2
    SWITCH_PORT_STATE_TABLE = 1 << 3
    LINK_WIDTH_2X = 1 << 4
    HDR = 1 << 5
    NDR = 1 << 10


def guid_text(guid: int) -> str:
    """A GUID as OpenSM and ibstat write it: 0x and 16 digits."""
    return f"0x{guid:016x}"


def gid_text(gid: bytes) -> str:
    """A GID as an IPv6 address."""
    return str(ipaddress.IPv6Address(gid))


def gid_from(prefix: int, guid: int) -> bytes:
    """Return the GID of a subnet prefix and a GUID, 64 bits each. Raises MadError."""
    for name, value in (("prefix", prefix), ("guid", guid)):
        if not 0 <= value < 1 << 64:
            raise MadError(f"{name} is {value:#x}, and may have 64 bits")
    return (prefix << 64 | guid).to_bytes(16, "big")


def gid_of_address(address: str) -> bytes:
    """Return the GID of an IP address on RoCE v2: IPv4 is mapped (::ffff:a.b.c.d).

    Raises MadError for another text.
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError as error:
        raise MadError(str(error)) from None
    if isinstance(found, ipaddress.IPv4Address):
        return bytes(10) + b"\xff\xff" + found.packed
    return found.packed


def lifetime_seconds(code: int) -> float:
    """Return the seconds of a time code: 4.096 µs times 2 to the power of ``code``.

    CM timeouts, SubnetTimeOut, RespTimeValue, PacketLifeTime and HOQLife are such codes; from 20 on
    HOQLife and LifeTimeValue mean no limit, which is the caller's to decide.
    """
    return 4.096e-6 * float(1 << code)
