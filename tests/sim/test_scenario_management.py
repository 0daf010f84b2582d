# SPDX-License-Identifier: Apache-2.0
"""[management] and [[connect]] of scenarios: bring-up, new routes after a death, connections."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sim.management_claims import thousand
from verbena.sim import Scenario, ScenarioError, ScenarioResult
from verbena.sim.sweeps import measures

MILLI = 10**9


@cache
def run(name: str, variant: str) -> ScenarioResult:
    result = Scenario.load(name).variant(variant).run()
    assert result.wrong is None
    return result


def swept(variant: str) -> float:
    return measures(run("sm-sweep", variant))["swept"] * 1000


def test_sm_sweep_takes_the_time_that_its_text_says() -> None:
    assert swept("one-smp") == pytest.approx(80, abs=1)
    assert swept("few") == pytest.approx(33, abs=1)
    assert swept("many") == pytest.approx(14, abs=1)
    assert swept("slow-agents") == pytest.approx(82, abs=1)
    lossy = measures(run("sm-sweep", "lossy"))
    assert lossy["swept"] == pytest.approx(0.051, abs=0.001)
    assert (lossy["smps"], lossy["smps_repeated"]) == (2427, 9)
    management = run("sm-sweep", "many").management
    assert management is not None
    assert management.sweeps[0].mads * 5e-3 > 0.8 * swept("many")  # the manager's own time


def test_a_thousand_nodes_are_up_in_an_eighth_of_a_second() -> None:
    result = thousand()
    assert result.management is not None
    assert result.management.nodes == 1034
    assert result.management.sweeps[0].mads == 18007
    assert measures(result)["swept"] == pytest.approx(0.128, abs=0.001)
    assert "1034 nodes: nodes known after" in result.summary()


def test_a_dead_spine_of_infiniband() -> None:
    trap, hasty, one = (run("spine-dies", name) for name in ("trap", "hasty", "one-smp"))
    assert trap.recovery is not None
    assert trap.management is not None
    death = trap.recovery.at
    sweep = trap.management.sweeps[1]
    assert sweep.begin - death == pytest.approx(0.12 * MILLI, rel=0.02)
    assert sweep.discovered == pytest.approx(sweep.begin + 1.95 * MILLI, abs=0.01 * MILLI)
    assert sweep.tables_set == pytest.approx(sweep.begin + 2.13 * MILLI, abs=0.01 * MILLI)
    assert (trap.recovery.interrupted, trap.recovery.dead) == (8, 0)
    assert measures(trap)["recovered"] == pytest.approx(0.00316, abs=1e-5)
    assert not trap.failures
    for result in (hasty, one):
        assert result.failures == {"pairs": {"RETRY_EXC_ERR": 8}}
        assert result.recovery is not None
        assert (result.recovery.dead, result.recovery.recovered) == (8, None)
        assert np.isnan(measures(result)["recovered"])
    assert "by a trap" in trap.summary()


def test_a_dead_spine_of_roce() -> None:
    fast, ordinary, slow = (run("spine-dies-roce", name) for name in ("fast", "ordinary", "slow"))
    for result, interrupted, dead in ((fast, 8, 0), (ordinary, 24, 0), (slow, 0, 24)):
        assert result.recovery is not None
        assert (result.recovery.interrupted, result.recovery.dead) == (interrupted, dead)
    assert measures(fast)["recovered"] == pytest.approx(0.0012, abs=1e-5)
    assert slow.failures == {"pairs": {"RETRY_EXC_ERR": 24}}


@pytest.mark.parametrize("name", ["sm-sweep", "spine-dies"])
def test_runs_are_equal_to_the_bit(name: str) -> None:
    scenario = Scenario.load(name)
    first, second = (scenario.variant(scenario.variants[0]).run() for _ in range(2))
    assert first.flows.tobytes() == second.flows.tobytes()
    assert first.links.tobytes() == second.links.tobytes()
    assert first.management == second.management
    assert first.recovery == second.recovery


def test_a_connect_storm() -> None:
    last = {}
    for name in ("ample", "backlog", "linux", "spread"):
        result = run("connect-storm", name)
        (job,) = result.connects
        assert (len(job.times), job.failed) == (508, 0)
        last[name] = measures(result)["connect_last"]
        if name in ("ample", "spread"):
            assert (job.messages, job.resent, job.turned_away) == (1524, 0, 0)
        else:
            assert job.turned_away == job.resent == 631
    assert last["ample"] == pytest.approx(0.051, abs=0.001)
    assert last["backlog"] == pytest.approx(1.76, abs=0.01)
    assert last["linux"] == pytest.approx(18.4, abs=0.1)
    assert last["spread"] == pytest.approx(0.15, abs=0.001)


def test_paths_are_reserved_hop_by_hop_before_flows_begin() -> None:
    result = run("reserve-path", "hop-by-hop")
    assert result.management is not None
    reserved = result.management.reserved
    assert reserved is not None
    flows, granted = result.flows[:8], [each.granted for each in reserved.outcomes.values()]
    assert granted.count(True) == 4
    assert [state == 2 for state in flows["state"].tolist()] == granted
    assert all(
        each.messages == 2 * each.links for each in reserved.outcomes.values() if each.granted
    )
    begin = int(result.flows["start"][8:].min())  # of the others, when requests were answered
    for flow, outcome in reserved.outcomes.items():
        assert int(flows["start"][flow]) - begin == round(outcome.seconds * 1e12)
    rate = flows["bytes"] * 8e12 / (flows["finish"] - flows["start"])
    assert rate[granted] == pytest.approx(40e9, rel=0.02)
    assert {each.reason.name for each in reserved.outcomes.values()} >= {"LINK_FULL"}
    text = "\n".join(result.management.lines([]))
    assert "4 of 8 paths granted" in text
    assert "paths of 4 links: 8 messages" in text
    assert measures(result)["reserve_messages"] == reserved.messages
    assert run("reserve-path", "without").management.reserved is None  # type: ignore[union-attr]


def test_connections_in_a_managed_fabric_ask_for_their_paths() -> None:
    table = {"to": "h0", "each": 2, "accept": "10 us"}
    result = Scenario.make({**BASE, "connect": [table, {**table, "to": "h1"}]}).run()
    assert [len(each.times) for each in result.connects] == [6, 6]
    assert [each.name for each in result.connects] == ["connections", "connections-2"]
    assert "connections: 6 of 6 connections, median" in result.summary()
    alone = Scenario.make({**BASE, "management": {}, "connect": [table]}).run()
    assert alone.connects[0].times.min() < result.connects[0].times.min() - 10 * 10**6


def test_connections_that_nobody_can_reach_fail() -> None:
    table = {"to": "h0", "from": "h1", "at": "1 us"}
    event = {"link": "h0-s0", "at": "0 us", "up": False}
    made = Scenario.make({**BASE, "connect": [table], "event": [event], "duration": "100 s"})
    (job,) = made.changed({"management": {}, "allow": ["failures"]}).run().connects
    assert (len(job.times), job.failed) == (0, 1)
    assert (job.messages, job.resent) == (21, 19)  # and a REJ that nobody hears


BASE: dict[str, Any] = {
    "fabric": {"topology": "one_switch", "hosts": 4, "rate": "4xEDR", "length_m": 5},
    "switch": {"flow": "credits", "room": "64 KiB"},
    "adapter": {"framing": "infiniband"},
    "management": {"begin": "bare"},
    "traffic": [{"pattern": "shift", "by": 1, "size": "64 KiB"}],
}


def test_events_and_traffic_are_from_when_the_subnet_is_up() -> None:
    made = Scenario.make({**BASE, "event": [{"node": "h1", "at": "1 ms", "up": False}]})
    result = made.run()
    assert result.management is not None
    up = result.management.sweeps[0].end
    assert up is not None
    assert result.flows["start"].tolist() == [up] * 4
    assert {at for _, _, at in result.link_events} == {up + MILLI}
    assert (result.flows["state"] == 2).all()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"management.manager": "s0"}, 'management.manager = "s0": there is no such host'),
        ({"management.engine": "ecmp"}, "needs an engine whose tables have one port"),
        ({"routing.engine": "dfsssp"}, "needs an engine whose tables have one port"),
        ({"adapter.framing": "ethernet"}, "is for InfiniBand"),
        ({"routing.reroute": "1 ms"}, "leave out routing.reroute"),
        ({"management.begin": "cold"}, "management.begin"),
        ({"event": [{"node": "x", "at": "1 ms", "up": False}]}, "there is no such node"),
        ({"connect": [{"to": "s0"}]}, "there is no such host"),
        ({"connect": [{"to": "h0", "from": ["h0"]}]}, "h0, which is the server"),
        (
            {"connect": [{"to": "h0"}, {"to": "h0", "resend": "1 s"}]},
            "another processing or resend",
        ),
    ],
)
def test_wrong_tables_are_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ScenarioError, match=why):
        Scenario.make(BASE).changed(changes)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"management.vl15": 1},
            r"management\.vl15 is 1 bytes, and \d+ management packets did not fit into queues of"
            r" this size: the fabric was not brought up, since the subnet manager at h0 found 1 of"
            r" 5 nodes \(behind .*: no response\)",
        ),
        (
            {"fabric.bit_error_rate": 2e-4, "management.retries": 0, "management.timeout": "1 ms"},
            r"management has not brought up the fabric: the subnet manager at h0 found \d of 5",
        ),
    ],
)
def test_flows_of_a_fabric_that_was_not_brought_up_say_so(
    changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(ScenarioError, match=why):
        Scenario.make(BASE).changed(changes).run()


def test_keys_of_reservations_that_do_nothing_are_noted() -> None:
    hop_by_hop = {"management.reservations": "hop by hop"}
    (note,) = Scenario.make(BASE).changed(hop_by_hop).notes
    assert note.endswith('"hop by hop" does nothing: no traffic has `reserve`')
    (note,) = Scenario.make(BASE).changed({"management.share": 0.5}).notes
    assert note.startswith("management.share does nothing without")
    reserved = {**hop_by_hop, "management.share": 0.5, "traffic.0.reserve": "1 Gb/s"}
    assert Scenario.make(BASE).changed(reserved).notes == ()


def test_a_picture_has_the_phases_of_the_sweeps(tmp_path: Any) -> None:
    names = [path.name for path in run("spine-dies", "trap").plot(tmp_path, "svg")]
    assert "sweeps.svg" in names
    assert "activate" in (tmp_path / "sweeps.svg").read_text()


@pytest.mark.parametrize("name", ["spine-dies", "connect-storm"])
def test_parquet_gives_back_reports(name: str, tmp_path: Path) -> None:
    import pyarrow.parquet

    scenario = Scenario.load(name)
    result = scenario.variant(scenario.variants[0]).run()
    result.to_parquet(tmp_path)
    again = ScenarioResult.from_parquet(tmp_path)
    assert again.management == result.management
    assert again.recovery == result.recovery
    assert [each.line() for each in again.connects] == [each.line() for each in result.connects]
    assert again.summary().splitlines()[1:] == result.summary().splitlines()[1:]
    if result.management is None:
        assert not (tmp_path / "sweeps.parquet").exists()
        return
    sweeps = pyarrow.parquet.read_table(tmp_path / "sweeps.parquet").to_pydict()
    assert sweeps["smps"] == [sweep.mads for sweep in result.management.sweeps]
    assert sweeps["tables_set"] == [sweep.tables_set for sweep in result.management.sweeps]
