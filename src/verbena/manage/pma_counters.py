# SPDX-License-Identifier: Apache-2.0
"""Attributes of performance management (IBA 16.1.3 and 16.1.4): counters and samples.

A port's agent keeps them, and perfquery and ibqueryerrors ask for them. Counters saturate: they
stay at their largest value (``count`` adds so). A Set of an attribute with a CounterSelect writes
the selected counters (``written``). Data are counted in words of 4 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntFlag
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar

from .attribute_ids import PerformanceAttribute
from .record import Record, bits, code, key, numbers

__all__ = [
    "CounterSelect",
    "CounterSelect2",
    "ExtendedCounterSelect",
    "ExtendedCounterSelect2",
    "PerVlCounters",
    "PortCounters",
    "PortCountersExtended",
    "PortExtendedSpeedsCounters",
    "PortFlowCtlCounters",
    "PortOpRcvCounters",
    "PortRcvConCtrl",
    "PortRcvDataSl",
    "PortRcvErrorDetails",
    "PortSamplesControl",
    "PortSamplesResult",
    "PortSamplesResultExtended",
    "PortSlRcvBecn",
    "PortSlRcvFecn",
    "PortVlOpData",
    "PortVlOpPackets",
    "PortVlXmitFlowCtlUpdateErrors",
    "PortVlXmitTimeCong",
    "PortVlXmitWaitCounters",
    "PortXmitConCtrl",
    "PortXmitDataSl",
    "PortXmitDiscardDetails",
    "SelectedCounters",
    "SwitchPortVlCongestion",
    "count",
]

_R = TypeVar("_R", bound=Record)
ALL_PORTS = 0xFF  # PortSelect, where the class's capability mask has ALL_PORT_SELECT


def count(record: _R, **more: int) -> _R:
    """Return counters with these added; each stays at its largest value. Raises MadError."""
    changes = {}
    for name, value in more.items():
        most = (1 << record.FIELDS[name].width) - 1 if name in record.FIELDS else 0
        changes[name] = min(getattr(record, name, 0) + value, most)
    return record.replace(**changes)


class CounterSelect(IntFlag):
    """PortCounters:CounterSelect."""

    SYMBOL_ERRORS = 1 << 0
    LINK_ERROR_RECOVERY = 1 << 1
    LINK_DOWNED = 1 << 2
    RCV_ERRORS = 1 << 3
    RCV_REMOTE_PHYSICAL_ERRORS = 1 << 4
    RCV_SWITCH_RELAY_ERRORS = 1 << 5
    XMIT_DISCARDS = 1 << 6
    XMIT_CONSTRAINT_ERRORS = 1 << 7
    RCV_CONSTRAINT_ERRORS = 1 << 8
    LOCAL_LINK_INTEGRITY_ERRORS = 1 << 9
    EXCESSIVE_BUFFER_OVERRUN_ERRORS = 1 << 10
    VL15_DROPPED = 1 << 11
    XMIT_DATA = 1 << 12
    RCV_DATA = 1 << 13
    XMIT_PACKETS = 1 << 14
    RCV_PACKETS = 1 << 15


class CounterSelect2(IntFlag):
    """PortCounters:CounterSelect2."""

    XMIT_WAIT = 1 << 0
    QP1_DROPPED = 1 << 1


class ExtendedCounterSelect(IntFlag):
    """PortCountersExtended:CounterSelect."""

    XMIT_DATA = 1 << 0
    RCV_DATA = 1 << 1
    XMIT_PACKETS = 1 << 2
    RCV_PACKETS = 1 << 3
    UNICAST_XMIT_PACKETS = 1 << 4
    UNICAST_RCV_PACKETS = 1 << 5
    MULTICAST_XMIT_PACKETS = 1 << 6
    MULTICAST_RCV_PACKETS = 1 << 7


class ExtendedCounterSelect2(IntFlag):
    """PortCountersExtended:CounterSelect2."""

    SYMBOL_ERRORS = 1 << 0
    LINK_ERROR_RECOVERY = 1 << 1
    LINK_DOWNED = 1 << 2
    RCV_ERRORS = 1 << 3
    RCV_REMOTE_PHYSICAL_ERRORS = 1 << 4
    RCV_SWITCH_RELAY_ERRORS = 1 << 5
    XMIT_DISCARDS = 1 << 6
    XMIT_CONSTRAINT_ERRORS = 1 << 7
    RCV_CONSTRAINT_ERRORS = 1 << 8
    LOCAL_LINK_INTEGRITY_ERRORS = 1 << 9
    EXCESSIVE_BUFFER_OVERRUN_ERRORS = 1 << 10
    VL15_DROPPED = 1 << 11
    XMIT_WAIT = 1 << 12
    QP1_DROPPED = 1 << 13


def _selected_by(select: str, flags: type[IntFlag]) -> dict[str, tuple[str, int]]:
    """Counters whose names are those of the flags."""
    return {str(flag.name).lower(): (select, int(flag)) for flag in flags}


class SelectedCounters(Record):
    """Counters that a Set writes by selection. ``SELECTS`` has each one's field and bit."""

    SELECTS: ClassVar[Mapping[str, tuple[str, int]]] = MappingProxyType({})

    def written(self, request: Self) -> Self:
        """Return these counters after a Set: those that the request selects have its values."""
        changes: dict[str, Any] = {
            name: getattr(request, name)
            for name, (select, bit) in self.SELECTS.items()
            if getattr(request, select) & bit
        }
        return self.replace(**changes)


class PortCounters(SelectedCounters, size=44, attribute=PerformanceAttribute.PORT_COUNTERS):
    """The counters of a port (IBA 16.1.3.5)."""

    SELECTS = MappingProxyType(
        _selected_by("counter_select", CounterSelect)
        | _selected_by("counter_select2", CounterSelect2)
    )

    port_select: int = bits(1, 0, 8, "The port; 255: the sum of all.")
    counter_select: CounterSelect = code(2, 0, 16, CounterSelect, "Counters that a Set writes.")
    symbol_errors: int = bits(4, 0, 16, "Errors of symbols on the link.")
    link_error_recovery: int = bits(6, 0, 8, "Recoveries of the link that succeeded.")
    link_downed: int = bits(7, 0, 8, "Recoveries of the link that failed: it went down.")
    rcv_errors: int = bits(8, 0, 16, "Packets that came with an error.")
    rcv_remote_physical_errors: int = bits(10, 0, 16, "Packets that came marked as bad (EBP).")
    rcv_switch_relay_errors: int = bits(12, 0, 16, "Packets that a switch could not forward.")
    xmit_discards: int = bits(14, 0, 16, "Packets that were dropped before they were sent.")
    xmit_constraint_errors: int = bits(16, 0, 8, "Packets not sent for partitions or raw filters.")
    rcv_constraint_errors: int = bits(17, 0, 8, "Packets dropped for partitions or raw filters.")
    counter_select2: CounterSelect2 = code(18, 0, 8, CounterSelect2, "More that a Set writes.")
    local_link_integrity_errors: int = bits(19, 0, 4, "Times that LocalPhyErrors was exceeded.")
    excessive_buffer_overrun_errors: int = bits(19, 4, 4, "Times OverrunErrors was exceeded.")
    qp1_dropped: int = bits(20, 0, 16, "Packets for QP 1 that found no room.")
    vl15_dropped: int = bits(22, 0, 16, "SMPs that found no room.")
    xmit_data: int = bits(24, 0, 32, "Words sent.")
    rcv_data: int = bits(28, 0, 32, "Words received.")
    xmit_packets: int = bits(32, 0, 32, "Packets sent.")
    rcv_packets: int = bits(36, 0, 32, "Packets received.")
    xmit_wait: int = bits(40, 0, 32, "Ticks with something to send and no credits.")


class PortCountersExtended(
    SelectedCounters, size=184, attribute=PerformanceAttribute.PORT_COUNTERS_EXTENDED
):
    """The counters of a port in 64 bits (IBA 16.1.4.11).

    Those from ``symbol_errors`` on exist if CapabilityMask2 has ADDITIONAL_EXTENDED_COUNTERS.
    """

    SELECTS = MappingProxyType(
        _selected_by("counter_select", ExtendedCounterSelect)
        | _selected_by("counter_select2", ExtendedCounterSelect2)
    )

    port_select: int = bits(1, 0, 8, "The port; 255: the sum of all.")
    counter_select: ExtendedCounterSelect = code(
        2, 0, 16, ExtendedCounterSelect, "Counters that a Set writes."
    )
    counter_select2: ExtendedCounterSelect2 = code(
        4, 0, 32, ExtendedCounterSelect2, "More that a Set writes."
    )
    xmit_data: int = bits(8, 0, 64, "Words sent.")
    rcv_data: int = bits(16, 0, 64, "Words received.")
    xmit_packets: int = bits(24, 0, 64, "Packets sent.")
    rcv_packets: int = bits(32, 0, 64, "Packets received.")
    unicast_xmit_packets: int = bits(40, 0, 64, "Unicast packets sent.")
    unicast_rcv_packets: int = bits(48, 0, 64, "Unicast packets received.")
    multicast_xmit_packets: int = bits(56, 0, 64, "Multicast packets sent.")
    multicast_rcv_packets: int = bits(64, 0, 64, "Multicast packets received.")
    symbol_errors: int = bits(72, 0, 64, "As in PortCounters.")
    link_error_recovery: int = bits(80, 0, 64, "As in PortCounters.")
    link_downed: int = bits(88, 0, 64, "As in PortCounters.")
    rcv_errors: int = bits(96, 0, 64, "As in PortCounters.")
    rcv_remote_physical_errors: int = bits(104, 0, 64, "As in PortCounters.")
    rcv_switch_relay_errors: int = bits(112, 0, 64, "As in PortCounters.")
    xmit_discards: int = bits(120, 0, 64, "As in PortCounters.")
    xmit_constraint_errors: int = bits(128, 0, 64, "As in PortCounters.")
    rcv_constraint_errors: int = bits(136, 0, 64, "As in PortCounters.")
    local_link_integrity_errors: int = bits(144, 0, 64, "As in PortCounters.")
    excessive_buffer_overrun_errors: int = bits(152, 0, 64, "As in PortCounters.")
    vl15_dropped: int = bits(160, 0, 64, "As in PortCounters.")
    xmit_wait: int = bits(168, 0, 64, "As in PortCounters.")
    qp1_dropped: int = bits(176, 0, 64, "As in PortCounters.")


class PortSamplesControl(Record, size=80, attribute=PerformanceAttribute.PORT_SAMPLES_CONTROL):
    """What is sampled, when and for how long (IBA 16.1.3.2)."""

    op_code: int = bits(0, 0, 8, "Operation, as the vendor says; 0.")
    port_select: int = bits(1, 0, 8, "The port.")
    tick: int = bits(2, 0, 8, "Length of a tick, in the port's units less one.")
    counter_width: int = bits(3, 5, 3, "Width of counters: 16 bits, and 4 more for each.")
    counter_mask0: int = bits(4, 2, 3, "What counter 0 can count.")
    counter_masks_1_to_9: int = bits(4, 5, 27, "What counters 1 to 9 can count, 3 bits each.")
    counter_masks_10_to_14: int = bits(8, 1, 15, "What counters 10 to 14 can count, 3 bits each.")
    sample_mechanisms: int = bits(10, 0, 8, "Samplers that the node has, less one.")
    sample_status: int = bits(11, 6, 2, "0 done, 1 waiting to begin, 2 running.")
    option_mask: int = key(12, 64, "Optional counters that there are.")
    vendor_mask: int = key(20, 64, "The vendor's counters that there are.")
    sample_start: int = bits(28, 0, 32, "Ticks until it begins.")
    sample_interval: int = bits(32, 0, 32, "Ticks that it lasts.")
    tag: int = key(36, 16, "Chosen by the manager; the result repeats it.")
    counter_selects: tuple[int, ...] = numbers(38, 16, 15, "What each counter counts.", "#x")
    samples_only_option_mask: int = key(72, 64, "Counters that can be sampled only.")


class PortSamplesResult(Record, size=64, attribute=PerformanceAttribute.PORT_SAMPLES_RESULT):
    """What was sampled (IBA 16.1.3.4)."""

    tag: int = key(0, 16, "That of PortSamplesControl.")
    sample_status: int = bits(3, 6, 2, "0 done, 1 waiting to begin, 2 running.")
    counters: tuple[int, ...] = numbers(4, 32, 15, "The counters.")


class PortSamplesResultExtended(
    Record, size=128, attribute=PerformanceAttribute.PORT_SAMPLES_RESULT_EXTENDED
):
    """What was sampled, in wider counters (IBA 16.1.4.12)."""

    tag: int = key(0, 16, "That of PortSamplesControl.")
    sample_status: int = bits(3, 6, 2, "0 done, 1 waiting to begin, 2 running.")
    extended_width: int = bits(4, 0, 2, "0 as in PortSamplesResult, 1: 48 bits, 2: 64 bits.")
    counters: tuple[int, ...] = numbers(8, 64, 15, "The counters.")


class PortRcvErrorDetails(
    SelectedCounters, size=16, attribute=PerformanceAttribute.PORT_RCV_ERROR_DETAILS
):
    """Why packets came with an error (IBA 16.1.4.1)."""

    SELECTS = MappingProxyType(
        {
            name: ("counter_select", 1 << bit)
            for bit, name in enumerate(
                (
                    *("local_physical_errors", "malformed_packet_errors", "buffer_overrun_errors"),
                    *("dlid_mapping_errors", "vl_mapping_errors", "looping_errors"),
                )
            )
        }
    )

    port_select: int = bits(1, 0, 8, "The port; 255: the sum of all.")
    counter_select: int = key(2, 16, "Counters that a Set writes, from the least significant bit.")
    local_physical_errors: int = bits(4, 0, 16, "Packets with a wrong CRC or a physical error.")
    malformed_packet_errors: int = bits(6, 0, 16, "Packets with a wrong length, version or VL.")
    buffer_overrun_errors: int = bits(8, 0, 16, "Packets that found no room.")
    dlid_mapping_errors: int = bits(10, 0, 16, "Packets whose DLID a switch does not forward.")
    vl_mapping_errors: int = bits(12, 0, 16, "Packets whose service level has no lane.")
    looping_errors: int = bits(14, 0, 16, "Packets that were to leave by where they came.")


class PortXmitDiscardDetails(
    SelectedCounters, size=12, attribute=PerformanceAttribute.PORT_XMIT_DISCARD_DETAILS
):
    """Why packets were dropped before they were sent (IBA 16.1.4.2)."""

    SELECTS = MappingProxyType(
        {
            name: ("counter_select", 1 << bit)
            for bit, name in enumerate(
                (
                    *("inactive_discards", "neighbor_mtu_discards"),
                    *("switch_lifetime_discards", "switch_hoq_lifetime_discards"),
                )
            )
        }
    )

    port_select: int = bits(1, 0, 8, "The port; 255: the sum of all.")
    counter_select: int = key(2, 16, "Counters that a Set writes, from the least significant bit.")
    inactive_discards: int = bits(4, 0, 16, "Packets for a port that is not active.")
    neighbor_mtu_discards: int = bits(6, 0, 16, "Packets longer than NeighborMTU.")
    switch_lifetime_discards: int = bits(8, 0, 16, "Packets that were in a switch for too long.")
    switch_hoq_lifetime_discards: int = bits(
        10, 0, 16, "Packets that were at the head of a queue for too long."
    )


class PortOpRcvCounters(Record, size=12, attribute=PerformanceAttribute.PORT_OP_RCV_COUNTERS):
    """Packets of one operation code (IBA 16.1.4.3)."""

    op_code: int = key(0, 8, "The operation code that is counted.")
    port_select: int = bits(1, 0, 8, "The port.")
    counter_select: int = key(2, 16, "Counters that a Set writes.")
    op_rcv_packets: int = bits(4, 0, 32, "Packets received.")
    op_rcv_data: int = bits(8, 0, 32, "Words received.")


class PortFlowCtlCounters(Record, size=12, attribute=PerformanceAttribute.PORT_FLOW_CTL_COUNTERS):
    """Flow control packets (IBA 16.1.4.4)."""

    port_select: int = bits(1, 0, 8, "The port.")
    counter_select: int = key(2, 16, "Counters that a Set writes.")
    xmit_flow_packets: int = bits(4, 0, 32, "Flow control packets sent.")
    rcv_flow_packets: int = bits(8, 0, 32, "Flow control packets received.")


class PerVlCounters(Record, size=4):
    """The beginning of attributes that have a counter for each lane or service level."""

    port_select: int = bits(1, 0, 8, "The port.")
    counter_select: int = key(2, 16, "Counters that a Set writes, from the least significant bit.")


class PortVlOpPackets(PerVlCounters, size=36, attribute=PerformanceAttribute.PORT_VL_OP_PACKETS):
    """Packets of one operation code by lane (IBA 16.1.4.5)."""

    op_code: int = key(0, 8, "The operation code that is counted.")
    packets: tuple[int, ...] = numbers(4, 16, 16, "Packets received on each lane.")


class PortVlOpData(PerVlCounters, size=68, attribute=PerformanceAttribute.PORT_VL_OP_DATA):
    """Data of one operation code by lane (IBA 16.1.4.6)."""

    op_code: int = key(0, 8, "The operation code that is counted.")
    data: tuple[int, ...] = numbers(4, 32, 16, "Words received on each lane.")


class PortVlXmitFlowCtlUpdateErrors(
    PerVlCounters,
    size=8,
    attribute=PerformanceAttribute.PORT_VL_XMIT_FLOW_CTL_UPDATE_ERRORS,
):
    """Flow control that came too late, by lane (IBA 16.1.4.7)."""

    errors: tuple[int, ...] = numbers(4, 2, 16, "Late updates of each lane.")


class PortVlXmitWaitCounters(
    PerVlCounters, size=36, attribute=PerformanceAttribute.PORT_VL_XMIT_WAIT_COUNTERS
):
    """Waits for credits by lane (IBA 16.1.4.8)."""

    waits: tuple[int, ...] = numbers(4, 16, 16, "Ticks without credits of each lane.")


class SwitchPortVlCongestion(
    PerVlCounters, size=36, attribute=PerformanceAttribute.SWITCH_PORT_VL_CONGESTION
):
    """Packets dropped for congestion by lane (IBA 16.1.4.9)."""

    congestion: tuple[int, ...] = numbers(4, 16, 16, "Packets dropped on each lane.")


class PortRcvConCtrl(Record, size=12, attribute=PerformanceAttribute.PORT_RCV_CON_CTRL):
    """Congestion notices received (IBA annex A10)."""

    port_select: int = bits(1, 0, 8, "The port.")
    counter_select: int = key(2, 16, "Counters that a Set writes.")
    rcv_fecn: int = bits(4, 0, 32, "Packets received with FECN.")
    rcv_becn: int = bits(8, 0, 32, "Packets received with BECN.")


class PortSlRcvFecn(PerVlCounters, size=68, attribute=PerformanceAttribute.PORT_SL_RCV_FECN):
    """FECN by service level (IBA annex A10)."""

    fecn: tuple[int, ...] = numbers(4, 32, 16, "Packets with FECN of each service level.")


class PortSlRcvBecn(PerVlCounters, size=68, attribute=PerformanceAttribute.PORT_SL_RCV_BECN):
    """BECN by service level (IBA annex A10)."""

    becn: tuple[int, ...] = numbers(4, 32, 16, "Packets with BECN of each service level.")


class PortXmitConCtrl(Record, size=8, attribute=PerformanceAttribute.PORT_XMIT_CON_CTRL):
    """Time of congestion (IBA annex A10)."""

    port_select: int = bits(1, 0, 8, "The port.")
    counter_select: int = key(2, 16, "Counters that a Set writes.")
    xmit_time_cong: int = bits(4, 0, 32, "Ticks in which the port was congested.")


class PortVlXmitTimeCong(
    PerVlCounters, size=64, attribute=PerformanceAttribute.PORT_VL_XMIT_TIME_CONG
):
    """Time of congestion by lane (IBA annex A10)."""

    times: tuple[int, ...] = numbers(4, 32, 15, "Ticks in which each lane was congested.")


class PortXmitDataSl(PerVlCounters, size=68, attribute=PerformanceAttribute.PORT_XMIT_DATA_SL):
    """Data sent by service level; no IBA section has it, and perfquery asks for it."""

    data: tuple[int, ...] = numbers(4, 32, 16, "Words sent of each service level.")


class PortRcvDataSl(PerVlCounters, size=68, attribute=PerformanceAttribute.PORT_RCV_DATA_SL):
    """Data received by service level; no IBA section has it, and perfquery asks for it."""

    data: tuple[int, ...] = numbers(4, 32, 16, "Words received of each service level.")


class PortExtendedSpeedsCounters(
    Record, size=140, attribute=PerformanceAttribute.PORT_EXTENDED_SPEEDS_COUNTERS
):
    """Errors of links with extended speeds (IBA 16.1.4.13)."""

    port_select: int = bits(1, 0, 8, "The port.")
    counter_select: int = key(8, 64, "Counters that a Set writes.")
    sync_header_errors: int = bits(16, 0, 16, "Blocks with a wrong synchronisation header.")
    unknown_blocks: int = bits(18, 0, 16, "Blocks of an unknown type.")
    error_detections: tuple[int, ...] = numbers(20, 16, 12, "Errors detected on each line.")
    fec_correctable_blocks: tuple[int, ...] = numbers(44, 32, 12, "Blocks corrected of each line.")
    fec_uncorrectable_blocks: tuple[int, ...] = numbers(92, 32, 12, "Blocks lost of each line.")
