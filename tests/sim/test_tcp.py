# SPDX-License-Identifier: Apache-2.0
"""Flows over TCP: alone, and beside those of queue pairs on one wire."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.sim.fabrics import GIGABIT, MIB, MICROSECOND, credits, finish, star
from verbena.sim import Scenario, ScenarioError, World

MSS = 1460
SER, ACK = MSS * 80, 64 * 80
MILLISECOND = 1000 * MICROSECOND
TEN: dict[str, Any] = {"rate": 10 * GIGABIT, "delay": 10 * MICROSECOND}
KINDS = ("reno", "cubic", "dctcp")
EXACT = {"jitter": 0}  # times can be said to the ps


def cable(world: World, delay: int = MICROSECOND, **link: Any) -> World:
    """Two hosts and one cable."""
    world.connect(world.add_host(), 0, world.add_host(), 0, rate=100 * GIGABIT, delay=delay, **link)
    return world


def add(world: World, *args: Any, **given: Any) -> None:
    world.add_flows(*args, transport="tcp", **given)


# ---- one flow ---------------------------------------------------------------------------------


def test_the_window_doubles_with_each_round_trip() -> None:
    """10, 20 and 40 segments: the last of 70 is acknowledged after three round trips."""
    delay = 100 * MICROSECOND
    world = cable(World(framing="bare", tcp=EXACT), delay)
    add(world, 0, 1, 70 * MSS, control="reno")
    finish(world)
    flow = world.flows()[0]
    assert (flow["state"], flow["done"], flow["resent"]) == (2, 70 * MSS, 0)
    # Both segments that an acknowledgement lets go leave one after the other.
    assert flow["finish"] == pytest.approx(3 * (SER + ACK + 2 * delay) + 39 * SER, rel=0.01)
    assert world.links()["packets"].tolist() == [70, 70]


@pytest.mark.parametrize(
    "lane", [{"flow": "credits", "room": MIB}, {"flow": "pauses", "spare": MIB}]
)
def test_flooded_acknowledgements_keep_their_sack_blocks(lane: dict[str, Any]) -> None:
    """They are copied in a switch, where the packet itself keeps room for all of its copies."""
    for seed in range(10):
        world = World(seed, tcp=EXACT)
        switch = world.add_switch(3, lanes=[lane], floods=True)
        for port in range(3):
            errors = 0 if port else 2e-6
            world.connect(world.add_host(), 0, switch, port, **TEN, bit_error_rate=errors)
        add(world, 0, 1, 400 * MSS, control="reno")
        finish(world)
        assert (world.flows()["state"] == 2).all(), seed


def test_a_stream_ends_with_what_is_left() -> None:
    world = cable(World(framing="bare", tcp=EXACT))
    add(world, 0, 1, 2 * MSS + 1)
    finish(world)
    assert world.links()["bytes"].tolist() == [2 * MSS + 1, 3 * 64]
    # The last acknowledgement leaves behind the one before it.
    assert world.flows()["finish"][0] == 2 * SER + 2 * ACK + 2 * MICROSECOND


def test_frames_have_headers_preamble_and_gap() -> None:
    world = cable(World())
    add(world, 0, 1, 3 * MSS)
    finish(world)
    assert world.links()["bytes"].tolist() == [3 * (MSS + 40 + 38), 3 * 84]


def test_delayed_acknowledgements_are_half_as_many() -> None:
    world = cable(World(tcp={"ack_delay": 40 * MILLISECOND}))
    add(world, 0, 1, 1001 * MSS)
    finish(world)
    sent, answers = world.links()["packets"].tolist()
    assert sent == 1001
    assert 501 <= answers <= 510
    assert world.flows()["finish"][0] < 40 * MILLISECOND  # the last is not waited for


@pytest.mark.parametrize("control", KINDS)
def test_what_is_lost_is_sent_again(control: str) -> None:
    world = cable(World(seed=2), bit_error_rate=1e-7)
    add(world, 0, 1, 20 * MIB, control=control)
    finish(world)
    flow, lost = world.flows()[0], int(world.links()["dropped_damaged"][0])
    assert lost > 10
    assert flow["done"] == 20 * MIB
    assert flow["resent"] >= lost
    assert flow["resent"] == lost or flow["timeouts"]


def test_what_is_in_the_fabric_is_counted_at_every_instant() -> None:
    world = World(seed=5, tcp={"least_rto": MILLISECOND})
    star(world, 9, TEN, buffer=64 << 10)
    add(world, range(8), 8, MIB, control=["reno", "cubic"] * 4)
    while world.flows_left:
        world.run(until=world.now + 50 * MICROSECOND)
        assert world.check() is None
    assert world.links()["dropped_full"].sum() > 10
    assert world.flows()["done"].tolist() == [MIB] * 8
    assert world.run() == "done"
    assert world.check(at_rest=True) is None


def test_a_lost_tail_waits_for_the_timer() -> None:
    """Nothing comes after it that would tell of it."""
    for rto in (MILLISECOND, 200 * MILLISECOND):
        world = World(tcp={"least_rto": rto})
        star(world, 3, TEN, buffer=4 * 1600)
        add(world, [0, 1], 2, 10 * MSS)
        finish(world)
        flows = world.flows()
        assert flows["timeouts"].max() == 1
        assert rto < flows["finish"].max() < 1.2 * rto + MILLISECOND


def test_a_link_that_stays_down_ends_the_flow() -> None:
    world = cable(World(tcp={"least_rto": MILLISECOND, "retries": 5}))
    add(world, 0, 1, 100 * MIB)
    world.set_link(0, 0, False, MILLISECOND)
    assert world.run() == "done"
    flow = world.flows()[0]
    assert (flow["state"], flow["status"], flow["timeouts"]) == (3, 12, 5)
    assert 0 < flow["done"] < 100 * MIB
    # 1, 2, 4, 8, 16 ms, and the last that was in vain
    assert float(flow["finish"]) == pytest.approx(64 * MILLISECOND, rel=0.02)


# ---- several ------------------------------------------------------------------------------------


@pytest.mark.parametrize("control", KINDS)
def test_flows_share_a_link(control: str) -> None:
    world = World(seed=1, tcp={"least_rto": 5 * MILLISECOND})
    link = {"rate": GIGABIT, "delay": 20 * MICROSECOND}
    star(world, 5, link, buffer=128 << 10, mark=(30_000, 30_000, 1.0))
    add(world, range(4), 4, 1 << 40, control=control, start=np.arange(4) * 7 * MICROSECOND)
    world.run(until=500 * MILLISECOND)
    before = world.flows()["done"].astype(float)
    world.run(until=2500 * MILLISECOND)
    share = (world.flows()["done"] - before) / 2 * 8 / GIGABIT
    assert share.sum() == pytest.approx(MSS / (MSS + 78), rel=0.04)
    assert share.sum() ** 2 / (4 * (share**2).sum()) > 0.9  # Jain
    dropped = world.links()["dropped_full"].sum()
    assert (dropped == 0) == (control == "dctcp")


def test_marks_are_counted_at_both_ends() -> None:
    world = World(tcp={"ecn": True})
    center = star(world, 3, TEN, mark=(20_000, 20_000, 1.0))
    add(world, [0, 1], 2, 4 * MIB, control=["reno", "dctcp"])
    finish(world)
    flows, links = world.flows(), world.links()
    out = (links["node"] == center) & (links["port"] == 2)
    assert flows["marked"].sum() == links["marked"][out].sum() > 100
    assert flows["notices"].min() > 10
    assert flows["resent"].sum() == 0


def test_a_flow_starts_when_a_stream_has_come() -> None:
    world = World(framing="bare", tcp=EXACT)
    star(world, 3)
    world.add_flows(
        [0, 1],
        [1, 2],
        [5 * MSS, 4096],
        [0, MICROSECOND],
        transport=["tcp", "rc"],
        after=[[0, 1]],
    )
    finish(world)
    flows = world.flows()
    assert flows["start"][1] == 6 * SER + 3 * MICROSECOND
    assert flows["timeouts"].tolist() == [0, 0]


# ---- beside RDMA --------------------------------------------------------------------------------

CLASSES = [
    {"flow": "pauses", "stop": 65536, "go": 49152, "spare": 98304},
    {"flow": "lossy", "alpha": 1.0},
]


def test_tcp_and_rdma_share_a_wire_by_their_classes() -> None:
    """Lossless RDMA loses nothing, lossy TCP does, and each class has its half."""
    world = World(seed=3, tcp={"least_rto": MILLISECOND})
    low = [(0, 64), (1, 64)]
    star(world, 5, lanes=CLASSES, buffer=2 * MIB, low=low, remembers=True)
    rdma = {"message": 65536, "depth": 16}
    world.add_flows([0, 1], 4, 1 << 40, level=0, **rdma)
    add(world, [2, 3], 4, 1 << 40, level=1)
    world.run(until=20 * MILLISECOND)
    assert world.check() is None
    flows, links = world.flows(), world.links()
    share = flows["done"].reshape(2, 2).sum(1) * 8 / (20e-3 * 100 * GIGABIT)
    assert share[0] == pytest.approx(0.5, abs=0.03)
    assert share[1] == pytest.approx(0.47, abs=0.05)
    assert links["dropped_headroom"].sum() == 0
    assert flows["resent"][:2].sum() == 0
    assert flows["resent"][2:].sum() > 0


def test_tcp_and_rdma_of_one_host_take_turns() -> None:
    world = World(framing="bare", mtu=1024)
    star(world, 3)
    world.add_flows(0, 1, 4 * MIB)
    add(world, 0, 2, 4 * MIB)
    finish(world)
    assert world.flows()["finish"] / (8 * MIB * 80) == pytest.approx([1, 1], rel=0.02)


@pytest.mark.parametrize("switch", [credits(1 << 16), {"lanes": CLASSES[:1]}])
def test_without_losses_tcp_waits_for_the_lane(switch: dict[str, Any]) -> None:
    world = World()
    star(world, 5, **switch)
    add(world, range(4), 4, 2 * MIB)
    finish(world)
    assert world.flows()["resent"].sum() == 0
    assert world.links()["stalled"].sum() > 0
    drain = 4 * 2 * MIB * 80 * (MSS + 78) / MSS
    assert world.flows()["finish"].max() == pytest.approx(drain, rel=0.02)


def test_a_bus_slows_tcp_down_too() -> None:
    world = cable(World(framing="bare", bus_rate=10 * GIGABIT, receive_latency=MICROSECOND))
    add(world, 0, 1, 10 * MIB)
    finish(world)
    assert int(world.flows()["finish"][0]) == pytest.approx(10 * MIB * 800, rel=0.01)


# ---- what cannot be -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("world", "flow", "message"),
    [
        ({}, {"operation": "read"}, "TCP has no operation"),
        ({}, {"message": 4096}, "no message"),
        ({}, {"reserve": 10**9}, "TCP cannot reserve"),
        ({}, {"control": "vegas"}, "control is 'vegas', and not one of reno, cubic, dctcp"),
        ({}, {"management": True}, "management is UD"),
        ({"framing": "infiniband"}, {}, "not for InfiniBand"),
    ],
)
def test_flows_that_cannot_be_are_refused(
    world: dict[str, Any], flow: dict[str, Any], message: str
) -> None:
    made = cable(World(**world))
    with pytest.raises(ValueError, match=message):
        add(made, 0, 1, 4096, **flow)
    assert len(made.flows()) == 0


@pytest.mark.parametrize(
    ("tcp", "message"),
    [
        ({"mss": 5000}, "mss is 5000"),
        ({"least_rto": 0}, "least_rto is 0"),
        ({"least_rto": 10**12, "most_rto": 10**11}, "most_rto"),
        ({"dctcp_gain": 0.0}, "dctcp_gain"),
        ({"ecn": 2}, "ecn is 2"),
        ({"window": 100}, "window is 100"),
        ({"rto": 1}, "unknown key rto"),
    ],
)
def test_settings_that_cannot_be_are_refused(tcp: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        World(tcp=tcp)


SCENARIO = """
[fabric]
topology = "one_switch"
hosts = 3
rate = "10GbE"
delay = "10 us"
[switch]
buffer = "64 KiB"
[tcp]
least_rto = "5 ms"
mss = 1000
{tcp}
[[traffic]]
name = "web"
pattern = "flows"
from = ["h0", "h1"]
to = "h2"
size = "1 MB"
transport = "tcp"
{traffic}
"""


def test_a_scenario_has_tcp() -> None:
    text = SCENARIO.format(tcp="", traffic='control = "reno"')
    result = Scenario.parse(text).run()
    assert result.end == "done"
    assert result.wrong is None
    out = result.links[result.link("s0-h2")]
    assert out["bytes"] == (2000 + int(result.flows["retransmissions"].sum())) * 1078 - (
        1078 * int(out["dropped_full"])
    )
    assert "retransmissions" in result.summary()


@pytest.mark.parametrize(
    ("tcp", "traffic", "key", "message"),
    [
        ("ack_delay = 5", "", "tcp.ack_delay", "a time"),
        ("window = 10", "", "tcp.window", "window is 10"),
        ("rto = 1", "", "tcp.rto", "unknown"),
        ("", 'control = "bbr"', "traffic.0.control", "there are cubic, dctcp, reno"),
        ("", 'message = "64 KiB"', "traffic.0.message", "no message"),
        ("", 'operation = "send"', "traffic.0.operation", "no operation"),
    ],
)
def test_a_scenario_says_what_is_wrong(tcp: str, traffic: str, key: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message) as caught:
        Scenario.parse(SCENARIO.format(tcp=tcp, traffic=traffic))
    assert caught.value.key == key


def test_control_is_tcp_s() -> None:
    text = SCENARIO.format(tcp="", traffic='control = "reno"').replace('"tcp"', '"rc"')
    with pytest.raises(ScenarioError, match="only for transport"):
        Scenario.parse(text)
