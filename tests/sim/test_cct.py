# SPDX-License-Identifier: Apache-2.0
"""InfiniBand's congestion control table: its entries, levels and log, and when it is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.sim.fabrics import GIGABIT, MIB, MICROSECOND, finish, star
from verbena.sim import Scenario, ScenarioError, World
from verbena.sim.world_settings import Cct, CctLevel

STEP = 1_024_000  # ps of CCTI_Timer


def hotspot(until: int = 20_000 * MICROSECOND, **cct: Any) -> World:
    """Eight hosts of 100 Gb/s send to one of 10 Gb/s, and a victim of 40 Gb/s over their trunk."""
    settings = {"kind": "cct", "gaps": range(128), **cct}
    world = World(framing="infiniband", mtu=2048, timeout=0, congestion=settings)
    lanes = {"lanes": [{"flow": "credits", "room": 64 << 10}]}
    left = world.add_switch(10, fecn=16 << 10, **lanes)
    right = world.add_switch(3, fecn=16 << 10, **lanes)
    delay = MICROSECOND // 10
    for port, rate in enumerate([100] * 8 + [40]):
        world.connect(world.add_host(), 0, left, port, rate=rate * GIGABIT, delay=delay)
    for port, rate in ((0, 10), (1, 40)):
        world.connect(world.add_host(), 0, right, port, rate=rate * GIGABIT, delay=delay)
    world.connect(left, 9, right, 2, rate=100 * GIGABIT, delay=delay)
    world.set_routes(left, [*range(9), 9, 9])
    world.set_routes(right, [2] * 9 + [0, 1])
    world.add_flows(range(8), 9, 1 << 40)
    world.add_flows(8, 10, 1 << 40)
    world.run(until=until)
    return world


def victim(world: World) -> float:
    """Gb/s that it gets in as much time again."""
    at, before = world.now, world.counters(10)["payload_received"]
    world.run(until=2 * at)
    return (world.counters(10)["payload_received"] - before) * 8e3 / at


@pytest.mark.parametrize("timer", [150, 50])
def test_each_marked_packet_is_told_so_that_a_victim_is_free(timer: int) -> None:
    """With DCQCN's 50 us between two notices the sources do not slow enough for a short timer."""
    assert victim(hotspot(timer=timer * STEP)) == pytest.approx(39.5, abs=1)


def test_dcqcn_s_interval_is_what_keeps_a_victim_caught() -> None:
    """The same with 50 us between two notifications: what was the default."""
    caught = hotspot(timer=50 * STEP, notice_interval=50 * MICROSECOND)
    assert victim(caught) < 5


def test_notices_balance_the_timer() -> None:
    """At rest each source gets a BECN for each time that its timer expires."""
    world = hotspot()
    before, at = world.flows()["notices"][:8].astype(int), world.now
    world.run(until=3 * at)
    each = 2 * at / (world.flows()["notices"][:8] - before)
    assert each.mean() / STEP == pytest.approx(150, rel=0.15)


def alone(**cct: Any) -> float:
    """The rate of a flow without notices, as a part of its line's."""
    world = World(framing="bare", congestion={"kind": "cct", **cct})
    star(world, 2)
    world.add_flows(0, 1, 512 * 4096)
    finish(world)
    # Two links, a packet's time of the second one, and an acknowledgement come on top.
    late = 4 * MICROSECOND + 4096 * 80 + 2 * 64 * 80
    return 512 * 4096 * 80 / (int(world.flows()["finish"][0]) - late)


@pytest.mark.parametrize(
    ("gap", "nearest"),
    [(0.125, 0.125), (0.3, 0.25), (1 / 3, 0.375), (2.5, 2.5), (7.07, 7.125), (0.06, 0), (20, 20)],
)
def test_a_gap_is_the_nearest_entry(gap: float, nearest: float) -> None:
    """A multiplier of 14 bits and a shift of 2 (IBA A10)."""
    assert alone(gaps=[gap]) == pytest.approx(1 / (1 + nearest), rel=0.005)


def test_a_level_has_its_own_settings() -> None:
    """Two senders of level 0 and 1, of which the latter does not slow down."""
    cct = {"kind": "cct", "gaps": np.arange(64), "timer": 10**9, "levels": {1: {"increase": 0}}}
    world = World(framing="infiniband", congestion=cct)
    star(world, 3, fecn=8 << 10)
    world.add_flows([0, 1], 2, 1 << 40, level=[0, 1])
    world.run(until=2000 * MICROSECOND)
    assert world.flows()["notices"].min() > 10
    links = world.links()
    sent = [int(links["bytes"][links["node"] == world_host][0]) for world_host in (1, 2)]
    assert sent[1] > 5 * sent[0]


def test_an_index_begins_at_its_least() -> None:
    assert alone(gaps=[0, 1, 3], min=1) == pytest.approx(0.5, rel=0.005)


def test_an_index_that_reaches_its_trigger_is_logged() -> None:
    """Of each host the last 13 events, as in CongestionLog."""
    world = World(framing="infiniband", congestion={"kind": "cct", "gaps": range(8), "trigger": 3})
    star(world, 4, fecn=8 << 10)
    world.add_flows([0, 1], 3, MIB, [0, 0])
    finish(world)
    for host in (0, 1):
        log = world.congestion_log(host)
        assert 1 <= len(log) <= 13
        assert set(log["flow"]) == {host}
        assert (np.diff(log["time"].astype(np.int64)) > 0).all()
    assert len(world.congestion_log(2)) == 0
    with pytest.raises(ValueError, match="there is no host 4"):
        world.congestion_log(4)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"gaps": [0, 16384]}, "gaps.1 is 16384, and not a number from 0 to 16383"),
        ({"gaps": [0, 1], "min": 2}, "min is 2"),
        ({"gaps": [0, 1], "trigger": 2}, "trigger is 2"),
        ({"gaps": [0, 1], "levels": {16: {}}}, "levels has 16, which is no level"),
        ({"gaps": [0, 1], "levels": {1: {"gap": 2}}}, "levels.1: unknown key gap"),
        ({"gaps": [0, 1], "levels": 3}, "levels is 3"),
    ],
)
def test_what_a_table_cannot_have_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        World(congestion={"kind": "cct", **given})


SCENARIO = """\
[fabric]
topology = "one_switch"
hosts = 3
rate = "100GbE"

[congestion]
kind = "cct"
gaps = [0, 0.5, 1]
timer = "50 us"

[congestion.levels.2]
timer = "10 us"
min = 1

[[traffic]]
pattern = "flows"
from = ["h0"]
to = "h2"
size = "1 MiB"
"""


def test_a_scenario_has_levels() -> None:
    made = Scenario.parse(SCENARIO).adapter.congestion
    assert isinstance(made, Cct)
    assert made.levels == {2: CctLevel(timer=10 * MICROSECOND, min=1)}
    for old, new, words in (
        ("levels.2", "levels.16", r"congestion\.levels\.16 is no service level"),
        ("min = 1", "mim = 1", r"levels\.2\.mim is unknown \(is 'min' meant\?\)"),
    ):
        with pytest.raises(ScenarioError, match=words):
            Scenario.parse(SCENARIO.replace(old, new))
