# SPDX-License-Identifier: Apache-2.0
"""Multicast: who gets a copy, what it costs on the links and in buffers; and VL15."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.sim.fabrics import LINK, MIB, MICROSECOND, chain, credits, finish, star
from verbena import fabrics
from verbena.sim import World, add_group, build

PACKET = 4096
SER, ACK = PACKET * 80, 64 * 80
PAUSES = {"flow": "pauses", "stop": 64 << 10, "go": 32 << 10, "spare": 64 << 10}


@pytest.mark.parametrize("switch", [{}, credits(64 << 10), {"lanes": [PAUSES]}, {"lanes": [{}]}])
def test_every_member_gets_each_packet_once(switch: dict[str, Any]) -> None:
    world = World(framing="bare")
    center = star(world, 6, **switch)
    group = world.add_group([1, 2, 4], {center: [1, 2, 4]})
    world.add_flows(0, group, 16 * PACKET, transport="ud", multicast=True)
    finish(world)
    flow = world.flows()[0]
    assert (flow["state"], flow["done"]) == (2, 3 * 16 * PACKET)
    assert flow["finish"] == 17 * SER + 2 * MICROSECOND
    got = [world.counters(host)["payload_received"] for host in range(6)]
    assert got == [0, 16 * PACKET, 16 * PACKET, 0, 16 * PACKET, 0]
    links = world.links()
    assert links["packets"][links["node"] == center].tolist() == [0, 16, 16, 0, 16, 0]
    assert world.packets == {"sent": 48, "delivered": 48, "dropped": 0}


def test_a_member_that_sends_gets_nothing_back() -> None:
    world = World(framing="bare")
    center = star(world, 4)
    group = world.add_group([0, 1, 2], {center: [0, 1, 2]})
    world.add_flows([0, 1], group, PACKET, transport="ud", multicast=True)
    finish(world)
    assert [world.counters(host)["payload_received"] // PACKET for host in range(4)] == [1, 1, 2, 0]


def test_a_tree_over_a_fabric_uses_each_link_once() -> None:
    fabric = fabrics.fat_tree(4, rate="100GbE", length_m=200)
    world = World(framing="bare")
    build(world, fabrics.route(fabric, "ftree"), credits(64 << 10))
    members = fabric.hosts[1:12:2]
    group = add_group(world, fabric, members)
    world.add_flows(0, group, 64 * PACKET, transport="ud", multicast=True)
    finish(world)
    received = [world.counters(host)["payload_received"] for host in range(world.hosts)]
    assert np.flatnonzero(received).tolist() == list(range(1, 12, 2))
    assert set(received) == {0, 64 * PACKET}
    packets = world.links()["packets"]
    assert set(packets) == {0, 64}
    # A tree: one link for each host and each switch but the root, and the sender's.
    assert (packets > 0).sum() < len(members) + 20


def test_room_is_kept_until_the_last_copy_has_left() -> None:
    """One member's link is taken by others: the sender is held to its pace, and nothing is lost."""
    world = World(framing="bare", window=MIB)
    center = star(world, 5, **credits(32 << 10))
    group = world.add_group([1, 2], {center: [1, 2]})
    world.add_flows([3, 4], 2, 4 * MIB)
    world.add_flows(0, group, 2 * MIB, transport="ud", multicast=True)
    inputs = world.sample(100_000, [(center, 0)])
    finish(world)
    flow = world.flows()[2]
    assert flow["done"] == 2 * 2 * MIB
    # A third of the link to host 2, though that to host 1 is free.
    assert float(flow["finish"]) == pytest.approx(3 * 2 * MIB * 80, rel=0.05)
    assert 24 << 10 <= inputs.data["held"].max() <= 32 << 10
    assert world.links()["queued_max"].max() <= 3 * (32 << 10)


def test_lost_copies_are_lost_for_one_member() -> None:
    world = World(framing="bare", seed=2)
    center = star(world, 5, buffer=8 * PACKET)
    group = world.add_group([1, 2], {center: [1, 2]})
    world.add_flows([3, 4], 2, MIB, transport="ud")
    world.add_flows(0, group, MIB, transport="ud", multicast=True)
    finish(world)
    assert world.counters(1)["payload_received"] == MIB
    dropped = int(world.links()["dropped_full"].sum())
    assert dropped > 100
    assert world.flows()["done"].sum() == 4 * MIB - dropped * PACKET


def test_trees_that_lead_nowhere_or_round_are_refused() -> None:
    world = World()
    left, right, last = (world.add_switch(3) for _ in range(3))
    for node in (left, right, last):
        world.connect(world.add_host(), 0, node, 0, **LINK)
    for one, port, other, at in ((left, 1, right, 2), (right, 1, last, 2), (last, 1, left, 2)):
        world.connect(one, port, other, at, **LINK)
    empty = world.add_group([1], {})
    round_ = world.add_group([0, 1, 2], {node: [0, 1, 2] for node in (left, right, last)})
    for group, why in ((empty, "no way leads"), (round_, "the routes go round")):
        with pytest.raises(ValueError, match=f"flow 0: {why} from host 0 to group {group}"):
            world.add_flows(0, group, 1, transport="ud", multicast=True)


@pytest.mark.parametrize(
    ("members", "ports", "message"),
    [
        ([], {0: [1]}, "a group has members"),
        ([1, 1], {0: [1]}, "each of them once"),
        ([7], {0: [1]}, "there is no host 7"),
        ([1], {1: [0]}, "node 1 is not a switch"),
        ([1], {0: [9]}, "there is no port 9 of node 0"),
    ],
)
def test_groups_that_cannot_be_are_refused(
    members: list[int], ports: dict[int, list[int]], message: str
) -> None:
    world = World()
    star(world, 3)
    with pytest.raises(ValueError, match=message):
        world.add_group(members, ports)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"transport": "rc"}, "flow 0: only UD goes to groups"),
        ({"target": 1}, "flow 0: there is no such group"),
    ],
)
def test_flows_to_groups_that_cannot_be_are_refused(given: dict[str, Any], message: str) -> None:
    world = World()
    center = star(world, 3)
    world.add_group([1], {center: [1]})
    flow = {"source": 0, "target": 0, "size": 1, "transport": "ud", "multicast": True, **given}
    with pytest.raises(ValueError, match=message):
        world.add_flows(**flow)


# ---- VL15 -------------------------------------------------------------------------------------


def managed(management: int) -> World:
    """Two hosts send to a third, and have used up their credits; one has management packets too."""
    world = World(framing="infiniband", mtu=256, window=MIB, ack_bytes=1 << 16)
    star(world, 4, management=management, **credits(16 << 10))
    world.add_flows([0, 1], 3, MIB)
    start = 20 * MICROSECOND + np.arange(64) * 200_000
    world.add_flows(0, 3, 256, start, transport="ud", management=True)
    return world


def test_management_packets_wait_for_no_credits_and_for_no_other_lane() -> None:
    world = finish(managed(64 << 10))
    flows = world.flows()[2:]
    assert (flows["done"] == 256).all()
    took = flows["finish"].astype(np.int64) - flows["start"].astype(np.int64)
    frame = (256 + 20 + 14) * 80
    # On each of two links at most one packet of data that is being sent when it comes.
    assert took.max() <= 2 * MICROSECOND + 2 * frame + 2 * (256 + 28 + 14) * 80
    assert world.links()["stalled"].max() > 20 * MICROSECOND


def test_vl15_loses_what_does_not_fit() -> None:
    world = World(framing="infiniband", mtu=256)
    star(world, 4, management=1024, **credits(16 << 10))
    world.add_flows([0, 1, 2], 3, 64 * 256, transport="ud", management=True)
    finish(world)
    dropped = int(world.links()["dropped_full"].sum())
    assert dropped > 50
    assert world.flows()["done"].sum() == (3 * 64 - dropped) * 256
    assert world.links()["queued_max"].max() <= 1024 + 290


def test_vl15_is_where_it_can_be() -> None:
    for given in ({"management": 1024}, {"management": 1024, "lanes": [{}] * 16}):
        with pytest.raises(ValueError, match="VL15 comes behind 1 to 15 lanes"):
            World().add_switch(2, **given)
    world = World()
    chain(world, [1, 1])
    with pytest.raises(ValueError, match="flow 0: management is UD"):
        world.add_flows(0, 1, 1, management=True)


@pytest.mark.parametrize(("framing", "adds"), [("infiniband", 40), ("ethernet", 0), ("bare", 0)])
def test_a_packet_for_a_group_has_a_global_routing_header(framing: str, adds: int) -> None:
    """IBA: multicast always has one on InfiniBand; a datagram for one host of the subnet none."""
    took = []
    for multicast in (False, True):
        world = World(framing=framing)
        center = star(world, 3)
        group = world.add_group([1], {center: [1]})
        target = group if multicast else 1
        world.add_flows(0, target, 4 * 64, message=64, transport="ud", multicast=multicast)
        finish(world)
        took.append(world.links()["bytes"][world.links()["packets"] == 4].tolist())
    assert [len(links) for links in took] == [2, 2]
    assert [b - a for a, b in zip(*took, strict=True)] == [4 * adds] * 2
