# SPDX-License-Identifier: Apache-2.0
"""Queries of subnet administration, against what the subnet in memory itself says."""

from __future__ import annotations

from random import Random

import pytest

from tests.manage.sm.asking import PREFIX, SaClient
from tests.manage.sm.managed import ManagedSubnet
from tests.manage.sm.test_bring_up import random_fabric
from verbena import fabrics
from verbena.manage.agents import Drop, NodePort
from verbena.manage.attribute_ids import Method, SaAttribute, SaStatus, StatusCode
from verbena.manage.class_port_info import ClassPortInfo
from verbena.manage.codes import CapabilityMask, IbMtu, IbRate, NodeType, gid_from
from verbena.manage.sa.path_metrics import RATE_ORDER, link_rate_code
from verbena.manage.sa_query import SaQuery
from verbena.manage.sa_records import (
    SA_RECORDS,
    GuidInfoRecord,
    LinearForwardingRecord,
    LinkRecord,
    MultiPathRecord,
    NodeRecord,
    PathRecord,
    PKeyTableRecord,
    PortInfoRecord,
    Selector,
    SmInfoRecord,
    SwitchInfoRecord,
    TraceRecord,
    unpack_table,
)
from verbena.manage.sm import Membership, Partition, Partitions
from verbena.manage.smp_attributes import NodeInfo


def served(seed: int, **settings: object) -> tuple[ManagedSubnet, SaClient]:
    fabric = random_fabric(seed)
    managed = ManagedSubnet(fabric, seed)
    managed.add(fabric.hosts[0], **settings)
    managed.run()
    return managed, SaClient(managed, fabric.hosts[-1])


def end_ports(managed: ManagedSubnet) -> list[NodePort]:
    found = []
    for node in managed.subnet.nodes.values():
        found += [port for port in node.end_ports() if port.lid]
    return found


def true_path(
    managed: ManagedSubnet, source: NodePort, target: NodePort, dlid: int
) -> tuple[int, int] | None:
    """The MTU code and the rate's place of the way that a packet really takes."""
    way = managed.subnet.path(source.lid, dlid)
    if not way.arrives:
        return None
    mtus, rates = [5], [len(RATE_ORDER) - 1]
    for one, other in way.charges:
        for port in (one, other):
            mtus.append(port.info[41] & 15)
            rates.append(RATE_ORDER.index(link_rate_code(bytes(port.info))))
    if source is target and not source.node.is_switch:
        mtus.append(source.info[36] >> 4)
        rates.append(RATE_ORDER.index(link_rate_code(bytes(source.info))))
    return min(mtus), min(rates)


@pytest.mark.parametrize("seed", range(12))
def test_all_paths_are_those_that_packets_take(seed: int) -> None:
    managed, client = served(seed + 300, lmc=Random(seed).choice([0, 0, 1]))
    by_guid = {port.guid: port for port in end_ports(managed)}
    paths = client.paths()
    seen = set()
    for path in paths:
        source = by_guid[int.from_bytes(path.sgid[8:], "big")]
        target = by_guid[int.from_bytes(path.dgid[8:], "big")]
        assert path.slid in source.lids
        assert path.dlid in target.lids
        assert path.reversible
        assert path.p_key == 0xFFFF
        assert path.packet_life_time == (0 if source is target else 18)
        found = true_path(managed, source, target, path.dlid)
        assert found == (int(path.mtu), RATE_ORDER.index(path.rate))
        seen.add((path.slid, path.dlid))
    for source in by_guid.values():
        for target in by_guid.values():
            assert any((slid, target.lid) in seen for slid in source.lids)


def test_selectors_of_paths() -> None:
    fabric = fabrics.one_switch(3, rate="4xEDR")
    managed = ManagedSubnet(fabric)
    managed.subnet.disconnect("h2", 1)
    managed.subnet.connect("h2", 1, "s0", 3, rate="1xQDR")
    managed.add("h0")
    managed.run()
    client = SaClient(managed, "h1")
    other = SaClient(managed, "h2").gid
    to_first = {"sgid": client.gid, "dgid": gid_from(PREFIX, managed.port_guid("h0"))}
    to_slow = {"sgid": client.gid, "dgid": other}
    assert client.one(PathRecord, **to_first).rate == IbRate.GBPS_100  # type: ignore[union-attr]
    assert client.one(PathRecord, **to_slow).rate == IbRate.GBPS_10  # type: ignore[union-attr]
    for selector, rate, expected in (
        (Selector.EXACTLY, IbRate.GBPS_56, IbRate.GBPS_56),
        (Selector.EXACTLY, IbRate.GBPS_200, None),
        (Selector.GREATER_THAN, IbRate.GBPS_100, None),
        (Selector.GREATER_THAN, IbRate.GBPS_40, IbRate.GBPS_100),
        (Selector.LESS_THAN, IbRate.GBPS_40, IbRate.GBPS_30),
        (Selector.LARGEST, IbRate.GBPS_10, IbRate.GBPS_100),
    ):
        path = client.one(PathRecord, **to_first, rate=rate, rate_selector=selector)
        assert (path and path.rate) == expected
    for selector, mtu, expected_mtu in (
        (Selector.EXACTLY, IbMtu.BYTES_1024, IbMtu.BYTES_1024),
        (Selector.GREATER_THAN, IbMtu.BYTES_4096, None),
        (Selector.LESS_THAN, IbMtu.BYTES_256, None),
    ):
        path = client.one(PathRecord, **to_first, mtu=mtu, mtu_selector=selector)
        assert (path and path.mtu) == expected_mtu
    assert client.status == SaStatus.NO_RECORDS.status


def test_numbers_of_paths_and_errors() -> None:
    managed, client = served(7, lmc=2)
    h0 = gid_from(PREFIX, managed.port_guid("h0"))
    assert len(client.paths(sgid=client.gid, dgid=h0)) == 4
    assert len(client.paths(sgid=client.gid, dgid=h0, numb_path=2)) == 2
    lid = managed.subnet.node("h0").end_ports()[0].lid
    (path,) = client.paths(slid=client.port.lid + 3, dlid=lid + 1)
    assert (path.slid, path.dlid) == (client.port.lid + 3, lid + 1)
    assert client.one(PathRecord, sgid=client.gid, dgid=gid_from(PREFIX, 0xDEAD)) is None
    assert client.status == SaStatus.INVALID_GID.status
    assert client.one(PathRecord, sgid=client.gid) is None
    assert client.status == SaStatus.TOO_MANY_RECORDS.status
    assert client.paths(sgid=client.gid, dgid=h0, sl=9) == []
    assert client.status == 0  # an empty table
    assert client.paths(dgid=h0, dlid=client.port.lid) == []
    assert client.status == SaStatus.NO_RECORDS.status
    (administration,) = managed.administrations.values()
    assert "are of two ports" in administration.refusals[-1]


@pytest.mark.parametrize("seed", range(6))
def test_records_are_what_the_nodes_have(seed: int) -> None:
    managed, client = served(seed + 600)
    ends = end_ports(managed)
    nodes = client.table(NodeRecord)
    assert sorted(each.lid for each in nodes) == sorted(port.lid for port in ends)
    by_lid = {port.lid: port for port in ends}
    for record in nodes:
        port = by_lid[record.lid]
        assert record.node_description.name == port.node.name
        assert record.node_info.port_guid == port.guid
        if not port.node.is_switch:
            assert record.node_info.local_port_num == port.number
    for info in client.table(PortInfoRecord):
        node = by_lid[info.endport_lid].node
        raw = info.port_info.replace(local_port_num=0, client_reregister=False).pack()
        true = bytes(node.ports[info.port_num].info)
        assert raw[:28] == true[:28]
        assert raw[29:44] == true[29:44]
    links = {
        (each.from_lid, each.from_port, each.to_lid, each.to_port)
        for each in client.table(LinkRecord)
    }
    expected = set()
    for node in managed.subnet.nodes.values():
        for port in node.ports.values():
            if port.peer is not None and port.is_up:
                one, other = port.end_port.lid, port.peer.end_port.lid
                expected.add((one, port.number, other, port.peer.number))
    assert links == expected
    for block in client.table(LinearForwardingRecord):
        switch = by_lid[block.lid].node
        assert switch.forwarding is not None
        assert block.table.ports == switch.forwarding.linear_block(block.block)
    assert len(client.table(SwitchInfoRecord)) == len(managed.subnet.nodes) - len(
        {port.node.name for port in ends if not port.node.is_switch}
    )
    assert {each.guid_info.guids[0] for each in client.table(GuidInfoRecord)} == {
        port.guid for port in ends
    }
    assert all(each.table.p_keys[0] == 0xFFFF for each in client.table(PKeyTableRecord))
    (manager,) = client.table(SmInfoRecord)
    assert manager.sm_info.guid == managed.masters[0].guid


def test_components_select() -> None:
    managed, client = served(42)
    switches = [node.name for node in managed.subnet.nodes.values() if node.is_switch]
    found = client.table(NodeRecord, node_type=NodeType.SWITCH)
    assert sorted(each.node_description.name for each in found) == sorted(switches)
    mine = client.one(NodeRecord, port_guid=client.port.guid)
    assert mine is not None
    assert mine.lid == client.port.lid
    managers = client.table(PortInfoRecord, options=0x80, capability_mask=CapabilityMask.IS_SM)
    assert [each.endport_lid for each in managers] == [managed.masters[0].lid]
    assert client.one(NodeRecord, lid=0xBFFF) is None
    assert client.status == SaStatus.NO_RECORDS.status


def test_large_tables_come_by_rmpp() -> None:
    managed = ManagedSubnet(fabrics.clos2(12))
    managed.add("h0")
    managed.run()
    client = SaClient(managed, "h70")
    ends = len(end_ports(managed))
    paths = client.paths()
    # The spines are roots of each other's trees only by way of leaves.
    assert len(paths) == ends * ends
    assert len(client.table(NodeRecord)) == ends


def test_multi_path_and_trace() -> None:
    managed = ManagedSubnet(fabrics.clos2(8))
    managed.add("h0")
    managed.run()
    client = SaClient(managed, "h5")
    ports = [managed.subnet.node(name).ports[1] for name in ("h1", "h9", "h17")]
    gids = [PREFIX << 64 | port.guid for port in (client.port, *ports)]
    query = SaQuery.of(MultiPathRecord, numb_path=1, sgid_count=1, dgid_count=3)
    query = SaQuery(query.record.replace(gids=(*gids, *[0] * 7)), query.mask)
    answer = client.ask(Method.GET_MULTI, query)
    assert answer[3] == Method.GET_MULTI_RESP
    paths = unpack_table(PathRecord, answer[56:], int.from_bytes(answer[44:46], "big"))
    assert [path.dlid for path in paths] == [port.lid for port in ports]
    traced = SaQuery.of(PathRecord, slid=client.port.lid, dlid=ports[2].lid)
    answer = client.ask(Method.GET_TRACE_TABLE, traced)
    trace = unpack_table(TraceRecord, answer[56:], int.from_bytes(answer[44:46], "big"))
    way = managed.subnet.path(client.port.lid, ports[2].lid)
    assert [each.node_id for each in trace] == [
        NodeInfo.get(hop.node.node_info, "node_guid") for hop in way.hops
    ]
    assert [(each.entry_port, each.exit_port) for each in trace] == [
        (hop.input_port or 0, hop.output_port or 0) for hop in way.hops
    ]
    client.ask(Method.GET_TRACE_TABLE, SaQuery.of(PathRecord, slid=client.port.lid))
    assert client.status == SaStatus.TOO_MANY_RECORDS.status
    client.ask(Method.GET_MULTI, SaQuery.of(MultiPathRecord, sgid_count=1))
    assert client.status == SaStatus.INSUFFICIENT_COMPONENTS.status


def test_class_port_info_and_what_is_not_supported() -> None:
    _, client = served(3)
    answer = client.ask(Method.GET, SaQuery(ClassPortInfo(), 0))
    assert ClassPortInfo.unpack(answer, 56).class_version == 2
    client.ask(Method.SET, SaQuery(NodeRecord(), 0))
    assert client.status == StatusCode.METHOD_ATTRIBUTE_UNSUPPORTED
    client.ask(Method.GET_TABLE, SaQuery(NodeRecord(), 0), attribute=0x7777)
    assert client.status == StatusCode.INVALID_VALUE
    client.ask(
        Method.GET_TABLE, SaQuery(NodeRecord(), 0), attribute=SaAttribute.RANDOM_FORWARDING_RECORD
    )
    assert client.status == StatusCode.METHOD_ATTRIBUTE_UNSUPPORTED


def test_ports_of_other_partitions_are_not_seen() -> None:
    fabric = fabrics.one_switch(5)
    guids = {name: fabric.guid(name) + 1 for name in fabric.hosts}
    limited = Membership.LIMITED
    partitions = Partitions(
        (
            Partition("Default", 0x7FFF, everybody=limited, sm=Membership.FULL),
            Partition("a", 1, {guids["h1"]: Membership.FULL, guids["h2"]: limited}),
            Partition("b", 2, {guids["h3"]: Membership.FULL, guids["h2"]: limited}),
        )
    )
    managed = ManagedSubnet(fabric)
    managed.add("h0", partitions=partitions)
    managed.run()
    keys = {name: managed.subnet.node(name).ports[1].p_keys[:6].hex() for name in fabric.hosts}
    assert keys == {
        "h0": "ffff00000000",
        "h1": "7fff80010000",
        "h2": "7fff00010002",
        "h3": "7fff80020000",
        "h4": "7fff00000000",
    }
    one = SaClient(managed, "h1")
    pairs = {}
    for name in fabric.hosts[1:]:
        gid = gid_from(PREFIX, guids[name])
        path = one.one(PathRecord, sgid=one.gid, dgid=gid)
        pairs[name] = path and path.p_key
    assert pairs == {"h1": 0x7FFF, "h2": 0x8001, "h3": None, "h4": None}
    seen = {each.node_description.name for each in one.table(NodeRecord)}
    assert seen == {"h0", "h1", "h2"}
    lids = {name: managed.subnet.node(name).ports[1].lid for name in fabric.hosts}
    assert managed.subnet.path(lids["h1"], lids["h2"], p_key=0x8001).arrives
    # A limited member's switch has the member's P_Keys, and passes what it sends to a full member.
    assert managed.subnet.path(lids["h1"], lids["h0"], p_key=0x7FFF).arrives
    assert managed.subnet.path(lids["h2"], lids["h1"], p_key=0x0001).arrives
    way = managed.subnet.path(lids["h1"], lids["h4"], p_key=0x7FFF)
    assert (way.problem, way.at) == (Drop.P_KEY, managed.subnet.node("h4").ports[1])
    # A host that gives itself another P_Key is stopped by its switch.
    managed.subnet.node("h4").ports[1].p_keys[2:4] = b"\x80\x01"
    way = managed.subnet.path(lids["h4"], lids["h2"], p_key=0x8001)
    assert way.problem is Drop.P_KEY_AT_SWITCH
    managed.masters[0].request_sweep()
    managed.run()
    assert managed.subnet.node("h4").ports[1].p_keys[:4].hex() == "7fff0000"


@pytest.mark.parametrize("attribute", sorted(SA_RECORDS))
def test_every_record_is_answered(attribute: int) -> None:
    _, client = served(11)
    kind = SA_RECORDS[attribute]
    answer = client.ask(Method.GET_TABLE, SaQuery(kind.unpack(bytes(kind.SIZE)), 0))
    assert answer, f"no answer for {kind.__name__}"
    assert client.status in (0, StatusCode.METHOD_ATTRIBUTE_UNSUPPORTED)
