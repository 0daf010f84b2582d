# SPDX-License-Identifier: Apache-2.0
"""Notes about loads that add up and timers that are longer than the run; when routes changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from verbena.sim import Scenario, ScenarioResult
from verbena.sim.timeline import events

FABRIC = '[fabric]\ntopology = "one_switch"\nhosts = 4\nrate = "100GbE"\n'
POISSON = '[[traffic]]\npattern = "poisson"\nload = 0.9\nsizes = "websearch"\nlasts = "10 ms"\n'


def test_loads_that_add_up_to_more_than_a_link_are_noted() -> None:
    (note,) = Scenario.parse(FABRIC + POISSON + POISSON).notes
    assert note.startswith("poisson and poisson-2 offer 1.8 of what the link of h0 carries, 100")
    (note,) = Scenario.parse(FABRIC + POISSON + 'link = "200GbE"\n').notes
    assert note.startswith("poisson offer 1.8")


@pytest.mark.parametrize("other", ['start = "10 ms"\n', "load = 0.1\n", "hosts = 2\n"])
def test_loads_at_other_times_or_of_other_hosts_are_not_added(other: str) -> None:
    second = POISSON.replace("load = 0.9\n", "") if "load" in other else POISSON
    notes = Scenario.parse(FABRIC + POISSON + second + other).notes
    assert bool(notes) == ("hosts" in other)  # the first two have both


def test_a_timer_that_is_longer_than_the_run_is_noted() -> None:
    tcp = '[[traffic]]\npattern = "flows"\nfrom = "h0"\nto = "h1"\nsize = 4096\ntransport = "tcp"\n'
    short = 'duration = "20 ms"\n' + FABRIC + tcp
    (note,) = Scenario.parse(short).notes
    assert note.startswith("TCP waits 200 ms or more for an acknowledgement (tcp.least_rto), and")
    assert Scenario.parse(FABRIC + tcp).notes == ()
    assert Scenario.parse(short + '[tcp]\nleast_rto = "1 ms"\n').notes == ()
    assert Scenario.parse(short.replace('transport = "tcp"\n', "")).notes == ()


@pytest.mark.parametrize("how", ["", 'control = "dctcp"\n', "[tcp]\necn = true\n"])
def test_marks_of_tcp_without_ecn_are_said_to_be_ignored(how: str) -> None:
    text = FABRIC + "[switch]\nmark = { low = 0, high = 1 }\n"
    text += '[[traffic]]\npattern = "incast"\nsize = "64 KiB"\ntransport = "tcp"\n' + how
    summary = Scenario.parse(text).run().summary()
    assert " marks" in summary
    assert ("marks (no ECN: ignored)" in summary) == (how == "")


def test_routes_that_are_made_anew_are_in_summary_timeline_and_files(tmp_path: Path) -> None:
    text = (
        '[fabric]\ntopology = "fat_tree"\nk = 4\nrate = "100GbE"\n[routing]\nengine = "ecmp"\n'
        'reroute = "20 us"\n[adapter]\ntimeout = 5\n[[event]]\nlink = "e0-a0"\nat = "10 us"\n'
        'up = false\n[[event]]\nlink = "e0-a0"\nat = "90 ms"\nup = true\n[[traffic]]\n'
        'pattern = "shift"\nby = 8\nsize = "1 MiB"\n'
    )
    result = Scenario.parse(text).run()
    assert result.time < 90 * 10**9
    assert result.route_changes == (30_000_000,)
    assert "\n  routes made anew at 30 us\n" in result.summary()
    names = [event["name"] for event in events(result) if event["ph"] == "i"]
    assert names == ["e0-a0 down", "routes made anew"]
    result.to_parquet(tmp_path)
    assert ScenarioResult.from_parquet(tmp_path).route_changes == result.route_changes
