# SPDX-License-Identifier: Apache-2.0
"""Range extenders: a pair of boxes with buffers of their own, one at each end of a long line."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.fabrics import GIGABIT, LINK, MIB, CheckedWorld, credits, finish
from verbena.sim import World

RATE, PACKET = 97 * GIGABIT, 4096
KM = 5_000_000  # ps


def far(km: float, extender: int, lanes: int = 1) -> tuple[World, int, tuple[int, int] | None]:
    """A host, far from a switch, and one at it."""
    world = CheckedWorld(framing="bare", window=256 * MIB, timeout=0)
    center = world.add_switch(2, **credits(128 << 10, lanes))
    link = {"rate": RATE, "delay": int(km * KM)}
    boxes = world.connect(center, 0, world.add_host(), 0, extender=extender, **link)
    world.connect(world.add_host(), 0, center, 1, rate=RATE, delay=0)
    world.set_routes(center, [0, 1])
    return world, center, boxes


def share(km: float, extender: int, away: bool) -> float:
    """Of the line, to the far host or from it."""
    world, _, _ = far(km, extender)
    world.add_flows(int(away), int(not away), 32 * MIB)
    finish(world)
    took = int(world.flows()["finish"][0]) - 2 * int(km * KM)
    return 32 * MIB * 8e12 / RATE / took


@pytest.mark.parametrize("away", [True, False])
def test_beyond_the_window_of_credits_a_pair_of_extenders_fills_the_line(away: bool) -> None:
    """V7, V8: 128 KiB of credits reach 1.08 km at 97 Gb/s; a pair as far as its buffer does."""
    trip = 2 * 10 * KM * RATE / 8e12
    assert share(10, 0, away) == pytest.approx((128 << 10) / trip, rel=0.02)
    assert share(10, int(trip) + 3 * PACKET, away) == pytest.approx(1, rel=0.01)
    assert share(10, int(trip / 2), away) == pytest.approx(0.5, rel=0.02)


def test_each_lane_has_the_whole_buffer() -> None:
    """A lane that is stopped behind the line keeps its own, and no other's."""
    trip = int(2 * 10 * KM * RATE / 8e12) + 3 * PACKET
    world, _center, boxes = far(10, trip, lanes=2)
    assert boxes is not None
    world.add_flows(0, 1, 8 * MIB, level=0)
    world.add_flows(0, 1, 8 * MIB, level=1)
    queues = world.sample(KM // 10, [(boxes[1], 1, lane) for lane in (0, 1)])
    finish(world)
    assert (queues.data["credits"].max(axis=0) == trip // 64 * 64).all()
    assert world.links()["stalled"].max() < 100 * PACKET * 80


def test_what_stops_at_the_far_end_is_in_the_extenders_buffer() -> None:
    """Two senders into one port: what is on the line when its switch stops finds room."""
    world = CheckedWorld(framing="bare", window=256 * MIB, timeout=0)
    center = world.add_switch(3, **credits(64 << 10))
    boxes = None
    for port, km in enumerate((0, 0, 10)):
        extender = 2 * MIB if km else 0
        link = {"rate": RATE, "delay": km * KM}
        boxes = world.connect(center, port, world.add_host(), 0, extender=extender, **link) or boxes
    assert boxes is not None
    world.set_routes(center, [0, 1, 2])
    world.add_flows([1, 2], 0, 16 * MIB)
    held = world.sample(KM, [(boxes[0], 1)])
    finish(world)
    most = int(held.data["held"].max())
    assert MIB < most <= 2 * MIB
    assert (
        world.links()[[f"dropped_{why}" for why in ("full", "headroom")]].tolist() == [(0, 0)] * 10
    )


def test_routes_promises_and_groups_lead_through() -> None:
    world, center, boxes = far(1, MIB)
    assert boxes is not None
    group = world.add_group([0], {center: [0, 1]})
    world.add_flows(1, group, 4096, transport="ud", multicast=True)
    world.add_flows([0, 1], [1, 0], MIB, reserve=GIGABIT)
    world.add_flows(0, 1, MIB, reserve=97 * GIGABIT)
    finish(world)
    assert world.flows()["state"].tolist() == [2, 2, 2, 4]
    assert world.flows()["done"][0] == 4096
    with pytest.raises(ValueError, match="it has no routes"):
        world.set_routes(boxes[0], [0, 1])


def test_a_buffer_that_is_too_small_is_named() -> None:
    world, _, boxes = far(10, MIB)
    assert boxes is not None
    said = world.advice()
    assert len(said) == 2
    assert f"port 1 of node {boxes[0]} has a room of {MIB}: the full rate takes" in said[0]
    world, _, _ = far(10, 2 * MIB)
    assert world.advice() == []


def test_what_has_no_credits_has_no_extender() -> None:
    world = World()
    plain, lossy = world.add_switch(2), world.add_switch(2, lanes=[{"flow": "lossy"}])
    good, two = (world.add_switch(2, **credits(64 << 10, lanes)) for lanes in (1, 2))
    hosts = [world.add_host() for _ in range(2)]
    world.connect(good, 1, hosts[1], 0, **LINK)
    nodes = world.nodes
    for a, b, message in (
        (hosts[0], plain, "without lanes"),
        (lossy, hosts[0], "has no credits"),
        (good, two, "different numbers of lanes"),
        (hosts[0], hosts[1], "in use"),
        (good, hosts[1], "in use"),
    ):
        with pytest.raises(ValueError, match=message):
            world.connect(a, 0, b, 0, extender=MIB, **LINK)
    with pytest.raises(ValueError, match="extender is 100"):
        world.connect(good, 0, hosts[0], 0, extender=100, **LINK)
    assert world.nodes == nodes
    assert np.array_equal(world.links()["node"], [good, hosts[1]])


def test_an_extender_holds_a_packet_in_whole_blocks_of_credit() -> None:
    world = CheckedWorld(timeout=1, retry_count=0)
    switch = world.add_switch(2, lanes=[{"flow": "credits", "room": 4224}])
    hosts = [world.add_host(), world.add_host()]
    link = {"rate": RATE, "delay": 1000}
    with pytest.raises(ValueError, match="extender is 4194, and not a whole number from 4224"):
        world.connect(hosts[0], 0, switch, 0, extender=4194, **link)
    world.connect(hosts[0], 0, switch, 0, extender=4224, **link)
    world.connect(hosts[1], 0, switch, 1, **link)
    world.set_routes(switch, [0, 1])
    world.add_flows([0, 1], [1, 0], 3 * PACKET)
    assert world.run() == "done"
    assert world.check(at_rest=True) is None
    assert (world.flows()["state"] == 2).all()
