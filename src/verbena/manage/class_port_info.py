# SPDX-License-Identifier: Apache-2.0
"""ClassPortInfo, which every class of QP 1 has (IBA 13.4.8.1), and its capability bits."""

from __future__ import annotations

from enum import IntFlag

from .record import Record, bits, gid_field, key, lid_field

__all__ = ["ClassPortInfo", "PerformanceCapability", "PerformanceCapability2", "SaCapability"]


class SaCapability(IntFlag):
    """ClassPortInfo:CapabilityMask of subnet administration (IBA 15.2.5.1)."""

    TRAP = 1 << 0
    GET_SET_NOTICE = 1 << 1
    OPTIONAL_RECORDS = 1 << 8
    UD_MULTICAST = 1 << 9
    MULTI_PATH = 1 << 10
    REINIT = 1 << 11
    GID_SCOPED_MULTI_PATH = 1 << 12
    PORT_INFO_CAPABILITY_MATCH = 1 << 13
    LINK_SPEED_WIDTH_PAIRS = 1 << 14
    PA_SERVICES = 1 << 15


class PerformanceCapability(IntFlag):
    """ClassPortInfo:CapabilityMask of performance management (IBA 16.1.3.1)."""

    ALL_PORT_SELECT = 1 << 8
    EXTENDED_WIDTH = 1 << 9
    EXTENDED_WIDTH_NO_IETF = 1 << 10
    SAMPLES_ONLY = 1 << 11
    XMIT_WAIT = 1 << 12
    QP1_DROPPED = 1 << 15


class PerformanceCapability2(IntFlag):
    """ClassPortInfo:CapabilityMask2 of performance management."""

    PM_KEY = 1 << 0
    ADDITIONAL_EXTENDED_COUNTERS = 1 << 1


class ClassPortInfo(Record, size=72, attribute=0x0001):
    """How to reach the agent of a class, and what it can do (IBA 13.4.8.1).

    ``SaCapability`` and ``PerformanceCapability`` are the bits of two classes' masks.
    """

    base_version: int = bits(0, 0, 8, "Version of the MAD header that it supports.", 1)
    class_version: int = bits(1, 0, 8, "Version of the class's MADs that it supports.", 1)
    capability_mask: int = key(2, 16, "What it supports; the bits depend on the class.")
    capability_mask2: int = bits(4, 0, 27, "What it also supports.", show="#x")
    resp_time_value: int = bits(7, 3, 5, "Time code within which it answers.")
    redirect_gid: bytes = gid_field(8, "GID to which requests are to go; 0: to this port.")
    redirect_traffic_class: int = bits(24, 0, 8, "Traffic class of the redirected requests.")
    redirect_sl: int = bits(25, 0, 4, "Service level of the redirected requests.")
    redirect_flow_label: int = bits(25, 4, 20, "Flow label of the redirected requests.", show="#x")
    redirect_lid: int = lid_field(28, "LID to which requests are to go; 0: use the GID.")
    redirect_p_key: int = key(30, 16, "P_Key of the redirected requests.")
    redirect_qp: int = bits(33, 0, 24, "QP to which requests are to go.")
    redirect_qkey: int = key(36, 32, "Q_Key of the redirected requests.")
    trap_gid: bytes = gid_field(40, "GID to which traps go.")
    trap_traffic_class: int = bits(56, 0, 8, "Traffic class of traps.")
    trap_sl: int = bits(57, 0, 4, "Service level of traps.")
    trap_flow_label: int = bits(57, 4, 20, "Flow label of traps.", show="#x")
    trap_lid: int = lid_field(60, "LID to which traps go.")
    trap_p_key: int = key(62, 16, "P_Key of traps.")
    trap_hop_limit: int = bits(64, 0, 8, "Hop limit of traps.")
    trap_qp: int = bits(65, 0, 24, "QP to which traps go.")
    trap_qkey: int = key(68, 32, "Q_Key of traps.")
