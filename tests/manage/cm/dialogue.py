# SPDX-License-Identifier: Apache-2.0
"""Shorthand for tests of the connection manager: messages by hand, and connections."""

from __future__ import annotations

import random
from typing import Any, TypeVar

from tests.manage.cm.world import FakeHost, Node, World
from verbena.manage.cm import (
    CmAddress,
    CmDatagram,
    CmDevice,
    CmPort,
    MadArrival,
    RdmaCm,
    RdmaConnectionParameters,
    RdmaEventKind,
)
from verbena.manage.cm_messages import CM_MESSAGES, CmPath, CmReq
from verbena.manage.codes import IbMtu, gid_of_address
from verbena.manage.ip_cm import IpCmHeader, PortSpace, service_id
from verbena.manage.mad import CmMad, parse_mad
from verbena.manage.record import Record

_R = TypeVar("_R", bound=Record)

SERVER, CLIENT = "192.0.2.2", "192.0.2.1"
SERVER_GID, CLIENT_GID = gid_of_address(SERVER), gid_of_address(CLIENT)
ARRIVAL = MadArrival(1, True, CLIENT_GID, SERVER_GID)
CLIENT_GUID = 0x0200000000000099
PORT = 7174


def message(datagram: CmDatagram | bytes) -> Any:
    """The record of a MAD."""
    mad = parse_mad(datagram if isinstance(datagram, bytes) else datagram.mad)
    return mad.attribute(CM_MESSAGES[mad.attribute_id])


def transaction(datagram: CmDatagram) -> int:
    return parse_mad(datagram.mad).transaction_id


def sent_as(record: Record, tid: int = 0x700000001) -> bytes:
    """The MAD of a message."""
    return CmMad(transaction_id=tid).with_attribute(record).pack()


def only(datagrams: list[CmDatagram], kind: type[_R]) -> _R:
    """The one message that was sent, which is of this kind."""
    assert [type(message(each)) for each in datagrams] == [kind]
    found: _R = message(datagrams[0])
    return found


def request(**changes: Any) -> CmReq:
    """A REQ of the client, as Linux's soft-RoCE sends it."""
    header = IpCmHeader.between(CLIENT, 40001, SERVER)
    made = CmReq(
        local_comm_id=0x5001,
        service_id=service_id(PortSpace.TCP, PORT),
        local_ca_guid=CLIENT_GUID,
        local_qpn=0x11,
        responder_resources=1,
        initiator_depth=1,
        remote_cm_response_timeout=20,
        local_cm_response_timeout=20,
        starting_psn=0x123456,
        retry_count=7,
        rnr_retry_count=7,
        max_cm_retries=15,
        path_mtu=IbMtu.BYTES_1024,
        primary=CmPath(
            local_lid=0xFFFF,
            remote_lid=0xFFFF,
            local_gid=CLIENT_GID,
            remote_gid=SERVER_GID,
            hop_limit=64,
            local_ack_timeout=19,
        ),
        private_data=header.pack() + b"hello",
    )
    return made.replace(**changes)


class Server:
    """An rdma_cm at 192.0.2.2 that listens, and a program that answers by hand."""

    def __init__(self, *, listens: bool = True, **more: Any) -> None:
        self.host = FakeHost(SERVER)
        self.host.unreachable.add(CmAddress.ip("203.0.113.1").host)
        device = CmDevice(0x0200000000000002, (CmPort((SERVER_GID,)),))
        self.rdma = RdmaCm(device, self.host, random.Random(5).getrandbits, **more)
        self.channel = self.rdma.open_channel()
        self.now = 0.0
        self.listener = self.rdma.create_id(self.channel, PortSpace.TCP)
        if listens:
            self.rdma.bind(self.listener, CmAddress.ip("0.0.0.0", PORT))
            self.rdma.listen(self.listener, 3)

    def hear(self, record: Record, tid: int = 0x700000001) -> list[CmDatagram]:
        """Give it a message; return what it sends at once."""
        self.rdma.receive(sent_as(record, tid), ARRIVAL, self.now)
        return self.rdma.take_datagrams()

    def wait(self, seconds: float) -> list[CmDatagram]:
        """Let time pass; return what it sends meanwhile."""
        end, sent = self.now + seconds, []
        while (when := self.rdma.next_deadline()) is not None and when <= end:
            self.rdma.tick(when)
            sent += self.rdma.take_datagrams()
        self.now = end
        self.rdma.tick(end)
        return sent + self.rdma.take_datagrams()

    def kinds(self) -> list[RdmaEventKind]:
        """The events that the program reads."""
        found = []
        while (event := self.rdma.read_event(self.channel)) is not None:
            found.append(event.kind)
        return found

    def accept(self, **more: Any) -> tuple[int, list[CmDatagram]]:
        """Read a request and accept it; return the new id and what is sent."""
        event = self.rdma.read_event(self.channel)
        assert event is not None
        assert event.kind is RdmaEventKind.CONNECT_REQUEST
        self.rdma.accept(event.id, RdmaConnectionParameters(qpn=0x22, **more))
        return event.id, self.rdma.take_datagrams()


def listening(world: World, node: Node, port: int = PORT, space: int = PortSpace.TCP) -> int:
    """A listener of a node on every address."""
    number = node.rdma.create_id(node.channel, space)
    node.rdma.bind(number, CmAddress.ip("0.0.0.0", port))
    node.rdma.listen(number)
    return number


def resolved(
    world: World, node: Node, to: Node, port: int = PORT, space: int = PortSpace.TCP
) -> int:
    """An identifier of a node with a route to another."""
    number = node.rdma.create_id(node.channel, space)
    node.rdma.resolve_address(number, CmAddress.ip(to.text, port))
    world.run()
    node.rdma.resolve_route(number)
    world.run()
    return number


def connected(world: World) -> tuple[int, int]:
    """A connection between the first two nodes; the ids of both sides. Events are taken."""
    client, server = world.nodes[:2]
    listening(world, server)
    number = resolved(world, client, server)
    client.rdma.connect(number, RdmaConnectionParameters(qpn=0x31))
    world.run()
    peer = next(e.id for e in world.take(server) if e.kind is RdmaEventKind.CONNECT_REQUEST)
    server.rdma.accept(peer, RdmaConnectionParameters(qpn=0x32))
    world.run()
    client.rdma.accept(number)
    world.run()
    world.take(client), world.take(server)
    return number, peer
