# SPDX-License-Identifier: Apache-2.0
"""Ways of packets: by the tables, directed, both together, and to multicast groups."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.manage.agents.managing import ask, bring_up, change, explore, get, put
from tests.manage.agents.small_subnets import managed, two_switches
from verbena import fabrics
from verbena.manage import MadError
from verbena.manage.agents import (
    ENHANCED_SWITCH,
    Drop,
    MadPacket,
    MulticastRoute,
    Subnet,
    subnet_of_fabric,
)
from verbena.manage.codes import PortState
from verbena.manage.mad import DirectedSmp, LidRoutedSmp, PerformanceMad
from verbena.manage.smp_attributes import (
    LinearForwardingTable,
    MulticastForwardingTable,
    NodeInfo,
    PKeyTable,
    PortInfo,
    SlToVlTable,
    SwitchInfo,
)

S1, S2 = (1,), (1, 3)


def table(subnet: Subnet, switch: tuple[int, ...], lid: int, port: int) -> None:
    """Set one entry of a switch's table."""
    ports = bytearray(get(subnet, "h1", LinearForwardingTable, switch).ports)
    ports[lid] = port
    assert put(subnet, "h1", LinearForwardingTable(ports=ports), switch) == 0


def top(subnet: Subnet, lid: int) -> None:
    info = get(subnet, "h1", SwitchInfo, S1)
    assert put(subnet, "h1", info.replace(linear_fdb_top=lid), S1) == 0


def keys(subnet: Subnet, path: tuple[int, ...], *p_keys: int) -> None:
    table = PKeyTable(p_keys=p_keys + (0,) * (32 - len(p_keys)))
    assert put(subnet, "h1", table, path) == 0


def down(subnet: Subnet, path: tuple[int, ...], port: int, states: int) -> None:
    """Let a link train again and set some states of the port."""
    change(subnet, "h1", path, port, port_state=PortState.DOWN)
    for state in range(PortState.ARMED, PortState.ARMED + states):
        change(subnet, "h1", path, port, port_state=state)


def lanes(subnet: Subnet, path: tuple[int, ...], modifier: int) -> None:
    assert put(subnet, "h1", SlToVlTable(vls=(0, 15) + (1,) * 14), path, modifier) == 0


# What is changed, the reason of the problem, and where it is: node and port. h3 has LID 5.
PROBLEMS: list[tuple[str, Callable[[Subnet], Any], Drop, tuple[str, int]]] = [
    ("no entry", lambda s: table(s, S1, 5, 255), Drop.NO_PATH, ("s1", 1)),
    ("no such port", lambda s: table(s, S2, 5, 9), Drop.NO_PATH, ("s2", 3)),
    ("above the top", lambda s: top(s, 4), Drop.NO_PATH, ("s1", 1)),
    ("back", lambda s: table(s, S2, 5, 3), Drop.LOOP, ("s2", 3)),
    ("to the switch", lambda s: table(s, S2, 5, 0), Drop.WRONG_PORT, ("s2", 0)),
    ("to another host", lambda s: table(s, S1, 5, 2), Drop.WRONG_PORT, ("h2", 1)),
    ("unplugged", lambda s: table(s, S2, 5, 4), Drop.LINK_DOWN, ("s2", 4)),
    ("only INIT", lambda s: down(s, S1, 3, 0), Drop.PORT_NOT_ACTIVE, ("s1", 3)),
    ("only ARMED", lambda s: down(s, S1, 3, 1), Drop.PORT_NOT_ACTIVE, ("s1", 3)),
    ("other end INIT", lambda s: down(s, S1, 3, 2), Drop.PORT_NOT_ACTIVE, ("s2", 3)),
    ("lane 15", lambda s: lanes(s, S1, 1 << 8 | 3), Drop.VL_15, ("s1", 3)),
    ("own lane 15", lambda s: lanes(s, (), 0), Drop.VL_15, ("h1", 1)),
    ("no P_Key here", lambda s: keys(s, (), 0x8001), Drop.P_KEY, ("h1", 1)),
    ("no P_Key there", lambda s: keys(s, (1, 3, 1), 0x8001), Drop.P_KEY, ("h3", 1)),
]


@pytest.mark.parametrize(
    ("spoil", "problem", "where"), [row[1:] for row in PROBLEMS], ids=[row[0] for row in PROBLEMS]
)
def test_problems(spoil: Callable[[Subnet], Any], problem: Drop, where: tuple[str, int]) -> None:
    subnet, lids, _ = managed()
    route = subnet.path(lids["h1"], lids["h3"], sl=1)
    assert route.arrives
    assert str(route) == "h1[1] s1[1>3] s2[3>1] h3[1]"
    assert route.lanes == [1, 1, 1]
    assert subnet.path(lids["h1"], lids["h3"], sl=10).lanes == [2, 2, 2]
    assert subnet.ask("h1", PerformanceMad(attribute_id=1), dlid=lids["h3"], sl=1) is not None
    spoil(subnet)
    route = subnet.path(lids["h1"], lids["h3"], sl=1)
    assert not route.arrives
    assert route.problem is problem
    assert route.at is not None
    assert (route.at.node.name, route.at.number) == where
    assert problem.value in str(route)
    before = subnet.drops[problem] + subnet.nodes["h3"].drops[problem]
    request = PerformanceMad(attribute_id=1)
    assert (subnet.ask("h1", request, dlid=lids["h3"], sl=1) is None) or problem is Drop.P_KEY
    if problem is not Drop.P_KEY:
        assert subnet.drops[problem] + subnet.nodes["h3"].drops[problem] == before + 1


def test_no_source_and_no_destination() -> None:
    subnet, lids, _ = managed()
    subnet.inject("s1", MadPacket(LidRoutedSmp(attribute_id=0x11).pack(), 1, lids["h1"]))
    assert subnet.drops == {Drop.NO_SOURCE: 1}  # of a switch port 0 alone sends
    assert subnet.path(99, lids["h1"]).problem is Drop.NO_SOURCE
    assert subnet.path(lids["h1"], 99).problem is Drop.NO_LID
    assert subnet.path(lids["h1"], 0xFFFF).problem is Drop.NO_LID
    assert subnet.path(0, lids["h1"]).problem is Drop.NO_SOURCE
    assert not two_switches().nodes["h1"].ports[1].has_lid(0)
    with pytest.raises(MadError, match="LID 99"):
        subnet.carry(99, 1, packets=1, words=1)


def test_a_packet_that_goes_in_a_circle() -> None:
    subnet = Subnet()
    for name in "abc":
        subnet.add_switch(name, ports=3)
    subnet.add_adapter("h")
    subnet.connect("h", 1, "a", 3)
    for one, other in ("ab", "bc", "ca"):
        subnet.connect(one, 1, other, 2)
    for number, name in enumerate("habc", 1):
        node = subnet.nodes[name]
        PortInfo.put(node.end_port(1).info, 0, lid=number)
        for port in node.ports.values():
            port.put_state(PortState.ACTIVE)
        if node.forwarding is not None:
            SwitchInfo.put(node.switch_info, 0, linear_fdb_top=9)
            node.forwarding.set_linear_block(0, bytes([1]) * 64)
            node.forwarding.set_multicast_block(0, 0, bytes([0, 0b110]) * 32)
    subnet.routing_changed()
    route = subnet.path(1, 2)
    assert (route.problem, route.at) == (Drop.LOOP, subnet.nodes["a"].ports[2])
    assert len(route.hops) == 4
    subnet.carry(1, 2, packets=3, words=30)
    assert subnet.nodes["a"].ports[2].tally["looping_errors"] == 3
    group = subnet.multicast_path(1, 0xC000)
    assert {why for why, _ in group.lost} == {Drop.LOOP}
    assert not group.ends


def test_smps_need_no_active_port() -> None:
    subnet, lids, _ = managed()
    down(subnet, S1, 3, 0)
    assert subnet.path(lids["h1"], lids["h3"], smp=True).arrives
    smp = LidRoutedSmp(attribute_id=0x11)
    assert subnet.ask("h1", smp, dlid=lids["h3"]) is not None
    assert subnet.ask("h1", PerformanceMad(attribute_id=1), dlid=lids["h3"]) is None


def test_a_packet_makes_an_armed_port_active() -> None:
    subnet, lids, _ = managed()
    down(subnet, S1, 3, 2)
    change(subnet, "h1", S2, 3, port_state=PortState.ARMED)
    port = subnet.nodes["s2"].ports[3]
    assert subnet.path(lids["h1"], lids["h3"]).arrives  # asking changes nothing
    assert port.state == PortState.ARMED
    assert subnet.ask("h1", LidRoutedSmp(attribute_id=0x11), dlid=lids["h3"]) is not None
    assert port.state == PortState.ARMED  # an SMP does not either
    assert subnet.ask("h1", PerformanceMad(attribute_id=1), dlid=lids["h3"]) is not None
    assert port.state == PortState.ACTIVE


def test_a_packet_to_the_own_lid_does_not_leave() -> None:
    subnet, lids, _ = managed()
    subnet.cut("h1", 1)
    response = subnet.ask("h1", LidRoutedSmp(attribute_id=0x11), dlid=lids["h1"])
    assert response is not None
    assert response.attribute(NodeInfo).node_guid == subnet.nodes["h1"].guid


def test_all_lids_of_a_port() -> None:
    subnet, _, _ = managed()
    assert change(subnet, "h1", (1, 3, 1), 1, lid=16, lmc=2) == 0
    for lid in range(16, 20):
        for switch, port in ((S1, 3), (S2, 1)):
            table(subnet, switch, lid, port)
    for path in (S1, S2):
        info = get(subnet, "h1", SwitchInfo, path)
        put(subnet, "h1", info.replace(linear_fdb_top=20), path)
    assert [subnet.path(1, lid).arrives for lid in range(15, 21)] == [
        *(False, True, True, True, True, False)
    ]


class TestDirected:
    @pytest.mark.parametrize(
        ("path", "problem"),
        [
            ((2,), Drop.ROUTE_INVALID),  # not the port of the program
            ((0,), Drop.ROUTE_INVALID),
            ((1, 0), Drop.ROUTE_INVALID),
            ((1, 5), Drop.ROUTE_INVALID),
            ((1, 4), Drop.LINK_DOWN),
            ((1, 2, 1), Drop.ROUTE_THROUGH_HOST),
            ((1, *(3, 3) * 31, 3), Drop.ROUTE_INVALID),  # 64 hops
        ],
    )
    def test_ways_that_are_not_possible(self, path: tuple[int, ...], problem: Drop) -> None:
        subnet = two_switches()
        smp = DirectedSmp(attribute_id=0x11)
        request = smp.along(path[:63]).replace(hop_count=len(path))
        assert subnet.ask("h1", request) is None
        assert subnet.drops == {problem: 1}

    def test_the_longest(self) -> None:
        subnet = two_switches()
        response = ask(subnet, "h1", NodeInfo, (1, *(3, 3) * 31))
        assert response is not None
        assert response.return_path == bytes((0, 1, *(3, 3) * 31))

    def test_a_request_that_is_under_way_already(self) -> None:
        subnet = two_switches()
        smp = DirectedSmp(attribute_id=0x11, hop_pointer=1).along((1,))
        assert subnet.ask("h1", smp) is None
        assert subnet.drops == {Drop.ROUTE_INVALID: 1}

    def test_by_lids_before_and_behind(self) -> None:
        subnet, lids, _ = managed()
        smp = DirectedSmp(attribute_id=0x11)
        to_s2 = smp.replace(dr_slid=lids["h1"]).along((1,))
        response = subnet.ask("h1", to_s2, dlid=lids["s2"])
        assert response is not None
        assert response.attribute(NodeInfo).node_guid == subnet.nodes["h3"].guid
        down(subnet, S1, 3, 0)
        assert subnet.ask("h1", to_s2, dlid=lids["s2"]) is not None
        from_s1 = smp.replace(dr_dlid=lids["h3"]).along((1,))
        response = subnet.ask("h1", from_s1)
        assert response is not None
        assert response.attribute(NodeInfo).node_guid == subnet.nodes["h3"].guid
        through_a_host = smp.replace(dr_slid=lids["h1"]).along((1,))
        assert subnet.ask("h1", through_a_host, dlid=lids["h2"]) is None

    def test_behind_a_host_there_is_no_lid_routed_part(self) -> None:
        subnet, lids, _ = managed()
        smp = DirectedSmp(attribute_id=0x11, dr_dlid=lids["h3"])
        assert subnet.ask("h1", smp.along((1, 2))) is None
        assert subnet.ask("h1", smp.replace(dr_dlid=99).along((1,))) is None
        assert subnet.drops == {Drop.ROUTE_THROUGH_HOST: 1, Drop.NO_PATH: 1}

    def test_responses_of_programs_that_cannot_go_back(self) -> None:
        subnet = two_switches()
        response = DirectedSmp(return_path=bytes((0, 1))).along((1,)).response()
        subnet.inject("h1", response)  # its pointer is not behind the path
        assert subnet.drops == {Drop.ROUTE_INVALID: 1}
        subnet.cut("h1", 1)
        subnet.inject("h1", response.replace(hop_pointer=2))
        assert subnet.drops == {Drop.ROUTE_INVALID: 1, Drop.LINK_DOWN: 1}

    def test_from_a_switch(self) -> None:
        subnet = two_switches()
        response = subnet.ask("s1", DirectedSmp(attribute_id=0x11).along((3, 1)))
        assert response is not None
        assert response.attribute(NodeInfo).node_guid == subnet.nodes["h3"].guid


class TestMulticast:
    MLID = 0xC021

    def group(self) -> tuple[Subnet, dict[str, int]]:
        """h1, h2 and h3 are members; s2 itself is one, too."""
        subnet, lids, _ = managed()
        for path, ports in ((S1, (1, 2, 3)), (S2, (0, 1, 3))):
            masks = (0, sum(1 << port for port in ports), *(0,) * 30)
            table = MulticastForwardingTable(masks=masks)
            assert put(subnet, "h1", table, path, 1) == 0
        return subnet, lids

    def ends(self, route: MulticastRoute) -> list[str]:
        return [port.node.name for port in route.ends]

    def test_copies_go_to_the_members_but_the_sender(self) -> None:
        subnet, lids = self.group()
        assert self.ends(subnet.multicast_path(lids["h1"], self.MLID)) == ["h2", "s2", "h3"]
        assert self.ends(subnet.multicast_path(lids["h3"], self.MLID)) == ["s2", "h1", "h2"]
        assert self.ends(subnet.multicast_path(lids["s1"], self.MLID)) == ["h1", "h2", "s2", "h3"]
        assert self.ends(subnet.multicast_path(lids["h1"], self.MLID + 1)) == []
        empty = MulticastForwardingTable()
        assert put(subnet, "h1", empty, S1, 1) == 0
        assert get(subnet, "h1", MulticastForwardingTable, S1, 1) == empty
        assert self.ends(subnet.multicast_path(lids["h1"], self.MLID)) == []

    def test_the_top_and_the_default_ports(self) -> None:
        subnet, lids = self.group()
        info = get(subnet, "h1", SwitchInfo, S1)
        assert put(subnet, "h1", info.replace(multicast_fdb_top=self.MLID), S1) == 0
        assert self.ends(subnet.multicast_path(lids["h1"], self.MLID)) == ["h2", "s2", "h3"]
        low = info.replace(multicast_fdb_top=self.MLID - 1)
        assert put(subnet, "h1", low, S1) == 0
        assert self.ends(subnet.multicast_path(lids["h1"], self.MLID)) == []
        by_default = low.replace(
            default_multicast_primary_port=3, default_multicast_not_primary_port=2
        )
        assert put(subnet, "h1", by_default, S1) == 0
        assert self.ends(subnet.multicast_path(lids["h1"], self.MLID)) == ["s2", "h3"]
        assert self.ends(subnet.multicast_path(lids["h3"], self.MLID)) == ["s2", "h2"]

    def test_ports_and_partitions(self) -> None:
        subnet, lids = self.group()
        down(subnet, S1, 2, 0)
        s1 = subnet.nodes["s1"].ports
        route = subnet.multicast_path(lids["h1"], self.MLID)
        assert route.lost == [(Drop.PORT_NOT_ACTIVE, s1[2])]
        change(subnet, "h1", S1, 3, partition_enforcement_outbound=True)
        route = subnet.multicast_path(lids["h1"], self.MLID, p_key=0x8123)
        assert route.lost[1] == (Drop.P_KEY_AT_SWITCH, s1[3])
        assert not route.ends

    def test_a_broken_link_loses_its_copy(self) -> None:
        subnet, lids = self.group()
        subnet.cut("s1", 2)
        route = subnet.multicast_path(lids["h1"], self.MLID)
        assert self.ends(route) == ["s2", "h3"]
        assert route.lost == [(Drop.LINK_DOWN, subnet.nodes["s1"].ports[2])]
        carried = subnet.carry(lids["h1"], self.MLID, packets=5, words=500)
        assert isinstance(carried, MulticastRoute)
        assert subnet.nodes["s1"].ports[2].tally["inactive_discards"] == 5
        assert subnet.nodes["h3"].ports[1].tally["multicast_rcv_packets"] == 5


@pytest.mark.parametrize("seed", range(12))
def test_random_topologies(seed: int) -> None:
    """Every node is found, and every path is what tables and cables say."""
    drawn = random.Random(seed)
    fabric = fabrics.Fabric()
    switches = [fabric.add_switch(f"s{i}", ports=12) for i in range(drawn.randint(1, 8))]
    for number, switch in enumerate(switches[1:], 1):
        fabric.connect(switch, drawn.choice(switches[:number]))
    for number in range(drawn.randint(2, 8)):
        fabric.connect(fabric.add_host(f"h{number}"), switches[number % len(switches)])
    for _ in range(drawn.randint(0, 8)):
        one, other = drawn.choice(switches), drawn.choice(switches)
        if one != other:
            fabric.connect(one, other)
    profile = replace(ENHANCED_SWITCH, enhanced_port_0=False)
    subnet = subnet_of_fabric(fabric, switch=profile)
    lids = bring_up(subnet, "h0")
    assert len(explore(subnet, "h0")) == len(fabric.graph)
    for one in lids.values():
        for other in lids.values():
            route = subnet.path(one, other)
            assert route.arrives, str(route)
            for (out, into), hop in zip(route.charges, route.hops, strict=False):
                assert out is hop.node.ports[hop.output_port or 0]
                assert out.peer is into
                if hop.node.forwarding is not None:
                    assert hop.node.forwarding.output_port(other) == hop.output_port
            assert len(route.hops) == len(route.charges) + 1
            response = subnet.ask("h0", LidRoutedSmp(attribute_id=0x11), dlid=other)
            assert response is not None
            assert lids[response.attribute(NodeInfo).node_guid] == other
