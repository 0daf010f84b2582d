# SPDX-License-Identifier: Apache-2.0
"""What the closing texts of scenarios about management say, with the numbers of their runs.

``test_scenario_texts`` compares them with the texts.
"""

from __future__ import annotations

from functools import cache
from statistics import median

from tests.sim.test_scenario_ready import run
from verbena.sim import Scenario, ScenarioResult
from verbena.sim.scenario_management import ManagementReport
from verbena.sim.sweeps import measures

__all__ = ["MANAGEMENT_CLAIMS", "MANAGEMENT_SETTINGS", "thousand"]

MANAGEMENT_SETTINGS: dict[str, tuple[str, ...]] = {
    "connect-storm": ("128", "4.1 s", "150 ms"),
    "reserve-path": ("200 Gb/s", "160", "40 Gb/s"),
    "sm-sweep": ("5 us", "200 us", "1e-7", "10 ms", "radix = 44"),
    "spine-dies": ("0.26 ms", "32 SMPs", "2.1 ms", "8.4 ms"),
    "spine-dies-roce": ("50 us", "1.05 ms", "500 us", "20 ms"),
}


def report(name: str, variant: str) -> ManagementReport:
    found = run(name, variant).management
    assert found is not None
    return found


@cache
def thousand() -> ScenarioResult:
    """Return the run of sm-sweep with a thousand nodes."""
    return Scenario.load("sm-sweep").variant("many", {"fabric.radix": 44}, "here").run()


def sm_sweep() -> list[str]:
    name = "sm-sweep"
    swept = {
        variant: f"{measures(run(name, variant))['swept'] * 1000:.0f} ms"
        for variant in ("one-smp", "few", "many", "slow-agents", "lossy")
    }
    lossy = report(name, "lossy").sweeps[0]
    large = thousand().management
    assert large is not None
    took = f"{measures(thousand())['swept'] * 1000:.0f} ms"
    return [
        f"other {report(name, 'one-smp').nodes} nodes take {swept['one-smp']}",
        f"with 4 at once {swept['few']}",
        f"with 32 at once {swept['many']}",
        f"make it {swept['slow-agents']}",
        f"costs {lossy.repeated} SMPs of {lossy.mads:,}",
        f"last answer: {swept['lossy']}",
        f"{large.nodes:,} nodes, which take {took} and {large.sweeps[0].mads:,}",
    ]


def spine_dies() -> list[str]:
    name = "spine-dies"
    result = run(name, "trap")
    assert result.recovery is not None
    assert result.recovery.recovered is not None
    assert run(name, "one-smp").failures
    assert run(name, "hasty").failures
    sweep, death = report(name, "trap").sweeps[1], result.recovery.at
    assert sweep.discovered is not None
    assert sweep.tables_set is not None
    slow = report(name, "one-smp").sweeps[0].discovered
    assert slow is not None
    return [
        f"The trap comes {(sweep.begin - death) / 1e9:.2f} ms after",
        f"all nodes {(sweep.discovered - sweep.begin) / 1e9:.2f} ms later",
        f"all tables {(sweep.tables_set - sweep.begin) / 1e9:.2f} ms later",
        f"last of {result.recovery.interrupted} connections",
        f"goes on {(result.recovery.recovered - death) / 1e9:.2f} ms after",
        f"needs {slow / 1e9:.0f} ms to find",
    ]


def spine_dies_roce() -> list[str]:
    name = "spine-dies-roce"
    fast, ordinary, slow = (run(name, each).recovery for each in ("fast", "ordinary", "slow"))
    assert fast is not None
    assert fast.recovered is not None
    assert ordinary is not None
    assert slow is not None
    return [
        f"{slow.dead} of {len(run(name, 'slow').flows)} flows have",
        f"{fast.interrupted} wait for a timeout",
        f"goes on {(fast.recovered - fast.at) / 1e9:.1f} ms after",
        f"all {ordinary.interrupted} wait",
        f"{slow.dead} flows fail",
    ]


def connect_storm() -> list[str]:
    name = "connect-storm"
    last = {
        variant: measures(run(name, variant))["connect_last"]
        for variant in ("ample", "backlog", "linux", "spread")
    }
    assert run(name, "spread").connects[0].turned_away == 0
    return [
        f"{len(run(name, 'ample').connects[0].times)} connections are there after "
        f"{last['ample'] * 1000:.0f} ms",
        f"after {last['backlog']:.2f} s",
        f"after {last['linux']:.1f} s",
    ]


def reserve_path() -> list[str]:
    name = "reserve-path"
    granted, at_once, without = (run(name, one) for one in ("hop-by-hop", "at-once", "without"))
    reserved = report(name, "hop-by-hop").reserved
    assert reserved is not None
    found = measures(granted)
    four = [each for each in reserved.outcomes.values() if each.granted and each.links == 4]
    middle = median(each.seconds for each in four) * 1e6
    return [
        f"{found['granted']} paths are granted and {found['refused']} refused, "
        f"with {reserved.messages} messages in all",
        f"of 4 links costs {four[0].messages} messages and {middle:.1f} us, "
        f"{middle / 4:.1f} us a hop",
        f"longer than {queue(granted)} KiB, and the two other flows take {slowest(granted)} us",
        f"{int((at_once.flows['state'][:8] == 2).sum())} are granted. Without",
        f"a queue of {queue(without)} KiB stands in their way",
        f"takes {int(slowest(without)) / 1000:.2f} ms",
    ]


def queue(result: ScenarioResult) -> str:
    return f"{result.links['queue_max'].max() / 1024:.4g}"


def slowest(result: ScenarioResult) -> str:
    """Return how many us the slower of the two flows took that reserve nothing."""
    flows = result.flows[8:]
    return f"{(flows['finish'] - flows['start']).max() / 1e6:.0f}"


MANAGEMENT_CLAIMS = {
    "connect-storm": connect_storm,
    "reserve-path": reserve_path,
    "sm-sweep": sm_sweep,
    "spine-dies": spine_dies,
    "spine-dies-roce": spine_dies_roce,
}
