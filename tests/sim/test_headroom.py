# SPDX-License-Identifier: Apache-2.0
"""Headroom: a lane with pauses loses nothing, whatever its threshold is and who else fills it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.sim.fabrics import GIGABIT, MIB, MICROSECOND, CheckedWorld
from verbena.sim import Scenario, ScenarioError, World

FRAME, PAUSE = 4096, 84
TIMES = (0, 300_000, 2 * MICROSECOND, 10 * MICROSECOND)
ALPHAS = (0.03, 0.25, 1.0, 8.0)


def need(delay: int, lanes: int = 1, response: int = 0) -> int:
    """2 d C, the frames that cross, that the pause waits for and that has begun; and the pauses."""
    return -(-(2 * delay + response) // 80) + 3 * FRAME + lanes * PAUSE


def crowd(
    lane: dict[str, Any], delay: int, buffer: int, *, lanes: int = 1, seed: int = 1, **link: Any
) -> CheckedWorld:
    """Frames of changing length both ways, and bursts that go first and fill the shared buffer."""
    world = CheckedWorld(seed, framing="bare", window=16 * MIB, timeout=8)
    world.may_overrun = True
    lossy = {"flow": "lossy", "alpha": 4.0}
    tables = {"high": [(lanes, 1)], "low": [(n, 64) for n in range(lanes)], "high_limit": 255}
    center = world.add_switch(8, lanes=[lane] * lanes + [lossy], buffer=buffer, **tables)
    for port in range(8):
        wire = {"rate": 100 * GIGABIT, "delay": delay, **link}
        world.connect(world.add_host(), 0, center, port, **wire)
    world.set_routes(center, np.arange(8))
    random = np.random.default_rng(seed)
    for level in range(lanes):
        way = {"depth": 32, "level": level}
        start = random.integers(0, 30 * MICROSECOND, 10)
        world.add_flows(
            [0, 1, 2, 3, 0, 1], [4, 4, 5, 4, 5, 5], MIB, start[:6], message=8 * FRAME + 900, **way
        )
        world.add_flows([4, 5, 4, 5], range(4), MIB, start[6:], message=FRAME + 900, **way)
    bursts = 30
    world.add_flows(
        random.choice([6, 7], bursts), random.choice([4, 5], bursts),
        random.integers(FRAME, 1 << 18, bursts), random.integers(0, 200 * MICROSECOND, bursts),
        level=lanes, transport="uc",
    )  # fmt: skip
    return world


def lost(world: CheckedWorld) -> int:
    assert world.run() == "done"
    links = world.links()
    assert links["pauses"].sum() > 10
    assert (world.flows()["resent"].sum() > 0) == (links["dropped_headroom"].sum() > 0)
    return int(links["dropped_headroom"].sum())


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("delay", TIMES)
def test_a_threshold_that_shrinks_takes_no_headroom_away(delay: int, alpha: float) -> None:
    lane = {"flow": "pauses", "alpha": alpha, "spare": need(delay)}
    for buffer in (1 << 17, MIB):
        world = crowd(lane, delay, buffer)
        assert world.advice() == []
        assert lost(world) == 0
    assert "spare" in crowd({**lane, "spare": need(delay) - 1}, delay, MIB).advice()[0]


@pytest.mark.parametrize("stop", [4 * FRAME, 50_000, 200_000])
@pytest.mark.parametrize("buffer", [0, 1 << 15, MIB])
def test_nor_does_a_buffer_that_others_have_filled(stop: int, buffer: int) -> None:
    """An input that finds no shared buffer pauses its link early, and has its headroom."""
    delay = MICROSECOND
    lane = {"flow": "pauses", "stop": stop, "go": stop // 2, "spare": need(delay)}
    assert lost(crowd(lane, delay, buffer)) == 0


def test_lanes_whose_pauses_wait_for_each_other_lose_nothing() -> None:
    delay, response = MICROSECOND, 500_000
    for way in ({"alpha": 0.5}, {"stop": 30_000, "go": 10_000}):
        lane = {"flow": "pauses", "spare": need(delay, 3, response), **way}
        world = crowd(lane, delay, MIB, lanes=3, pause_response=response)
        assert world.advice() == []
        assert lost(world) == 0


@pytest.mark.parametrize("way", [{"alpha": 0.25}, {"stop": 50_000, "go": 25_000}])
def test_less_than_a_round_trip_is_lost(way: dict[str, Any]) -> None:
    delay = 2 * MICROSECOND
    lane = {"flow": "pauses", "spare": need(delay) - 4 * FRAME, **way}
    world = crowd(lane, delay, MIB)
    assert "no loss takes" in world.advice()[0]
    assert lost(world) > 0
    assert "headroom" in (world.check() or "")


def test_headroom_is_beside_the_buffer() -> None:
    """Of a blocked output an input holds alpha / (1 + alpha) of the buffer, and its headroom."""
    delay, buffer = 2 * MICROSECOND, 60 * FRAME
    lane = {"flow": "pauses", "alpha": 1.0, "spare": need(delay)}
    world = CheckedWorld(framing="bare", window=16 * MIB, timeout=0)
    center = world.add_switch(2, lanes=[lane], buffer=buffer)
    for port in range(2):
        wire = {"rate": 100 * GIGABIT, "delay": delay}
        world.connect(world.add_host(), 0, center, port, **wire)
    world.set_routes(center, [0, 1])
    world.add_flows(0, 1, 4 * MIB)
    world.pause_storm(2, 0, 100 * MICROSECOND)  # host 1
    samples = world.sample(MICROSECOND, [(center, 0)])
    assert world.run() == "done"
    most = int(samples.data["held"].max())
    assert most > buffer // 2 + 2 * delay // 80
    assert most <= buffer // 2 + need(delay)
    assert samples.data["held"][-1, 0] == 0


SCENARIO = """\
[fabric]
topology = "one_switch"
hosts = 4
rate = "100GbE"
delay = "1 us"

[switch]
flow = "pauses"
alpha = 0.5
spare = %d
buffer = "64 KiB"

[adapter]
framing = "bare"

[[traffic]]
name = "in"
pattern = "flows"
from = ["h0", "h1", "h2"]
to = "h3"
size = "1 MiB"
"""


def test_a_scenario_knows_how_much_it_takes() -> None:
    """The buffer may be smaller than what all inputs may hold: they pause earlier."""
    room = need(MICROSECOND)
    result = Scenario.parse(SCENARIO % room).run()
    assert result.dropped == {}
    assert result.wrong is None
    with pytest.raises(ScenarioError, match=f"{room} bytes still come"):
        Scenario.parse(SCENARIO % (room - 1))


def test_hpcc_makes_frames_longer() -> None:
    plain, hpcc = (
        World(mtu=1024, congestion=kind)
        for kind in (None, {"kind": "hpcc", "base_rtt": 5 * MICROSECOND})
    )
    needs = []
    for world in (plain, hpcc):
        world.add_switch(2, lanes=[{"flow": "pauses", "stop": 1, "spare": 0}])
        world.connect(world.add_host(), 0, 0, 0, rate=GIGABIT, delay=0)
        needs.append(int(world.advice()[0].rsplit(" ", 1)[1]))
    assert needs[1] - needs[0] == 3 * 42


def test_a_room_is_of_no_use_to_a_lane_with_pauses() -> None:
    """And takes nothing of the headroom, which is where others have theirs."""
    lane = {"flow": "pauses", "stop": 8192, "go": 4096, "spare": need(MICROSECOND), "room": 100_000}
    world = crowd(lane, MICROSECOND, 256 << 10)
    assert lost(world) == 0
