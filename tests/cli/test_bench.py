# SPDX-License-Identifier: Apache-2.0
"""`verbena bench`: reading programs' results, judging goals, and ending what it started."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support import verbena_command
from verbena.bench import cores, engine, goals, perftest, processes, report, runner, ucx
from verbena.bench.case import Effort, Memory, Sample, Unit, size_text
from verbena.bench.cores import Cores
from verbena.bench.crowded import Crowded, busy
from verbena.bench.goals import Better, Goal, Section
from verbena.bench.machine import Machine
from verbena.bench.processes import MeasureError, Program, SkipError
from verbena.bench.runner import Plan, Series

HERE = Cores(*[min(os.sched_getaffinity(0))] * 2)
MACHINE = Machine("2026-01-01", "a CPU", "2 cores", "6.1", "Debian", {"UCX": "1.22"}, 0.0)

BANDWIDTH = """
 Data ex. method : Ethernet
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 67108864    50               25144.61            21246.28		   0.000332
---------------------------------------------------------------------------------------
"""
LATENCY = """
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]
 8       500000          104.00         15608801.00      520.00   	       1040.00      	356.32
"""
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
    return runner.measure([case], HERE, Plan(rounds, 0.1, limit), lambda line: None)[case]


# ---- reading results -----------------------------------------------------------------------------


def test_programs_that_share_a_core_get_few_iterations() -> None:
    """ib_write_lat gives the core to nobody; what only one side polls is as fast as on two."""
    apart = Cores(0, 1)
    assert perftest.Perftest("write_lat").expected(apart) > 1e6
    assert perftest.Perftest("write_lat").expected(HERE) <= 100
    assert perftest.Perftest("send_lat").expected(HERE) <= 5000
    same = perftest.Perftest("read_lat")
    assert same.expected(HERE) == same.expected(apart)


def test_bandwidth_of_perftest() -> None:
    sample = perftest.Perftest("write_bw", 64 << 20).sample(perftest.data_row(BANDWIDTH))
    assert sample.value == 21246.28
    assert sample.rate == pytest.approx(21246.28 / 64)


def test_latency_of_perftest_is_in_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perftest, "cycles_per_us", lambda: 2600.0)
    row = perftest.data_row(LATENCY)
    assert perftest.Perftest("write_lat").sample(row).value == pytest.approx(0.2)
    assert perftest.Perftest("write_lat", average=True).sample(row).value == pytest.approx(0.4)
    assert "-C" in perftest.Perftest("write_lat").words(100)
    assert "-C" not in perftest.Perftest("write_bw").words(100)


def test_latency_of_perftest_without_a_steady_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perftest, "cycles_per_us", lambda: None)
    assert perftest.Perftest("read_lat").sample(perftest.data_row(LATENCY)).value == 520
    assert "-C" not in perftest.Perftest("read_lat").words(100)


def test_a_deviation_that_is_no_number_leaves_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perftest, "cycles_per_us", lambda: None)
    text = LATENCY.replace("356.32", "-nan")
    assert perftest.Perftest("read_lat").sample(perftest.data_row(text)).value == 520


@pytest.mark.parametrize("number", ["nan", "-nan", "inf", "-inf"])
@pytest.mark.parametrize("test", ["read_lat", "write_bw"])
def test_a_figure_that_is_no_number_is_no_result(test: str, number: str) -> None:
    text = LATENCY.replace("520.00", number).replace("15608801.00", number)
    with pytest.raises(MeasureError, match="busy"):
        perftest.Perftest(test, 4096).sample(perftest.data_row(text))


def test_a_warning_before_the_numbers_is_not_the_result() -> None:
    warned = BANDWIDTH.replace(" 67108864", "Conflicting CPU frequency values: 1 != 2\n 67108864")
    assert warned != BANDWIDTH
    assert perftest.data_row(warned) == perftest.data_row(BANDWIDTH)


@pytest.mark.parametrize("text", ["", "Couldn't connect\n", " #bytes\n", " #bytes\n Failed here\n"])
def test_perftest_without_a_result(text: str) -> None:
    with pytest.raises(MeasureError):
        perftest.data_row(text)


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


def test_perftest_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MeasureError, match="apt-get install perftest"):
        perftest.find("ib_write_bw")


def test_effort_follows_the_measured_rate() -> None:
    assert Effort(0.5).iterations(1000) == 500
    assert Effort(0.5, rate=4e6).iterations(1000) == 2_000_000
    assert Effort(0.5, rate=1).iterations(1000) == 20


def test_sizes() -> None:
    assert [size_text(size) for size in (8, 4096, 64 << 20)] == ["8 B", "4 KiB", "64 MiB"]


def test_processor_lists() -> None:
    assert cores.parse_list("0-2,8\n") == {0, 1, 2, 8}


def test_pinned_returns_the_cores() -> None:
    before = os.sched_getaffinity(0)
    with cores.pinned(min(before)):
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before


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
    row = report.row(here, {here.ours: Series([1.0]), here.peer: gone})
    assert (row.ours, row.peer, row.met, row.failed) == (1.0, None, None, False)
    assert row.verdict == "skipped: not installed"


def test_row_that_failed() -> None:
    here = goal(Better.LOWER, 1.0)
    broken = Series(problem="exit status 1", failures=2)
    row = report.row(here, {here.ours: broken, here.peer: Series([1.0])})
    assert (row.met, row.failed, row.verdict) == (None, True, "failed: exit status 1")


def test_page_has_table_and_notes(tmp_path: Path) -> None:
    here = goal(Better.LOWER, 1.0)
    row = report.row(here, {here.ours: Series([3.0, 1.0, 2.0]), here.peer: Series([1.0])})
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


# ---- processes -----------------------------------------------------------------------------------


def program(*words: str) -> Program:
    return Program(words, os.environ)


def exists(pid: int) -> bool:
    """Whether a process runs; one that only waits for its parent's wait does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while exists(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not exists(pid)


def test_program_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    child = tmp_path / "child"
    script = f"sleep 100 & echo $! > {child}; echo started; wait"
    with pytest.raises(MeasureError, match="did not end in time: started"):
        processes.run_alone(program("sh", "-c", script), HERE.first, 1.0)
    assert ends(int(child.read_text()))


def test_words_of_a_program_that_fails() -> None:
    with pytest.raises(MeasureError, match=r"sh failed with exit status 4: one \| two"):
        processes.run_alone(program("sh", "-c", "echo one; echo two >&2; exit 4"), HERE.first, 30)


def test_program_that_is_killed_is_named_by_signal() -> None:
    with pytest.raises(MeasureError, match="was ended by SIGSEGV and said nothing"):
        processes.run_alone(program("sh", "-c", "kill -SEGV $$"), HERE.first, 30)


def test_server_that_ends_before_it_listens() -> None:
    port = processes.free_port()
    with pytest.raises(MeasureError, match="sh failed with exit status 5: no device"):
        processes.run_server_and_client(
            program("sh", "-c", "echo no device; exit 5"), program("true"), port, HERE, 5
        )


@pytest.mark.parametrize("failing_one", [0, 1])
def test_pair_ends_when_one_fails(failing_one: int) -> None:
    pair = [program("sleep", "100"), program("sleep", "100")]
    pair[failing_one] = program("sh", "-c", "echo boom; exit 6")
    start = time.monotonic()
    with pytest.raises(MeasureError, match="sh failed with exit status 6: boom"):
        processes.run_together(pair[0], pair[1], HERE, 90)
    assert time.monotonic() - start < 60


def test_listening_is_seen_without_connecting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert processes.listens(port)
    assert not processes.listens(port)


# ---- the command ---------------------------------------------------------------------------------


@pytest.mark.debian
def test_quick_run(tmp_path: Path) -> None:
    values, page = tmp_path / "values.json", tmp_path / "performance.md"
    done = subprocess.run(
        verbena_command("bench", "--quick", "--only", "shared-heap: WRITE latency, 8 B",
                        "--json", str(values), "--markdown", str(page)),
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(values.read_text())["rows"]
    assert row["ours"]["median"] > 0
    assert f"| {row['name']} |" in page.read_text()
    assert row["name"] in done.stdout
    if ucx.version():
        assert row["peer"]["median"] > 0
    else:
        assert "skipped: libucx-cu12 is not installed" in done.stdout


@pytest.mark.debian
def test_events_and_own_memory() -> None:
    """The variants of one perftest program that the whole run needs."""
    for case in (
        perftest.Perftest("send_lat", events=True, spin_us=20),
        perftest.Perftest("read_lat", memory=Memory.OWN),
        perftest.Perftest("atomic_lat"),
        perftest.Perftest("send_bw", 4096, Memory.OWN),
    ):
        assert case.measure(Effort(0.01), cores.choose()).value > 0


@pytest.mark.parametrize("pattern", ["each of a batch", "64 KiB, pd.alloc", "from create to RTS"])
def test_python_rows(pattern: str) -> None:
    (chosen,) = goals.select(False, pattern)
    assert chosen.ours.measure(Effort(0.05), cores.choose()).value > 0


def test_pattern_without_a_row() -> None:
    done = subprocess.run(
        verbena_command("bench", "--only", "zzz"), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "no row matches 'zzz'" in done.stderr


def test_ended_bench_leaves_no_process() -> None:
    words = verbena_command("bench", "--only", "idle", "--rounds", "1")
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as bench:
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
