# SPDX-License-Identifier: Apache-2.0
"""Performance management: counters by selection, their widths, and the general services."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import pytest

from tests.manage.agents.small_subnets import managed
from verbena.manage.agents import Drop, Subnet
from verbena.manage.attribute_ids import Method, MgmtClass
from verbena.manage.class_port_info import ClassPortInfo, PerformanceCapability
from verbena.manage.mad import GeneralMad, PerformanceMad, VendorMad
from verbena.manage.pma_counters import (
    CounterSelect,
    PortCounters,
    PortCountersExtended,
    PortOpRcvCounters,
    PortRcvErrorDetails,
    PortSamplesControl,
    PortSamplesResult,
    PortXmitDiscardDetails,
)
from verbena.manage.record import Record
from verbena.manage.vendor_ping import OPENIB_OUI, PingData, ping_request

R = TypeVar("R", bound=Record)
OK, BAD_METHOD, UNSUPPORTED, INVALID = 0, 0x8, 0xC, 0x1C


def send(
    subnet: Subnet, dlid: int, record: Record, method: int = Method.GET, **header: Any
) -> PerformanceMad:
    request = PerformanceMad(method=Method(method), **header).with_attribute(record)
    response = subnet.ask("h1", request, dlid=dlid)
    assert response is not None
    return response


def counters(subnet: Subnet, dlid: int, record: R, method: int = Method.GET) -> R:
    response = send(subnet, dlid, record, method)
    assert response.status == OK
    return response.attribute(type(record))


STATUSES = [
    (ClassPortInfo(), Method.GET, OK),
    (ClassPortInfo(), Method.SET, OK),
    (PortCounters(port_select=0), Method.GET, OK),
    (PortCounters(port_select=4), Method.GET, OK),
    (PortCounters(port_select=5), Method.GET, INVALID),
    (PortCounters(port_select=5), Method.SET, INVALID),
    (PortCounters(port_select=255), Method.GET, OK),
    (PortCounters(port_select=1), Method.GET_TABLE, BAD_METHOD),
    (PortCountersExtended(port_select=1), Method.GET, OK),
    (PortRcvErrorDetails(port_select=1), Method.SET, OK),
    (PortXmitDiscardDetails(port_select=1), Method.GET, OK),
    (PortSamplesControl(port_select=1), Method.GET, OK),
    (PortSamplesControl(port_select=9), Method.GET, INVALID),
    (PortSamplesControl(port_select=1), Method.SET, UNSUPPORTED),
    (PortSamplesResult(), Method.GET, OK),
    (PortSamplesResult(), Method.SET, UNSUPPORTED),
    (PortOpRcvCounters(port_select=1), Method.GET, UNSUPPORTED),
]


@pytest.mark.parametrize(("record", "method", "status"), STATUSES)
def test_status(record: Record, method: Method, status: int) -> None:
    subnet, lids, _ = managed()
    assert send(subnet, lids["s1"], record, method).status == status


def test_another_version_of_the_class() -> None:
    subnet, lids, _ = managed()
    assert send(subnet, lids["s1"], ClassPortInfo(), class_version=2).status == 0x4


def test_what_it_can_do() -> None:
    subnet, lids, _ = managed()
    mask = counters(subnet, lids["h3"], ClassPortInfo()).capability_mask
    assert mask & PerformanceCapability.ALL_PORT_SELECT
    assert mask & PerformanceCapability.EXTENDED_WIDTH


def test_management_packets_are_counted_along_their_way() -> None:
    subnet, lids, _ = managed()
    clear = PortCounters(port_select=255, counter_select=CounterSelect(0xFFFF))
    for name in ("s1", "s2"):
        counters(subnet, lids[name], clear, Method.SET)
    for _ in range(10):
        counters(subnet, lids["h3"], ClassPortInfo())
    here = counters(subnet, lids["s2"], PortCounters(port_select=3))
    # The response to the Set, ten requests and responses, and this request.
    assert (here.rcv_packets, here.xmit_packets) == (10 + 1, 10 + 1)
    assert here.rcv_data == 72 * here.rcv_packets
    host = counters(subnet, lids["s2"], PortCounters(port_select=1))
    assert (host.rcv_packets, host.xmit_packets) == (10, 10)
    both = counters(subnet, lids["s2"], PortCounters(port_select=255))
    assert both.rcv_packets == 10 + 10 + 3
    wide = counters(subnet, lids["s2"], PortCountersExtended(port_select=1))
    assert wide.unicast_rcv_packets == wide.rcv_packets > 10  # other bases: not cleared


def test_data_are_counted_along_their_way() -> None:
    subnet, lids, _ = managed()
    route = subnet.carry(lids["h1"], lids["h3"], packets=1000, words=256_000)
    assert str(route) == "h1[1] s1[1>3] s2[3>1] h3[1]"
    wide = counters(subnet, lids["s1"], PortCountersExtended(port_select=3))
    assert wide.xmit_packets >= 1000
    assert 256_000 <= wide.xmit_data <= 256_000 + 72 * (wide.xmit_packets - 1000)
    subnet.cut("s2", 1)
    subnet.carry(lids["h1"], lids["h3"], packets=7, words=7 * 64)
    lost = counters(subnet, lids["s2"], PortXmitDiscardDetails(port_select=1))
    assert lost.inactive_discards == 7
    assert counters(subnet, lids["s2"], PortCounters(port_select=1)).xmit_discards == 7


class Source:
    """Counters of somebody else."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}

    def port_totals(self, port: int) -> Mapping[str, int]:
        return self.totals


def test_counters_of_another_source_saturate_and_are_set_by_selection() -> None:
    subnet, lids, _ = managed()
    source = Source()
    subnet.nodes["h2"].counter_source = source
    source.totals = {"symbol_errors": 70_000, "link_downed": 300, "xmit_wait": 5, "rcv_errors": 9}
    lid = lids["h2"]
    seen = counters(subnet, lid, PortCounters(port_select=1))
    assert (seen.symbol_errors, seen.link_downed, seen.xmit_wait) == (0xFFFF, 0xFF, 5)
    subnet.nodes["s1"].counter_source = source
    both = counters(subnet, lids["s1"], PortCounters(port_select=255))
    assert (both.symbol_errors, both.xmit_wait, both.rcv_errors) == (0xFFFF, 4 * 5, 4 * 9)
    subnet.nodes["s1"].counter_source = None
    source.totals["xmit_data"] = 1 << 40
    assert counters(subnet, lid, PortCounters(port_select=1)).xmit_data == 0xFFFFFFFF
    assert counters(subnet, lid, PortCountersExtended(port_select=1)).xmit_data >= 1 << 40
    chosen = PortCounters(
        port_select=1, counter_select=CounterSelect.SYMBOL_ERRORS, symbol_errors=3, rcv_errors=100
    )
    after = counters(subnet, lid, chosen, Method.SET)
    assert (after.symbol_errors, after.rcv_errors, after.link_downed) == (3, 9, 0xFF)
    source.totals["symbol_errors"] += 4
    after = counters(subnet, lid, PortCounters(port_select=1))
    assert (after.symbol_errors, after.rcv_errors) == (7, 9)


def test_ibping() -> None:
    subnet, lids, _ = managed()
    answer = subnet.ask("h1", ping_request(5), dlid=lids["h3"])
    assert answer is not None
    assert answer.attribute(PingData).host == "h3"
    itself = subnet.ask("h1", ping_request(6), dlid=lids["s2"])
    assert itself is not None
    assert itself.attribute(PingData).host == "s2"
    other = subnet.ask("h1", ping_request(7).replace(oui=0x123456), dlid=lids["h3"])
    assert other is not None
    assert other.status == UNSUPPORTED


@pytest.mark.parametrize(
    ("mgmt_class", "method", "status"),
    [
        (MgmtClass.SNMP, Method.GET, UNSUPPORTED),
        (MgmtClass.DEVICE_MANAGEMENT, Method.GET, UNSUPPORTED),
        (MgmtClass.BOARD_MANAGEMENT, Method.SET, UNSUPPORTED),
        (MgmtClass.SUBN_ADM, Method.GET, UNSUPPORTED),
        (MgmtClass.CONGESTION_CONTROL, Method.GET, UNSUPPORTED),
        (MgmtClass.SUBN_ADM, Method.GET_TABLE, None),
        (MgmtClass.COMMUNICATION_MANAGEMENT, Method.SEND, None),
        (0x33, Method.GET, UNSUPPORTED),
        (0x0A, Method.GET, UNSUPPORTED),
    ],
)
def test_classes_that_nobody_serves(mgmt_class: int, method: Method, status: int | None) -> None:
    subnet, lids, _ = managed()
    request = GeneralMad(mgmt_class=MgmtClass(mgmt_class), method=method)
    if mgmt_class == 0x33:
        request = request.replace(data=bytes(13) + OPENIB_OUI.to_bytes(3, "big"))
    response = subnet.ask("h1", request, dlid=lids["h3"])
    if status is None:
        assert response is None
        assert subnet.nodes["h3"].drops[Drop.METHOD] == 1
    else:
        assert response is not None
        assert response.status == status
        assert response.method == Method.GET_RESP


def test_a_program_comes_before_the_agents_of_vendors() -> None:
    subnet, lids, _ = managed()
    taken: list[int] = []

    def program(packet: Any) -> bool:
        taken.append(packet.mad[1])
        if packet.mad[1] != MgmtClass.OPENIB_PING:
            return False
        answer = VendorMad.unpack(packet.mad).response(PingData(host="program"))
        subnet.inject("h3", packet.answer(answer.pack()))
        return True

    subnet.attach("h3", program)
    answer = subnet.ask("h1", ping_request(5), dlid=lids["h3"])
    assert answer is not None
    assert answer.attribute(PingData).host == "program"
    refused = subnet.ask("h1", GeneralMad(mgmt_class=MgmtClass.SNMP), dlid=lids["h3"])
    assert refused is not None
    assert refused.status == UNSUPPORTED
    assert send(subnet, lids["h3"], ClassPortInfo()).status == OK
    assert taken == [MgmtClass.OPENIB_PING, MgmtClass.SNMP]


def test_an_smp_to_qp_1_and_a_class_of_qp_1_to_qp_0_are_lost() -> None:
    from verbena.manage.agents import MadPacket
    from verbena.manage.mad import GENERAL_QKEY, LidRoutedSmp

    subnet, lids, _ = managed()
    smp = LidRoutedSmp(attribute_id=0x11).pack()
    subnet.inject("h1", MadPacket(smp, 1, lids["h3"], lids["h1"], 1, 1, q_key=GENERAL_QKEY))
    assert subnet.nodes["h3"].drops[Drop.WRONG_QP] == 1
    general = PerformanceMad(attribute_id=1).pack()
    subnet.inject("h1", MadPacket(general, 1, lids["h3"], lids["h1"]))
    assert subnet.drops[Drop.WRONG_QP] == 1
