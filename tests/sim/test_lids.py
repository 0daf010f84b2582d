# SPDX-License-Identifier: Apache-2.0
"""LIDs and tables by DLID: who has which, paths of an LMC, tables that change, and captures."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verbena import fabrics, sim, verbs
from verbena.sim import World, build
from verbena.sim.doors import Mad
from verbena.wire.packet import Layer, Packet, icrc, parse

LINK: dict[str, Any] = {"rate": 100 * 10**9, "delay": 1_000_000}
LANE = {"flow": "credits", "room": 64 << 10}
SIZE = 1 << 20


def diamond(**keywords: Any) -> tuple[World, list[int], list[int]]:
    """Hosts 0 and 1 behind switches a and b, between which are two ways, by switches c and d."""
    world = World(framing="infiniband", **keywords)
    hosts = [world.add_host() for _ in range(2)]
    switches = [world.add_switch(4, lanes=[LANE], management=8192) for _ in range(4)]
    a, b, c, d = switches
    world.connect(hosts[0], 0, a, 1, **LINK)
    world.connect(hosts[1], 0, b, 1, **LINK)
    for way, middle in ((2, c), (3, d)):
        world.connect(a, way, middle, 1, **LINK)
        world.connect(middle, 2, b, way, **LINK)
    world.set_lids(hosts, [8, 12], lmc=2)
    for first, own in ((a, 0), (b, 1)):
        world.set_routes(first, np.where(np.arange(2) == own, 1, 2))
        world.set_routes(first, np.where(np.arange(2) == own, 1, 3), path=1)
    for middle in (c, d):
        world.set_routes(middle, [1, 2])
    return world, hosts, switches


def packets(world: World, node: int) -> int:
    links = world.links()
    return int(links["packets"][links["node"] == node].sum())


# ---- addresses ----


def test_hosts_have_lids_from_1_and_switches_none() -> None:
    world = World(framing="infiniband")
    hosts, switch = [world.add_host() for _ in range(3)], world.add_switch(4)
    assert [world.address(node).lid for node in hosts] == [1, 2, 3]
    assert world.address(switch).lid == 0
    assert list(world.address(switch).lids) == []
    assert world.address(0).gid == bytes.fromhex("fe80000000000000") + struct.pack(
        ">Q", world.address(0).guid
    )
    assert world.address(0).mac is None
    assert len({world.address(n).guid for n in range(4)}) == 4


def test_an_ethernet_port_has_a_mac_and_ip_addresses() -> None:
    world = World()
    world.add_host()
    found = world.address(world.add_host())
    assert found.ipv4 == IPv4Address("10.0.0.2")
    assert found.mac == bytes.fromhex("02000a000002")
    assert found.ipv6 == IPv6Address((0xFE80 << 112) | found.guid)
    assert found.lid == 0
    assert found.gid == bytes(10) + b"\xff\xff\x0a\0\0\2"


def test_lids_are_swapped_and_a_later_host_gets_a_free_one() -> None:
    world = World(framing="infiniband")
    for _ in range(3):
        world.add_host()
    world.set_lids([0, 1], [2, 1])
    world.set_lids(2, 4, lmc=1)
    assert [list(world.address(node).lids) for node in range(3)] == [[2], [1], [4, 5]]
    assert world.address(world.add_host()).lid == 3  # number 3, whose LID 4 is in use


@pytest.mark.parametrize(
    ("nodes", "lids", "lmc", "why"),
    [
        (0, 2, 0, "LID 2 is that of node 1"),
        (0, 6, 2, "LID 6 is no multiple of 4"),
        (0, 0, 0, "LID 0: unicast LIDs are 1 to 49151"),
        (0, 0xC000, 0, "LID 49152: unicast"),
        (0, 4, 8, "lmc is 8, and not a whole number from 0 to 7"),
        ([0, 1], [4], 0, "lists of one length"),
        (0, 1.5, 0, "whole numbers"),
        (4, 4, 0, "there is no node 4"),
        (3, 4, 1, "node 3 is a switch, whose port 0 has one LID"),
        (2, 9, 0, "node 2 is a host of Ethernet, which has no LID"),
        ([0, 3], [9, 9], 0, "LID 9 is that of node 0"),
    ],
)
def test_other_lids_are_refused_and_nothing_changes(
    nodes: Any, lids: Any, lmc: int, why: str
) -> None:
    world = World(framing="infiniband")
    for framing in ("infiniband", "infiniband", "ethernet"):
        world.add_host(framing)
    world.add_switch(2)
    with pytest.raises(ValueError, match=why):
        world.set_lids(nodes, lids, lmc)
    assert [world.address(node).lid for node in range(4)] == [1, 2, 0, 0]


def test_ethernet_alone_has_no_lids() -> None:
    world = World()
    world.add_host()
    with pytest.raises(ValueError, match="no InfiniBand host"):
        world.set_lids(0, 1)


def test_a_fabric_has_the_lids_of_its_tables() -> None:
    fabric = fabrics.ring(6, rate="100GbE", length_m=1)
    world = World(framing="infiniband")
    routes = fabrics.route(fabric, "minhop")
    build(world, routes)
    lids = [world.address(node).lid for node in range(world.nodes)]
    assert lids == [*routes.tables.lid.tolist(), *routes.tables.switch_lid.tolist()]
    table = np.frombuffer(world.linear_block(6, 0), np.uint8)
    assert table[0] == 255
    assert table[7] == 0
    assert (table[1:13] != 255).all()


def test_more_lids_than_a_subnet_has_are_refused_by_number() -> None:
    routes = fabrics.route(fabrics.ring(400, rate="100GbE", length_m=1), "minhop")
    with pytest.raises(ValueError, match="400 ports of hosts with 128 each and 400 switches need"):
        build(World(framing="infiniband"), [routes] * 128)


# ---- paths ----


@pytest.mark.parametrize(("path", "used"), [(0, 2), (1, 3), (2, 2), (5, 3)])
def test_a_path_of_the_lmc_takes_its_way_there_and_back(path: int, used: int) -> None:
    world, _, switches = diamond()
    world.add_flows(0, 1, SIZE, path=path)
    assert world.run() == "done"
    assert packets(world, switches[used]) > SIZE // 4096
    assert packets(world, switches[5 - used]) == 0


def test_two_paths_carry_more_than_one() -> None:
    def time(paths: list[int]) -> int:
        world = World(framing="infiniband")
        hosts = [world.add_host() for _ in range(4)]
        left, right = (world.add_switch(5, lanes=[LANE]) for _ in range(2))
        for host, switch, port in zip(hosts, (left, left, right, right), (1, 2, 1, 2), strict=True):
            world.connect(host, 0, switch, port, **LINK)
        for port in (3, 4):
            world.connect(left, port, right, port, **LINK)
        world.set_lids(hosts, [2, 4, 6, 8], lmc=1)
        for path, port in enumerate((3, 4)):
            world.set_routes(left, [1, 2, port, port], path)
            world.set_routes(right, [port, port, 1, 2], path)
        world.add_flows([0, 1], [2, 3], SIZE, path=paths)
        assert world.run() == "done"
        return int(world.flows()["finish"].max())

    assert time([0, 1]) < 0.6 * time([0, 0])


def test_routes_of_each_path_come_from_an_engine_of_their_own() -> None:
    fabric = fabrics.ring(4, rate="100GbE", length_m=1)
    one, other = (fabrics.route(fabric, engine) for engine in ("minhop", "dfsssp"))
    world = World(framing="infiniband")
    build(world, [one, other], {"lanes": [LANE]})
    assert [world.address(node).lmc for node in range(4)] == [1, 1, 1, 1]
    for switch in range(4):
        table = np.frombuffer(world.linear_block(4 + switch, 0), np.uint8)
        for host in range(4):
            lids = world.address(host).lids
            assert table[lids].tolist() == [one.out[switch, host], other.out[switch, host]]
    with pytest.raises(ValueError, match="there are 3 routes"):
        build(World(framing="infiniband"), [one, one, other])
    with pytest.raises(ValueError, match="only InfiniBand has"):
        build(World(), [one, other])
    another = fabrics.route(fabrics.ring(5, rate="100GbE", length_m=1), "minhop")
    with pytest.raises(ValueError, match="of different fabrics"):
        build(World(framing="infiniband"), [one, another])


def test_a_path_is_refused_where_it_cannot_be() -> None:
    world, _, switches = diamond()
    with pytest.raises(ValueError, match="flow 0: its path is above 127"):
        world.add_flows(0, 1, 1, path=128)
    with pytest.raises(ValueError, match="with a path each host has one port"):
        world.set_routes(switches[0], [[1, 2], [2, 3]], path=1)
    world.set_routes(switches[0], [1, -1], path=2)
    with pytest.raises(ValueError, match="no way leads from host 0 to host 1"):
        world.add_flows(0, 1, 1, path=2)


# ---- tables ----


def test_a_block_says_what_routes_set_and_is_set_itself() -> None:
    world, _, (a, *_) = diamond()
    table = world.linear_block(a, 0)
    assert table[:16] == bytes([255] * 8 + [1, 1, 1, 1, 2, 3, 2, 2])
    assert len(table) == 64
    assert world.linear_block(a, 767) == b"\xff" * 64
    changed = bytearray(table)
    changed[0], changed[13], changed[63] = 1, 2, 3
    world.set_linear_block(a, 0, bytes(changed))
    assert world.linear_block(a, 0)[12:14] == b"\2\2"
    assert world.linear_block(a, 0)[63] == 3
    assert world.linear_block(a, 0)[0] == 255  # LID 0 is nobody's
    world.set_linear_block(a, 767, [0] * 64)
    assert world.linear_block(a, 767) == bytes(64)
    assert world.linear_block(a, 700) == b"\xff" * 64


def test_a_block_that_is_rewritten_in_flight_moves_packets_or_drops_them() -> None:
    world, _, (a, _, c, d) = diamond()

    def rewrite(port: int) -> None:
        block = bytearray(world.linear_block(a, 0))
        block[12] = port
        world.set_linear_block(a, 0, block)

    world.add_flows(0, 1, SIZE, path=0)
    world.call_at(30_000_000, lambda _: rewrite(3))
    world.call_at(60_000_000, lambda _: rewrite(255))
    world.call_at(90_000_000, lambda _: rewrite(2))
    assert world.run() == "done"
    links = world.links()
    assert packets(world, c) > 50
    assert packets(world, d) > 50
    lost = links["dropped_route"][links["node"] == a].sum()
    assert lost > 50
    assert lost == links["dropped_route"].sum()
    assert world.flows()["state"][0] == 2
    assert world.flows()["resent"][0] >= lost


def test_a_packet_that_comes_to_a_wrong_host_is_not_taken() -> None:
    world, _, (a, b, *_) = diamond()
    world.add_flows(0, 1, SIZE)
    world.call_at(30_000_000, lambda _: world.set_lid_ports(a, 12, 1))
    assert world.run(until=200_000_000) == "time"
    assert packets(world, a) > packets(world, b) + 100
    assert world.flows()["done"][0] < SIZE
    assert world.flows()["state"][0] == 1


def test_multicast_masks_are_the_groups_ports() -> None:
    world = World(framing="infiniband")
    hosts, switch = [world.add_host() for _ in range(20)], world.add_switch(21)
    for host in hosts:
        world.connect(host, 0, switch, host + 1, **LINK)
    group = world.add_group([1, 18], {switch: [2, 19]})
    world.set_routes(switch, np.arange(20) + 1)
    assert world.multicast_block(switch, 0, 0)[group] == 1 << 2
    assert world.multicast_block(switch, 0, 1)[group] == 1 << 3
    world.add_flows(0, group, 4096, transport="ud", multicast=True)
    world.run()
    world.set_multicast_block(switch, 0, 1, [0] * 32)
    assert world.multicast_block(switch, 0, 0)[group] == 1 << 2
    world.add_flows(0, group, 4096, world.now, transport="ud", multicast=True)
    world.run()
    assert world.flows()["done"].tolist() == [2 * 4096, 4096]
    world.set_multicast_block(switch, 511, 0, [*[0] * 30, 5, 0])
    assert world.multicast_block(switch, 511, 0)[30] == 5


@pytest.mark.parametrize(
    ("call", "arguments", "why"),
    [
        ("set_linear_block", (2, 768, bytes(64)), "block is 768"),
        ("set_linear_block", (2, 0, bytes(63)), "not 64 ports"),
        ("set_linear_block", (2, 0, bytes([4]) * 64), "switch 2 has no port 4"),
        ("set_linear_block", (0, 0, bytes(64)), "node 0 is not a switch"),
        ("set_multicast_block", (2, 512, 0, [0] * 32), "block is 512"),
        ("set_multicast_block", (2, 0, 16, [0] * 32), "position is 16"),
        ("set_multicast_block", (2, 0, 0, [0] * 31), "masks are 31"),
        ("set_multicast_block", (2, 0, 0, [1 << 16] * 32), "a mask is 65536"),
        ("set_multicast_block", (2, 0, 0, [1 << 4] * 32), "mask 0: switch 2 has no port 4"),
        ("set_multicast_block", (2, 511, 0, [1] * 32), "0xffff is no multicast LID"),
        ("set_lid_ports", (2, [0xC000], [1]), "unicast LIDs"),
        ("set_lid_ports", (2, [1], [4]), "no port 4"),
        ("set_routes", (2, [1, 1], 128), "path is 128"),
    ],
)
def test_what_no_table_has_is_refused(call: str, arguments: tuple[Any, ...], why: str) -> None:
    world, *_ = diamond()
    with pytest.raises(ValueError, match=why):
        getattr(world, call)(*arguments)


# ---- what is seen of them ----


def frames(file: Path) -> list[Packet]:
    """Return the InfiniBand packets of a capture, whose records are of ERF, with right checks."""
    content, at, found = file.read_bytes(), 0, []
    while at < len(content):
        kind, length = struct.unpack_from("<II", content, at)
        if kind == 1:
            assert struct.unpack_from("<H", content, at + 8) == (197,)
        if kind == 6:
            (size,) = struct.unpack_from("<I", content, at + 20)
            record = content[at + 28 : at + 28 + size]
            assert record[8] == 21
            assert struct.unpack_from(">H", record, 10) == (size,)
            packet = parse(record[16:], Layer.IB)
            assert (packet.icrc, packet.vcrc) == (icrc(record[16:], Layer.IB), record[-2:])
            found.append(packet)
        at += length
    return found


def test_a_capture_has_the_lids_of_the_path(tmp_path: Path) -> None:
    world, hosts, _ = diamond()
    file = tmp_path / "x.pcapng"
    world.capture(hosts[0], 0, file)
    world.capture(hosts[1], 0, tmp_path / "y.pcapng")
    world.add_flows(0, 1, 8192, path=1, level=3, back_level=3)
    assert world.run() == "done"
    seen = frames(file)
    assert {(one.lrh.slid, one.lrh.dlid) for one in seen} == {(9, 13), (13, 9)}
    assert {one.lrh.sl for one in seen} == {3}
    assert {one.lrh.vl for one in seen} == {0}
    assert len(seen) == 4


def test_programs_see_the_lids_and_levels_of_datagrams() -> None:
    world, _hosts, _ = diamond()
    found = sim.Hosts(world)
    contexts, queues, memory = [], [], []
    for host in found:
        with host.here():
            ctx = verbs.open_device()
            pd = ctx.alloc_pd()
            qp = pd.create_qp(send_cq=ctx.create_cq(16), qp_type=verbs.QPType.UD)
            verbs.bring_up_ud(qp, qkey=7)
            contexts.append((ctx, pd))
            queues.append(qp)
            memory.append(pd.alloc(4096, verbs.AccessFlags.LOCAL_WRITE))
    port = contexts[1][0].query_port(1)
    assert (port.lid, port.lmc) == (12, 2)
    queues[1].recv(memory[1])
    ah = contexts[0][1].create_ah(is_global=False, dlid=15, sl=5, src_path_bits=2)
    with next(iter(found)).here():
        queues[0].send(memory[0], 0, 64, ah=ah, remote_qpn=queues[1].qp_num, remote_qkey=7)
    (wc,) = queues[1].recv_cq.wait(1, timeout=1)
    assert (wc.slid, wc.sl, wc.dlid_path_bits, wc.byte_len) == (10, 5, 3, 40 + 64)


def test_a_lid_in_flight_that_is_given_away_is_still_accounted_for() -> None:
    world, hosts, (a, *_) = diamond()
    world.add_flows(0, 1, SIZE, transport="ud")

    def move(world: World) -> None:
        world.set_lids(hosts, [16, 20], lmc=2)
        world.set_lid_ports(a, 12, -1)

    world.call_at(20_000_000, move)
    assert world.run() == "done"
    flow = world.flows()[0]
    assert flow["done"] + flow["lost"] == SIZE
    assert flow["lost"] > 0


def test_the_door_is_not_needed_for_data() -> None:
    world, hosts, _ = diamond()
    world.send_mad(hosts[0], Mad(bytes(256)))
    assert world.run() == "done"
    assert world.links()["dropped_route"].sum() == 1
