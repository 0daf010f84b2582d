# SPDX-License-Identifier: Apache-2.0
"""Agents of single nodes: hop by hop they do what a subnet computes at once; simulated nodes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings, strategies

from tests.manage.agents.managing import explore
from tests.manage.agents.small_subnets import managed, two_switches
from verbena import fabrics
from verbena.manage import MadError
from verbena.manage.agents import Drop, MadPacket, NodeAgent, Subnet, subnet_of_fabric
from verbena.manage.agents.directed_routes import (
    arrive_by_route,
    leave_by_route,
    return_by_route,
)
from verbena.manage.attribute_ids import Method
from verbena.manage.mad import DirectedSmp, LidRoutedSmp
from verbena.manage.smp_attributes import NodeInfo
from verbena.sim import World, build, doors

paths = strategies.lists(strategies.integers(0, 5), max_size=8).map(tuple)


def hop_by_hop(subnet: Subnet, host: str, packet: MadPacket) -> list[MadPacket]:
    """Carry a packet from node to node until it is lost, or a program of a node gets it."""
    received: list[MadPacket] = []
    for node in subnet.nodes.values():
        subnet.attach(node, received.append)
    moving = [(subnet.nodes[host], each) for each in subnet.nodes[host].send(packet, 0.0)]
    for _ in range(200):
        if not moving:
            return received
        node, each = moving.pop()
        port = node.ports.get(each.port)
        if port is None or port.peer is None or not port.is_up:
            continue
        there = port.peer.node
        arrived = each._replace(port=port.peer.number)
        moving += [(there, onward) for onward in there.receive(arrived, 0.0)]
    raise AssertionError("it does not end")


@settings(max_examples=150, deadline=None)
@given(path=paths, attribute=strategies.sampled_from((0x10, 0x11, 0x12, 0x15, 0x19)))
def test_a_subnet_computes_what_nodes_do_hop_by_hop(path: tuple[int, ...], attribute: int) -> None:
    smp = DirectedSmp(attribute_id=attribute, transaction_id=7).along(path)
    received = hop_by_hop(two_switches(), "h1", MadPacket(smp.pack()))
    at_once = two_switches().ask("h1", smp)
    assert [packet.mad for packet in received] == ([at_once.pack()] if at_once else [])


@settings(max_examples=200, deadline=None)
@given(
    path=strategies.lists(strategies.integers(0, 9), max_size=5),
    pointer=strategies.integers(0, 7),
    returning=strategies.booleans(),
    port=strategies.integers(1, 9),
    switch=strategies.booleans(),
)
def test_the_rules_are_those_of_simulated_nodes(
    path: list[int], pointer: int, returning: bool, port: int, switch: bool
) -> None:
    mad = DirectedSmp(
        hop_pointer=pointer, status=0x8000 * returning, return_path=bytes((0, *path[::-1]))
    ).along(path)
    theirs = doors.arrive(doors.Mad(mad.pack(), port), switch=switch)
    ours = arrive_by_route(mad.pack(), port, switch=switch)
    assert (theirs and (theirs.port, theirs.mad)) == ours
    try:
        left = doors.leave(mad.pack())
    except ValueError:
        assert leave_by_route(mad.pack()) in (None, (0, mad.pack()))
    else:
        if left.port and not returning:
            assert leave_by_route(mad.pack()) == (left.port, left.mad)


def test_a_response_leaves_by_the_way_of_its_request() -> None:
    asked = arrive_by_route(
        DirectedSmp(hop_pointer=2, return_path=bytes((0, 4))).along((1, 2)).pack(), 7, switch=True
    )
    assert asked is not None
    assert asked[0] == 0
    response = DirectedSmp.unpack(asked[1]).response()
    back = return_by_route(response.pack())
    assert back is not None
    assert (back[0], back[1][6]) == (7, 2)
    assert return_by_route(response.replace(hop_pointer=2).pack()) is None


def test_a_program_of_a_node_asks_its_own_agent() -> None:
    subnet = two_switches()
    node, received = subnet.nodes["s1"], []
    subnet.attach(node, received.append)
    smp = DirectedSmp(attribute_id=0x11)
    assert node.send(MadPacket(smp.pack(), 0), 0.0) == []
    assert DirectedSmp.unpack(received[0].mad).attribute(NodeInfo).node_guid == node.guid
    by_lid = MadPacket(LidRoutedSmp(attribute_id=0x11).pack(), 0, 7)
    assert node.send(by_lid, 0.0) == [by_lid]
    impossible = smp.replace(hop_pointer=3).along((1,))
    assert node.send(MadPacket(impossible.pack(), 0), 0.0) == []
    assert node.drops == {Drop.ROUTE_INVALID: 1}


def test_asking_within_a_receiver_is_refused() -> None:
    subnet = two_switches()

    def program(packet: MadPacket) -> None:
        subnet.ask("h1", DirectedSmp(attribute_id=0x11))

    subnet.attach("h1", program)
    with pytest.raises(MadError, match="receiver"):
        subnet.inject("h1", DirectedSmp(attribute_id=0x11).along((1,)))


def test_simulated_nodes_answer_by_their_agents() -> None:
    """``World.serve`` gives packets to a node's agent, and a host explores what there is."""
    fabric = fabrics.xgft([2, 2], [1, 2], rate="4xEDR", length_m=5)
    twins = subnet_of_fabric(fabric)
    world = World(framing="infiniband")
    switches = {"management": 8192, "lanes": [{"flow": "credits", "room": 64 << 10}]}
    build(world, fabrics.route(fabric), switches)
    by_guid = {node.guid: node for node in twins.nodes.values()}
    found: dict[int, NodeInfo] = {}

    def to_mad(packet: MadPacket) -> doors.Mad:
        return doors.Mad(*packet[:5], source_qp=packet.source_qp, sl=packet.sl, pkey=packet.p_key)

    def serve(world: World, node: int, mad: doors.Mad) -> list[doors.Mad]:
        agent = agents[node]
        packet = MadPacket(mad.mad, mad.port, mad.dlid, mad.slid, mad.qp)
        return [to_mad(each) for each in agent.receive(packet, 0.0)]

    agents: list[NodeAgent] = [
        by_guid[fabric.guid(name)] for name in (*fabric.hosts, *fabric.switches)
    ]
    for node in range(world.nodes):
        world.serve(node, serve)
    explorer = agents[0]

    def ask(*path: int) -> None:
        smp = DirectedSmp(attribute_id=0x11).along(path)
        for packet in explorer.send(MadPacket(smp.pack()), 0.0):
            world.send_mad(0, to_mad(packet))

    def answered(packet: MadPacket) -> None:
        smp = DirectedSmp.unpack(packet.mad)
        info = smp.attribute(NodeInfo)
        if info.node_guid not in found:
            found[info.node_guid] = info
            for port in range(1, info.num_ports + 1) if info.node_type == 2 else ():
                ask(*smp.path, port)

    explorer.receivers[1] = answered
    ask(1)
    world.run()
    assert set(found) == {fabric.guid(name) for name in fabric.graph}
    assert set(explore(twins, fabric.hosts[0])) == set(found)


REAL = [DirectedSmp(attribute_id=attribute).along((1, 3)) for attribute in range(0x10, 0x20)]


@settings(max_examples=300, deadline=None)
@given(mad=strategies.binary(min_size=250, max_size=260), qp=strategies.integers(0, 1))
def test_random_bytes_do_no_harm(mad: bytes, qp: int) -> None:
    fuzzed(mad, qp)


@settings(max_examples=300, deadline=None)
@given(seed=strategies.integers(0, 1 << 32))
def test_changed_packets_do_no_harm(seed: int) -> None:
    drawn = random.Random(seed)
    mad = bytearray(drawn.choice(REAL).pack())
    mad[1] = drawn.choice((0x01, 0x81, 0x81, 0x81, 0x03, 0x04, 0x32, 0x33, 0x07))
    mad[3] = drawn.choice((1, 2, 2, 2, 3, 5, 7, 0x81, 0x12, drawn.randrange(256)))
    for _ in range(drawn.randrange(8)):
        mad[drawn.randrange(256)] = drawn.randrange(256)
    if drawn.random() < 0.5:
        mad[64:128] = drawn.randbytes(64)
    fuzzed(bytes(mad), int(mad[1] not in (0x01, 0x81)))


SUBNET, LIDS, PROGRAM = managed()


def fuzzed(mad: bytes, qp: int) -> None:
    """A packet is answered, or counted as lost, or it is a TrapRepress, and nothing is raised."""
    repressed = mad[3:4] == bytes([Method.TRAP_REPRESS])
    for dlid in (0xFFFF, LIDS["h3"], LIDS["s2"]):
        before = lost(SUBNET)
        PROGRAM.packets.clear()
        packet = MadPacket(mad, 1, dlid, LIDS["h1"], qp, qp, q_key=0x80010000 * qp)
        SUBNET.inject("h1", packet)
        assert PROGRAM.packets or lost(SUBNET) > before or repressed
        before = lost(SUBNET)
        sent = SUBNET.nodes["h2"].receive(packet, 0.0)
        assert sent or lost(SUBNET) > before or repressed
        assert all(len(each.mad) == 256 for each in [*sent, *PROGRAM.packets])


def lost(subnet: Subnet) -> int:
    here = sum(subnet.drops.values())
    return here + sum(sum(node.drops.values()) for node in subnet.nodes.values())


def test_a_packet_that_is_no_mad_is_counted() -> None:
    subnet = two_switches()
    subnet.inject("h1", b"")
    subnet.inject("h1", bytes(256))
    assert subnet.drops == {Drop.NO_MAD: 2}
    short = DirectedSmp(attribute_id=0x11, hop_pointer=1).along((1,)).pack()[:255]
    assert subnet.nodes["s1"].receive(MadPacket(short), 0.0) == []
    assert subnet.nodes["s1"].send(MadPacket(bytes(255)), 0.0) == []
    assert subnet.nodes["s1"].drops == {Drop.NO_MAD: 2}
