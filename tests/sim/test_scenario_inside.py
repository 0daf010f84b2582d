# SPDX-License-Identifier: Apache-2.0
"""The table [inside] of scenarios: its keys, its hosts, and what a result says of it."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from verbena.cli.sim import main
from verbena.sim import Scenario
from verbena.sim.document import ScenarioError
from verbena.sim.paced import PacedScenario
from verbena.sim.result import ScenarioResult
from verbena.sim.timeline import events

BASE = """
[fabric]
topology = "one_switch"
hosts = 3
rate = "100GbE"
delay = "1 us"

[[traffic]]
name = "writes"
pattern = "flows"
from = ["h0", "h2"]
to = "h1"
size = "64 KiB"
message = "4 KiB"
"""


def parse(inside: str) -> Scenario:
    return Scenario.parse(f"{BASE}\n[inside]\n{inside}")


def test_units_and_hosts() -> None:
    scenario = parse(
        'hosts = ["h2", "h0"]\n'
        "cpu = { ghz = 2.0, cores = 2 }\n"
        'pcie = { generation = 4, round_trip = "400 ns", mps = "512 B" }\n'
        'interrupts = { time = "8 us", packets = 16 }\n'
        'cache = { buffer = "128 KiB" }\n'
    )
    assert scenario.inside is not None
    assert scenario.inside.hosts == (2, 0)
    result = scenario.run()
    assert result.end == "done"
    assert [report.host for report in result.insides] == [2, 0]
    for report in result.insides:
        seen = report.counters
        assert seen.cores == 2
        assert seen.requests == seen.completions == seen.interrupts + seen.merged == 16
        assert seen.fetched == 64 << 10
    assert "inside 2 hosts" in result.summary()


def test_all_hosts_or_none() -> None:
    plain = Scenario.parse(BASE)
    assert plain.inside is None
    assert Scenario.parse(f"{BASE}\n[inside]\n").inside is None
    all_hosts = parse("cpu = { ghz = 3.0 }")
    result, without = all_hosts.run(), plain.run()
    assert [report.host for report in result.insides] == [0, 1, 2]
    assert result.insides[1].counters.placed == 128 << 10
    assert without.insides == ()
    assert "inside" not in without.summary()
    assert result.time > without.time
    removed = all_hosts.changed({"inside": {}}).run()
    assert removed.flows.tobytes() == without.flows.tobytes()


@pytest.mark.parametrize(
    ("inside", "text"),
    [
        ('hosts = "h9"', "inside.hosts .*there is no host"),
        ('hosts = ["h0", "h0"]', "inside.hosts has a host twice"),
        ("hosts = []", "inside.hosts names no host: leave the key out for all hosts"),
        ("cpu = { ghz = 0 }", "inside.cpu.ghz"),
        ("pcie = { generation = 9 }", "inside.pcie.generation"),
        ("pcie = { round_trip = 900 }", "inside.pcie.round_trip"),
        ("ram = 3", "ram"),
    ],
)
def test_mistakes_are_named(inside: str, text: str) -> None:
    with pytest.raises(ScenarioError, match=text):
        parse(inside)


def test_a_live_fabric_has_no_inside() -> None:
    scenario = parse("cpu = { ghz = 3.0 }").changed(
        {"management": {"manager": "h0"}, "adapter.framing": "infiniband"}
    )
    with pytest.raises(ValueError, match=r"\[inside\]"):
        PacedScenario(scenario)


def test_the_timeline_has_rows_and_arrows(tmp_path: Path) -> None:
    scenario = parse('hosts = "h0"\nslices = 10000\nhca = { inline = 64 }')
    result = scenario.run()
    result.timeline(tmp_path / "out.json")
    shown = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    named = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in shown
        if event["name"] == "thread_name" and not event["args"]["name"].startswith("flows ")
    }
    assert {"core 0", "PCIe to the adapter", "PCIe to memory", "wire"} <= {*named.values()}
    seen = result.insides[0].counters
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in named.values()}
    for event in shown:
        if event["ph"] == "X" and (event["pid"], event["tid"]) in named:
            rows[named[event["pid"], event["tid"]]].append(event)
    for name, link in (("PCIe to memory", seen.up), ("PCIe to the adapter", seen.down)):
        size = sum(event["args"]["bytes"] for event in rows[name])
        assert size == link.bytes
        assert sum(event["dur"] for event in rows[name]) == pytest.approx(link.busy / 1e6)
    waits = ("idle", "poll of nothing")
    busy = sum(event["dur"] for event in rows["core 0"] if event["name"] not in waits)
    assert busy == pytest.approx(seen.busy / 1e6)
    for row in rows.values():
        row.sort(key=lambda event: event["ts"])
        for one, other in pairwise(row):
            assert one["ts"] + one["dur"] <= other["ts"] + 1e-9
    begins = {event["id"]: event["ts"] for event in shown if event["ph"] == "s"}
    ends = {event["id"]: event["ts"] for event in shown if event["ph"] == "f"}
    assert len(begins) == len(ends) == seen.doorbells + seen.blueflames == 16
    assert all(begins[number] < ends[number] for number in begins)


def time_of_cores(result: ScenarioResult, host: int) -> dict[str, float]:
    """The us that cores of a host have in the timeline, by "busy" and by how they wait."""
    names = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events(result)
        if event["name"] == "thread_name"
    }
    found: dict[str, float] = {}
    for event in events(result):
        if event["ph"] != "X" or event["pid"] != host + 1:
            continue
        if names[event["pid"], event["tid"]].startswith("core"):
            is_wait = "idle" in event["name"] or event["name"] == "poll of nothing"
            name = event["name"] if is_wait else "busy"
            found[name] = found.get(name, 0) + event["dur"]
    return found


@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize("traffic", ["", 'operation = "read"', 'start = "30 us"'])
def test_cores_are_busy_poll_or_are_idle_in_the_timeline(cores: int, traffic: str) -> None:
    text = BASE.replace('name = "writes"', f'name = "writes"\n{traffic}')
    inside = f"[inside]\nslices = 10000\ncpu = {{ cores = {cores} }}"
    result = Scenario.parse(f"{text}\n{inside}").run()
    for report in result.insides:
        seen, found = report.counters, time_of_cores(result, report.host)
        expected = {"busy": seen.busy, "poll of nothing": seen.spinning, "idle": seen.idle}
        if len(report.slices):
            for name, time in expected.items():
                assert found.get(name, 0) == pytest.approx(time / 1e6), (report.host, name)


def test_cores_that_wait_for_interrupts_are_idle_in_the_timeline() -> None:
    result = parse('slices = 10000\ninterrupts = { time = "8 us" }\ncpu = { cores = 2 }').run()
    for report in result.insides:
        found = time_of_cores(result, report.host)
        assert found["idle"] == pytest.approx(report.counters.idle / 1e6)
        assert "poll of nothing" not in found


def test_what_is_not_known_of_a_core_s_waiting_stays_open_in_the_timeline() -> None:
    """Behind the last slice that is recorded there is none, and a receiver may poll or not."""
    few = parse("slices = 20").run()
    found, seen = time_of_cores(few, 0), few.insides[0].counters
    assert set(found) == {"busy", "idle or poll of nothing"}
    assert sum(found.values()) < seen.elapsed / 1e6
    text = BASE.replace("message =", 'operation = "send"\nmessage =')
    sends = Scenario.parse(f"{text}\n[inside]\nslices = 10000").run()
    found, seen = time_of_cores(sends, 1), sends.insides[1].counters
    assert found["idle or poll of nothing"] == pytest.approx((seen.idle + seen.spinning) / 1e6)


def test_the_command_prints_the_costs_that_runs_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of one variant only with its name, and none that nothing was charged for."""
    file = tmp_path / "costs.toml"
    variants = "[variants.polled]\n[variants.woken]\n'inside.interrupts' = { time = 0 }\n"
    file.write_text(f"{BASE}\n[inside]\ncpu = {{post = 70}}\n{variants}")
    assert main([str(file), "--quiet"]) == 0
    shown = capsys.readouterr().out.partition("costs of the insides, with their sources:")[2]
    costs = {line.split()[0]: line for line in shown.splitlines() if line.startswith("  ")}
    assert costs["cpu.post"].split()[1] == "70"
    assert "from memory" in costs["cpu.post"]
    assert not costs["cpu.post"].endswith("]")
    assert costs["cpu.interrupt"].endswith("[woken]")
    assert "pcie.round_trip" in costs
    assert "iommu.miss" not in costs
    plain = tmp_path / "plain.toml"
    plain.write_text(BASE)
    assert main([str(plain), "--quiet"]) == 0
    assert "costs of" not in capsys.readouterr().out
