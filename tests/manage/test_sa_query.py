# SPDX-License-Identifier: Apache-2.0
"""Queries of subnet administration: ComponentMasks by name, and what matches them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies

from tests.manage.every_record import instances
from verbena.manage import MadError
from verbena.manage.attribute_ids import Method
from verbena.manage.codes import CapabilityMask, IbMtu, IbRate, NodeType, gid_from
from verbena.manage.mad import SaHeader, SaMad
from verbena.manage.record import Record
from verbena.manage.rmpp import segments
from verbena.manage.rmpp_receiver import RmppReceiver
from verbena.manage.sa_query import SaQuery, components
from verbena.manage.sa_records import (
    SA_RECORDS,
    GuidInfoRecord,
    InformInfoRecord,
    LinkRecord,
    McMemberRecord,
    MulticastForwardingRecord,
    MultiPathRecord,
    NodeRecord,
    PathRecord,
    PortInfoRecord,
    Selector,
    ServiceRecord,
    SmInfoRecord,
    pack_table,
    read_table,
    record_stride,
    table_message,
    unpack_table,
)
from verbena.manage.smp_attributes import NodeDescription, NodeInfo

SELECTORS = {"mtu_selector", "rate_selector", "packet_life_time_selector"}


def bits_of(kind: type[Record], name: str) -> list[int]:
    return [bit.bit_length() - 1 for bit, _ in components(kind)[name].rows]


# Numbers that OpenSM and IBA's tables give.
@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        (PathRecord, "service_id", [0, 1]),
        (PathRecord, "flow_label", [8]),
        (PathRecord, "preference", [22]),
        (McMemberRecord, "mgid", [0]),
        (McMemberRecord, "proxy_join", [17]),
        (NodeRecord, "lid", [0]),
        (NodeRecord, "base_version", [2]),
        (NodeRecord, "name", [14]),
        (PortInfoRecord, "capability_mask", [7]),
        (PortInfoRecord, "port_state", [15]),
        (PortInfoRecord, "lmc", [20]),
        (PortInfoRecord, "link_round_trip_latency", [52]),
        (PortInfoRecord, "link_speed_ext_enabled", [57]),
        (LinkRecord, "to_lid", [3]),
        (SmInfoRecord, "sm_state", [6]),
        (GuidInfoRecord, "guids", list(range(4, 12))),
        (MulticastForwardingRecord, "block", [3]),
        (ServiceRecord, "service_lease", [4]),
        (ServiceRecord, "data8", list(range(7, 23))),
        (ServiceRecord, "data64", [35, 36]),
        (InformInfoRecord, "gid", [3]),
        (InformInfoRecord, "resp_time_value", [13]),
        (InformInfoRecord, "producer", [15]),
        (MultiPathRecord, "service_id_high", [16]),
        (MultiPathRecord, "sgid_count", [19]),
        (MultiPathRecord, "service_id_low", [21]),
    ],
)
def test_component_numbers(kind: type[Record], name: str, expected: list[int]) -> None:
    assert bits_of(kind, name) == expected


@pytest.mark.parametrize("kind", SA_RECORDS.values(), ids=lambda kind: kind.__name__)
@settings(max_examples=25, deadline=None)
@given(data=strategies.data())
def test_matches_what_is_equal_in_the_selected_components(kind: type[Record], data: Any) -> None:
    table = {name: row for name, row in components(kind).items() if row.part is None}
    record, other = data.draw(instances(kind)), data.draw(instances(kind))
    selected = sorted(
        name
        for name in data.draw(strategies.sets(strategies.sampled_from([*table, None])))
        if name is not None and f"{name}_selector" not in SELECTORS
    )
    query = SaQuery.of(kind, **{name: getattr(record, name) for name in selected})
    assert query.mask == sum(table[name].mask for name in selected)
    assert query.matches(record)
    if kind is MultiPathRecord:  # it is a query itself
        return
    compared = [name for name in selected if name not in SELECTORS]
    equal = all(getattr(record, name) == getattr(other, name) for name in compared)
    if not any(isinstance(getattr(record, name), str) for name in compared):
        assert query.matches(other) == equal


class TestQuery:
    def test_of_names(self) -> None:
        gids = gid_from(0xFE80 << 48, 1), gid_from(0xFE80 << 48, 2)
        query = SaQuery.of(PathRecord, sgid=gids[0], dgid=gids[1], reversible=True, numb_path=1)
        assert query.mask == 0x180C
        assert query.has("sgid", "dgid")
        assert not query.has("sgid", "dlid")
        request = query.put_into(SaMad())
        assert request.component_mask == 0x180C
        assert request.attribute_id == 0x35
        assert SaQuery.of_mad(PathRecord, request) == query

    def test_components_of_an_embedded_attribute(self) -> None:
        query = SaQuery.of(NodeRecord, node_type=NodeType.SWITCH, lid=3)
        assert query.mask == 1 << 4 | 1
        switch = NodeRecord(lid=3, node_info=NodeInfo(node_type=NodeType.SWITCH, num_ports=36))
        assert query.matches(switch)
        assert not query.matches(switch.replace(lid=4))
        assert not query.matches(switch.replace(node_info=NodeInfo(node_type=NodeType.CA)))
        named = switch.replace(node_description=NodeDescription(name="leaf 1"))
        assert SaQuery.of(NodeRecord, name="leaf 1").matches(named)

    def test_fields_that_are_not_selected_are_zero(self) -> None:
        assert SaQuery.of(PathRecord, dlid=3).record == PathRecord(
            dlid=3, mtu_selector=0, rate_selector=0, packet_life_time_selector=0
        )

    def test_capability_mask(self) -> None:
        query = SaQuery.of(PortInfoRecord, capability_mask=CapabilityMask.IS_SM)
        assert query.mask == 1 << 7

    def test_unknown_names(self) -> None:
        with pytest.raises(MadError, match="PathRecord has no component 'gid'; it has service_id"):
            SaQuery.of(PathRecord, gid=bytes(16))
        with pytest.raises(MadError, match="has no component 'gid'"):
            SaQuery.of(PathRecord).has("gid")
        with pytest.raises(MadError):
            SaQuery.of(PathRecord, dlid=1 << 16)

    def test_one_row_of_a_field(self) -> None:
        """Bit 1 alone selects the lower 56 bits of the ServiceID."""
        query = SaQuery(PathRecord(service_id=0xFF00000000000005), 1 << 1)
        assert query.matches(PathRecord(service_id=5))
        assert not query.matches(PathRecord(service_id=6))


class TestSelectors:
    path = PathRecord(mtu=IbMtu.BYTES_2048, rate=IbRate.GBPS_25, packet_life_time=18)

    @pytest.mark.parametrize(
        ("selector", "mtu", "expected"),
        [
            (Selector.EXACTLY, IbMtu.BYTES_2048, True),
            (Selector.EXACTLY, IbMtu.BYTES_4096, False),
            (Selector.GREATER_THAN, IbMtu.BYTES_1024, True),
            (Selector.GREATER_THAN, IbMtu.BYTES_2048, False),
            (Selector.LESS_THAN, IbMtu.BYTES_4096, True),
            (Selector.LESS_THAN, IbMtu.BYTES_2048, False),
            (Selector.LARGEST, IbMtu.BYTES_256, True),
        ],
    )
    def test_mtu(self, selector: Selector, mtu: IbMtu, expected: bool) -> None:
        query = SaQuery.of(PathRecord, mtu=mtu, mtu_selector=selector)
        assert query.matches(self.path) == expected

    def test_rates_are_compared_by_what_they_are(self) -> None:
        """The code of 25 Gb/s is larger than that of 40 Gb/s."""
        greater = {"rate_selector": Selector.GREATER_THAN}
        assert not SaQuery.of(PathRecord, rate=IbRate.GBPS_40, **greater).matches(self.path)
        assert SaQuery.of(PathRecord, rate=IbRate.GBPS_20, **greater).matches(self.path)

    def test_a_value_alone_is_meant_exactly(self) -> None:
        assert SaQuery.of(PathRecord, rate=IbRate.GBPS_25).matches(self.path)
        assert not SaQuery.of(PathRecord, rate=IbRate.GBPS_40).matches(self.path)

    def test_a_value_of_a_request_without_its_selector_does_not_count(self) -> None:
        assert SaQuery(PathRecord(mtu=IbMtu.BYTES_256), 1 << 17).matches(self.path)


class TestTables:
    def test_padded(self) -> None:
        nodes = [NodeRecord(lid=lid) for lid in range(3)]
        assert record_stride(NodeRecord) == 112
        data = pack_table(nodes)
        assert len(data) == 3 * 112
        assert unpack_table(NodeRecord, data, 14) == nodes
        assert unpack_table(NodeRecord, data + b"pad", 14) == nodes
        assert unpack_table(NodeRecord, b"", 0) == []

    def test_a_larger_stride_than_the_record_has(self) -> None:
        data = NodeRecord(lid=1).pack().ljust(120, b"\0") + NodeRecord(lid=2).pack().ljust(120)
        assert [node.lid for node in unpack_table(NodeRecord, data, 15)] == [1, 2]

    def test_a_smaller_one(self) -> None:
        with pytest.raises(MadError, match="AttributeOffset 13 is 104 bytes, and NodeRecord has"):
            unpack_table(NodeRecord, bytes(200), 13)

    def test_a_message(self) -> None:
        nodes = [NodeRecord(lid=lid) for lid in range(9)]
        request = SaMad(method=Method.GET_TABLE, transaction_id=7, sm_key=3)
        message = table_message(request, NodeRecord, nodes)
        header = SaHeader.unpack(message)
        assert (header.method, header.transaction_id, header.sm_key) == (0x92, 7, 3)
        assert (header.attribute_id, header.attribute_offset) == (0x11, 14)
        assert len(message) == 56 + 9 * 112
        assert read_table(NodeRecord, message) == nodes
        assert read_table(NodeRecord, table_message(request, NodeRecord, [])) == []
        with pytest.raises(MadError, match="a table of NodeRecord cannot have a LinkRecord"):
            table_message(request, NodeRecord, [LinkRecord()])
        with pytest.raises(MadError):
            read_table(NodeRecord, message[:55])

    def test_a_message_by_rmpp(self) -> None:
        """What the SA answers arrives through RMPP, with padding and all."""
        nodes = [NodeRecord(lid=lid) for lid in range(20)]
        message = table_message(SaMad(method=Method.GET_TABLE), NodeRecord, nodes)
        receiver = RmppReceiver(0)
        for packet in segments(message):
            receiver.receive(packet, 0)
        assert read_table(NodeRecord, receiver.message) == nodes
