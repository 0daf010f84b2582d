# SPDX-License-Identifier: Apache-2.0
"""MADs, their attributes and what goes with them; and that bytes of any kind raise MadError."""

from __future__ import annotations

import contextlib
import ipaddress

import pytest
from hypothesis import given, settings, strategies

from verbena.manage import MadError
from verbena.manage.attribute_ids import (
    CLASS_VERSIONS,
    CongestionAttribute,
    Method,
    MgmtClass,
    SaStatus,
    StatusCode,
    response_method,
    status_text,
)
from verbena.manage.attributes import attribute_kind, attribute_of
from verbena.manage.class_port_info import ClassPortInfo
from verbena.manage.cm_messages import (
    AprStatus,
    CmReq,
    RejReason,
    SidrStatus,
    cm_timeout_ms,
    cm_timeout_seconds,
)
from verbena.manage.codes import (
    CapabilityMask,
    IbMtu,
    IbRate,
    PortState,
    VirtualLanes,
    gid_from,
    gid_of_address,
    gid_text,
    lifetime_seconds,
)
from verbena.manage.congestion_attributes import (
    CONGESTION_LOG_AT,
    CaCongestionLog,
    CaCongestionLogEvent,
    CongestionControlEntry,
    CongestionControlTable,
    SwitchCongestionLog,
)
from verbena.manage.ip_cm import IpCmHeader, PortSpace, service_id, service_port
from verbena.manage.mad import (
    CmMad,
    CongestionMad,
    DirectedSmp,
    GeneralMad,
    LidRoutedSmp,
    PerformanceMad,
    SaMad,
    VendorMad,
    parse_mad,
)
from verbena.manage.notices import (
    TRAP_DETAILS,
    BadMKeyTrap,
    CcKeyTrap,
    CcNotice,
    GidTrap,
    LinkStateTrap,
    LocalChangesTrap,
    Notice,
    NoticeReport,
    NoticeType,
    ProducerType,
    TrapNumber,
    trap_notice,
)
from verbena.manage.pma_counters import (
    CounterSelect,
    CounterSelect2,
    ExtendedCounterSelect,
    PortCounters,
    PortCountersExtended,
    PortRcvErrorDetails,
    SelectedCounters,
    count,
)
from verbena.manage.record import Record
from verbena.manage.sa_records import SA_RECORDS, unpack_table
from verbena.manage.smp_attributes import (
    LinearForwardingModifier,
    LinearForwardingTable,
    MulticastForwardingModifier,
    NodeInfo,
    PKeyTableModifier,
    PortInfo,
    PortInfoModifier,
    SlToVlModifier,
    VlArbitrationModifier,
    VlArbitrationTable,
    VlWeight,
)
from verbena.manage.vendor_ping import OPENIB_OUI, PingData, ping_request, ping_response

MAD = strategies.binary(min_size=256, max_size=256)


class TestLayouts:
    @pytest.mark.parametrize(
        ("number", "layout"),
        [
            (0x01, LidRoutedSmp),
            (0x81, DirectedSmp),
            (0x03, SaMad),
            (0x04, PerformanceMad),
            (0x07, CmMad),
            (0x21, CongestionMad),
            (0x32, VendorMad),
            (0x4F, VendorMad),
            (0x50, GeneralMad),
            (0x09, GeneralMad),
            (0x08, GeneralMad),
        ],
    )
    def test_of_a_class(self, number: int, layout: type[Record]) -> None:
        raw = bytes([1, number]).ljust(256, b"\1")
        assert type(parse_mad(raw)) is layout
        assert parse_mad(raw).pack() == raw

    def test_no_mad(self) -> None:
        for length in (0, 255, 257):
            with pytest.raises(MadError, match=f"a MAD has 256 bytes, and this one {length}"):
                parse_mad(bytes(length))
        with pytest.raises(MadError, match="BaseVersion is 2"):
            parse_mad(b"\2".ljust(256, b"\0"))

    def test_class_versions(self) -> None:
        assert SaMad().class_version == CLASS_VERSIONS[MgmtClass.SUBN_ADM] == 2
        assert CmMad().class_version == 2
        assert DirectedSmp().class_version == 1

    def test_an_attribute(self) -> None:
        smp = DirectedSmp(data=b"\xff" * 64).with_attribute(NodeInfo(num_ports=36), modifier=7)
        assert (smp.attribute_id, smp.attribute_modifier) == (0x11, 7)
        assert smp.attribute(NodeInfo) == NodeInfo(num_ports=36)
        assert not any(smp.data[40:])
        with pytest.raises(MadError, match="CmReq has 232 bytes, and DirectedSmp has room for 64"):
            smp.with_attribute(CmReq())

    def test_a_path(self) -> None:
        smp = DirectedSmp().along([3, 1, 9])
        assert (smp.hop_count, smp.path) == (3, (3, 1, 9))
        assert smp.initial_path[:4] == b"\0\3\1\x09"
        assert DirectedSmp(hop_count=255).path == (0,) * 63
        with pytest.raises(MadError, match="at most 63 hops"):
            smp.along([1] * 64)


class TestResponses:
    def test_of_a_directed_smp(self) -> None:
        request = DirectedSmp(method=Method.SET, transaction_id=5).along([1])
        request = request.with_attribute(PortInfo(port_state=PortState.ARMED))
        assert not request.is_returning
        answer = request.response(PortInfo(port_state=PortState.ARMED, lid=3), StatusCode.BUSY)
        assert (answer.method, answer.transaction_id) == (Method.GET_RESP, 5)
        assert answer.is_returning
        assert (answer.status, answer.status_code) == (0x8001, 1)
        assert answer.attribute(PortInfo).lid == 3
        assert request.response().data == request.data

    @pytest.mark.parametrize(
        ("method", "expected"),
        [
            (Method.GET, 0x81),
            (Method.SET, 0x81),
            (Method.TRAP, 0x07),
            (Method.REPORT, 0x86),
            (Method.GET_TABLE, 0x92),
            (Method.GET_TRACE_TABLE, 0x92),
            (Method.GET_MULTI, 0x94),
            (Method.DELETE, 0x95),
            (0x44, 0xC4),
        ],
    )
    def test_methods(self, method: int, expected: int) -> None:
        assert response_method(method) == expected
        assert response_method(method).is_response

    def test_statuses(self) -> None:
        assert status_text(0) == status_text(0x8000) == "success"
        assert status_text(0x801C).startswith("0x001c INVALID_VALUE: A field of the attribute")
        assert "NO_RECORDS: No record matches" in status_text(SaStatus.NO_RECORDS.status, 3)
        assert status_text(0x0300) == "0x0300 class 0x03"
        assert "BUSY" in status_text(3)
        assert "REDIRECT" in status_text(3)


class TestModifiers:
    def test_values(self) -> None:
        assert PortInfoModifier(port=3, extended_speeds=True).value == 0x80000003
        assert PKeyTableModifier(port=2, block=1).value == 0x20001
        assert SlToVlModifier(input_port=4, output_port=5).value == 0x405
        assert SlToVlModifier(all_inputs=True, all_outputs=True).value == 0x30000
        assert VlArbitrationModifier(block=3, port=7).value == 0x30007
        assert LinearForwardingModifier(block=9).value == 9
        assert MulticastForwardingModifier(position=2, block=0x1FF).value == 0x200001FF
        assert MulticastForwardingModifier.of(0x100000FF).position == 1
        with pytest.raises(MadError, match="4294967296"):
            PortInfoModifier.of(1 << 32)


class TestSmpTables:
    def test_linear_forwarding(self) -> None:
        table = LinearForwardingTable()
        assert set(table.ports) == {255}
        assert table.replace(ports=bytes(range(64))).ports[5] == 5
        with pytest.raises(MadError, match="has 63 bytes, and may have 64"):
            table.replace(ports=bytes(63))

    def test_vl_arbitration(self) -> None:
        entries = [VlWeight(vl=i % 8, weight=4) for i in range(32)]
        table = VlArbitrationTable(entries=tuple(entries))
        assert table.pack()[:4].hex() == "00040104"
        assert table.entries == tuple(entries)
        with pytest.raises(MadError, match="and not a VlWeight"):
            table.replace(entries=[(0, 4)] * 32)


class TestNotices:
    @pytest.mark.parametrize("number", TRAP_DETAILS)
    def test_details(self, number: int) -> None:
        assert TrapNumber(number).meaning
        notice = trap_notice(number, TRAP_DETAILS[number](), issuer_lid=4)
        assert type(notice.detail) is TRAP_DETAILS[number]
        assert notice.issuer_lid == 4
        assert notice.replace(is_generic=False).detail is None

    def test_bytes(self) -> None:
        notice = trap_notice(
            128, LinkStateTrap(lid=0x1234), issuer_lid=5, producer=ProducerType.SWITCH
        )
        assert notice.pack()[:14].hex() == "8100000200800005000012340000"
        assert notice.notice_type is NoticeType.URGENT
        report = NoticeReport.unpack(notice.pack() + gid_from(1, 2))
        assert report.issuer_gid == gid_from(1, 2)
        assert report.detail == LinkStateTrap(lid=0x1234)

    def test_places(self) -> None:
        gid = gid_from(0xFE80 << 48, 7)
        assert GidTrap(gid=gid).pack()[6:22] == gid
        changes = LocalChangesTrap(
            lid=1, other_local_changes=True, node_description_changed=True, sm_priority_changed=True
        )
        assert changes.pack()[:12].hex() == "000000010001000000000009"
        bad = BadMKeyTrap(m_key=1, dr_notice=True, dr_hop_count=3, dr_return_path=b"\0\1\2")
        assert bad.pack()[14:27].hex() == "0000000000000001" + "00" + "83" + "000102"

    def test_another_one(self) -> None:
        assert Notice(trap_number=TrapNumber(77)).detail is None
        assert CcNotice(data_details=CcKeyTrap(slid=3).pack()).detail == CcKeyTrap(slid=3)


class TestCounters:
    def test_saturate(self) -> None:
        counters = count(PortCounters(), xmit_data=5, link_downed=300, symbol_errors=1 << 20)
        assert (counters.xmit_data, counters.link_downed) == (5, 255)
        assert counters.symbol_errors == 0xFFFF
        assert count(counters, xmit_data=1 << 32).xmit_data == 0xFFFFFFFF
        assert count(PortCountersExtended(), xmit_data=1 << 40).xmit_data == 1 << 40
        with pytest.raises(MadError, match="no field 'data'"):
            count(counters, data=1)

    def test_a_set_writes_what_it_selects(self) -> None:
        counters = PortCounters(xmit_data=5, rcv_data=6, xmit_wait=7, link_downed=8)
        request = PortCounters(
            counter_select=CounterSelect.XMIT_DATA | CounterSelect.LINK_DOWNED,
            counter_select2=CounterSelect2.XMIT_WAIT,
            link_downed=1,
        )
        assert counters.written(request) == PortCounters(rcv_data=6, link_downed=1)
        extended = PortCountersExtended(xmit_data=5, rcv_data=6)
        chosen = PortCountersExtended(counter_select=ExtendedCounterSelect.RCV_DATA)
        assert extended.written(chosen) == PortCountersExtended(xmit_data=5)
        details = PortRcvErrorDetails(vl_mapping_errors=3, looping_errors=4)
        assert details.written(PortRcvErrorDetails(counter_select=16)).vl_mapping_errors == 0

    @pytest.mark.parametrize(
        ("kind", "select"),
        [
            (PortCounters, {"counter_select": 0xFFFF, "counter_select2": 0xFF}),
            (PortCountersExtended, {"counter_select": 0xFFFF, "counter_select2": 0xFFFFFFFF}),
            (PortRcvErrorDetails, {"counter_select": 0xFFFF}),
        ],
    )
    def test_every_counter_can_be_selected(
        self, kind: type[SelectedCounters], select: dict[str, int]
    ) -> None:
        full = kind(**dict.fromkeys(kind.SELECTS, 1))
        assert set(kind.SELECTS) == {n for n in kind.FIELDS if "select" not in n}
        assert full.written(kind(**select)) == kind()


class TestCommunication:
    @pytest.mark.parametrize("codes", [RejReason, SidrStatus, AprStatus, SaStatus])
    def test_every_code_has_a_sentence(self, codes: type[RejReason]) -> None:
        assert all(code.meaning.endswith(".") for code in codes if code)
        assert codes(99).meaning.endswith(".")

    def test_timeouts(self) -> None:
        assert cm_timeout_seconds(20) == pytest.approx(4.295, rel=1e-3)
        assert [cm_timeout_ms(code) for code in (0, 8, 9, 20, 31)] == [1, 1, 2, 4096, 8388608]
        assert lifetime_seconds(18) == pytest.approx(1.0737, rel=1e-3)

    def test_service_ids(self) -> None:
        assert service_id(PortSpace.TCP, 7001) == 0x01061B59
        assert service_port(0x01061B59) == (PortSpace.TCP, 7001)
        for wrong in (lambda: service_id(1 << 16, 1), lambda: service_port(1 << 32)):
            with pytest.raises(MadError):
                wrong()

    def test_ip_header(self) -> None:
        header = IpCmHeader.between("192.0.2.1", 5000, "192.0.2.2")
        assert header.pack().hex() == "00401388" + "00" * 12 + "c0000201" + "00" * 12 + "c0000202"
        assert header.destination == ipaddress.ip_address("192.0.2.2")
        six = IpCmHeader.between("2001:db8::1", 1, "2001:db8::2")
        assert six.source == ipaddress.ip_address("2001:db8::1")
        for ends in (("192.0.2.1", "::1"), ("here", "there")):
            with pytest.raises(MadError):
                IpCmHeader.between(ends[0], 1, ends[1])
        with pytest.raises(MadError, match="is 5, not 4 or 6"):
            _ = IpCmHeader(ip_version=5).source

    def test_gids(self) -> None:
        assert gid_of_address("192.0.2.1").hex() == "00" * 10 + "ffffc0000201"
        assert gid_text(gid_from(0xFE80 << 48, 0x10)) == "fe80::10"
        for wrong in (lambda: gid_of_address("x"), lambda: gid_from(1 << 64, 0)):
            with pytest.raises(MadError):
                wrong()


class TestCodes:
    def test_numbers(self) -> None:
        assert IbRate.GBPS_2_5.gbps == 2.5
        assert IbRate.PORT_CURRENT.gbps == IbRate(63).gbps == 0
        assert VirtualLanes.VL0_14.lanes == 15
        assert VirtualLanes(9).lanes == IbMtu(9).payload == 0
        assert repr(PortInfo(capability_mask=CapabilityMask(1 << 1 | 1)))


class TestCongestion:
    def test_a_log_begins_in_the_log_data(self) -> None:
        event = CaCongestionLogEvent(local_qp=5, sl=3)
        log = CaCongestionLog(events=(event, *[CaCongestionLogEvent()] * 12))
        raw = CongestionMad(attribute_id=CongestionAttribute.CONGESTION_LOG).pack()
        raw = raw[:CONGESTION_LOG_AT] + log.pack() + raw[CONGESTION_LOG_AT + log.SIZE :]
        assert attribute_of(parse_mad(raw)) == log
        switch = raw[:CONGESTION_LOG_AT] + b"\1" + raw[CONGESTION_LOG_AT + 1 :]
        assert isinstance(attribute_of(parse_mad(switch)), SwitchCongestionLog)

    def test_a_control_table(self) -> None:
        entries = tuple(CongestionControlEntry(shift=1, multiplier=i) for i in range(64))
        table = CongestionControlTable(ccti_limit=63, entries=entries)
        assert table.pack()[:8].hex() == "003f000040004001"


class TestPing:
    def test_answered(self) -> None:
        answer = ping_response(ping_request(9), "host.example")
        assert (answer.method, answer.transaction_id, answer.oui) == (0x81, 9, OPENIB_OUI)
        assert attribute_of(parse_mad(answer.pack())) == PingData(host="host.example")

    def test_no_ping(self) -> None:
        with pytest.raises(MadError, match="is no ibping"):
            ping_response(VendorMad(mgmt_class=MgmtClass(0x33), oui=OPENIB_OUI), "host")


class TestAttributes:
    def test_of_classes(self) -> None:
        assert attribute_kind(0x81, 0x15) is PortInfo
        assert attribute_kind(0x03, 0x02) is NoticeReport
        assert attribute_kind(0x01, 0x02) is Notice
        assert attribute_kind(0x04, 0x12) is PortCounters
        assert attribute_kind(0x07, 0x10) is CmReq
        assert attribute_kind(0x06, 0x01) is ClassPortInfo
        assert attribute_kind(0x81, 0x01) is None
        assert attribute_kind(0x03, 0x15) is not PortInfo


class TestAnyBytes:
    """Whatever comes, MadError is the only exception."""

    @settings(max_examples=300, deadline=None)
    @given(strategies.binary(max_size=300))
    def test_as_a_mad(self, data: bytes) -> None:
        with contextlib.suppress(MadError):
            parse_mad(data)

    @settings(max_examples=500, deadline=None)
    @given(
        MAD,
        strategies.sampled_from([0x01, 0x81, 0x03, 0x04, 0x07, 0x21, 0x32, 0x09]),
        strategies.integers(0, 0x3B),
    )
    def test_as_a_mad_of_a_class(self, data: bytes, mgmt_class: int, attribute: int) -> None:
        raw = bytes([1, mgmt_class]) + data[2:16] + bytes([0, attribute]) + data[18:]
        mad = parse_mad(raw)
        assert repr(mad)
        assert status_text(mad.status, mgmt_class)
        assert mad.response().transaction_id == mad.transaction_id
        record = attribute_of(mad)
        if record is not None:
            assert repr(record)
            assert record.values()
        if isinstance(record, Notice):
            assert repr(record.detail)
        if isinstance(record, CmReq):
            header = IpCmHeader.unpack(record.private_data)
            with contextlib.suppress(MadError):
                assert header.source != header.destination or header.source
            with contextlib.suppress(MadError):
                service_port(record.service_id)

    @settings(max_examples=300, deadline=None)
    @given(
        strategies.sampled_from(list(SA_RECORDS.values())),
        strategies.binary(max_size=400),
        strategies.integers(0, 40),
    )
    def test_as_a_table(self, kind: type[Record], data: bytes, offset: int) -> None:
        with contextlib.suppress(MadError):
            assert all(isinstance(each, kind) for each in unpack_table(kind, data, offset))
