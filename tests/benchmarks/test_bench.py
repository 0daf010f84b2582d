# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks`: reading peers' results, judging goals, and ending what it started."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from benchmarks import engine, goals, report, runner, ucx
from benchmarks.crowded import Crowded, busy
from benchmarks.goal import Better, Goal, Section
from benchmarks.machine import Machine
from benchmarks.runner import Plan, Reading, Series
from tests.support import ROOT, benchmarks_command, ends
from verbena.measure import cores
from verbena.measure.case import Effort, Sample, Unit
from verbena.measure.cores import Cores
from verbena.measure.processes import MeasureError, SkipError

HERE = Cores(*[min(os.sched_getaffinity(0))] * 2)
MACHINE = Machine("2026-01-01", "a CPU", "2 cores", "6.1", "Debian", {"UCX": "1.22"}, 0.0)

UCX = """[1795238766.3] warning
iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
50000,1.512,2.265,2.648,1724.92,1475.05,441580,377612
100000,0.040,0.193,0.193,20246.86,20000.5,5183196,5000000
"""


@dataclass(frozen=True)
class Fake:
    """A case that gives what `act` gives."""

    label: str
    act: Callable[[Effort], Sample] = field(compare=False)
    unit: Unit = Unit.MICROSECONDS

    def measure(self, effort: Effort, where: Cores) -> Sample:
        return self.act(effort)


def failing(error: Exception) -> Callable[[Effort], Sample]:
    def act(effort: Effort) -> Sample:
        raise error

    return act


def series_of(case: Fake, rounds: int = 3, limit: float = 60.0) -> Series:
    return runner.measure([(case,)], HERE, Plan(rounds, 0.1, limit), lambda line: None)[case]


def read(values: list[float]) -> Series:
    """What a case gave on a machine whose line is not measured."""
    return Series([Reading(value) for value in values])


# ---- reading results -----------------------------------------------------------------------------


def test_last_record_of_ucx() -> None:
    record = ucx.last_record(UCX)
    assert ucx.Ucx("ucp_put_lat").sample(record).value == 0.04
    assert ucx.Ucx("ucp_put_lat", average=True).sample(record).value == 0.193
    assert ucx.Ucx("ucp_put_bw").sample(record).value == 5
    assert ucx.Ucx("ucp_put_bw", 4096).sample(record).value == 20000.5


@pytest.mark.parametrize("text", ["", "failed\n", UCX.splitlines()[1]])
def test_ucx_without_a_result(text: str) -> None:
    with pytest.raises(MeasureError):
        ucx.last_record(text)


def test_ucx_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ucx.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SkipError, match="pip install libucx-cu12"):
        ucx.Ucx("tag_lat").measure(Effort(0.1), HERE)


# ---- goals and rows ------------------------------------------------------------------------------


def goal(better: Better, bound: float | None, peer: bool = True) -> Goal:
    ours, other = Fake("ours", failing(SkipError(""))), Fake("peer", failing(SkipError("")))
    return Goal(Section.SHARED, "row", ours, other if peer else None, bound, better)


@pytest.mark.parametrize(
    ("better", "bound", "ours", "met"),
    [
        (Better.LOWER, 1.0, 10.04, True),  # 1.00 with two digits
        (Better.LOWER, 1.0, 10.06, False),
        (Better.HIGHER, 1.5, 14.96, True),
        (Better.HIGHER, 1.5, 14.9, False),
        (Better.LOWER, None, 1.0, None),
    ],
)
def test_goal_beside_a_peer(
    better: Better, bound: float | None, ours: float, met: bool | None
) -> None:
    assert goal(better, bound).met(ours, 10.0) is met


def test_goal_without_a_peer() -> None:
    assert goal(Better.LOWER, 0.2, peer=False).met(0.2, None) is True
    assert goal(Better.LOWER, 0.2, peer=False).met(0.201, None) is False


def test_row_without_its_peer_is_not_judged() -> None:
    here = goal(Better.LOWER, 1.0)
    gone = Series(problem="not installed", skipped=True)
    row = report.row(here, {here.ours: read([1.0]), here.peer: gone})
    assert (row.ours, row.peer, row.met, row.failed) == (1.0, None, None, False)
    assert row.verdict == "skipped: not installed"


def test_row_that_failed() -> None:
    here = goal(Better.LOWER, 1.0)
    broken = Series(problem="exit status 1", failures=2)
    row = report.row(here, {here.ours: broken, here.peer: read([1.0])})
    assert (row.met, row.failed, row.verdict) == (None, True, "failed: exit status 1")


def test_page_has_table_and_notes(tmp_path: Path) -> None:
    here = goal(Better.LOWER, 1.0)
    row = report.row(here, {here.ours: read([3.0, 1.0, 2.0]), here.peer: read([1.0])})
    (tmp_path / report.NOTES).write_text("## Why\n\nBecause.\n")
    report.write_markdown(tmp_path / "performance.md", [row], MACHINE, 3)
    page = (tmp_path / "performance.md").read_text()
    assert "| row | 2.00 µs | 1.00 µs | 2.00 |" in page
    assert "MISSED" in page
    assert "Medians of 3 rounds" in page
    assert page.endswith("## Why\n\nBecause.\n")


def test_selection() -> None:
    everything, quick = goals.select(False, None), goals.select(True, None)
    assert 0 < len(quick) < len(everything)
    assert {goal.section for goal in goals.select(False, "from python*")} == {Section.PYTHON}
    assert all("64 KiB" in goal.name for goal in goals.select(False, "64 kib"))
    with pytest.raises(ValueError, match="no row matches 'zzz'"):
        goals.select(False, "zzz")


def test_no_section_is_forgotten() -> None:
    assert {each.section for each in goals.all_goals()} == set(Section)


def test_every_goal_compares_like_with_like() -> None:
    for each in goals.all_goals():
        assert each.peer is None or each.ours.unit is each.peer.unit, each.name


def test_names_are_unique_in_their_section() -> None:
    names = [(each.section, each.name) for each in goals.all_goals()]
    assert len(set(names)) == len(names)


# ---- the runner ----------------------------------------------------------------------------------


def test_median_and_rate_of_rounds() -> None:
    values = iter([5.0, 1.0, 3.0])
    rates: list[float | None] = []

    def act(effort: Effort) -> Sample:
        rates.append(effort.rate)
        return Sample(next(values), 1e6)

    assert series_of(Fake("case", act)).median == 3.0
    assert rates == [None, 1e6, 1e6]


def test_case_that_failed_twice_is_left_alone() -> None:
    found = series_of(Fake("case", failing(MeasureError("broken"))), rounds=5)
    assert (found.failures, found.problem, found.median) == (2, "broken", None)


def test_skipped_case_is_not_tried_again() -> None:
    found = series_of(Fake("case", failing(SkipError("absent"))), rounds=5)
    assert (found.failures, found.skipped, found.problem) == (0, True, "absent")


def test_no_round_beyond_the_limit() -> None:
    def act(effort: Effort) -> Sample:
        time.sleep(0.02)
        return Sample(1.0)

    assert len(series_of(Fake("case", act), rounds=5, limit=0.03).values) == 1


# ---- the command ---------------------------------------------------------------------------------


@pytest.mark.debian
def test_quick_run(tmp_path: Path) -> None:
    values, page = tmp_path / "values.json", tmp_path / "performance.md"
    done = subprocess.run(
        benchmarks_command("--quick", "--only", "shared-heap: WRITE latency, 8 B",
                        "--json", str(values), "--markdown", str(page)),
        capture_output=True, text=True, timeout=100, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(values.read_text())["rows"]
    assert row["ours"]["median"] > 0
    assert f"| {row['name']} |" in page.read_text()
    assert row["name"] in done.stdout
    if cores.choose().distinct and shutil.which("cc"):
        assert row["phase"] in ("one core", "two cores")
        assert row["lines"][0] == pytest.approx(row["ours"]["median"] / row["ours"]["lines"][-1])
        assert "Line, half a round trip: " in done.stdout
    if ucx.version():
        assert row["peer"]["median"] > 0
    else:
        assert "skipped: libucx-cu12 is not installed" in done.stdout


@pytest.mark.parametrize("pattern", ["each of a batch", "64 KiB, pd.alloc", "from create to RTS"])
def test_python_rows(pattern: str) -> None:
    (chosen,) = goals.select(False, pattern)
    assert chosen.ours.measure(Effort(0.05), cores.choose()).value > 0


def test_pattern_without_a_row() -> None:
    done = subprocess.run(
        benchmarks_command("--only", "zzz"), capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert done.returncode == 1
    assert done.stderr.startswith("benchmarks: no row matches 'zzz'")


def test_the_command_explains_itself() -> None:
    done = subprocess.run(
        benchmarks_command("--help"), capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert done.returncode == 0
    assert done.stdout.startswith("usage: python -m benchmarks")


def test_ended_bench_leaves_no_process() -> None:
    words = benchmarks_command("--only", "idle", "--rounds", "1")
    quiet = subprocess.DEVNULL
    with subprocess.Popen(words, stdout=quiet, stderr=quiet, cwd=ROOT) as bench:
        workers = wait_for_children(bench.pid, 2)
        bench.send_signal(signal.SIGTERM)
        assert bench.wait(20) == 128 + signal.SIGINT
    assert all(ends(pid) for pid in workers)


def wait_for_children(pid: int, count: int) -> list[int]:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if len(children) >= count:
            return [int(child) for child in children]
        time.sleep(0.01)
    raise AssertionError(f"process {pid} started fewer than {count} processes")


def test_the_engines_own_figure() -> None:
    line = "SEND    65536 bytes:  20.56 M data packets/s, {} allocations\n"
    assert engine.packets_per_second(line.format(0)) == 20.56
    with pytest.raises(MeasureError, match="allocated memory 3 times"):
        engine.packets_per_second(line.format(3))
    with pytest.raises(MeasureError, match="no result: 'Segm"):
        engine.packets_per_second("Segmentation fault")
    assert any(goal.name.startswith("the engine alone") for goal in goals.all_goals())


def test_the_engine_needs_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(engine.PROGRAM, raising=False)
    with pytest.raises(SkipError, match="make bench"):
        engine.EngineAlone("WRITE", 65536).measure(Effort(0.1), HERE)


# ---- shared processors ---------------------------------------------------------------------------


def test_both_processes_on_one_core() -> None:
    seen: list[Cores] = []

    @dataclass(frozen=True)
    class Where(Fake):
        def measure(self, effort: Effort, where: Cores) -> Sample:
            seen.append(where)
            return Sample(effort.rate or 0.0)

    case = Where("where", lambda effort: Sample(0.0))
    assert Crowded(case, neighbours=False).measure(Effort(0.1, 50.0), Cores(3, 4)).value == 50
    assert Crowded(case, neighbours=True).measure(Effort(0.1), HERE).value > 0
    assert seen == [Cores(3, 3), HERE]


def test_neighbours_compute_and_are_ended() -> None:
    def children() -> set[int]:
        tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
        return {int(child) for task in tasks for child in task.read_text().split()}

    before = children()
    with busy(HERE):
        started = children() - before
        assert len(started) == 2
        ticks = [0, 0]
        deadline = time.monotonic() + 30
        while not all(ticks) and time.monotonic() < deadline:
            stats = [Path(f"/proc/{child}/stat").read_text() for child in started]
            ticks = [int(stat.rpartition(")")[2].split()[11]) for stat in stats]
        assert all(ticks)
    assert not children() & started
