# SPDX-License-Identifier: Apache-2.0
"""Valiant's routing and UGAL on a dragonfly of 9 groups of 8 hosts (Kim et al., ISCA 2008)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sim.fabrics import MIB, CheckedWorld, credits, finish
from verbena import fabrics
from verbena.fabrics import FabricError, Routes
from verbena.sim import Scenario, ScenarioError, World, build

P, A, H = 2, 4, 2
HOSTS, GROUPS = 72, 9
PACKET, SER = 4096, 4096 * 80
VALIANT = (GROUPS - 2) / (
    2 * A * P
)  # a group has 7 cables to others than its goal, each used twice
BEST = (1 + (GROUPS - 2) / 2) / (A * P)  # the direct cable too, once for each of its packets


def routes(engine: str, groups: int = GROUPS, **options: Any) -> Routes:
    fabric = fabrics.dragonfly(P, A, H, groups=groups, rate="100GbE", delay_ns=100)
    return fabrics.route(fabric, engine, **options)


def made(routed: Routes, room: int = 64 << 10, **options: Any) -> CheckedWorld:
    world = CheckedWorld(framing="bare", **options)
    build(world, routed, credits(room, routed.lanes.lanes) if room else None)
    return world


def next_group(world: World, size: int, **options: Any) -> None:
    hosts = np.arange(world.hosts)
    world.add_flows(hosts, (hosts + P * A) % world.hosts, size, **options)


def share(engine: str, **options: Any) -> float:
    """What a host gets of its link when all send datagrams to the next group."""
    world = made(routes(engine, **options))
    next_group(world, 600 * PACKET, transport="ud", operation="send")
    world.run(until=100 * SER)
    before = world.packets["delivered"]
    world.run(until=300 * SER)
    return (world.packets["delivered"] - before) / (200 * HOSTS)


def global_cables(world: World) -> Any:
    """Of the links between groups: the group, how many groups further, and the packets."""
    links = world.links()
    ends = [(links[side].astype(np.int64) - HOSTS) // A for side in ("node", "to_node")]
    between = (links["node"] >= HOSTS) & (links["to_node"] >= HOSTS) & (ends[0] != ends[1])
    return ((ends[1] - ends[0]) % GROUPS)[between], links["packets"][between]


# ---- throughput ----------------------------------------------------------------------------------


def test_the_worst_pattern_has_one_cable_many_or_what_is_free() -> None:
    assert share("dragonfly") == pytest.approx(1 / (A * P), rel=0.01)
    assert share("valiant", per="packet") == pytest.approx(VALIANT, rel=0.05)
    assert VALIANT * 1.1 < share("ugal", per="packet") <= BEST


def test_without_load_or_with_even_load_ugal_takes_the_short_way() -> None:
    took = {}
    for engine in ("dragonfly", "ugal"):
        world = made(routes(engine, **({"per": "packet"} if engine == "ugal" else {})))
        random = np.random.default_rng(1)
        source = np.repeat(np.arange(HOSTS), 100)
        target = (source + random.integers(1, HOSTS, len(source))) % HOSTS
        start = random.integers(0, 200 * SER, len(source))
        world.add_flows(source, target, PACKET, start, transport="ud", operation="send")
        finish(world)
        flows = world.flows()
        took[engine] = float((flows["finish"] - flows["start"]).mean()) / SER
    assert took["ugal"] == pytest.approx(took["dragonfly"], rel=0.1)


def test_valiant_leaves_the_cable_to_the_next_group_free() -> None:
    """It leads to no third group from there, and from none: each packet crosses two others."""
    for per in ("flow", "packet"):
        world = made(routes("valiant", per=per))
        next_group(world, 40 * PACKET, transport="ud", operation="send")
        finish(world)
        further, packets = global_cables(world)
        assert (packets[further == 1] == 0).all()
        assert packets.sum() == 2 * 40 * HOSTS
    assert (packets[further != 1] > 0).all()


# ---- order ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["valiant", "ugal"])
def test_a_flow_stays_in_order_and_packets_for_themselves_do_not(engine: str) -> None:
    resent = {}
    for per in ("flow", "packet"):
        world = made(routes(engine, per=per))
        next_group(world, 100 * PACKET)
        finish(world)
        flows = world.flows()
        assert (flows["done"] == 100 * PACKET).all()
        resent[per] = int(flows["resent"].sum())
    assert resent["flow"] == 0
    assert resent["packet"] > 100


def test_a_flow_that_has_paused_chooses_again() -> None:
    """A gap of nothing lets a flow change its way while it has packets in flight."""
    world = made(routes("ugal", gap=1))
    next_group(world, 100 * PACKET)
    finish(world)
    assert world.flows()["resent"].sum() > 100


def test_many_flows_keep_their_ways() -> None:
    world = made(routes("ugal"))
    source = np.repeat(np.arange(HOSTS), 100)
    world.add_flows(source, (source + P * A) % HOSTS, 3 * PACKET)
    finish(world)
    assert world.flows()["resent"].sum() == 0


@pytest.mark.parametrize(("per", "cables"), [("flow", 2), ("packet", 2 * (GROUPS - 2))])
def test_segments_of_tcp_go_around_too(per: str, cables: int) -> None:
    """They have no PSN: their place in the stream says by which group."""
    world = made(routes("valiant", per=per))
    world.add_flows(0, P * A, 200 * PACKET, transport="tcp")
    finish(world)
    assert world.flows()["done"][0] == 200 * PACKET
    _, packets = global_cables(world)
    assert (packets > 0).sum() == 2 * cables  # there, and acknowledgements back


def test_two_runs_are_the_same() -> None:
    one, other = (made(routes("ugal", per="packet"), seed=3) for _ in range(2))
    for world in (one, other):
        next_group(world, 40 * PACKET)
        finish(world)
    assert one.flows().tobytes() == other.flows().tobytes()
    assert one.links().tobytes() == other.links().tobytes()


# ---- lanes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["valiant", "ugal"])
def test_three_lanes_have_no_credit_loop_and_two_have_one(engine: str) -> None:
    routed = routes(engine)
    routed.check()
    assert routed.lanes.lanes == 3
    for most in (0, 1):
        fewer = np.minimum(routed.lanes.lane, most).astype(np.uint8)
        assert fabrics.credit_loop(replace(routed, lanes=replace(routed.lanes, lane=fewer)))


@pytest.mark.parametrize(("most", "end"), [(0, "deadlock"), (2, "done")])
def test_the_lanes_keep_small_buffers_from_deadlock(most: int, end: str) -> None:
    routed = routes("valiant", per="packet")
    fewer = np.minimum(routed.lanes.lane, most).astype(np.uint8)
    routed = replace(routed, lanes=replace(routed.lanes, lane=fewer))
    world = made(routed, room=2 * PACKET)
    for shift in range(P * A, HOSTS, P * A):
        hosts = np.arange(HOSTS)
        world.add_flows(
            hosts, (hosts + shift) % HOSTS, 40 * PACKET, transport="ud", operation="send"
        )
    finish(world, end)


# ---- what else there is --------------------------------------------------------------------------


def test_switches_without_lanes_and_lines_between_extenders() -> None:
    routed = routes("ugal", per="packet")
    world = made(routed, room=0)
    next_group(world, 40 * PACKET, transport="ud", operation="send")
    finish(world)
    assert (world.flows()["done"] == 40 * PACKET).all()
    world = CheckedWorld(framing="bare")
    tables = routed.tables
    cables = tables.links[0::2]
    between = (cables["src"] >= HOSTS) & (
        (cables["src"].astype(np.int64) - HOSTS) // A
        != (cables["dst"].astype(np.int64) - HOSTS) // A
    )
    build(world, routed, credits(64 << 10, 3), extender=np.where(between, MIB, 0))
    next_group(world, 40 * PACKET, transport="ud", operation="send")
    finish(world)
    assert (world.flows()["done"] == 40 * PACKET).all()


def test_two_groups_have_no_third() -> None:
    world = made(routes("valiant", groups=2))
    next_group(world, 4 * PACKET)
    finish(world)
    assert world.links()["packets"].sum() > 0


def test_captured_packets_are_as_on_a_wire(tmp_path: Path) -> None:
    """What switches note in the BTH's reserved bits is not in the file."""
    world = made(routes("valiant"))
    links = world.links()
    first = int(np.argmax((links["node"] == HOSTS) & (links["to_node"] >= HOSTS)))
    world.capture(HOSTS, int(links["port"][first]), tmp_path / "link.pcapng")
    next_group(world, 4 * PACKET)
    finish(world)
    data = (tmp_path / "link.pcapng").read_bytes()
    bths = data.split(b"\x12\xb7")[1:]  # port 4791; then length, checksum, BTH
    assert len(bths) > 4
    assert all(bth[2 + 2 + 4 + 0] & 0x3F == 0 for bth in bths)


def test_a_scenario_has_detours() -> None:
    text = """
[fabric]
topology = "dragonfly"
p = 2
a = 4
h = 2
rate = "100GbE"
delay = "100 ns"
[routing]
engine = "ugal"
per = "flow"
threshold = "16 KiB"
gap = "50 us"
[switch]
flow = "credits"
room = "64 KiB"
[[traffic]]
pattern = "permutation"
size = "64 KiB"
"""
    scenario = Scenario.parse(text)
    assert scenario.routes.detours is not None
    assert scenario.routes.detours.gap == 50 * 10**6
    result = scenario.run()
    assert (result.flows["done"] == 64 << 10).all()
    with pytest.raises(ScenarioError, match=r"line 11: .*per"):
        Scenario.parse(text.replace('"flow"\nthr', '"message"\nthr'))
    with pytest.raises(ScenarioError, match="threshold"):
        Scenario.parse(text.replace('"ugal"', '"valiant"'))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(FabricError, match="per is 'flow' or 'packet'"):
        routes("ugal", per="message")
    with pytest.raises(FabricError, match="not a whole number from 0"):
        routes("ugal", gap=-1)
    with pytest.raises(FabricError, match="is in no group"):
        fabrics.route(fabrics.ring(4), "valiant")
    world = made(routes("ugal"))
    with pytest.raises(ValueError, match="already"):
        world.set_detours(np.zeros(world.nodes, int))
    with pytest.raises(ValueError, match="one way"):
        world.add_flows(0, 20, MIB, reserve=10**9)
    other = World()
    build(other, routes("dragonfly"))
    for group in (np.zeros(3, int), np.arange(other.nodes), np.zeros(other.nodes + 1, int)):
        with pytest.raises(ValueError, match="nodes have groups"):
            other.set_detours(group)
    for wrong in (np.zeros(other.nodes), np.full(other.nodes, -1), np.full(other.nodes, 65535), []):
        with pytest.raises(ValueError, match="groups"):
            other.set_detours(wrong)
    with pytest.raises(ValueError, match="per"):
        other.set_detours(np.zeros(other.nodes, int), per="hop")
