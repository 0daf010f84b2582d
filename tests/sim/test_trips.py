# SPDX-License-Identifier: Apache-2.0
"""Round trips of routes, and notes and advice of timeouts and windows that are too small."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from verbena import fabrics
from verbena.sim import Scenario, World
from verbena.sim.trips import round_trips

FAR = """\
duration = "20 ms"

[fabric]
topology = "pair"
rate = "100GbE"
length_m = 80_000

[[traffic]]
pattern = "flows"
from = "h0"
to = "h1"
size = "1 GiB"
"""
TEXT = """\
[fabric]
topology = "one_switch"
hosts = 3
rate = "100GbE"
delay = "5 ms"

[adapter]
timeout = 8

[[traffic]]
pattern = "incast"
size = "64 KiB"
"""


def test_a_round_trip_is_delays_and_packets_sent_again_at_each_switch() -> None:
    routes = fabrics.route(fabrics.chain(3, rate="100GbE", delay_ns=1000))
    trips = round_trips(routes, [0, 0], [1, 2], 4096)
    packet = 4096 * 80
    assert trips.tolist() == [6e6 + 3 * packet, 8e6 + 4 * packet]
    assert round_trips(routes, [0], [2], 4096, cut_through=True).tolist() == [8e6 + packet]


def test_the_first_answer_comes_after_the_round_trip_and_soon() -> None:
    scenario = Scenario.parse(
        TEXT.replace("timeout = 8", "timeout = 14").replace("64 KiB", "1 KiB")
    )
    trips = round_trips(scenario.routes, [0, 1], [2, 2], 1024)
    times = scenario.run().durations()
    assert (times >= trips).all()
    assert (times < trips * 1.01).all()


@pytest.mark.parametrize("timeout", range(6, 16))
def test_the_note_says_what_the_run_does(timeout: int) -> None:
    scenario = Scenario.parse(TEXT).changed({"adapter.timeout": timeout})
    result = scenario.run()
    note = " ".join(scenario.notes)
    assert (set(result.flows["state"]) == {3}) == ("so its flows fail" in note)
    again = int(result.flows["retransmissions"].sum()) > 0
    assert again == ("so packets are sent again" in note or "so its flows fail" in note)
    if again:
        assert "the round trip of h0 and h2 is 20 ms or more" in note
        assert note.endswith("adapter.timeout = 13 is longer")
        assert f"note: {note}" in result.summary()


def test_only_rc_is_asked() -> None:
    for line in ('transport = "uc"', 'transport = "tcp"'):
        notes = Scenario.parse(TEXT + line + "\n").notes
        assert notes == ("adapter.timeout: nothing has it, since no traffic is RC",)


def test_the_longest_way_is_named() -> None:
    far = TEXT.replace('delay = "5 ms"\n', 'delay = "1 us"\n[[link]]\nbetween = "h1-s0"\n'
                       'length_m = 500000\n')  # fmt: skip
    (note,) = Scenario.parse(far).notes
    assert "the round trip of h1 and h2 is 5 ms or more" in note
    assert np.isfinite(Scenario.parse(far).run().goodput())


@pytest.mark.parametrize("operation", ["write", "read", "send"])
def test_a_window_that_limits_a_long_link_is_noted(operation: str) -> None:
    scenario = Scenario.parse(FAR).changed({"traffic.0.operation": operation})
    (note,) = scenario.notes
    assert note.startswith("a window of 1 MiB (adapter.window) lets one connection from h0 to h1")
    claimed = float(note.split("at most ")[1].split()[0])
    result = scenario.run()
    assert 0.9 * claimed < result.goodput() / 1e9 < 1.01 * claimed
    assert f"note: {note}" in result.summary()
    enough = note.split("adapter.window = ")[1].split('"')[1]
    wide = scenario.changed({"adapter.window": enough})
    assert wide.notes == ()
    assert wide.run().goodput() / 1e9 > (80 if operation == "read" else 90)


def test_the_window_of_tcp_is_noted_as_well() -> None:
    changes = {"traffic.0.transport": "tcp", "fabric.length_m": 800_000, "duration": "200 ms"}
    changes["tcp.least_rto"] = "50 ms"  # that of 200 ms would be remarked, too
    scenario = Scenario.parse(FAR).changed(changes)
    (note,) = scenario.notes
    assert note.startswith("a window of 16 MiB (tcp.window) lets one connection")
    claimed = float(note.split("at most ")[1].split()[0])
    assert scenario.run().goodput() / 1e9 < 1.01 * claimed
    assert scenario.changed({"tcp.window": "100 MiB"}).notes == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"traffic.0.size": "1 MiB"},  # all of it may be under way
        {"fabric.length_m": 5_000},
        {"traffic.0.transport": "uc"},  # nothing is acknowledged
        {"congestion": {"kind": "hpcc", "base_rtt": "900 us"}},
    ],
)
def test_a_window_that_limits_nothing_is_not_noted(changes: dict[str, object]) -> None:
    assert Scenario.parse(FAR).changed(changes).notes == ()


# ---- World.advice ------------------------------------------------------------------------------


def far_world(**settings: Any) -> World:
    """Two hosts at a switch, one of them 80 km away."""
    world = World(**settings)
    switch = world.add_switch(2)
    for port, delay in enumerate((0, 400_000_000)):
        world.connect(world.add_host(), 0, switch, port, rate=100 * 10**9, delay=delay)
    world.set_routes(switch, [0, 1])
    return world


@pytest.mark.parametrize("options", [{}, {"read": True}])
def test_a_world_advises_of_a_window_that_limits_a_long_link(options: dict[str, Any]) -> None:
    world = far_world()
    world.add_flows(0, 1, 64 << 20, **options)
    (said,) = world.advice()
    assert said.startswith("a window of 1 MiB (window) lets one connection from host 0 to host 1")
    claimed = float(said.split("at most ")[1].split()[0])
    assert world.run() == "done"
    assert (64 << 23) / world.flows()["finish"][0] * 1e3 < 1.01 * claimed
    enough = int(said.split("window=")[1].split()[0])
    wide = far_world(window=enough << 20)
    wide.add_flows(0, 1, 64 << 20, **options)
    assert wide.advice() == []
    assert wide.run() == "done"
    assert wide.flows()["finish"][0] < world.flows()["finish"][0] / 5


def test_a_world_and_a_scenario_say_the_same_of_a_window() -> None:
    scenario = Scenario.parse(FAR)
    (said,), (note,) = scenario.world().advice(), scenario.notes
    same = (
        note.replace("adapter.window)", "window)").replace("h0", "host 0").replace("h1", "host 1")
    )
    assert said.partition(": window=")[0] == same.partition(': adapter.window = "')[0]
    assert said.endswith(": window=10 << 20 fills the link")


def test_one_packet_goes_whatever_the_window_is() -> None:
    small, packet = (
        Scenario.parse(f'{FAR}\n[adapter]\nwindow = "{size} B"\n').notes[0] for size in (256, 4096)
    )
    assert "a window of 256 B" in small
    assert "a window of 4 KiB" in packet
    assert small.partition(" at most ")[2] == packet.partition(" at most ")[2]


def test_a_world_advises_of_the_window_of_tcp() -> None:
    for window, some in ((1 << 20, 1), (10 << 20, 0)):
        world = far_world(tcp={"window": window})
        world.add_flows(0, 1, 64 << 20, transport="tcp")
        assert len(said := world.advice()) == some
        assert all('tcp={"window": 10 << 20} fills' in each for each in said)


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({}, {"size": 1 << 20}),  # all of it may be under way
        ({}, {"transport": "uc"}),  # nothing is acknowledged
        ({"congestion": {"kind": "hpcc", "base_rtt": 900_000_000}}, {}),
    ],
)
def test_a_world_does_not_advise_of_windows_that_limit_nothing(
    settings: dict[str, Any], options: dict[str, Any]
) -> None:
    world = far_world(**settings)
    world.add_flows(0, 1, **{"size": 64 << 20, **options})
    assert world.advice() == []
