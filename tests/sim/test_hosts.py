# SPDX-License-Identifier: Apache-2.0
"""What hosts add to the network's time, bandwidth that is promised, and buffers that do not do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.sim.fabrics import (
    GIGABIT,
    LINK,
    MIB,
    MICROSECOND,
    CheckedWorld,
    credits,
    finish,
    star,
)
from verbena.sim import World
from verbena.sim._world import STATES

PACKET = 4096
SER, ACK = PACKET * 80, 64 * 80


# ---- hosts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["rc", "uc", "ud"])
def test_a_doorbell_takes_its_time(transport: str) -> None:
    ends = []
    for doorbell in (0, 300_000):
        world = World(framing="bare", doorbell=doorbell)
        world.connect(world.add_host(), 0, world.add_host(), 0, **LINK)
        world.add_flows(0, 1, 4 * PACKET, transport=transport)
        ends.append(int(finish(world).flows()["finish"][0]))
    assert ends[1] - ends[0] == 300_000


def test_each_message_has_a_doorbell_unless_its_queue_is_at_work() -> None:
    def end(depth: int) -> int:
        world = World(framing="bare", doorbell=300_000)
        world.connect(world.add_host(), 0, world.add_host(), 0, **LINK)
        world.add_flows(0, 1, 16 * PACKET, message=PACKET, depth=depth)
        return int(finish(world).flows()["finish"][0])

    assert end(1) == 16 * (300_000 + SER + ACK + 2 * MICROSECOND)
    assert end(16) == 300_000 + 16 * SER + ACK + 2 * MICROSECOND


@pytest.mark.parametrize("switch", [{}, credits(64 << 10)])
def test_a_slow_bus_holds_a_fast_link(switch: dict[str, Any]) -> None:
    """What leaves the host does not come faster than its bus lets it; what it receives does."""
    world = World(framing="bare", bus_rate=25 * GIGABIT)
    star(world, 3, **switch)
    world.add_flows(0, [1, 2], 4 * MIB)
    finish(world)
    assert world.flows()["finish"].max() == pytest.approx(2.0 * 4 * MIB * 320, rel=0.01)
    fast = World(framing="bare", bus_rate=400 * GIGABIT)
    star(fast, 3, **switch)
    fast.add_flows(0, [1, 2], 4 * MIB)
    finish(fast)
    assert fast.flows()["finish"].max() == pytest.approx(2.0 * 4 * MIB * 80, rel=0.01)


def test_what_is_received_takes_its_time_too() -> None:
    """At both ends: the data, and their acknowledgement."""
    world = World(framing="bare", receive_latency=700_000)
    world.connect(world.add_host(), 0, world.add_host(), 0, **LINK)
    world.add_flows(0, 1, 4 * PACKET)
    assert world.run(until=SER + MICROSECOND + 10) == "time"
    assert world.check() is None
    assert world.counters(1)["packets_received"] == 0
    finish(world)
    assert world.flows()["finish"][0] == 4 * SER + ACK + 2 * (MICROSECOND + 700_000)


def test_a_host_that_obeys_late_needs_more_headroom() -> None:
    response = 2 * MICROSECOND
    frame, trip = PACKET, 2 * MICROSECOND // 80
    for spare, lost in ((trip + 3 * frame + 84 + response // 80, False), (trip + frame, True)):
        lane = {"flow": "pauses", "stop": 64 << 10, "go": 32 << 10, "spare": spare}
        world = CheckedWorld(framing="bare", window=4 * MIB)
        world.may_overrun = lost
        link = {**LINK, "pause_response": response}
        star(world, 4, link, lanes=[lane])
        world.add_flows([1, 2, 3], 0, 4 * MIB)
        assert bool(world.advice()) == lost
        world.run()
        assert (world.links()["dropped_headroom"].sum() > 0) == lost
        assert (world.check(at_rest=True) is not None) == lost


# ---- promises ---------------------------------------------------------------------------------


def test_what_was_promised_is_kept_beside_greedy_flows() -> None:
    """Reserved flows have a class of their own, and no queue; the others share what is left."""
    world = World(framing="bare", window=MIB, timeout=8)
    lanes = [{"flow": "lossy", "alpha": 0.5}, {"flow": "lossy"}]
    center = star(world, 6, lanes=lanes, buffer=MIB, high=[(1, 1)], low=[(0, 1)], high_limit=255)
    world.add_flows([1, 2, 3], 0, 4 * MIB, level=1, reserve=30 * GIGABIT)
    world.add_flows([4, 5], 0, 4 * MIB)
    queue = world.sample(MICROSECOND, [(center, 0, 1)])
    finish(world)
    flows = world.flows()
    assert (flows["state"] == 2).all()
    promised = 4 * MIB * 8e12 / (30 * GIGABIT)
    assert flows["finish"][:3].astype(float) == pytest.approx([promised] * 3, rel=0.01)
    assert flows["resent"][:3].sum() == 0
    assert queue.data["bytes"].max() <= 3 * PACKET
    assert flows["finish"][3:].min() > promised


def test_what_does_not_fit_is_refused_and_what_ends_makes_room() -> None:
    world = World(framing="bare")
    star(world, 6)
    start = [0, 0, 0, 0, 3000 * MICROSECOND]
    world.add_flows([1, 2, 3, 4, 5], 0, 4 * MIB, start, reserve=30 * GIGABIT)
    world.add_flows(1, 5, MIB, start=1000, reserve=80 * GIGABIT)  # its own link has 70 left
    finish(world)
    assert world.flows()["state"].tolist() == [2, 2, 2, 4, 2, 4]
    assert world.flows()["done"].tolist() == [4 * MIB] * 3 + [0, 4 * MIB, 0]


def test_a_promise_is_for_one_way() -> None:
    world = World(framing="bare", timeout=0)
    left, right = (world.add_switch(3, balance="packet") for _ in range(2))
    for node in (left, right):
        world.connect(world.add_host(), 0, node, 0, **LINK)
    for port in (1, 2):
        world.connect(left, port, right, port, **LINK)
    world.set_routes(left, [[0, -1], [1, 2]])
    world.set_routes(right, [[1, 2], [0, -1]])
    with pytest.raises(ValueError, match="flow 0: switches on its way balance by packet"):
        world.add_flows(0, 1, MIB, reserve=GIGABIT)


def test_reads_reserve_nothing() -> None:
    world = World()
    star(world, 2)
    with pytest.raises(ValueError, match="flow 0: the data of a READ come the other way"):
        world.add_flows(0, 1, MIB, reserve=GIGABIT, read=True)


# ---- advice -----------------------------------------------------------------------------------


def test_buffers_that_are_too_small_for_their_links_are_named() -> None:
    world = World(framing="bare")
    star(world, 2, **credits(16 << 10))
    assert world.advice() == [
        f"lane 0 of port {port} of node 0 has a room of 16384: the full rate takes 36864"
        for port in range(2)
    ]
    enough = World(framing="bare")
    star(enough, 2, **credits(36864))
    assert enough.advice() == []
    enough.add_flows(0, 1, 16 * MIB)
    finish(enough)
    assert enough.flows()["finish"][0] <= 16 * MIB * 80 * 1.01 + 5 * MICROSECOND
    world.add_flows(0, 1, 16 * MIB)
    finish(world)
    assert world.flows()["finish"][0] > 16 * MIB * 80 * 1.5


@pytest.mark.parametrize("given", [{"doorbell": -1}, {"bus_rate": -1}, {"receive_latency": 10**13}])
def test_hosts_that_cannot_be_are_refused(given: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        World(**given)


def test_two_runs_are_equal_with_all_of_it() -> None:
    def run() -> bytes:
        world = World(
            3, doorbell=100_000, bus_rate=90 * GIGABIT, receive_latency=200_000, timeout=8
        )
        star(world, 5, {**LINK, "bit_error_rate": 1e-8, "pause_response": 1000})
        kinds = ["rc", "uc", "ud", "rc"]
        world.add_flows(np.arange(1, 5), 0, MIB, transport=kinds, message=PACKET, depth=8)
        return bytes(finish(world).flows().tobytes())

    assert run() == run()


# ---- buffer that is promised -------------------------------------------------------------------


FRAME = 4096 + 98
LOSSY: dict[str, Any] = {"lanes": [{"flow": "lossy", "alpha": 2.0}], "buffer": 256 << 10}
PLAIN: dict[str, Any] = {"buffer": 256 << 10}
NEAR = {"rate": 100 * GIGABIT, "delay": 1000}  # nearly all that is in flight waits in a queue


def crowded(switch: dict[str, Any], reserve_buffer: int, **world: Any) -> World:
    """Four hosts send to host 0 without looking at losses; host 5 sends there, too."""
    made = World(seed=1, window=MIB, timeout=8, **world)
    star(made, 6, **switch)
    start = 20 * MICROSECOND if "lanes" in switch else 0  # a full queue has nothing to promise
    made.add_flows(5, 0, 512 << 10, start, depth=2, reserve_buffer=reserve_buffer)
    made.add_flows([1, 2, 3, 4], 0, MIB, message=[1500, 1700, 1900, 2100], depth=8, transport="uc")
    return finish(made)


@pytest.mark.parametrize("switch", [LOSSY, PLAIN], ids=["lanes", "plain"])
def test_who_reserves_buffer_loses_nothing(switch: dict[str, Any]) -> None:
    """Its packets have room, whatever comes from others; without, they are lost as others' are."""
    without, promised = crowded(switch, 0), crowded(switch, 32 << 10)
    for world in (without, promised):
        states = [STATES[state] for state in world.flows()["state"]]
        assert states == ["done"] + ["incomplete"] * 4
        assert world.links()["dropped_full"].sum() > 100
    assert without.flows()["resent"][0] > 0
    assert promised.flows()["resent"][0] == 0
    assert promised.flows()["finish"][0] < without.flows()["finish"][0]


@pytest.mark.parametrize("switch", [LOSSY, PLAIN], ids=["lanes", "plain"])
def test_what_is_reserved_bounds_what_is_in_flight(switch: dict[str, Any]) -> None:
    """One message of as many packets as fit, and a round trip for each."""
    packets, delay = 4, MICROSECOND
    world = World()
    star(world, 2, {"rate": 100 * GIGABIT, "delay": delay}, **switch)
    world.add_flows(0, 1, 64 * 4096, reserve_buffer=packets * FRAME + 100)
    finish(world)
    least = 64 // packets * (packets * 4096 * 80 + 4 * delay)
    assert least < world.flows()["finish"][0] < 1.2 * least
    assert world.links()["queued_max"].max() <= packets * FRAME


@pytest.mark.parametrize("switch", [LOSSY, PLAIN], ids=["lanes", "plain"])
def test_a_switch_promises_no_more_than_it_has(switch: dict[str, Any]) -> None:
    """What is promised is free again when its flow has ended; what others hold is not promised."""
    world = World()
    star(world, 6, **switch)
    start = [0, 0, 0, 0, 400 * MICROSECOND]
    world.add_flows([1, 2, 3, 4, 5], 0, MIB, start, reserve_buffer=80 << 10)
    finish(world)
    states = [STATES[state] for state in world.flows()["state"]]
    assert states == ["done", "done", "done", "refused", "done"]
    assert (world.links()["dropped_full"] == 0).all()


def standing(others: str | None, promised: int) -> World:
    """Two flows whose promised packets stand in the queue of host 0's port, and another."""
    world = World(seed=1)
    star(world, 4, NEAR, buffer=100_000)
    world.add_flows([1, 2], 0, 4 * MIB, depth=7, reserve_buffer=promised)
    if others is not None:
        world.add_flows(3, 0, 2 * MIB, 50 * MICROSECOND, message=4096, depth=64, transport=others)
    return finish(world)


def test_promised_packets_take_nothing_of_the_share_of_others() -> None:
    """Two thirds of the buffer are promised, and in use: others have the third that is left."""
    alone, both = standing(None, 33_000), standing("uc", 33_000)
    out = both.links()[both.links()["node"] == 4]
    assert alone.links()["queued_max"].max() > 50_000
    assert both.flows()["resent"].tolist() == [0, 0, 0]
    assert set(both.flows()["state"][:2]) == {STATES.index("done")}
    assert out["queued_max"].max() <= 100_000
    assert both.flows()["done"][2] > MIB // 2  # it would lose nearly all


def test_what_is_promised_and_in_use_is_not_taken_twice() -> None:
    """The second flow begins while the first one's packets stand in the queue."""
    world = World(seed=1)
    star(world, 4, NEAR, buffer=100_000)
    world.add_flows([1, 2], 0, 4 * MIB, depth=7, reserve_buffer=30_000)
    world.add_flows(3, 0, MIB, 100 * MICROSECOND, depth=4, reserve_buffer=30_000)
    finish(world)
    assert [STATES[state] for state in world.flows()["state"]] == ["done"] * 3
    assert world.links()["dropped_full"].sum() == 0


def test_others_have_the_rest_of_the_buffer() -> None:
    """The longest queue of who reserved nothing is shorter by what is promised."""
    longest = []
    for promised in (0, 128 << 10):
        world = World(seed=1, timeout=8)
        center = star(world, 4, lanes=[{"flow": "lossy"}], buffer=256 << 10)
        if promised:
            world.add_flows(3, 0, 1 << 40, reserve=10**6, reserve_buffer=promised)
        world.add_flows([1, 2], 0, MIB)
        world.run(until=5_000 * MICROSECOND)
        longest.append(int(world.links()["queued_max"][world.links()["node"] == center].max()))
    assert longest[0] == pytest.approx(256 << 10, abs=2 * FRAME)
    assert longest[1] == pytest.approx(128 << 10, abs=2 * FRAME)


def test_what_is_sent_too_early_again_has_no_promise() -> None:
    """A timeout that is shorter than the queue: more is under way than was promised, and when the
    connection has failed its packets still are; others get nothing of theirs.
    """
    world = World(seed=1, timeout=1, retry_count=7)
    center = world.add_switch(2, **LOSSY)
    for port, rate in ((0, GIGABIT), (1, 100 * GIGABIT)):
        world.connect(world.add_host(), 0, center, port, rate=rate, delay=MICROSECOND)
    world.set_routes(center, [0, 1])
    world.add_flows(1, 0, MIB, reserve_buffer=64 << 10)
    queue = world.sample(MICROSECOND, [(center, 0)])
    finish(world)
    assert world.flows()["resent"][0] > 0
    assert queue.data["bytes"].max() > 64 << 10


@pytest.mark.parametrize("alpha", [2.0, 0.0, 0.05])
@pytest.mark.parametrize(("kibibytes", "count"), [(63, 4), (64, 4), (128, 2)])
def test_acknowledgements_find_room_beside_what_is_promised(
    alpha: float, kibibytes: int, count: int
) -> None:
    """Of 256 KiB all that can be promised leaves some, and more than that is refused."""
    world = World(seed=1)
    star(world, 5, lanes=[{"flow": "lossy", "alpha": alpha}], buffer=256 << 10)
    world.add_flows(range(1, 1 + count), 0, 4 * MIB, depth=2, reserve_buffer=kibibytes << 10)
    finish(world)
    states = [STATES[state] for state in world.flows()["state"]]
    whole = kibibytes * count == 256 or alpha == 0.05
    assert states == ["done"] * (count - whole) + ["refused"] * whole
    assert (world.links()["dropped_full"] == 0).all()
    assert world.flows()["resent"].sum() == 0


@pytest.mark.parametrize("switch", [LOSSY, PLAIN], ids=["lanes", "plain"])
def test_more_than_a_switch_can_ever_promise_is_an_error_that_says_how_much(
    switch: dict[str, Any],
) -> None:
    world = World()
    star(world, 2, **switch)
    with pytest.raises(ValueError, match=r"at most [0-9]+ bytes can be promised") as caught:
        world.add_flows(0, 1, MIB, reserve_buffer=256 << 10)
    most = int(str(caught.value).split("at most ")[1].split()[0])
    assert (256 << 10) - 1000 < most < 256 << 10
    with pytest.raises(ValueError, match=f"reserve_buffer is {most + 1}, "):
        world.add_flows(0, 1, MIB, reserve_buffer=most + 1)
    world.add_flows(0, 1, MIB, reserve_buffer=most)
    finish(world)
    assert STATES[world.flows()["state"][0]] == "done"


def test_a_flow_that_was_refused_never_finishes() -> None:
    world = World()
    star(world, 3)
    world.add_flows([0, 1], 2, MIB, 5 * MICROSECOND, reserve=60 * GIGABIT)
    finish(world)
    flows = world.flows()
    assert [STATES[state] for state in flows["state"]] == ["done", "refused"]
    assert flows["finish"][0] < 2**64 - 1
    assert flows["finish"][1] == 2**64 - 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"transport": "uc"}, "only RC"),
        ({"read": True}, "READ"),
        ({"reserve_buffer": 100}, "depth messages are more"),
        ({"message": 64 << 10}, "depth messages are more"),
        ({"depth": 16}, "depth messages are more"),
        ({"level": 1}, "no buffer to reserve"),
    ],
)
def test_what_has_no_buffer_to_reserve_is_refused(given: dict[str, Any], message: str) -> None:
    world = World()
    lanes = [{"flow": "lossy"}, {"flow": "credits", "room": 32 << 10}]
    star(world, 2, lanes=lanes, buffer=1 << 20)
    world.add_flows(0, 1, MIB, reserve_buffer=32 << 10)
    with pytest.raises(ValueError, match=message):
        world.add_flows(0, 1, MIB, **{"reserve_buffer": 32 << 10, **given})
