# SPDX-License-Identifier: Apache-2.0
"""RC with timeout 0: who is warned before a run, and what the run says when flows cannot end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.fabrics import GIGABIT, LINK, MIB, MICROSECOND, credits, star
from verbena import fabrics
from verbena.sim import Scenario, World, build

LOSSY = {"lanes": [{"flow": "lossy"}, {"flow": "credits", "room": 64 << 10}]}


def advice(world: World) -> str:
    found = [text for text in world.advice() if "timeout" in text]
    assert len(found) <= 1
    return found[0] if found else ""


def two_ways(balance: str, timeout: int) -> World:
    """Three hosts at each of two switches, and two ways between them, one of which is longer."""
    world = World(timeout=timeout, mtu=1024)
    ends = [world.add_switch(5, balance=balance) for _ in range(2)]
    for way, delay in ((0, MICROSECOND), (1, 4 * MICROSECOND)):
        world.connect(ends[0], way, ends[1], way, rate=100 * GIGABIT, delay=delay)
    for end in ends:
        for port in (2, 3, 4):
            world.connect(world.add_host(), 0, end, port, **LINK)
    here, there = [[port, -1] for port in (2, 3, 4)], [[0, 1]] * 3
    world.set_routes(ends[0], here + there)
    world.set_routes(ends[1], there + here)
    return world


def test_a_nak_that_is_overtaken_is_followed_by_nothing_without_a_timeout() -> None:
    """With the timer the same flows end."""
    for timeout, end in ((0, "stalled"), (5, "done")):
        world = two_ways("packet", timeout)
        world.add_flows([0, 1, 2], [3, 4, 5], 256 << 10, message=8192)
        assert ("overtaken" in advice(world)) == (timeout == 0)
        assert world.run() == end
        assert world.check(at_rest=True) is None
        states = set(world.flows()["state"].tolist())
        assert (1 in states) == (world.flows_left > 0) == (end == "stalled")


def test_flows_that_keep_their_order_need_no_warning() -> None:
    world = two_ways("flow", 0)
    world.add_flows(0, 3, MIB)
    assert advice(world) == ""
    assert world.run() == "done"


@pytest.mark.parametrize(
    ("words", "switch", "link"),
    [
        ("node 0 drops what does not fit", {"buffer": MIB}, {}),
        ("node 0 drops what does not fit", {"buffer": MIB, **LOSSY}, {}),
        ("drops what has waited", {"lifetime": 10**9, **credits(64 << 10)}, {}),
        (
            "the watchdog of node 0",
            {
                "lanes": [{"flow": "pauses", "stop": MIB, "spare": MIB}],
                "watchdog": {"detect": MICROSECOND},
            },
            {},
        ),
        ("has bit errors", {}, {"bit_error_rate": 1e-9}),
        ("", {}, {}),
        ("", {"buffer": MIB, **credits(64 << 10)}, {}),
        ("", {"balance": "packet"}, {}),  # one way to each host
    ],
)
def test_what_may_lose_packets_is_named(
    words: str, switch: dict[str, Any], link: dict[str, Any]
) -> None:
    for timeout, transport in ((0, "rc"), (14, "rc"), (0, "uc"), (0, "tcp")):
        world = World(timeout=timeout)
        star(world, 3, {**LINK, **link}, **switch)
        assert advice(world) == ""  # no flows
        world.add_flows(0, 1, MIB, transport=transport)
        said = advice(world)
        if timeout == 0 and transport == "rc" and words:
            assert words in said
            assert said.startswith("RC flows have timeout 0 and may never end")
        else:
            assert said == ""


def test_only_lanes_of_the_flows_count() -> None:
    for level, warned in ((0, True), (1, False)):
        world = World(timeout=0)
        star(world, 3, buffer=MIB, **LOSSY)
        world.add_flows(0, 1, MIB, level=level)
        assert bool(advice(world)) == warned


@pytest.mark.parametrize(("per", "warned"), [("packet", True), ("flow", False)])
def test_detours_of_packets_are_named(per: str, warned: bool) -> None:
    fabric = fabrics.dragonfly(2, 4, 2)
    world = World(timeout=0)
    routes = fabrics.route(fabric, "valiant", per=per)
    lane = {"flow": "credits", "room": 64 << 10}
    build(world, routes, {"lanes": [lane] * routes.lanes.lanes})
    world.add_flows(0, world.hosts - 1, MIB)
    assert ("detours" in advice(world)) == warned


def test_a_link_that_goes_down_is_named_and_leaves_a_run_stalled() -> None:
    world = World(timeout=0)
    star(world, 2)
    world.set_link(0, 1, False, 10 * MICROSECOND)
    world.add_flows(0, 1, MIB)
    assert "a link goes down" in advice(world)
    assert world.run(until=500 * MICROSECOND) == "stalled"
    assert world.run() == "stalled"
    assert world.flows()["state"].tolist() == [1]


SCENARIO = """\
%s
[fabric]
topology = "diamond"
hosts = 3
paths = 2
rate = "100GbE"
delay = "1 us"

[[link]]
between = "s0-m1"
delay = "4 us"
%s

[routing]
engine = "ecmp"
balance = "%s"

[switch]
%s

[adapter]
timeout = %d

[[traffic]]
name = "flows"
pattern = "flows"
from = ["h0", "h1", "h2"]
to = ["h3", "h4", "h5"]
size = "1 MiB"
message = 32768
transport = "%s"
"""


def scenario(
    top: str = "", link: str = "", balance: str = "flow", switch: str = "", timeout: int = 0,
    transport: str = "rc",
) -> Scenario:  # fmt: skip
    return Scenario.parse(SCENARIO % (top, link, balance, switch, timeout, transport))


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("switches balance by packet", {"balance": "packet"}),
        ("drop what does not fit", {"switch": 'buffer = "1 MiB"'}),
        (
            "waited for its lifetime",
            {"switch": 'lifetime = "1 ms"\nflow = "credits"\nroom = 65536'},
        ),
        ("links have bit errors", {"link": "bit_error_rate = 1e-9"}),
        ("a link goes down", {"top": '[[event]]\nlink = "h0-s0"\nat = "1 ms"\nup = false\n'}),
    ],
)
def test_a_scenario_notes_it_before_the_run(words: str, given: dict[str, str]) -> None:
    def notes(**more: Any) -> list[str]:
        return [note for note in scenario(**{**given, **more}).notes if "RC has no" in note]

    said = notes()
    assert len(said) == 1
    assert words in said[0]
    assert "adapter.timeout = 0" in said[0]
    assert notes(timeout=8) == notes(transport="uc") == []
    assert scenario().notes == ()


@pytest.mark.parametrize("duration", ["", 'duration = "50 ms"'])
def test_a_scenario_that_cannot_end_is_stalled(duration: str) -> None:
    result = scenario(duration, balance="packet").run()
    assert result.end == "stalled"
    assert "flows never end" in result.summary()
    assert "note: RC has no timeout" in result.summary()
    assert result.wrong is None
