# SPDX-License-Identifier: Apache-2.0
"""UC and UD flows that lost packets are incomplete, and not done: in the world, in results, files
and sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sim.fabrics import MIB, MICROSECOND, finish, star, until
from verbena.sim import Scenario, ScenarioResult, World
from verbena.sim._world import STATES
from verbena.sim.result import DONE, INCOMPLETE
from verbena.sim.sweeps import measures
from verbena.sim.timeline import events

PACKET = 4096
INCAST = """\
[fabric]
topology = "one_switch"
hosts = 9
rate = "100GbE"
delay = "1 us"

[switch]
buffer = "64 KiB"

[[traffic]]
name = "burst"
pattern = "incast"
senders = 8
size = "1 MiB"
transport = "uc"
"""


@pytest.fixture(scope="module")
def incast() -> ScenarioResult:
    return Scenario.parse(INCAST).run()


def test_an_incast_of_uc_is_not_done(incast: ScenarioResult) -> None:
    flows = incast.flows
    assert incast.packets["dropped"] > 1500
    assert set(flows["state"].tolist()) <= {DONE, INCOMPLETE}
    assert (flows["state"] == INCOMPLETE).sum() >= 7
    assert (flows["done"] + flows["lost"] == MIB).all()
    assert flows["lost"].sum() >= incast.packets["dropped"] * PACKET


def test_nothing_is_completed_faster_than_it_can_be_sent(incast: ScenarioResult) -> None:
    assert len(incast.durations()) == (incast.flows["state"] == DONE).sum()
    assert (incast.durations() > MIB * 80).all()


def test_the_summary_says_how_much_is_lost(incast: ScenarioResult) -> None:
    done = len(incast.durations())
    line = next(line for line in incast.summary().splitlines() if "burst" in line)
    assert f"{done} of 8 flows" in line
    assert f"{8 - done} incomplete" in line
    assert "MiB lost" in line


def test_tables_and_sweeps_have_what_is_delivered_and_lost(
    incast: ScenarioResult, tmp_path: Path
) -> None:
    row = measures(incast)
    assert row["done"] + row["incomplete"] == 8
    assert row["delivered"] + row["lost"] == 8 * MIB
    assert row["delivered"] == incast.flows["done"].sum() < MIB * 4
    incast.to_parquet(tmp_path)
    again = ScenarioResult.from_parquet(tmp_path)
    assert (again.flows["lost"] == incast.flows["lost"]).all()
    first, *lines = incast.summary().splitlines()
    assert first.startswith(
        "scenario: done after 92.6 us, simulated in "
    )  # the files have no wall time
    head = f"scenario: done after 92.6 us ({incast.events:,} events)"
    assert again.summary().splitlines() == [head, *lines]
    slices = [event["args"] for event in events(incast) if event["ph"] == "X"]
    assert [each["lost"] for each in slices] == incast.flows["lost"].tolist()
    assert {each["state"] for each in slices} == {STATES[n] for n in incast.flows["state"]}


def test_goodput_ends_with_an_incomplete_flow() -> None:
    """Its last packet ends it, and not the end of the run."""
    text = INCAST.replace("[fabric]", 'duration = "10 ms"\n[fabric]', 1)
    result = Scenario.parse(text).run()
    last = int(result.flows["finish"].max())
    assert last < 100 * MICROSECOND
    assert result.goodput("burst") == pytest.approx(result.flows["done"].sum() * 8e12 / last)


def crowded(transport: str, **given: Any) -> World:
    made = World(seed=1)
    star(made, 4, buffer=32 << 10)
    made.add_flows([1, 2], 0, MIB, message=PACKET, depth=8, transport=transport, **given)
    return made


@pytest.mark.parametrize("transport", ["uc", "ud"])
def test_what_is_lost_is_known_while_a_flow_runs(transport: str) -> None:
    """With what is delivered and what is under way it is what was sent."""
    world = crowded(transport)
    for at in range(20, 160, 20):
        until(world, at * MICROSECOND)
        flows, packets = world.flows(), world.packets
        way = packets["sent"] - packets["delivered"] - packets["dropped"]
        assert int(flows["lost"].sum()) == packets["dropped"] * PACKET
        assert int(flows["done"].sum()) == packets["delivered"] * PACKET
        assert way <= 40
    finish(world)
    assert int(world.flows()["lost"].sum()) == world.packets["dropped"] * PACKET


def test_a_flow_of_which_nothing_arrives_is_incomplete() -> None:
    world = World()
    center = star(world, 3)
    world.set_link(center, 0, up=False, at=0)
    world.add_flows([1, 2], 0, 8 * PACKET, transport=["uc", "ud"])
    world.add_flows(1, 2, PACKET, transport="uc")
    finish(world)
    flows = world.flows()
    assert [STATES[state] for state in flows["state"]] == ["incomplete", "incomplete", "done"]
    assert flows["lost"].tolist() == [8 * PACKET, 8 * PACKET, 0]


@pytest.mark.parametrize("sends", [0, 2])
def test_a_group_has_lost_what_a_member_did_not_get(sends: int) -> None:
    """The sender, whether a member or not, is none of those that are to get it."""
    world = World(framing="bare")
    center = star(world, 6)
    members = [1, 2, 4, 5]
    group = world.add_group(members, {center: members})
    world.set_link(center, 4, up=False, at=0)
    world.set_link(center, 5, up=False, at=10 * MICROSECOND)
    world.add_flows(sends, group, 100 * PACKET, transport="ud", multicast=True)
    finish(world)
    flow, others = world.flows()[0], len(set(members) - {sends})
    got = sum(world.counters(host)["payload_received"] for host in members)
    assert flow["done"] == got
    assert flow["lost"] == others * 100 * PACKET - got > 100 * PACKET
    assert flow["state"] == INCOMPLETE


def test_who_waits_for_an_incomplete_flow_starts() -> None:
    """As before: when nothing of it is under way any more."""
    world = World()
    center = star(world, 3)
    world.set_link(center, 0, up=False, at=0)
    world.add_flows([1, 2], [0, 1], PACKET, transport="uc", after=[[0, 1]])
    finish(world)
    assert [STATES[state] for state in world.flows()["state"]] == ["incomplete", "done"]


def test_reliable_flows_lose_nothing() -> None:
    world = crowded("rc")
    finish(world)
    flows = world.flows()
    assert world.packets["dropped"] > 0
    assert flows["lost"].tolist() == [0, 0]
    assert np.all(flows["state"] == DONE)
