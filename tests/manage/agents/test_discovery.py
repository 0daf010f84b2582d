# SPDX-License-Identifier: Apache-2.0
"""A subnet manager finds, configures and activates a subnet of agents."""

from __future__ import annotations

import itertools

import pytest

from tests.manage.agents.managing import bring_up, explore, get, node_of
from verbena import fabrics
from verbena.manage.agents import Drop, RouteHop, Subnet, subnet_of_fabric, subnet_of_text
from verbena.manage.codes import PortState
from verbena.manage.smp_attributes import NodeDescription

FABRICS = {
    "pair": fabrics.pair(),
    "star": fabrics.one_switch(5),
    "tree": fabrics.xgft([3, 4], [1, 2]),
    "torus": fabrics.torus([3, 3], 1),
    "dragonfly": fabrics.dragonfly(2, 1, 1),
}
of_each = pytest.mark.parametrize("fabric", FABRICS.values(), ids=FABRICS)


def made(fabric: fabrics.Fabric) -> tuple[Subnet, str]:
    return subnet_of_fabric(fabric), fabric.hosts[0]


@of_each
def test_every_node_is_found(fabric: fabrics.Fabric) -> None:
    subnet, host = made(fabric)
    found = explore(subnet, host)
    assert set(found) == {fabric.guid(name) for name in fabric.graph}
    for guid, node in found.items():
        assert get(subnet, host, NodeDescription, node.path).name == node_of(subnet, guid).name
        for port, (peer, peer_port) in node.peers.items():
            cable = fabric.cable(node_of(subnet, guid).name, port)
            assert cable is not None
            ends = {(fabric.guid(cable.a), cable.a_port), (fabric.guid(cable.b), cable.b_port)}
            assert ends == {(guid, port), (peer, peer_port)}


@of_each
def test_every_pair_has_a_path_once_it_is_configured(fabric: fabrics.Fabric) -> None:
    subnet, host = made(fabric)
    ends = [subnet.nodes[name].ports[1] for name in fabric.hosts]
    assert subnet.path(1, 2).problem is Drop.NO_SOURCE
    lids = bring_up(subnet, host)
    assert all(end.state == PortState.ACTIVE for end in ends)
    for one in lids.values():
        for other in lids.values():
            route = subnet.path(one, other)
            assert route.arrives, str(route)
            assert route.end is not None
            assert route.end.lid == other
            follow(subnet, route.hops, other)


def follow(subnet: Subnet, hops: list[RouteHop], dlid: int) -> None:
    """The hops are what the switches' tables and the cables say."""
    for hop, behind in itertools.pairwise(hops):
        assert hop.output_port is not None
        if hop.node.forwarding:
            assert hop.node.forwarding.output_port(dlid) == hop.output_port
        peer = hop.node.ports[hop.output_port].peer
        assert peer is not None
        assert (peer.node, peer.number) == (behind.node, behind.input_port)


def test_a_topology_file_of_ibsim() -> None:
    text = """
switchguids=0x10
Switch 4 "S-0000000000000010"
[1] "H-0000000000000020"[1]

caguids=0x20
Hca 2 "H-0000000000000020"
[1] "S-0000000000000010"[1]
"""
    subnet = subnet_of_text(text)
    assert {node.guid for node in subnet.nodes.values()} == {0x10, 0x20}
    assert subnet.nodes["H-0000000000000020"].ports[1].guid == 0x21
    assert len(explore(subnet, "H-0000000000000020")) == 2
