# SPDX-License-Identifier: Apache-2.0
"""The benchmarks' rows about simulated fabrics: the workloads, SimPy's model of them."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import fabric, fabric_scripts, goals, simpy_model, simulation_goals
from benchmarks.goal import Section
from verbena import fabrics
from verbena.measure import cores
from verbena.measure.case import Effort, Unit
from verbena.measure.processes import SkipError


def case(script: str, value: str, scale: float = 1.0, **arguments: Any) -> fabric.FabricRun:
    given = tuple(sorted(arguments.items()))
    return fabric.FabricRun(script, value, "label", Unit.MILLIONS, given, scale=scale)


def test_w1_is_measured_in_a_process_of_its_own() -> None:
    (row,) = goals.select(False, "W1, packet-hops")
    assert row.ours.measure(Effort(0.01), cores.choose()).value > 0


def test_programs_are_measured_in_a_process_of_their_own() -> None:
    rows = goals.select(False, "Python programs") + goals.select(False, "Python function")
    found = [row.ours.measure(Effort(0.01), cores.choose()).value for row in rows]
    assert [row.bound for row in rows] == [0.1, 0.1, 0.15]
    assert len(found) == 3
    assert min(found) > 0


def test_one_run_gives_all_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []

    def run(script: str, where: cores.Cores, **arguments: Any) -> dict[str, float]:
        runs.append((script, arguments))
        return {"hops": 5e6, "set_up": 2.0}

    monkeypatch.setattr(fabric, "run", run)
    monkeypatch.setattr(fabric, "_LEFT", {})
    hops, set_up = case("workload", "hops", 1e-6, name="W3"), case("workload", "set_up", name="W3")
    for _ in range(2):
        assert hops.measure(Effort(0.1), cores.choose()).value == 5.0
        assert set_up.measure(Effort(0.1), cores.choose()).value == 2.0
    assert runs == [("workload", {"seconds": 0.1, "name": "W3"})] * 2
    # The same value twice is two measurements.
    hops.measure(Effort(0.1), cores.choose())
    hops.measure(Effort(0.1), cores.choose())
    assert len(runs) == 4


def test_what_is_not_installed_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fabric.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SkipError, match=r"networkx is not installed: pip install networkx"):
        case("workload", "hops", name="W1").measure(Effort(0.1), cores.choose())


def test_the_workloads_are_those_of_the_goals() -> None:
    """Hosts, links and bytes of W1 and W2; the others are W2 with another k."""
    for name, hosts, flows, cables in (("W1", 65, 64, 65), ("W2", 128, 128, 384)):
        routes, work = fabric_scripts.prepared(name)
        tables = routes.tables
        assert (tables.host_count, len(work.flows), len(tables.links) // 2) == (
            hosts,
            flows,
            cables,
        )
        assert set(tables.links["rate"]) == {10**11}
        assert set(tables.links["delay_ps"]) == {10**6}
        assert set(work.flows["bytes"]) == {1 << 20}
    assert {goal.section for goal in simulation_goals.fabric()} == {Section.FABRIC}


def test_a_run_that_went_wrong_is_no_measurement() -> None:
    routes, work = fabric_scripts.prepared("W1")
    world = fabric_scripts.filled(routes, work)
    end = world.run(until=10**9)
    with pytest.raises(RuntimeError, match="W1 ended with 'time'"):
        fabric_scripts.must_be_right("W1", world, end)


@pytest.mark.parametrize("made", [fabrics.one_switch(9), fabrics.fat_tree(4)], ids=["star", "tree"])
def test_simpy_s_model_simulates_the_same(made: fabrics.Fabric) -> None:
    """As far as the order of packets of one instant, and acknowledgements that are put together."""
    engine = "minhop" if made.name.startswith("one") else "ftree"
    routes = fabrics.route(made, engine)
    hosts = routes.tables.host_count
    work = fabrics.shift(hosts, 1, 64 << 10)
    work.flows["start"] = 0
    model = simpy_model.Model(routes, work)
    model.run()
    world = fabric_scripts.filled(routes, work)
    world.run()
    assert model.hops == pytest.approx(int(world.links()["packets"].sum()), rel=0.02)
    ours = world.flows()["finish"]
    assert sum(model.finish) == pytest.approx(float(ours.sum()), rel=0.02)
    assert max(model.finish) == pytest.approx(float(ours.max()), rel=0.02)


def test_a_workload_with_pauses_is_marked_and_arrives() -> None:
    (row,) = goals.select(False, "W2P, packet-hops")
    assert row.ours.measure(Effort(0.01), cores.choose()).value > 0
    routes, work = fabric_scripts.prepared("W2P")
    world = fabric_scripts.filled(routes, work)
    assert world.run() == "done"
    assert world.links()["pauses"].sum() > 0
    assert world.links()["marked"].sum() > 0
    assert world.flows()["notices"].sum() > 0


def test_a_large_fabric_gives_time_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fabric_scripts.LARGE, 32, ((2, 4, 4), (1, 2, 2)))
    found = fabric_scripts.large(0, 32)
    assert 0 < found["set_up"] < 10
    assert found["memory"] > 1 << 20
    rows = goals.select(False, "hosts, set-up with routing") + goals.select(False, "memory in all")
    assert [row.bound for row in rows] == [15.0, 60.0, 1.5 * 2**20, 3 * 2**20]
