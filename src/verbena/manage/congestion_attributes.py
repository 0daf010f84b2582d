# SPDX-License-Identifier: Apache-2.0
"""Attributes of congestion control (IBA annex A10), which are the data of a ``CongestionMad``.

A congestion control manager sets them, and ibccquery and ibccconfig ask for them. The log alone
begins in the log data of the MAD, at byte ``CONGESTION_LOG_AT``.
"""

from __future__ import annotations

from .attribute_ids import CongestionAttribute
from .mad import CongestionMad
from .record import Record, bits, flag, key, lid_field, octets, parts

__all__ = [
    "CONGESTION_LOG_AT",
    "CaCongestionEntry",
    "CaCongestionLog",
    "CaCongestionLogEvent",
    "CaCongestionSetting",
    "CongestionControlEntry",
    "CongestionControlTable",
    "CongestionInfo",
    "CongestionKeyInfo",
    "CongestionTimeStamp",
    "SwitchCongestionLog",
    "SwitchCongestionLogEvent",
    "SwitchCongestionSetting",
    "SwitchPortCongestionElement",
    "SwitchPortCongestionSetting",
    "read_log",
]

CONGESTION_LOG_AT = 32
OF_A_CA = 2  # LogType


class CongestionInfo(Record, size=4, attribute=CongestionAttribute.CONGESTION_INFO):
    """What a node supports of congestion control (IBA A10.4.3.3)."""

    capabilities: int = key(0, 16, "Bit 0: a switch supports credit starvation.")
    control_table_cap: int = bits(2, 0, 8, "Blocks of 64 entries of a CA's control table.")


class CongestionKeyInfo(Record, size=14, attribute=CongestionAttribute.CONGESTION_KEY_INFO):
    """The key of congestion control (IBA A10.4.3.4)."""

    cc_key: int = key(0, 64, "The key; 0: none is needed.")
    protect: bool = flag(8, 0, "A Get without the key does not show it.")
    lease_period: int = bits(10, 0, 16, "Seconds until the key lapses; 0: never.")
    violations: int = bits(12, 0, 16, "MADs with a wrong key.")


class SwitchCongestionLogEvent(Record, size=12):
    """A packet that a switch marked."""

    slid: int = lid_field(0, "Its source LID.")
    dlid: int = lid_field(2, "Its destination LID.")
    sl: int = bits(4, 0, 4, "Its service level.")
    time_stamp: int = bits(8, 0, 32, "When, in units of 1.024 µs.")


class SwitchCongestionLog(Record, size=220, attribute=CongestionAttribute.CONGESTION_LOG):
    """The log of a switch (IBA A10.4.3.5); log type 1."""

    log_type: int = bits(0, 0, 8, "1: of a switch, 2: of a CA.", 1)
    congestion_flags: int = key(1, 8, "Bit 0: credit starvation.")
    event_counter: int = bits(2, 0, 16, "Packets marked since the last Get.")
    time_stamp: int = bits(4, 0, 32, "The time now, in units of 1.024 µs.")
    port_map: bytes = octets(8, 32, "Ports that marked packets.")
    events: tuple[SwitchCongestionLogEvent, ...] = parts(
        40, SwitchCongestionLogEvent, 15, "Packets that were marked."
    )


class CaCongestionLogEvent(Record, size=16):
    """A flow whose control table index reached the threshold."""

    local_qp: int = bits(0, 0, 24, "The sender's QP.", show="#x")
    sl: int = bits(3, 0, 4, "Service level of the flow.")
    service_type: int = bits(3, 4, 4, "Transport of the QP.")
    remote_qp: int = bits(4, 0, 24, "The receiver's QP.", show="#x")
    local_lid: int = lid_field(8, "The sender's LID.")
    remote_lid: int = lid_field(10, "The receiver's LID.")
    time_stamp: int = bits(12, 0, 32, "When, in units of 1.024 µs.")


class CaCongestionLog(Record, size=220, attribute=CongestionAttribute.CONGESTION_LOG):
    """The log of a CA (IBA A10.4.3.5); log type 2."""

    log_type: int = bits(0, 0, 8, "1: of a switch, 2: of a CA.", 2)
    congestion_flags: int = key(1, 8, "Reserved.")
    event_counter: int = bits(2, 0, 16, "Events since the last Get.")
    event_map: int = key(4, 16, "Service levels with events.")
    time_stamp: int = bits(8, 0, 32, "The time now, in units of 1.024 µs.")
    events: tuple[CaCongestionLogEvent, ...] = parts(
        12, CaCongestionLogEvent, 13, "Flows that reached the threshold."
    )


class SwitchCongestionSetting(
    Record, size=76, attribute=CongestionAttribute.SWITCH_CONGESTION_SETTING
):
    """How a switch marks (IBA A10.4.3.6)."""

    control_map: int = key(0, 32, "Which of the settings count.")
    victim_mask: bytes = octets(4, 32, "Ports that mark even if they are no root of congestion.")
    credit_mask: bytes = octets(36, 32, "Ports whose credit starvation is looked at.")
    threshold: int = bits(68, 0, 4, "0: marks nothing, 1 late to 15 early.")
    packet_size: int = bits(69, 0, 8, "Packets below it are not marked, in units of 64 bytes.")
    cs_threshold: int = bits(70, 0, 4, "Threshold of ports with credit starvation.")
    cs_return_delay: int = bits(72, 0, 16, "Delay of returned credits, an entry like the CCT's.")
    marking_rate: int = bits(74, 0, 16, "Packets between two that are marked, on average.")


class SwitchPortCongestionElement(Record, size=4):
    """How one port of a switch marks."""

    valid: bool = flag(0, 0, "The element counts; in a Get: the port has settings of its own.")
    control_type: bool = flag(0, 1, "0: of congestion, 1: of credit starvation.")
    threshold: int = bits(0, 4, 4, "As in SwitchCongestionSetting.")
    packet_size: int = bits(1, 0, 8, "As in SwitchCongestionSetting.")
    marking_rate: int = bits(2, 0, 16, "As in SwitchCongestionSetting, or the return delay.")


class SwitchPortCongestionSetting(
    Record, size=128, attribute=CongestionAttribute.SWITCH_PORT_CONGESTION_SETTING
):
    """Settings of 32 ports from 32 times the modifier on (IBA A10.4.3.7)."""

    elements: tuple[SwitchPortCongestionElement, ...] = parts(
        0, SwitchPortCongestionElement, 32, "An element for each port."
    )


class CaCongestionEntry(Record, size=8):
    """How a CA reacts on one service level."""

    ccti_timer: int = bits(0, 0, 16, "Time between two reductions, in units of 1.024 µs.")
    ccti_increase: int = bits(2, 0, 8, "Added to the flow's index for each BECN.")
    trigger_threshold: int = bits(3, 0, 8, "Index from which on an event is logged.")
    ccti_min: int = bits(4, 0, 8, "The least index that the timer leaves.")


class CaCongestionSetting(Record, size=132, attribute=CongestionAttribute.CA_CONGESTION_SETTING):
    """How a CA reacts (IBA A10.4.3.8)."""

    port_control: int = key(0, 16, "Bit 0: 0 for each QP, 1 for each service level.")
    control_map: int = key(2, 16, "Service levels whose entries count.")
    entries: tuple[CaCongestionEntry, ...] = parts(
        4, CaCongestionEntry, 16, "An entry for each service level."
    )


class CongestionControlEntry(Record, size=2):
    """An injection delay: multiplier over 2 to the power of shift, in times of the packet."""

    shift: int = bits(0, 0, 2, "Shift.")
    multiplier: int = bits(0, 2, 14, "Multiplier.")


class CongestionControlTable(
    Record, size=132, attribute=CongestionAttribute.CONGESTION_CONTROL_TABLE
):
    """A block of a CA's control table (IBA A10.4.3.9); the modifier is the block."""

    ccti_limit: int = bits(0, 0, 16, "The largest index in use.")
    entries: tuple[CongestionControlEntry, ...] = parts(
        4, CongestionControlEntry, 64, "The delays of the block."
    )


class CongestionTimeStamp(Record, size=4, attribute=CongestionAttribute.TIME_STAMP):
    """The clock of the logs (IBA A10.4.3.10)."""

    time_stamp: int = bits(0, 0, 32, "The time now, in units of 1.024 µs.")


def read_log(mad: CongestionMad) -> SwitchCongestionLog | CaCongestionLog:
    """Return the log of a CA if the log says so, else that of a switch."""
    raw = mad.pack()
    if raw[CONGESTION_LOG_AT] == OF_A_CA:
        return CaCongestionLog.unpack(raw, CONGESTION_LOG_AT)
    return SwitchCongestionLog.unpack(raw, CONGESTION_LOG_AT)
