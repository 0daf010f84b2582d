# SPDX-License-Identifier: Apache-2.0
"""rdma_cm on InfiniBand ports, with LIDs and subnet administration; AF_IB; and IPv6."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest

from tests.manage.cm.dialogue import message
from tests.manage.cm.world import FakeHost, World
from verbena.manage.cm import (
    AddressAnswer,
    CmAddress,
    CmDatagram,
    CmDevice,
    CmError,
    CmFamily,
    CmPort,
    CmRefusal,
    IdState,
    JoinGroup,
    LocalInterface,
    MadArrival,
    QueryPath,
    RdmaCm,
    RdmaConnectionParameters,
    RdmaEventKind,
)
from verbena.manage.cm.groups import infiniband_mgid
from verbena.manage.cm_messages import CmReq
from verbena.manage.codes import gid_from
from verbena.manage.ip_cm import PortSpace
from verbena.manage.sa_records import JoinState, McMemberRecord, PathRecord

E = RdmaEventKind
PREFIX = 0xFE80000000000000
BROADCAST = bytes.fromhex("ff12401bffff00000000000000000000")[:12] + b"\xff" * 4
EVERY = (1 << 64) - 1


class IbHost:
    """An InfiniBand host with IPoIB: LID, GID and IP address all end with its number."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.gid = gid_from(PREFIX, number)
        port = CmPort((self.gid,), 1, False, lid=number, p_keys=(0xFFFF, 0x8001))
        self.host = FakeHost(f"192.0.2.{number}", f"2001:db8::{number}")
        self.rdma = RdmaCm(CmDevice(number, (port,)), self.host, random.Random(number).getrandbits)
        self.channel = self.rdma.open_channel()

    def answer(self, peer: IbHost, source: CmAddress) -> AddressAnswer:
        local = LocalInterface(1, self.gid, 2044, 4, 0xFFFF, BROADCAST, 0x0B1B)
        return AddressAnswer(source, local, peer.gid, hop_limit=0)

    def path(self, peer: IbHost) -> PathRecord:
        return PathRecord(
            dgid=peer.gid,
            sgid=self.gid,
            dlid=peer.number,
            slid=self.number,
            sl=3,
            p_key=0xFFFF,
            mtu=4,
            rate=3,
            packet_life_time=16,
        )

    def events(self) -> list[Any]:
        return list(iter(lambda: self.rdma.read_event(self.channel), None))


def carry(*hosts: IbHost) -> list[CmDatagram]:
    """Carry datagrams by their LIDs until there are none."""
    carried = []
    while sent := [(host, d) for host in hosts for d in host.rdma.take_datagrams()]:
        for source, datagram in sent:
            carried.append(datagram)
            to = datagram.to
            target = next(host for host in hosts if host.number == to.dlid)
            arrival = MadArrival(1, to.has_grh, slid=source.number, sl=to.sl, p_key=to.p_key)
            target.rdma.receive(datagram.mad, arrival, 0.0)
    return carried


@pytest.fixture
def pair() -> tuple[IbHost, IbHost]:
    return IbHost(1), IbHost(2)


def routed(client: IbHost, server: IbHost, space: int = PortSpace.TCP) -> int:
    number = client.rdma.create_id(client.channel, space)
    client.rdma.resolve_address(number, CmAddress.ip("192.0.2.2", 7174))
    client.rdma.take_requests()
    client.rdma.address_resolved(number, client.answer(server, CmAddress.ip("192.0.2.1")))
    client.rdma.resolve_route(number, 3000)
    (asked,) = client.rdma.take_requests()
    assert isinstance(asked, QueryPath)
    assert asked.query.has("dgid", "sgid", "p_key", "numb_path", "reversible", "service_id")
    record = asked.query.record
    assert (record.dgid, record.sgid, record.numb_path) == (server.gid, client.gid, 1)
    assert record.service_id == space << 16 | 7174
    client.rdma.path_resolved(number, client.path(server))
    assert [e.kind for e in client.events()] == [E.ADDR_RESOLVED, E.ROUTE_RESOLVED]
    return number


class TestConnections:
    def test_by_lids(self, pair: tuple[IbHost, IbHost]) -> None:
        client, server = pair
        listener = server.rdma.create_id(server.channel, PortSpace.TCP)
        server.rdma.bind(listener, CmAddress.ip("0.0.0.0", 7174))
        server.rdma.listen(listener)
        number = routed(client, server)
        client.rdma.connect(number, RdmaConnectionParameters(qpn=5))
        sent = carry(client, server)
        req: CmReq = message(sent[0])
        path = req.primary
        assert (path.local_lid, path.remote_lid, path.sl) == (1, 2, 3)
        assert (path.subnet_local, path.hop_limit, path.local_ack_timeout) == (True, 0, 17)
        assert (sent[0].to.has_grh, sent[0].to.dlid, sent[0].to.sl) == (False, 2, 3)
        (event,) = server.events()
        server.rdma.accept(event.id, RdmaConnectionParameters(qpn=6))
        carry(client, server)
        client.rdma.accept(number)
        carry(client, server)
        assert [e.kind for e in server.events()] == [E.ESTABLISHED]
        made = server.rdma.qp_attributes(event.id, 2)
        assert made.address is not None
        assert (made.address.dlid, made.address.sl, made.address.has_grh) == (1, 3, False)
        assert made.path_mtu == 4
        assert server.rdma.qp_attributes(event.id, 3).timeout == 17

    def test_request_through_a_router(self, pair: tuple[IbHost, IbHost]) -> None:
        """LIDs of another subnet are permissive: the answer goes where the packet came from."""
        client, server = pair
        listener = server.rdma.create_id(server.channel, PortSpace.TCP)
        server.rdma.bind(listener, CmAddress.ip("0.0.0.0", 7174))
        server.rdma.listen(listener)
        number = client.rdma.create_id(client.channel, PortSpace.TCP)
        client.rdma.resolve_address(number, CmAddress.ip("192.0.2.2", 7174))
        client.rdma.address_resolved(number, client.answer(server, CmAddress.ip("192.0.2.1")))
        client.rdma.resolve_route(number)
        client.rdma.path_resolved(number, client.path(server).replace(hop_limit=64))
        client.rdma.connect(number, RdmaConnectionParameters(qpn=5))
        (sent,) = client.rdma.take_datagrams()
        path = message(sent).primary
        assert (path.local_lid, path.remote_lid, path.subnet_local) == (0xFFFF, 0xFFFF, False)
        assert sent.to.has_grh
        arrival = MadArrival(1, True, client.gid, server.gid, slid=77, sl=5)
        server.rdma.receive(sent.mad, arrival, 0.0)
        (event,) = server.events()
        made = server.rdma.qp_attributes(event.id, 2).address
        assert made is not None
        assert (made.dlid, made.sl, made.has_grh, made.dgid) == (77, 5, True, client.gid)

    def test_no_path(self, pair: tuple[IbHost, IbHost]) -> None:
        client, server = pair
        number = client.rdma.create_id(client.channel, PortSpace.TCP)
        client.rdma.resolve_address(number, CmAddress.ip("192.0.2.2", 7174))
        client.rdma.address_resolved(number, client.answer(server, CmAddress.ip("192.0.2.1")))
        for status in (0x0300, -errno.ETIMEDOUT):
            client.events()
            client.rdma.resolve_route(number, 500)
            if status > 0:
                client.rdma.path_resolved(number, status)
            else:
                client.rdma.tick(0.5)
            (event,) = client.events()
            assert (event.kind, event.status) == (E.ROUTE_ERROR, status)
            assert client.rdma.id(number).state is IdState.ADDR_RESOLVED

    def test_datagrams(self, pair: tuple[IbHost, IbHost]) -> None:
        client, server = pair
        number = routed(client, server, PortSpace.UDP)
        client.rdma.connect(number, RdmaConnectionParameters())
        carry(client, server)
        (event,) = client.events()
        assert (event.kind, event.status) == (E.UNREACHABLE, 1)

    def test_own_lid_loops_back(self, pair: tuple[IbHost, IbHost]) -> None:
        host = pair[0]
        listener = host.rdma.create_id(host.channel, PortSpace.TCP)
        host.rdma.bind(listener, CmAddress.ip("0.0.0.0", 7174))
        host.rdma.listen(listener)
        number = host.rdma.create_id(host.channel, PortSpace.TCP)
        host.rdma.resolve_address(number, CmAddress.ip("192.0.2.1", 7174))
        host.rdma.address_resolved(number, host.answer(host, CmAddress.ip("192.0.2.1")))
        host.rdma.resolve_route(number)
        host.rdma.path_resolved(number, host.path(host))
        host.rdma.connect(number, RdmaConnectionParameters(qpn=1))
        assert host.events()[-1].kind is E.CONNECT_REQUEST
        assert host.rdma.take_datagrams() == []


class TestAfIb:
    def listen(self, server: IbHost, service_id: int, mask: int = EVERY) -> int:
        listener = server.rdma.create_id(server.channel, PortSpace.IB)
        server.rdma.bind(listener, CmAddress.ib(service_id=service_id, mask=mask))
        server.rdma.listen(listener)
        return listener

    def test_first_bind_of_librdmacm(self, pair: tuple[IbHost, IbHost]) -> None:
        """ucma_check_afib: any port of the TCP space."""
        rdma = pair[0].rdma
        number = rdma.create_id(pair[0].channel, PortSpace.IB)
        rdma.bind(number, CmAddress.ib(service_id=0x01060000, mask=EVERY & ~0xFFFF))
        made = rdma.id(number).source
        assert made.family is CmFamily.IB
        assert 32768 <= made.port <= 60999
        assert made.service_id == 0x01060000 | made.port

    def test_other_service_ids(self, pair: tuple[IbHost, IbHost]) -> None:
        rdma = pair[0].rdma
        number = rdma.create_id(pair[0].channel, PortSpace.TCP)
        with pytest.raises(CmError) as caught:
            rdma.bind(number, CmAddress.ib(service_id=0x01110007))
        assert caught.value.refusal is CmRefusal.NOT_A_PORT_SPACE
        with pytest.raises(CmError) as caught:
            rdma.bind(number, CmAddress.ib(gid_from(PREFIX, 9), 0x01060007))
        assert caught.value.refusal is CmRefusal.NO_DEVICE

    def test_connection(self, pair: tuple[IbHost, IbHost]) -> None:
        client, server = pair
        self.listen(server, 0x01060000 | 7174)
        number = client.rdma.create_id(client.channel, PortSpace.IB)
        destination = CmAddress.ib(server.gid, 0x01060000 | 7174)
        client.rdma.resolve_address(number, destination)
        assert client.rdma.take_requests() == []
        client.rdma.resolve_route(number)
        (asked,) = client.rdma.take_requests()
        assert isinstance(asked, QueryPath)
        assert asked.query.has("traffic_class")
        client.rdma.path_resolved(number, client.path(server))
        with pytest.raises(CmError):
            client.rdma.connect(number, RdmaConnectionParameters(private_data=bytes(93)))
        wanted = RdmaConnectionParameters(qpn=3, private_data=b"p" * 92)
        client.rdma.connect(number, wanted)
        carry(client, server)
        (event,) = server.events()
        assert event.kind is E.CONNECT_REQUEST
        assert event.connection.private_data == b"p" * 92
        assert server.rdma.id(event.id).source.host == server.gid

    def test_subnet_decides(self, pair: tuple[IbHost, IbHost]) -> None:
        client = pair[0]
        number = client.rdma.create_id(client.channel, PortSpace.IB)
        other = CmAddress.ib(gid_from(0xFEC0000000000001, 2), 0x01060007)
        with pytest.raises(CmError) as caught:
            client.rdma.resolve_address(number, other)
        assert caught.value.errno == errno.ENODEV
        assert client.rdma.id(number).state is IdState.ADDR_BOUND


class TestGroups:
    @pytest.mark.parametrize(
        ("text", "space", "mgid"),
        [
            ("239.1.2.3", PortSpace.UDP, "ff124001ffff0000000000000f010203"),
            ("239.1.2.3", PortSpace.IPOIB, "ff12401bffff0000000000000f010203"),
            ("ff0e::1", PortSpace.IPOIB, "ff12601bffff00000000000000000001"),
            ("ff0e::1", PortSpace.UDP, "ff126001ffff00000000000000000001"),
            ("ff12:a01b::7", PortSpace.UDP, "ff12a01b000000000000000000000007"),
            ("0.0.0.0", PortSpace.UDP, "0" * 32),
        ],
    )
    def test_mgids(self, text: str, space: int, mgid: str) -> None:
        assert infiniband_mgid(CmAddress.ip(text), BROADCAST, space).hex() == mgid

    def test_join(self, pair: tuple[IbHost, IbHost]) -> None:
        client, server = pair
        number = routed_datagram(client, server)
        handle = client.rdma.join_multicast(number, CmAddress.ip("239.1.2.3"), 8, 1)
        (asked,) = client.rdma.take_requests()
        assert isinstance(asked, JoinGroup)
        assert asked.query is not None
        assert asked.query.record.join_state == JoinState.SEND_ONLY_FULL
        assert asked.query.record.port_gid == client.gid
        assert asked.query.has(
            *("mgid", "port_gid", "p_key", "join_state", "qkey", "sl", "flow_label"),
            "traffic_class",
        )
        joined = McMemberRecord(mgid=asked.mgid, mlid=0xC005, qkey=0x01234567, sl=2, p_key=0xFFFF)
        client.rdma.group_joined(handle, joined)
        event = client.events()[-1]
        assert (event.kind, event.context) == (E.MULTICAST_JOIN, 8)
        to = event.datagram.address
        assert (to.dlid, to.sl, to.dgid) == (0xC005, 2, asked.mgid)

    def test_qkey_of_ipoib(self, pair: tuple[IbHost, IbHost]) -> None:
        client, server = pair
        number = routed_datagram(client, server, PortSpace.IPOIB)
        assert client.rdma.qp_attributes(number, 1).qkey == 0x0B1B

    def test_refused_by_the_sa(self, pair: tuple[IbHost, IbHost]) -> None:
        client, server = pair
        number = routed_datagram(client, server)
        handle = client.rdma.join_multicast(number, CmAddress.ip("239.1.2.3"))
        client.rdma.group_joined(handle, 0x0100)
        assert client.events()[-1].kind is E.MULTICAST_ERROR


def routed_datagram(client: IbHost, server: IbHost, space: int = PortSpace.UDP) -> int:
    number = client.rdma.create_id(client.channel, space)
    client.rdma.resolve_address(number, CmAddress.ip("192.0.2.2", 7174))
    client.rdma.take_requests()
    client.rdma.address_resolved(number, client.answer(server, CmAddress.ip("192.0.2.1")))
    return number


class TestIpv6:
    def test_connection(self) -> None:
        world = World(("2001:db8::1", "2001:db8::2"))
        client, server = world.nodes
        listener = server.rdma.create_id(server.channel, PortSpace.TCP)
        server.rdma.bind(listener, CmAddress.ip("::", 7174))
        server.rdma.listen(listener)
        number = client.rdma.create_id(client.channel, PortSpace.TCP)
        client.rdma.resolve_address(number, CmAddress.ip(server.text, 7174))
        world.run()
        client.rdma.resolve_route(number)
        client.rdma.connect(number, RdmaConnectionParameters(qpn=1))
        world.run()
        event = world.take(server)[-1]
        assert event.kind is E.CONNECT_REQUEST
        made = server.rdma.id(event.id)
        assert str(made.source) == "[2001:db8::2]:7174"
        assert str(made.destination).startswith("[2001:db8::1]:")

    @pytest.mark.parametrize(("only", "status"), [(False, None), (True, 28)])
    def test_wildcard_takes_ipv4_unless_afonly(self, only: bool, status: int | None) -> None:
        world = World()
        client, server = world.nodes
        listener = server.rdma.create_id(server.channel, PortSpace.TCP)
        server.rdma.set_option(listener, 0, 2, int(only).to_bytes(4, "little"))
        server.rdma.bind(listener, CmAddress.ip("::", 7174))
        server.rdma.listen(listener)
        number = client.rdma.create_id(client.channel, PortSpace.TCP)
        client.rdma.resolve_address(number, CmAddress.ip(server.text, 7174))
        world.run()
        client.rdma.resolve_route(number)
        client.rdma.connect(number, RdmaConnectionParameters(qpn=1))
        world.run()
        events = world.take(server)
        if status is None:
            assert [event.kind for event in events] == [E.CONNECT_REQUEST]
        else:
            assert events == []
            assert world.take(client)[-1].status == status

    def test_families_do_not_mix(self) -> None:
        world = World()
        client = world.nodes[0]
        number = client.rdma.create_id(client.channel, PortSpace.TCP)
        client.rdma.bind(number, CmAddress.ip("0.0.0.0"))
        with pytest.raises(CmError) as caught:
            client.rdma.resolve_address(number, CmAddress.ip("2001:db8::1", 1))
        assert caught.value.refusal is CmRefusal.OTHER_FAMILY


def test_listener_of_one_address() -> None:
    world = World(("192.0.2.1", "192.0.2.2", "192.0.2.3"))
    server = world.nodes[1]
    server.host.addresses.add(CmAddress.ip("192.0.2.9").host)
    listener = server.rdma.create_id(server.channel, PortSpace.TCP)
    server.rdma.bind(listener, CmAddress.ip("192.0.2.9", 7174))
    server.rdma.listen(listener)
    client = world.nodes[0]
    number = client.rdma.create_id(client.channel, PortSpace.TCP)
    client.rdma.resolve_address(number, CmAddress.ip(server.text, 7174))
    world.run()
    client.rdma.resolve_route(number)
    client.rdma.connect(number, RdmaConnectionParameters(qpn=1))
    world.run()
    assert world.take(client)[-1].status == 28


def test_default_of_the_system_for_ipv6() -> None:
    world = World(binds_ipv6_only=True)
    node = world.nodes[0]
    first, second = (node.rdma.create_id(node.channel, PortSpace.TCP) for _ in range(2))
    node.rdma.bind(first, CmAddress.ip("::", 7174))
    node.rdma.bind(second, CmAddress.ip("0.0.0.0", 7174))
