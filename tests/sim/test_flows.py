# SPDX-License-Identifier: Apache-2.0
"""Flows of every transport and operation, flows that wait for others, and what they may not be."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.fabrics import GIGABIT, LINK, MIB, MICROSECOND, CheckedWorld, credits, finish, star
from verbena import fabrics
from verbena.sim import World
from verbena.sim._world import STATES

PACKET = 4096
SER, ACK = PACKET * 80, 64 * 80


def cable(world: World, delay: int = MICROSECOND, **link: Any) -> World:
    """Two hosts and one cable."""
    world.connect(world.add_host(), 0, world.add_host(), 0, rate=100 * GIGABIT, delay=delay, **link)
    return world


# ---- lanes of the way back ---------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["write", "read"])
def test_what_comes_back_has_a_lane_of_its_own(operation: str) -> None:
    """Credits of a lane are used in the direction that the level is of, and in no other."""
    room = 32 << 10
    world = World(framing="bare")
    center = star(world, 2, **credits(room, 2))
    world.add_flows(0, 1, MIB, level=0, back_level=1, operation=operation)
    queues = [(center + 1, 0, lane) for lane in (0, 1)] + [(center + 2, 0, lane) for lane in (0, 1)]
    samples = world.sample(MICROSECOND // 10, queues)
    finish(world)
    used = (samples.data["credits"] < room).any(axis=0)
    assert used.tolist() == [True, False, False, True]


@pytest.mark.parametrize("transport", ["uc", "ud"])
@pytest.mark.parametrize(("level", "lane"), [(0, 0), (None, 1)])
def test_notices_have_a_level_or_that_of_their_flow(
    level: int | None, lane: int, transport: str
) -> None:
    """As an acknowledgement, a notification may not close a circle that the routing has opened."""
    congestion = {"kind": "cct", "gaps": [0.0, 1.0]}
    world = World(framing="bare", congestion=congestion, notice_level=level)
    center = star(world, 3, fecn=1, **credits(64 << 10, 2))
    world.add_flows([1, 2], 0, MIB, level=0, back_level=1, transport=transport)
    queues = [(center + 1, 0, lane) for lane in (0, 1)]
    samples = world.sample(MICROSECOND // 10, queues)
    finish(world)
    assert world.flows()["notices"].sum() > 0
    used = (samples.data["credits"] < 64 << 10).any(axis=0)
    assert used.tolist() == [lane == 0, lane == 1]


# ---- operations -------------------------------------------------------------------------------


@pytest.mark.parametrize(("operation", "rounds"), [("write", 1), ("send", 2)])
def test_a_reliable_message_ends_with_its_acknowledgement(operation: str, rounds: int) -> None:
    """A first SEND's first packet goes alone, and brings the receiver's credits (IBA 9.7.7.2.5)."""
    world = cable(World(framing="bare"))
    world.add_flows(0, 1, 8 * PACKET, operation=operation)
    finish(world)
    assert world.flows()["finish"][0] == 8 * SER + rounds * (ACK + 2 * MICROSECOND)
    assert world.counters(1)["payload_received"] == 8 * PACKET


def test_sends_wait_for_no_receive_request() -> None:
    """As many as are outstanding find one; only the first waits for news of credits."""
    world = cable(World(framing="bare"))
    count = 500
    world.add_flows(0, 1, count * PACKET, message=PACKET, depth=64, operation="send")
    finish(world)
    assert world.counters(1)["nak_rnr_sent"] == 0
    first = SER + ACK + 2 * MICROSECOND
    assert world.flows()["finish"][0] == first + (count - 1) * SER + ACK + 2 * MICROSECOND


@pytest.mark.parametrize(
    ("transport", "operation"), [("uc", "write"), ("uc", "send"), ("ud", "send")]
)
def test_an_unreliable_flow_ends_when_its_last_packet_has_come(
    transport: str, operation: str
) -> None:
    world = cable(World(framing="bare"))
    world.add_flows(0, 1, 8 * PACKET, transport=transport, operation=operation)
    finish(world)
    flow = world.flows()[0]
    assert (flow["state"], flow["done"]) == (2, 8 * PACKET)
    assert flow["finish"] == 8 * SER + MICROSECOND
    assert world.links()["packets"].tolist() == [8, 0]  # nobody acknowledges


@pytest.mark.parametrize(
    ("transport", "operation"), [("uc", "write"), ("uc", "send"), ("ud", "send")]
)
def test_what_an_unreliable_flow_loses_is_lost(transport: str, operation: str) -> None:
    """Each message that lost a packet is gone; datagrams are gone one by one."""
    world = cable(World(seed=3, framing="bare"), bit_error_rate=3e-7)
    count, message = 400, PACKET if transport == "ud" else 4 * PACKET
    world.add_flows(
        0, 1, count * message, message=message, depth=8, transport=transport, operation=operation
    )
    finish(world)
    flow, lost = world.flows()[0], int(world.links()["dropped_damaged"].sum())
    assert lost > 2
    assert flow["resent"] == 0
    assert flow["state"] == STATES.index("incomplete")
    assert flow["lost"] == count * message - flow["done"]
    missing = int(flow["lost"]) // PACKET
    if transport == "ud":
        assert missing == lost
    else:
        assert lost <= missing < 4 * lost
    assert world.counters(1)["payload_received"] == flow["done"]


def test_datagrams_and_connections_of_a_host_take_turns() -> None:
    world = World(framing="bare")
    star(world, 4)
    world.add_flows(0, [1, 2, 3], MIB, transport=["rc", "ud", "ud"])
    finish(world)
    ends = world.flows()["finish"].astype(float)
    # A packet in two is the connection's, and the datagrams of two flows share the others.
    assert ends[0] == pytest.approx(2 * 256 * SER, rel=0.05)
    assert ends[1:] == pytest.approx([3 * 256 * SER] * 2, rel=0.05)


def test_datagrams_wait_for_credits_and_for_their_rate() -> None:
    cct = {"kind": "cct", "gaps": [0.0, 3.0], "timer": 10**12, "notice_interval": 0}
    world = World(framing="infiniband", congestion=cct)
    star(world, 4, fecn=1, **credits(32 << 10))
    world.add_flows([0, 1, 2], 3, 4 * MIB, transport="ud")
    finish(world)
    flows = world.flows()
    assert (flows["done"] == 4 * MIB).all()  # credits lose nothing
    assert flows["notices"].sum() > 0
    assert flows["finish"].min() > 3.9 * 4 * MIB * 80  # a quarter of the line


# ---- flows that wait --------------------------------------------------------------------------


def test_a_flow_starts_when_those_that_it_waits_for_were_received() -> None:
    """Received is when the last byte is there, and not when the sender hears of it."""
    delay = 10 * MICROSECOND
    world = World(framing="bare")
    star(world, 4, {**LINK, "delay": delay})
    world.add_flows(
        [0, 1, 2], [1, 2, 3], [PACKET, 2 * PACKET, PACKET], [0, 700, 0], after=[[0, 1], [1, 2]]
    )
    finish(world)
    flows = world.flows()
    first = 2 * SER + 2 * delay
    assert flows["start"][1] == first + 700
    assert flows["finish"][0] == first + 2 * (delay + ACK)
    # Host 1 acknowledges what it has before it sends.
    assert flows["start"][2] == first + ACK + 3 * SER + 2 * delay


@pytest.mark.parametrize("kind", ["write", "send", "read", "uc", "ud"])
def test_each_kind_can_be_waited_for(kind: str) -> None:
    world = cable(World(framing="bare"))
    given = {"transport": kind} if kind in ("uc", "ud") else {"operation": kind}
    world.add_flows(0, 1, [PACKET, PACKET], after=[[0, 1]], **given)
    finish(world)
    flows = world.flows()
    assert (flows["state"] == 2).all()
    received = SER + MICROSECOND + (MICROSECOND + ACK if kind == "read" else 0)
    assert flows["start"][1] == received


def test_a_flow_waits_for_all_of_several() -> None:
    world = World(framing="bare")
    star(world, 4)
    world.add_flows([0, 1, 2], [3, 3, 3], [PACKET, 8 * PACKET, PACKET], after=[[0, 2], [1, 2]])
    finish(world)
    flows = world.flows()
    assert flows["start"][2] == 9 * SER + SER + 2 * MICROSECOND


def test_what_waits_for_a_flow_that_failed_never_starts() -> None:
    world = World(timeout=4, retry_count=1)
    center = star(world, 3)
    world.set_link(center, 1, up=False, at=0)
    world.add_flows([0, 1], [1, 2], MIB, after=[[0, 1]])
    assert world.run() == "stalled"
    assert world.check(at_rest=True) is None
    assert world.flows()["state"].tolist() == [3, 0]
    assert world.flows_left == 1


@pytest.mark.parametrize("hosts", [2, 8, 13])
def test_a_ring_all_reduce_takes_its_steps(hosts: int) -> None:
    """2 (n - 1) steps, each a chunk over two links."""
    work = fabrics.ring_all_reduce(hosts, hosts * 4 * PACKET)
    world = World(framing="bare")
    star(world, hosts)
    flow = work.flows
    world.add_flows(flow["src"], flow["dst"], flow["bytes"], flow["start"], after=work.after)
    finish(world)
    flows = world.flows()
    assert (flows["state"] == 2).all()
    step = 5 * SER + 2 * MICROSECOND
    last = 2 * (hosts - 1) * step
    # An acknowledgement of the step before may be in a packet's way.
    assert last <= flows["finish"].max() - 2 * (MICROSECOND + ACK) <= last * 1.05


def test_a_tree_all_reduce_goes_up_and_down() -> None:
    work = fabrics.tree_all_reduce(7, 4 * PACKET, chunk=4 * PACKET)
    world = World(framing="bare")
    star(world, 7)
    flow = work.flows
    world.add_flows(flow["src"], flow["dst"], flow["bytes"], flow["start"], after=work.after)
    finish(world)
    flows = world.flows()
    assert (flows["state"] == 2).all()
    for before, then in work.after:
        assert flows["start"][then] <= flows["finish"][before]
        assert flows["start"][then] > flows["start"][before] + 4 * SER
    levels = 2 * (8 + 1) * SER + 4 * 2 * MICROSECOND  # two children share a parent's link, up
    assert flows["finish"].max() > levels


def test_all_to_all_in_turn_runs_in_the_world() -> None:
    work = fabrics.all_to_all(9, 64 << 10)
    world = World(framing="ethernet")
    star(world, 9)
    flow = work.flows
    world.add_flows(flow["src"], flow["dst"], flow["bytes"], flow["start"], after=work.after)
    finish(world)
    flows = world.flows()
    assert (flows["state"] == 2).all()
    assert (flows["start"][9:] >= flows["finish"][:-9] - 3 * MICROSECOND).all()


# ---- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"transport": "sctp"}, "transport is 'sctp', and not one of rc, uc, ud, tcp"),
        ({"operation": "atomic"}, "operation is 'atomic', and not one of write, read, send"),
        ({"transport": "ud", "operation": "write"}, "flow 0: UD only sends"),
        ({"transport": "uc", "read": True}, "flow 0: UC does not read"),
        ({"transport": "ud", "message": 8192}, "flow 0: a datagram is longer than the MTU"),
        ({"after": [[0, 3]]}, "after: there is no flow 3"),
        ({"after": [[-1, 0]]}, "after: there is no flow -1"),
        ({"after": [0, 1]}, "not a list of pairs of flows"),
        ({"after": [[0, 1], [1, 0]]}, "flow 0 waits for itself, through others"),
        ({"after": [[2, 2]]}, "flow 2 waits for itself, through others"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], message: str) -> None:
    world = World()
    star(world, 4)
    with pytest.raises(ValueError, match=message):
        world.add_flows([0, 1, 2], 3, 1, **given)
    assert len(world.flows()) == world.flows_left == 0


@pytest.mark.parametrize("operation", ["write", "send"])
def test_go_back_0_repeats_the_message_that_lost_a_packet(operation: str) -> None:
    """Every message arrives in the end, and a loss costs it from its first packet on."""
    results = {}
    for recovery in ("go-back-n", "go-back-0"):
        world = CheckedWorld(3, framing="bare", mtu=1024, timeout=8, recovery=recovery)
        link = {"rate": 40 * 10**9, "delay": 1000, "bit_error_rate": 2e-6}
        world.connect(world.add_host(), 0, world.add_host(), 0, **link)
        world.add_flows(0, 1, 64 << 16, message=1 << 16, operation=operation)
        finish(world)
        results[recovery] = world.flows()[0]
        assert results[recovery]["done"] == 64 << 16
        assert world.counters(1)["payload_received"] >= 64 << 16
    assert results["go-back-0"]["resent"] > 10 * results["go-back-n"]["resent"] > 0


def test_a_lossless_wire_knows_no_difference_of_recovery() -> None:
    ends = []
    for recovery in ("go-back-n", "go-back-0"):
        world = CheckedWorld(framing="bare", recovery=recovery)
        star(world, 3)
        world.add_flows([0, 1], 2, MIB, message=1 << 14, depth=8)
        finish(world)
        ends.append(world.flows().tobytes())
    assert ends[0] == ends[1]
