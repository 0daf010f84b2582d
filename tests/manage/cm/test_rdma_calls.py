# SPDX-License-Identifier: Apache-2.0
"""Calls of rdma_cm: what each does in each state, events and their order, options, and channels."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.manage.cm.dialogue import PORT, connected, listening, message, resolved
from tests.manage.cm.world import Node, World
from verbena.manage.cm import (
    CmAddress,
    CmError,
    CmRefusal,
    CmState,
    IdState,
    JoinGroup,
    LeaveGroup,
    MadArrival,
    QpKind,
    QpMask,
    RdmaConnectionParameters,
    RdmaEvent,
    RdmaEventKind,
    ResolveAddress,
)
from verbena.manage.cm.identifier import ID_RULES, IdInput
from verbena.manage.cm.resolving import roce_flow_label, roce_mtu
from verbena.manage.cm_messages import CmDreq, CmRej, CmRep, CmReq, SidrRep
from verbena.manage.ip_cm import PortSpace
from verbena.manage.sa_records import PathRecord

E = RdmaEventKind


def kinds(events: list[RdmaEvent]) -> list[E]:
    return [event.kind for event in events]


def in_state(state: IdState) -> tuple[World, Node, int]:
    """An identifier in a state, of the first node."""
    world = World()
    client, server = world.nodes
    if state in (IdState.CONNECT, IdState.DISCONNECT):
        number, _ = connected(world)
        if state is IdState.DISCONNECT:
            client.rdma.disconnect(number)
            world.run()
            peer = world.take(server)[0].id
            server.rdma.disconnect(peer)
            world.run()
        return world, client, number
    if state is IdState.LISTEN:
        return world, client, listening(world, client)
    number = client.rdma.create_id(client.channel, PortSpace.TCP)
    if state is IdState.IDLE:
        return world, client, number
    client.rdma.bind(number, CmAddress.ip("0.0.0.0", 0))
    if state is IdState.ADDR_BOUND:
        return world, client, number
    client.rdma.resolve_address(number, CmAddress.ip(server.text, PORT))
    if state is IdState.ADDR_QUERY:
        return world, client, number
    world.run()
    if state is IdState.ADDR_RESOLVED:
        return world, client, number
    client.rdma.resolve_route(number)
    return world, client, number


CALLS: dict[IdInput, Callable[[Any, int], Any]] = {
    IdInput.BIND: lambda rdma, n: rdma.bind(n, CmAddress.ip("192.0.2.1")),
    IdInput.RESOLVE_ADDRESS: lambda rdma, n: rdma.resolve_address(
        n, CmAddress.ip("192.0.2.2", PORT)
    ),
    IdInput.RESOLVE_ROUTE: lambda rdma, n: rdma.resolve_route(n),
    IdInput.LISTEN: lambda rdma, n: rdma.listen(n),
    IdInput.CONNECT: lambda rdma, n: rdma.connect(n, RdmaConnectionParameters()),
    IdInput.SET_PATH: lambda rdma, n: rdma.set_option(n, 1, 1, path_data()),
}
BOUND_FIRST = {IdInput.RESOLVE_ADDRESS, IdInput.LISTEN}
REACHABLE = [
    *(IdState.IDLE, IdState.ADDR_BOUND, IdState.ADDR_QUERY, IdState.ADDR_RESOLVED),
    *(IdState.ROUTE_RESOLVED, IdState.CONNECT, IdState.DISCONNECT, IdState.LISTEN),
]


def path_data(flags: int = 0x2B) -> bytes:
    return flags.to_bytes(4, sys.byteorder) + bytes(4) + PathRecord(mtu=3, hop_limit=64).pack()


class TestStates:
    @pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
    @pytest.mark.parametrize("state", REACHABLE, ids=lambda state: state.name)
    def test_every_call_in_every_state(self, state: IdState, call: IdInput) -> None:
        _, node, number = in_state(state)
        assert node.rdma.id(number).state is state
        start = IdState.ADDR_BOUND if state is IdState.IDLE and call in BOUND_FIRST else state
        after = ID_RULES.get((start, call))
        if after is None:
            with pytest.raises(CmError) as caught:
                CALLS[call](node.rdma, number)
            assert caught.value.errno == errno.EINVAL
            assert node.rdma.id(number).state is state
        else:
            CALLS[call](node.rdma, number)
            # On RoCE the route is there at once.
            done = IdState.ROUTE_RESOLVED if after is IdState.ROUTE_QUERY else after
            assert node.rdma.id(number).state is done

    def test_without_an_identifier(self) -> None:
        rdma = World().nodes[0].rdma
        for call in CALLS.values():
            with pytest.raises(CmError) as caught:
                call(rdma, 7)
            assert caught.value.errno == errno.ENOENT

    def test_calls_that_need_a_connection(self) -> None:
        _, node, number = in_state(IdState.ROUTE_RESOLVED)
        calls = (
            lambda: node.rdma.accept(number, RdmaConnectionParameters()),
            lambda: node.rdma.reject(number),
            lambda: node.rdma.disconnect(number),
            lambda: node.rdma.notify(number, 4),
        )
        for call in calls:
            with pytest.raises(CmError) as caught:
                call()
            assert caught.value.errno == errno.EINVAL

    def test_disconnect_twice_is_no_error(self) -> None:
        world = World()
        number, _ = connected(world)
        client = world.nodes[0]
        client.rdma.disconnect(number)
        client.rdma.disconnect(number)
        assert len(client.rdma.take_datagrams()) == 1

    def test_refused_calls_leave_no_trace(self) -> None:
        world, node, number = in_state(IdState.IDLE)
        listening(world, node)
        with pytest.raises(CmError) as caught:
            node.rdma.bind(number, CmAddress.ip(node.text, PORT))
        assert caught.value.refusal is CmRefusal.WILDCARD_IN_USE
        made = node.rdma.id(number)
        assert (made.interface, made.source.is_zero, made.af_only) == (None, True, False)
        node.rdma.bind(number, CmAddress.ip("0.0.0.0"))
        with pytest.raises(CmError):
            node.rdma.resolve_address(number, CmAddress.ip("2001:db8::1", 1))
        assert made.destination is None

    def test_zero_timeout(self) -> None:
        _, node, number = in_state(IdState.ADDR_RESOLVED)
        with pytest.raises(CmError) as caught:
            node.rdma.resolve_route(number, 0)
        assert caught.value.refusal is CmRefusal.NO_TIMEOUT

    @pytest.mark.parametrize(("space", "most"), [(PortSpace.TCP, 56), (PortSpace.UDP, 180)])
    def test_private_data(self, space: int, most: int) -> None:
        world = World()
        client, server = world.nodes
        number = resolved(world, client, server, space=space)
        with pytest.raises(CmError) as caught:
            client.rdma.connect(number, RdmaConnectionParameters(private_data=bytes(most + 1)))
        assert caught.value.errno == errno.EINVAL
        assert client.rdma.id(number).state is IdState.ROUTE_RESOLVED
        client.rdma.connect(number, RdmaConnectionParameters(private_data=bytes(most)))

    def test_port_spaces(self) -> None:
        node = World().nodes[0]
        for space in (PortSpace.TCP, PortSpace.UDP, PortSpace.IPOIB, PortSpace.IB):
            node.rdma.create_id(node.channel, space)
        for space in (0, 0x105, 0x10000):
            with pytest.raises(CmError) as caught:
                node.rdma.create_id(node.channel, space)
            assert caught.value.errno == errno.EINVAL

    def test_failed_accept_rejects(self) -> None:
        world = World()
        client, server = world.nodes
        listening(world, server)
        number = resolved(world, client, server)
        client.rdma.connect(number, RdmaConnectionParameters(qpn=1))
        world.run()
        peer = world.take(server)[-1].id
        with pytest.raises(CmError):
            server.rdma.accept(peer, RdmaConnectionParameters(private_data=bytes(197)))
        world.run()
        assert kinds(world.take(client))[-1:] == [E.REJECTED]


class TestEvents:
    def test_order_of_a_connection(self) -> None:
        world = World()
        client, server = world.nodes
        listening(world, server)
        number = resolved(world, client, server)
        client.rdma.connect(number, RdmaConnectionParameters(qpn=1))
        world.run()
        server.rdma.accept(server.events[-1][1].id, RdmaConnectionParameters(qpn=2), context=9)
        world.run()
        client.rdma.accept(number)
        world.run()
        client.rdma.disconnect(number)
        world.run()
        server.rdma.disconnect(server.events[-1][1].id)
        world.run(3)
        assert kinds(world.take(client)) == [
            *(E.ADDR_RESOLVED, E.ROUTE_RESOLVED, E.CONNECT_RESPONSE),
            *(E.DISCONNECTED, E.TIMEWAIT_EXIT),
        ]
        events = world.take(server)
        assert kinds(events) == [
            *(E.CONNECT_REQUEST, E.ESTABLISHED, E.DISCONNECTED, E.TIMEWAIT_EXIT),
        ]
        assert [event.context for event in events] == [1, 9, 9, 9]
        assert server.rdma.destroy_id(events[1].id) == 3
        assert server.rdma.destroy_id(0) == 1
        assert client.rdma.destroy_id(number) == 5

    def test_both_disconnect_at_once(self) -> None:
        world = World()
        number, peer = connected(world)
        client, server = world.nodes
        client.rdma.disconnect(number)
        server.rdma.disconnect(peer)
        world.run(3)
        for node in (client, server):
            assert kinds(world.take(node)) == [E.DISCONNECTED, E.TIMEWAIT_EXIT]

    def test_peer_is_not_there(self) -> None:
        world = World()
        client, server = world.nodes
        number = resolved(world, client, server)
        world.nodes.remove(server)
        world.take(client)
        client.rdma.connect(number, RdmaConnectionParameters(qpn=1))
        world.run(98.2)
        assert world.take(client) == []
        world.run(0.2)
        (event,) = world.take(client)
        assert (event.kind, event.status) == (E.UNREACHABLE, -errno.ETIMEDOUT)

    def test_no_listener(self) -> None:
        world = World()
        client, server = world.nodes
        for space, kind, status in (
            (PortSpace.TCP, E.REJECTED, 8),
            (PortSpace.UDP, E.UNREACHABLE, 1),
        ):
            number = resolved(world, client, server, space=space)
            world.take(client)
            client.rdma.connect(number, RdmaConnectionParameters(qpn=1))
            world.run()
            (event,) = world.take(client)
            assert (event.kind, event.status) == (kind, status)

    def test_unknown_address(self) -> None:
        world = World()
        client = world.nodes[0]
        number = client.rdma.create_id(client.channel, PortSpace.TCP)
        client.rdma.resolve_address(number, CmAddress.ip("192.0.2.77", 1))
        world.run()
        (event,) = world.take(client)
        assert (event.kind, event.status) == (E.ADDR_ERROR, -errno.ETIMEDOUT)
        client.rdma.resolve_address(number, CmAddress.ip(world.nodes[1].text, 1))
        world.run()
        assert kinds(world.take(client)) == [E.ADDR_RESOLVED]

    def test_destination_without_a_route(self) -> None:
        """The call is refused, with the errno of the system, and the address stays bound."""
        world = World()
        client = world.nodes[0]
        gone = CmAddress.ip("192.0.2.77", 1)
        client.host.routeless[gone.host] = errno.EHOSTUNREACH
        number = client.rdma.create_id(client.channel, PortSpace.TCP)
        with pytest.raises(CmError) as caught:
            client.rdma.resolve_address(number, gone)
        assert caught.value.refusal is CmRefusal.NO_ROUTE
        assert caught.value.errno == errno.EHOSTUNREACH
        assert client.rdma.id(number).state is IdState.ADDR_BOUND
        assert client.rdma.take_requests() == []
        client.rdma.resolve_address(number, CmAddress.ip(world.nodes[1].text, 1))
        world.run()
        assert kinds(world.take(client)) == [E.ADDR_RESOLVED]

    def test_link_local_addresses_without_a_scope(self) -> None:
        """As by Linux 6.1: a source needs one; of a destination the routes choose the interface."""
        client = World().nodes[0]
        peer = CmAddress.ip("fe80::2", 1)
        number = client.rdma.create_id(client.channel, PortSpace.TCP)
        with pytest.raises(CmError) as caught:
            client.rdma.resolve_address(number, peer, CmAddress.ip("fe80::1"))
        assert caught.value.refusal is CmRefusal.NO_SCOPE
        assert caught.value.errno == errno.EINVAL
        assert client.rdma.id(number).state is IdState.IDLE
        client.rdma.resolve_address(number, peer)
        (asked,) = client.rdma.take_requests()
        assert isinstance(asked, ResolveAddress)
        assert asked.destination == peer

    def test_system_that_does_not_answer(self) -> None:
        client = World().nodes[0]
        number = client.rdma.create_id(client.channel, PortSpace.TCP)
        client.rdma.resolve_address(number, CmAddress.ip("192.0.2.77", 1), timeout_ms=700)
        (asked,) = client.rdma.take_requests()
        assert isinstance(asked, ResolveAddress)
        assert client.rdma.next_deadline() == pytest.approx(0.7)
        client.rdma.tick(0.7)
        event = client.rdma.read_event(client.channel)
        assert event is not None
        assert (event.kind, event.status) == (E.ADDR_ERROR, -errno.ETIMEDOUT)
        client.rdma.address_resolved(number, errno.EHOSTUNREACH)
        assert client.rdma.read_event(client.channel) is None
        assert client.rdma.next_deadline() is None

    def test_question_of_an_identifier_that_is_gone(self) -> None:
        client = World().nodes[0]
        number = client.rdma.create_id(client.channel, PortSpace.TCP)
        client.rdma.resolve_address(number, CmAddress.ip("192.0.2.77", 1), timeout_ms=700)
        client.rdma.destroy_id(number)
        assert client.rdma.next_deadline() is None
        assert client.rdma.create_id(client.channel, PortSpace.TCP) == number
        client.rdma.tick(0.7)
        assert client.rdma.read_event(client.channel) is None

    def test_late_path(self) -> None:
        world, node, number = in_state(IdState.CONNECT)
        node.rdma.path_resolved(number, -errno.ETIMEDOUT)
        node.rdma.path_resolved(number, PathRecord())
        node.rdma.path_resolved(77, PathRecord())
        world.run()
        assert world.take(node) == []
        assert node.rdma.id(number).state is IdState.CONNECT

    def test_nothing_is_told_of_what_nobody_accepted(self) -> None:
        world = World()
        client, server = world.nodes
        listening(world, server)
        number = resolved(world, client, server)
        client.rdma.connect(number, RdmaConnectionParameters(qpn=1))
        world.run()
        client.rdma.destroy_id(number)
        world.run()
        (event,) = world.take(server)
        assert event.kind is E.CONNECT_REQUEST
        with pytest.raises(CmError):
            server.rdma.accept(event.id, RdmaConnectionParameters(qpn=2))

    def test_written_by_the_program(self) -> None:
        _, node, number = in_state(IdState.IDLE)
        node.rdma.write_event(number, 18, status=3, argument=1 << 63)
        node.rdma.write_event(number, 19)
        event = node.rdma.read_event(node.channel)
        assert event is not None
        assert (event.kind, event.status, event.argument) == (E.USER, 3, 1 << 63)
        with pytest.raises(CmError) as caught:
            node.rdma.write_event(number, 9)
        assert caught.value.errno == errno.EINVAL

    def test_address_change(self) -> None:
        world = World()
        connected(world)
        client, server = world.nodes
        client.rdma.address_changed(client.address.gid)
        server.rdma.address_changed(client.address.gid)
        world.run()
        assert kinds(world.take(client)) == [E.ADDR_CHANGE]
        assert world.take(server) == []

    def test_failed_accept_leaves_the_context(self) -> None:
        world = World()
        client, server = world.nodes
        listening(world, server)
        number = resolved(world, client, server)
        client.rdma.connect(number, RdmaConnectionParameters(qpn=1))
        world.run()
        peer = world.take(server)[-1].id
        with pytest.raises(CmError):
            server.rdma.accept(peer, RdmaConnectionParameters(private_data=bytes(197)), 7)
        assert server.rdma.id(peer).context == 0

    def test_device_removal(self) -> None:
        world = World()
        number, peer = connected(world)
        client, server = world.nodes
        client.rdma.remove_device()
        server.rdma.disconnect(peer)
        world.run()
        assert kinds(world.take(client)) == [E.DEVICE_REMOVAL]
        assert client.rdma.id(number).state is IdState.DEVICE_REMOVAL


class TestDestroy:
    """DESTROY_ID by state, as Linux's cm_destroy_id."""

    def sent(self, node: Node, number: int) -> list[Any]:
        node.rdma.destroy_id(number)
        return [message(each) for each in node.rdma.take_datagrams()]

    def start(self) -> tuple[World, Node, Node, int]:
        world = World()
        client, server = world.nodes
        listening(world, server)
        number = resolved(world, client, server)
        client.rdma.connect(number, RdmaConnectionParameters(qpn=1))
        return world, client, server, number

    def test_req_sent(self) -> None:
        _, client, _, number = self.start()
        req, rej = self.sent(client, number)
        assert isinstance(req, CmReq)
        assert (rej.reason, rej.ari_length) == (4, 8)

    def test_req_received(self) -> None:
        world, _, server, _ = self.start()
        world.run()
        (rej,) = self.sent(server, world.take(server)[0].id)
        assert (rej.reason, rej.message) == (28, 0)

    def test_unread_requests_go_with_their_listener(self) -> None:
        world, client, server, _ = self.start()
        world.run()
        events = world.take(server)
        number = events[0].id
        server.rdma.reject(number)
        world.run()
        again = resolved(world, client, server)
        client.rdma.connect(again, RdmaConnectionParameters(qpn=5))
        for datagram in client.rdma.take_datagrams():
            arrival = world_arrival(world, datagram)
            server.rdma.receive(datagram.mad, arrival, world.now)
        assert server.rdma.pending(server.channel) == 1
        (rej,) = self.sent(server, 0)
        assert rej.reason == 28
        assert sorted(server.rdma._table.ids) == [number]

    def test_rep_received_and_sent(self) -> None:
        world, client, server, number = self.start()
        world.run()
        peer = world.take(server)[0].id
        server.rdma.accept(peer, RdmaConnectionParameters(qpn=2))
        world.run()
        assert [type(each) for each in self.sent(client, number)] == [CmRej]
        assert [each.reason for each in self.sent(server, peer)] == [28]

    def test_established(self) -> None:
        world = World()
        number, _ = connected(world)
        assert [type(each) for each in self.sent(world.nodes[0], number)] == [CmDreq]

    def test_datagrams(self) -> None:
        world = World()
        client, server = world.nodes
        listening(world, server, space=PortSpace.UDP)
        number = resolved(world, client, server, space=PortSpace.UDP)
        client.rdma.connect(number, RdmaConnectionParameters())
        world.run()
        (reply,) = self.sent(server, world.take(server)[0].id)
        assert (type(reply), reply.status) == (SidrRep, 2)

    def test_channel(self) -> None:
        world = World()
        connected(world)
        server = world.nodes[1]
        server.rdma.close_channel(server.channel)
        assert server.rdma._table.ids == {}
        with pytest.raises(CmError):
            server.rdma.read_event(server.channel)

    def test_numbers_are_the_lowest(self) -> None:
        node = World().nodes[0]
        numbers = [node.rdma.create_id(node.channel, PortSpace.TCP) for _ in range(5)]
        for number in (3, 1):
            node.rdma.destroy_id(number)
        assert numbers == [0, 1, 2, 3, 4]
        assert [node.rdma.create_id(node.channel, PortSpace.TCP) for _ in range(3)] == [1, 3, 5]


def world_arrival(world: World, datagram: Any) -> Any:
    return MadArrival(1, True, datagram.to.sgid, datagram.to.dgid)


class TestChannels:
    def test_migrate(self) -> None:
        world = World()
        node = world.nodes[0]
        first, second = (node.rdma.create_id(node.channel, PortSpace.TCP) for _ in range(2))
        other = node.rdma.open_channel()
        for number in (first, second, first):
            if node.rdma.id(number).state is IdState.IDLE:
                node.rdma.resolve_address(number, CmAddress.ip("192.0.2.2", PORT))
        for asked in node.rdma.take_requests():
            world.answer(node, asked)
        node.rdma.resolve_route(first)
        node.rdma.resolve_route(second)
        assert node.rdma.migrate(first, other) == 0
        found = [(e.id, e.kind) for e in iter(lambda: node.rdma.read_event(other), None)]
        assert found == [(first, E.ADDR_RESOLVED), (first, E.ROUTE_RESOLVED)]
        found = [(e.id, e.kind) for e in iter(lambda: node.rdma.read_event(node.channel), None)]
        assert found == [(second, E.ADDR_RESOLVED), (second, E.ROUTE_RESOLVED)]
        assert node.rdma.migrate(first, node.channel) == 2
        with pytest.raises(CmError):
            node.rdma.migrate(first, 77)

    def test_of_another_channel(self) -> None:
        _, node, number = in_state(IdState.IDLE)
        assert node.rdma.id_of(node.channel, number) is node.rdma.id(number)
        with pytest.raises(CmError) as caught:
            node.rdma.id_of(node.rdma.open_channel(), number)
        assert caught.value.refusal is CmRefusal.OTHER_CHANNEL

    def test_two_identifiers_of_one_host(self) -> None:
        world = World()
        node = world.nodes[0]
        listening(world, node)
        number = resolved(world, node, node)
        node.rdma.connect(number, RdmaConnectionParameters(qpn=1, private_data=b"self"))
        world.run()
        peer = world.take(node)[-1].id
        node.rdma.accept(peer, RdmaConnectionParameters(qpn=2))
        world.run()
        node.rdma.accept(number)
        world.run()
        assert kinds(world.take(node)) == [E.CONNECT_RESPONSE, E.ESTABLISHED]
        assert world.carried == []
        both = [node.rdma.id(each).connection for each in (number, peer)]
        assert all(each is not None and each.state is CmState.ESTABLISHED for each in both)

    def test_the_same_through_the_network(self) -> None:
        world = World(loops_back=False)
        node = world.nodes[0]
        listening(world, node)
        number = resolved(world, node, node)
        node.rdma.connect(number, RdmaConnectionParameters(qpn=1))
        world.run()
        node.rdma.accept(world.take(node)[-1].id, RdmaConnectionParameters(qpn=2))
        world.run()
        assert [type(message(mad)) for _, mad in world.carried] == [CmReq, CmRep]


class TestOptions:
    def test_lengths_and_names(self) -> None:
        _, node, number = in_state(IdState.IDLE)
        for level, name, value, code in (
            (0, 0, b"\1\2", errno.EINVAL),
            (0, 1, b"\1", errno.EINVAL),
            (0, 3, b"\1\0\0\0", errno.EINVAL),
            (0, 4, b"\1", errno.ENOSYS),
            (1, 2, b"", errno.ENOSYS),
            (2, 0, b"\1", errno.ENOSYS),
            (1, 1, bytes(71), errno.EINVAL),
            (1, 1, b"", errno.EINVAL),
            (1, 1, path_data(0x2A), errno.EINVAL),
        ):
            with pytest.raises(CmError) as caught:
                node.rdma.set_option(number, level, name, value)
            assert caught.value.errno == code

    def test_ack_timeout_reaches_both_sides(self) -> None:
        world = World()
        client, server = world.nodes
        listening(world, server)
        number = client.rdma.create_id(client.channel, PortSpace.TCP)
        client.rdma.set_option(number, 0, 3, bytes([21]))
        client.rdma.resolve_address(number, CmAddress.ip(server.text, PORT))
        world.run()
        client.rdma.resolve_route(number)
        client.rdma.connect(number, RdmaConnectionParameters(qpn=1))
        world.run()
        peer = world.take(server)[-1].id
        assert server.rdma.qp_attributes(peer, 3).timeout == 21
        server.rdma.accept(peer, RdmaConnectionParameters(qpn=2))
        world.run()
        assert client.rdma.qp_attributes(number, 3).timeout == 21

    def test_own_ack_timeout_of_the_listening_side(self) -> None:
        world = World()
        client, server = world.nodes
        listening(world, server)
        number = resolved(world, client, server)
        client.rdma.connect(number, RdmaConnectionParameters(qpn=1))
        world.run()
        peer = world.take(server)[-1].id
        assert server.rdma.qp_attributes(peer, 3).timeout == 19
        server.rdma.set_option(peer, 0, 3, bytes([12]))
        assert server.rdma.qp_attributes(peer, 3).timeout == 12

    def test_retries_are_capped(self) -> None:
        world = World()
        client, server = world.nodes
        number = resolved(world, client, server)
        wanted = RdmaConnectionParameters(qpn=1, retry_count=200, rnr_retry_count=9)
        client.rdma.connect(number, wanted)
        (sent,) = client.rdma.take_datagrams()
        assert (message(sent).retry_count, message(sent).rnr_retry_count) == (7, 7)

    def test_flow_label_of_the_address(self) -> None:
        world = World(("2001:db8::1", "2001:db8::2"))
        client, server = world.nodes
        number = client.rdma.create_id(client.channel, PortSpace.TCP)
        destination = replace(CmAddress.ip(server.text, PORT), flow_info=0xABCDE)
        client.rdma.resolve_address(number, destination)
        world.run()
        client.rdma.resolve_route(number)
        made = client.rdma.id(number).route
        assert made is not None
        assert made.flow_label == 0xABCDE

    def test_ack_timeout_is_not_for_datagrams(self) -> None:
        node = World().nodes[0]
        number = node.rdma.create_id(node.channel, PortSpace.UDP)
        with pytest.raises(CmError) as caught:
            node.rdma.set_option(number, 0, 3, bytes([21]))
        assert caught.value.refusal is CmRefusal.OPTION_QP_TYPE

    def test_tos(self) -> None:
        world = World()
        client, server = world.nodes
        number = client.rdma.create_id(client.channel, PortSpace.TCP)
        client.rdma.set_option(number, 0, 0, bytes([0x28]))
        client.rdma.resolve_address(number, CmAddress.ip(server.text, PORT))
        world.run()
        client.rdma.resolve_route(number)
        client.rdma.connect(number, RdmaConnectionParameters(qpn=1))
        (sent,) = client.rdma.take_datagrams()
        assert message(sent).primary.traffic_class == sent.to.traffic_class == 0x28

    def test_path(self) -> None:
        world, node, number = in_state(IdState.ADDR_RESOLVED)
        world.take(node)
        node.rdma.set_option(number, 1, 1, path_data(0) + path_data())
        world.run()
        assert kinds(world.take(node)) == [E.ROUTE_RESOLVED]
        assert node.rdma.id(number).state is IdState.ROUTE_RESOLVED

    def test_ece(self) -> None:
        world = World()
        client, server = world.nodes
        listening(world, server)
        number = resolved(world, client, server)
        client.rdma.connect(number, RdmaConnectionParameters(qpn=1), 0xABCDEF, 0x12345678)
        world.run()
        event = world.take(server)[-1]
        assert (event.vendor_id, event.options) == (0xABCDEF, 0x12345678)
        server.rdma.accept(event.id, RdmaConnectionParameters(qpn=2), 1, 0x15B3, 7)
        world.run()
        event = world.take(client)[-1]
        assert (event.kind, event.vendor_id, event.options) == (E.CONNECT_RESPONSE, 0x15B3, 7)


class TestQpAttributes:
    def test_before_the_exchange(self) -> None:
        _, node, number = in_state(IdState.ADDR_RESOLVED)
        made = node.rdma.qp_attributes(number, 1)
        wanted = QpMask.STATE | QpMask.PKEY_INDEX | QpMask.PORT | QpMask.ACCESS_FLAGS
        assert (made.mask, made.access, made.port) == (wanted, 0, 1)

    def test_without_a_device(self) -> None:
        _, node, number = in_state(IdState.ADDR_BOUND)
        with pytest.raises(CmError) as caught:
            node.rdma.qp_attributes(number, 1)
        assert caught.value.refusal is CmRefusal.NO_DEVICE_YET

    def test_between_req_and_rep(self) -> None:
        _, node, number = in_state(IdState.ROUTE_RESOLVED)
        node.rdma.connect(number, RdmaConnectionParameters(qpn=1, responder_resources=1))
        assert node.rdma.qp_attributes(number, 1).access == 2 | 4 | 8
        for target in (2, 3):
            with pytest.raises(CmError) as caught:
                node.rdma.qp_attributes(number, target)
            assert caught.value.errno == errno.EINVAL

    def test_psns_and_depths_fit_each_other(self) -> None:
        world = World()
        client, server = world.nodes
        listening(world, server)
        number = resolved(world, client, server)
        wanted = RdmaConnectionParameters(qpn=0x31, responder_resources=4, initiator_depth=2)
        client.rdma.connect(number, wanted)
        world.run()
        event = world.take(server)[-1]
        assert event.connection is not None
        asked = event.connection
        assert (asked.responder_resources, asked.initiator_depth) == (2, 4)
        answer = RdmaConnectionParameters(qpn=0x32, responder_resources=2, initiator_depth=3)
        server.rdma.accept(event.id, answer)
        world.run()
        ours = [client.rdma.qp_attributes(number, target) for target in (1, 2, 3)]
        theirs = [server.rdma.qp_attributes(event.id, target) for target in (1, 2, 3)]
        assert ours[1].rq_psn == theirs[2].sq_psn
        assert ours[2].sq_psn == theirs[1].rq_psn
        assert (ours[1].dest_qpn, theirs[1].dest_qpn) == (0x32, 0x31)
        assert ours[2].max_rd_atomic == theirs[1].max_dest_rd_atomic == 2
        assert theirs[2].max_rd_atomic == ours[1].max_dest_rd_atomic == 3
        assert ours[1].address is not None
        assert theirs[1].address is not None
        assert ours[1].address.dgid == theirs[1].address.sgid
        assert ours[1].path_mtu == theirs[1].path_mtu == 3
        assert ours[2].timeout == theirs[2].timeout == 19

    def test_datagrams(self) -> None:
        world = World()
        client, server = world.nodes
        number = resolved(world, client, server, space=PortSpace.UDP)
        made = client.rdma.qp_attributes(number, 1)
        assert (made.qkey, QpMask.QKEY in made.mask) == (0x01234567, True)

    def test_other_states_of_a_qp(self) -> None:
        world = World()
        number, _ = connected(world)
        with pytest.raises(CmError) as caught:
            world.nodes[0].rdma.qp_attributes(number, 4)
        assert caught.value.refusal is CmRefusal.QP_STATE

    def test_xrc(self) -> None:
        world = World()
        client, server = world.nodes
        server_id = server.rdma.create_id(server.channel, PortSpace.IB, QpKind.XRC_RECV)
        server.rdma.bind(server_id, CmAddress.ip("0.0.0.0", PORT))
        server.rdma.listen(server_id)
        number = client.rdma.create_id(client.channel, PortSpace.IB, QpKind.XRC_SEND)
        client.rdma.resolve_address(number, CmAddress.ip(server.text, PORT))
        world.run()
        client.rdma.resolve_route(number)
        client.rdma.connect(number, RdmaConnectionParameters(qpn=5, initiator_depth=2))
        world.run()
        peer = world.take(server)[-1].id
        server.rdma.accept(peer, RdmaConnectionParameters(qpn=6, responder_resources=2))
        world.run()
        assert kinds(world.take(client))[-1] is E.CONNECT_RESPONSE
        assert client.rdma.qp_attributes(number, 2).dest_qpn == 6
        assert QpMask.RETRY_CNT not in server.rdma.qp_attributes(peer, 3).mask


class TestDatagramsAndGroups:
    def test_resolution(self) -> None:
        world = World()
        client, server = world.nodes
        listening(world, server, space=PortSpace.UDP)
        number = resolved(world, client, server, space=PortSpace.UDP)
        world.take(client)
        client.rdma.connect(number, RdmaConnectionParameters(private_data=b"who"))
        world.run()
        (event,) = world.take(server)
        assert event.datagram is not None
        assert event.datagram.private_data == b"who".ljust(180, b"\0")
        server.rdma.accept(event.id, RdmaConnectionParameters(qpn=0x42, private_data=b"me"))
        world.run()
        (event,) = world.take(client)
        assert event.kind is E.ESTABLISHED
        assert event.datagram is not None
        assert (event.datagram.qpn, event.datagram.qkey) == (0x42, 0x01234567)
        assert event.datagram.private_data == b"me".ljust(136, b"\0")
        assert event.datagram.address is not None
        assert event.datagram.address.dgid == CmAddress.ip(server.text).gid
        client.rdma.disconnect(number)  # no error, as in Linux

    def test_another_qkey(self) -> None:
        world = World()
        client, server = world.nodes
        listening(world, server, space=PortSpace.UDP)
        number = resolved(world, client, server, space=PortSpace.UDP)
        client.rdma.qp_attributes(number, 1)  # sets the default
        world.take(client)
        client.rdma.connect(number, RdmaConnectionParameters())
        world.run()
        server.rdma.accept(world.take(server)[-1].id, RdmaConnectionParameters(qpn=1, qkey=5))
        world.run()
        (event,) = world.take(client)
        assert (event.kind, event.status) == (E.ADDR_ERROR, -errno.EINVAL)

    def test_full_backlog_rejects(self) -> None:
        world = World()
        client, server = world.nodes
        number = listening(world, server, space=PortSpace.UDP)
        server.rdma.id(number).backlog = 0
        number = resolved(world, client, server, space=PortSpace.UDP)
        client.rdma.connect(number, RdmaConnectionParameters())
        world.run()
        event = world.take(client)[-1]
        assert (event.kind, event.status) == (E.UNREACHABLE, 2)

    def group(self) -> tuple[World, Node, int]:
        world = World()
        node = world.nodes[0]
        number = node.rdma.create_id(node.channel, PortSpace.UDP)
        node.rdma.bind(number, CmAddress.ip(node.text))
        return world, node, number

    def test_join_and_leave(self) -> None:
        _, node, number = self.group()
        handle = node.rdma.join_multicast(number, CmAddress.ip("239.1.2.3"), context=55)
        (asked,) = node.rdma.take_requests()
        assert isinstance(asked, JoinGroup)
        assert (asked.mgid, asked.sends_igmp) == (CmAddress.ip("239.1.2.3").gid, True)
        node.rdma.group_joined(handle)
        node.rdma.group_joined(handle)
        event = node.rdma.read_event(node.channel)
        assert event is not None
        assert (event.kind, event.context, event.group) == (E.MULTICAST_JOIN, 55, handle)
        assert event.datagram is not None
        assert (event.datagram.qpn, event.datagram.qkey) == (0xFFFFFF, 0x01234567)
        assert event.datagram.address is not None
        assert event.datagram.address.hop_limit == 64
        assert node.rdma.read_event(node.channel) is None
        assert node.rdma.leave_multicast(handle) == 1
        assert [type(each) for each in node.rdma.take_requests()] == [LeaveGroup]
        assert node.rdma.destroy_id(number) == 1

    def test_failure(self) -> None:
        _, node, number = self.group()
        handle = node.rdma.join_multicast(number, CmAddress.ip("239.1.2.3"), flags=1)
        (asked,) = node.rdma.take_requests()
        assert isinstance(asked, JoinGroup)
        assert not asked.sends_igmp
        node.rdma.group_joined(handle, -errno.ENOMEM)
        event = node.rdma.read_event(node.channel)
        assert event is not None
        assert (event.kind, event.status) == (E.MULTICAST_ERROR, -errno.ENOMEM)

    def test_refusals(self) -> None:
        _, node, number = self.group()
        for address, flags, code in (
            (CmAddress.ip("ff0e::1"), 0, 524),
            (CmAddress.ip("0.0.0.0"), 0, errno.EINVAL),
            (CmAddress.ip("239.1.2.3"), 2, errno.EINVAL),
        ):
            with pytest.raises(CmError) as caught:
                node.rdma.join_multicast(number, address, flags=flags)
            assert caught.value.errno == code
        tcp = node.rdma.create_id(node.channel, PortSpace.TCP)
        node.rdma.bind(tcp, CmAddress.ip(node.text))
        with pytest.raises(CmError):
            node.rdma.join_multicast(tcp, CmAddress.ip("239.1.2.3"))
        idle = node.rdma.create_id(node.channel, PortSpace.UDP)
        with pytest.raises(CmError):
            node.rdma.join_multicast(idle, CmAddress.ip("239.1.2.3"))
        with pytest.raises(CmError):
            node.rdma.leave_multicast(3)

    def test_unread_event_goes_with_the_group(self) -> None:
        _, node, number = self.group()
        handle = node.rdma.join_multicast(number, CmAddress.ip("239.1.2.3"))
        node.rdma.group_joined(handle)
        assert node.rdma.leave_multicast(handle) == 0
        assert node.rdma.read_event(node.channel) is None

    def test_answer_that_comes_too_late(self) -> None:
        world, node, number = self.group()
        handle = node.rdma.join_multicast(number, CmAddress.ip("239.1.2.3"))
        node.rdma.take_requests()
        node.rdma.resolve_address(number, CmAddress.ip(world.nodes[1].text, PORT))
        node.rdma.group_joined(handle)
        assert node.rdma.read_event(node.channel) is None

    def test_groups_go_with_their_identifier(self) -> None:
        _, node, number = self.group()
        handle = node.rdma.join_multicast(number, CmAddress.ip("239.1.2.3"))
        node.rdma.group_joined(handle)
        node.rdma.take_requests()
        node.rdma.destroy_id(number)
        assert [type(each) for each in node.rdma.take_requests()] == [LeaveGroup]
        assert node.rdma.read_event(node.channel) is None
        node.rdma.group_joined(handle)


class TestNumbers:
    @pytest.mark.parametrize(
        ("mtu", "payload"),
        [(1500, 1024), (4200, 4096), (4191, 2048), (9000, 4096), (352, 256), (351, None)],
    )
    def test_mtu(self, mtu: int, payload: int | None) -> None:
        made = roce_mtu(mtu)
        assert (None if made is None else made.payload) == payload

    def test_flow_label_of_a_capture(self) -> None:
        assert roce_flow_label(0xB42A, 7174) == 0x5ED1C
