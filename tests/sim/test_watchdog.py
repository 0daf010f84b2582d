# SPDX-License-Identifier: Apache-2.0
"""Pause storms, what a watchdog does about them, and packets that are flooded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.sim.fabrics import LINK, MIB, MICROSECOND, CheckedWorld, star
from verbena.sim import World

LANE: dict[str, Any] = {"flow": "pauses", "stop": 64 << 10, "go": 32 << 10, "spare": 64 << 10}
DETECT, RESTORE = 200 * MICROSECOND, 100 * MICROSECOND


def stormy(lane: int = 0, timeout: int = 8, **watchdog: Any) -> CheckedWorld:
    """Hosts 0 and 1 send to host 2, which breaks at 100 us, and host 0 to host 3."""
    world = CheckedWorld(framing="bare", timeout=timeout, window=256 << 10)
    star(world, 4, lanes=[LANE] * (lane + 1), watchdog=watchdog or None)
    world.add_flows([0, 1, 0], [2, 2, 3], 1 << 40, level=lane)
    return world


def bytes_to(world: World, host: int) -> int:
    return world.counters(host)["payload_received"]


def test_a_storm_stops_all_that_waits_behind_it() -> None:
    world = stormy()
    world.pause_storm(world.nodes - 2, 100 * MICROSECOND)
    assert world.run() == "deadlock"
    assert 100 * MICROSECOND < world.now < 300 * MICROSECOND
    assert bytes_to(world, 3) > 0
    assert world.blocked()[-1][1] == 2  # the switch's port to the broken host


def test_a_storm_that_ends_costs_its_time_alone() -> None:
    world = stormy(timeout=0)
    world.pause_storm(world.nodes - 2, 100 * MICROSECOND, 600 * MICROSECOND)
    world.run(until=590 * MICROSECOND)
    before = bytes_to(world, 2), bytes_to(world, 3)
    world.run(until=500 * MICROSECOND + world.now)
    assert all(bytes_to(world, host) > was + MIB for host, was in zip((2, 3), before, strict=True))
    assert world.links()["storms"].sum() == 0
    assert world.packets["dropped"] == 0


def test_a_watchdog_that_drops() -> None:
    """The broken host gets nothing, the others all, and every packet is accounted for."""
    world = stormy(detect=DETECT, restore=RESTORE)
    world.pause_storm(world.nodes - 2, 100 * MICROSECOND)
    world.run(until=290 * MICROSECOND)
    stopped = bytes_to(world, 3)
    world.run(until=295 * MICROSECOND)
    assert bytes_to(world, 3) == stopped
    world.run(until=2000 * MICROSECOND)
    links = world.links()
    assert links["storms"].sum() == 1
    assert links["dropped_watchdog"].sum() == world.packets["dropped"] > 10
    assert bytes_to(world, 3) > stopped + 10 * MIB


def test_a_watchdog_that_forwards() -> None:
    world = stormy(detect=DETECT, restore=RESTORE, action="forward")
    world.pause_storm(world.nodes - 2, 100 * MICROSECOND)
    world.run(until=290 * MICROSECOND)
    stopped = bytes_to(world, 2)
    world.run(until=2000 * MICROSECOND)
    assert bytes_to(world, 2) > stopped + 10 * MIB
    assert world.packets["dropped"] == 0
    assert world.links()["storms"].sum() == 1


@pytest.mark.parametrize("action", ["drop", "forward"])
def test_what_was_free_for_a_while_is_lossless_again(action: str) -> None:
    world = stormy(detect=DETECT, restore=RESTORE, action=action)
    broken = world.nodes - 2
    world.pause_storm(broken, 100 * MICROSECOND, 500 * MICROSECOND)
    world.run(until=3000 * MICROSECOND)
    lost, got = world.packets["dropped"], bytes_to(world, 2)
    assert (lost > 0) == (action == "drop")
    world.run(until=6000 * MICROSECOND)
    assert world.packets["dropped"] == lost
    assert bytes_to(world, 2) > got + 10 * MIB
    world.pause_storm(broken, 6000 * MICROSECOND)
    world.run(until=8000 * MICROSECOND)
    assert world.links()["storms"].sum() == 2


def test_pauses_that_end_in_time_are_left_alone() -> None:
    """Congestion pauses on and off: as long as packets leave there is nothing to do."""
    world = CheckedWorld(framing="bare", timeout=0)
    star(world, 9, lanes=[LANE], watchdog={"detect": DETECT})
    world.add_flows(np.arange(1, 9), 0, 4 * MIB)
    assert world.run() == "done"
    links = world.links()
    assert links["pauses"].sum() > 100
    assert links["storms"].sum() == 0


def test_a_storm_holds_up_its_lane_alone() -> None:
    world = CheckedWorld(framing="bare", timeout=0)
    star(world, 2, lanes=[LANE, LANE])
    world.add_flows(0, 1, MIB, level=[0, 1])
    world.pause_storm(world.nodes - 1, lane=1)
    assert world.run() == "deadlock"
    assert world.flows()["state"].tolist() == [2, 1]


def test_a_storm_without_traffic_lets_a_run_end() -> None:
    world = CheckedWorld(framing="bare", timeout=0)
    star(world, 3, lanes=[LANE])
    world.add_flows(0, 1, MIB)
    world.pause_storm(world.nodes - 1)
    assert world.run() == "done"


def test_what_has_no_port_is_flooded() -> None:
    """To all hosts but the sender, of which only the one that it is for takes it."""
    world = CheckedWorld(framing="bare", timeout=0)
    center = star(world, 4, lanes=[LANE], floods=True)
    world.set_routes(center, [0, 1, -1, 3])
    world.add_flows(0, 2, 100 * 4096, transport="uc", message=4096)
    world.add_flows(1, 2, 100 * 4096)
    assert world.run() == "done"
    assert world.flows()["done"].tolist() == [100 * 4096] * 2
    links = world.links()
    from_center = links["packets"][(links["node"] == center)]
    assert from_center[1:].min() >= 200
    assert bytes_to(world, 1) == bytes_to(world, 3) == 0


def test_another_switch_drops_what_was_flooded() -> None:
    world = CheckedWorld(framing="bare", timeout=0)
    one, other = (world.add_switch(2, lanes=[LANE], floods=True) for _ in range(2))
    for node in (one, other):
        world.connect(world.add_host(), 0, node, 0, **LINK)
    world.connect(one, 1, other, 1, **LINK)
    world.set_routes(one, [0, -1])
    world.set_routes(other, [1, 0])
    world.add_flows(0, 1, 100 * 4096, transport="uc")
    assert world.run() == "done"
    assert world.packets == {"sent": 100, "delivered": 0, "dropped": 100}
    assert world.links()["dropped_route"].sum() == 100


@pytest.mark.parametrize(
    ("watchdog", "message"),
    [
        ({"detect": 0}, "detect is 0"),
        ({"restore": 1}, "watchdog needs detect"),
        ({"detect": 1, "action": "reboot"}, "action is 'reboot', and not one of drop, forward"),
        ({"detect": 1, "bark": 1}, "unknown key bark"),
    ],
)
def test_a_watchdog_that_is_none_is_refused(watchdog: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        World().add_switch(2, lanes=[LANE], watchdog=watchdog)


def test_a_storm_that_cannot_be_is_refused() -> None:
    world = World()
    center = star(world, 2, lanes=[LANE, {}])
    for host, given in ((center, {}), (99, {}), (1, {"lane": 1}), (1, {"lane": 2})):
        with pytest.raises(ValueError, match=r"there is no node 99|is no host|has no pauses"):
            world.pause_storm(host, **given)
    with pytest.raises(ValueError, match="end is 5 ps, which is not after the start"):
        world.pause_storm(1, 5, 5)
