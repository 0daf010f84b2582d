# SPDX-License-Identifier: Apache-2.0
"""Multicast groups, services and subscriptions of subnet administration."""

from __future__ import annotations

from random import Random

import pytest

from tests.manage.sm.asking import PREFIX, SaClient
from tests.manage.sm.managed import ManagedSubnet
from tests.manage.sm.test_bring_up import random_fabric
from verbena import fabrics
from verbena.manage.agents import NodePort
from verbena.manage.attribute_ids import Method, SaStatus
from verbena.manage.codes import IbMtu, IbRate, gid_from
from verbena.manage.notices import GidTrap, NoticeReport, TrapNumber
from verbena.manage.sa import ipoib_broadcast_mgid
from verbena.manage.sa_query import SaQuery
from verbena.manage.sa_records import (
    InformInfo,
    InformInfoRecord,
    JoinState,
    McMemberRecord,
    MulticastForwardingRecord,
    PathRecord,
    Selector,
    ServiceAssociationRecord,
    ServiceRecord,
)
from verbena.manage.sm import Membership, Partition, Partitions

MGID = bytes.fromhex("ff12401bffff00000000000000000042")
MAKING = {
    "qkey": 0x1234,
    "traffic_class": 0,
    "p_key": 0xFFFF,
    "sl": 0,
    "flow_label": 0,
}


def join(client: SaClient, mgid: bytes = MGID, **values: object) -> McMemberRecord | None:
    """Join as a full member, with what making the group needs."""
    wanted = {
        "mgid": mgid,
        "port_gid": client.gid,
        "join_state": JoinState.FULL,
        **MAKING,
        **values,
    }
    return client.one(McMemberRecord, Method.SET, **wanted)


def leave(client: SaClient, mgid: bytes = MGID, **values: object) -> McMemberRecord | None:
    wanted = {"mgid": mgid, "port_gid": client.gid, "join_state": JoinState.FULL, **values}
    return client.one(McMemberRecord, Method.DELETE, **wanted)


def reached(managed: ManagedSubnet, source: NodePort, mlid: int) -> set[str]:
    """Names of the hosts that a packet to a group reaches, by the switches' tables."""
    way = managed.subnet.multicast_path(source.lid, mlid)
    assert way.lost == []
    found = [port.node.name for port in way.ends]
    assert len(found) == len(set(found)), "a packet arrives twice"
    return set(found)


@pytest.mark.parametrize("seed", range(12))
def test_trees_reach_exactly_the_members(seed: int) -> None:
    random = Random(seed)
    fabric = random_fabric(seed + 1200)
    managed = ManagedSubnet(fabric, seed)
    managed.add(fabric.hosts[0])
    managed.run()
    clients = {name: SaClient(managed, name) for name in fabric.hosts}
    members: set[str] = set()
    mlid = 0
    for _ in range(12):
        name = random.choice(fabric.hosts)
        if name in members and random.random() < 0.6:
            members.remove(name)
            assert leave(clients[name]) is not None
        else:
            record = join(clients[name], mtu=IbMtu.BYTES_256, rate=IbRate.GBPS_2_5)
            assert record is not None, managed.administrations["h0"].refusals
            members.add(name)
            mlid = record.mlid
        managed.run()
        for source in members:
            port = clients[source].port
            assert reached(managed, port, mlid) == members - {source}
    assert mlid >= 0xC000


def test_a_group_lives_while_it_has_a_full_member() -> None:
    managed = ManagedSubnet(fabrics.one_switch(4))
    managed.add("h0")
    managed.run()
    one, other = SaClient(managed, "h1"), SaClient(managed, "h2")
    assert (
        other.one(McMemberRecord, Method.SET, mgid=MGID, port_gid=other.gid, join_state=1) is None
    )
    assert other.status == SaStatus.INSUFFICIENT_COMPONENTS.status
    assert join(other, join_state=JoinState.NON_MEMBER) is None
    assert other.status == SaStatus.REQUEST_INVALID.status
    made = join(one)
    assert made is not None
    assert (made.mlid, made.scope, made.rate) == (0xC000, 2, IbRate.GBPS_100)
    assert join(other, join_state=JoinState.SEND_ONLY_NON_MEMBER) is not None
    assert join(other, qkey=7) is None
    assert other.status == SaStatus.REQUEST_INVALID.status
    (group,) = other.table(McMemberRecord, mgid=MGID)
    assert group.port_gid == bytes(16)
    every = other.table(McMemberRecord, sm_key=1, mgid=MGID)
    assert {each.port_gid for each in every} == {one.gid, other.gid}
    path = one.one(PathRecord, sgid=one.gid, dgid=MGID)
    assert path is not None
    assert path.dlid == 0xC000
    assert leave(other) is None  # it is no full member
    assert leave(one) is not None
    assert other.table(McMemberRecord) == []
    assert leave(one) is None
    made = join(one, mgid=bytes(16))
    assert made is not None
    assert made.mgid[:6].hex() == "ff12a01bffff"


def test_nobody_joins_for_others_without_saying_so() -> None:
    managed = ManagedSubnet(fabrics.one_switch(4))
    managed.add("h0")
    managed.run()
    client, other = SaClient(managed, "h1"), SaClient(managed, "h2")
    assert join(client, port_gid=other.gid) is None
    assert client.status == SaStatus.DENIED.status
    assert join(client, port_gid=other.gid, proxy_join=True) is not None
    assert join(client, port_gid=gid_from(PREFIX, 0xBAD)) is None
    assert client.status == SaStatus.INVALID_GID.status


def test_a_port_that_is_too_slow_does_not_join() -> None:
    managed = ManagedSubnet(fabrics.one_switch(3, rate="4xEDR"))
    managed.subnet.disconnect("h2", 1)
    managed.subnet.connect("h2", 1, "s0", 3, rate="1xQDR")
    managed.add("h0")
    managed.run()
    fast, slow = SaClient(managed, "h1"), SaClient(managed, "h2")
    assert join(fast) is not None
    assert join(slow) is None
    assert slow.status == SaStatus.REQUEST_INVALID.status
    (administration,) = managed.administrations.values()
    assert "has an MTU of 4096 and 10 Gb/s" in administration.refusals[-1]
    assert join(fast, rate=IbRate.GBPS_40, rate_selector=Selector.GREATER_THAN) is not None
    assert join(fast, rate=IbRate.GBPS_200, rate_selector=Selector.GREATER_THAN) is None


def test_a_host_that_leaves_is_no_member_any_more() -> None:
    managed = ManagedSubnet(fabrics.clos2(8))
    managed.add("h0")
    managed.run()
    names = ["h3", "h9", "h20"]
    clients = [SaClient(managed, name) for name in names]
    for client in clients:
        assert join(client) is not None
    managed.subnet.remove("h9")
    managed.run(5)
    every = clients[0].table(McMemberRecord, sm_key=1)
    assert {each.port_gid for each in every} == {clients[0].gid, clients[2].gid}
    assert reached(managed, clients[0].port, 0xC000) == {"h20"}
    tables = clients[0].table(MulticastForwardingRecord)
    assert any(each.table.masks[0] for each in tables)


def test_the_broadcast_group_of_a_partition_is_permanent() -> None:
    everybody = Partition("Default", 0x7FFF, everybody=Membership.FULL, ipoib=True)
    managed = ManagedSubnet(fabrics.one_switch(3))
    managed.add("h0", partitions=Partitions((everybody,)))
    managed.run()
    client = SaClient(managed, "h1")
    mgid = ipoib_broadcast_mgid(0x7FFF)
    assert mgid.hex() == "ff12401bffff000000000000ffffffff"
    group = client.one(McMemberRecord, mgid=mgid)
    assert group is not None
    assert (group.qkey, group.mlid, group.mtu) == (0xB1B, 0xC000, IbMtu.BYTES_2048)
    state = JoinState.FULL
    joined = client.one(
        McMemberRecord, Method.SET, mgid=mgid, port_gid=client.gid, join_state=state
    )
    assert joined is not None
    assert leave(client, mgid) is not None
    assert client.one(McMemberRecord, mgid=mgid) is not None


def test_services_lapse() -> None:
    managed = ManagedSubnet(fabrics.one_switch(3))
    managed.add("h0")
    managed.run()
    client = SaClient(managed, "h1")
    values = {
        "service_id": 5,
        "service_gid": client.gid,
        "service_p_key": 0xFFFF,
        "service_lease": 30,
        "service_key": b"secret",
        "service_name": "disk",
    }
    assert client.one(ServiceRecord, Method.SET, **values) is not None
    managed.run(10)
    (found,) = client.table(ServiceRecord, service_name="disk")
    assert 19 <= found.service_lease <= 20
    (association,) = client.table(ServiceAssociationRecord)
    assert association.service_name == "disk"
    assert client.one(ServiceRecord, Method.SET, **values | {"service_key": b"x"}) is None
    assert client.status == SaStatus.DENIED.status
    managed.run(21)
    assert client.table(ServiceRecord) == []
    assert client.one(ServiceRecord, Method.SET, **values) is not None
    assert client.one(ServiceRecord, Method.DELETE, **values) is not None
    assert client.one(ServiceRecord, Method.DELETE, **values) is None
    assert client.status == SaStatus.NO_RECORDS.status


def subscribe(client: SaClient, trap: int = 0xFFFF, on: bool = True) -> bytes:
    inform = InformInfo(
        lid_range_begin=0xFFFF,
        subscribe=on,
        notice_type=0xFFFF,
        trap_number=TrapNumber(trap),
        producer=0xFFFFFF,
        qpn=1,
    )
    return client.ask(Method.SET, SaQuery(inform, 0))


def trap_numbers(client: SaClient) -> list[tuple[int, bytes]]:
    found = []
    for report in client.reports:
        notice = report.attribute(NoticeReport)
        detail = notice.detail
        gid = detail.gid if isinstance(detail, GidTrap) else b""
        found.append((int(notice.trap_number), gid))
    return found


def test_reports_of_groups_and_ports() -> None:
    managed = ManagedSubnet(fabrics.one_switch(4))
    managed.add("h0")
    managed.run()
    client, other = SaClient(managed, "h1"), SaClient(managed, "h2")
    subscribe(client)
    assert client.status == 0
    join(other)
    leave(other)
    assert trap_numbers(client) == [(66, MGID), (67, MGID)]
    client.reports.clear()
    managed.subnet.cut("h3", 1)
    managed.run(5)
    gone = gid_from(PREFIX, managed.port_guid("h3"))
    assert (65, gone) in trap_numbers(client)
    assert 128 in [number for number, _ in trap_numbers(client)]
    client.reports.clear()
    managed.subnet.restore("h3", 1)
    managed.run(5)
    assert (64, gone) in trap_numbers(client)
    (record,) = client.table(InformInfoRecord)
    assert record.subscriber_gid == client.gid
    subscribe(client, on=False)
    assert client.status == 0
    client.reports.clear()
    join(other)
    assert client.reports == []
    subscribe(client, on=False)
    assert client.status == SaStatus.REQUEST_INVALID.status


def test_a_report_is_repeated_until_it_is_answered() -> None:
    managed = ManagedSubnet(fabrics.one_switch(4))
    managed.add("h0")
    managed.run()
    client, other = SaClient(managed, "h1", answers_reports=False), SaClient(managed, "h2")
    subscribe(client, 66)
    join(other)
    assert trap_numbers(client) == [(66, MGID)]
    client.answers_reports = True
    managed.run(10)
    assert trap_numbers(client) == [(66, MGID)] * 2
    client.answers_reports = False
    leave(other)
    join(other)
    managed.run(10)
    assert trap_numbers(client) == [(66, MGID)] * 6
    assert managed.administrations["h0"].subscriptions.given_up == 1
