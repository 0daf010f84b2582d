# SPDX-License-Identifier: Apache-2.0
"""The phases of a machine: told by the line, kept apart by the runner and by the report."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from benchmarks import line, report, runner
from benchmarks.goal import Better, Goal, Section
from benchmarks.line import Phase
from benchmarks.runner import Plan, Reading, Series
from verbena.measure import cores
from verbena.measure.case import Case, Effort, Sample, Unit
from verbena.measure.cores import Cores
from verbena.measure.processes import SkipError

HERE = Cores(0, 1)
NEAR, FAR = 0.05, 0.2


@dataclass(frozen=True)
class Counted:
    """A case whose values are 1, 2, 3 and so on."""

    label: str
    calls: list[float] = field(default_factory=list, compare=False)
    unit: Unit = Unit.MICROSECONDS

    def measure(self, effort: Effort, where: Cores) -> Sample:
        self.calls.append(len(self.calls) + 1.0)
        return Sample(self.calls[-1])


def given(*lines: float | None) -> Callable[[], float | None]:
    """A probe that finds these lines; the test fails if it is asked more often."""
    left = iter(lines)
    return lambda: next(left)


def measured(
    *groups: tuple[Case, ...], probe: Callable[[], float | None], rounds: int = 1, limit: float = 60
) -> dict[Case, Series]:
    return runner.measure(groups, HERE, Plan(rounds, 0.1, limit), lambda text: None, probe)


def latency(ours: Case, peer: Case | None, bound: float | None = 1.0) -> Goal:
    return Goal(Section.SHARED, "SEND latency", ours, peer, bound, Better.LOWER)


@pytest.mark.parametrize(
    ("found", "phase"),
    [
        (0.04, Phase.ONE_CORE),
        (0.08, Phase.ONE_CORE),
        (0.10, Phase.TWO_CORES),
        (0.21, Phase.TWO_CORES),
        (None, None),
    ],
)
def test_the_line_tells_the_phase(found: float | None, phase: Phase | None) -> None:
    assert line.phase_of(found) is phase


def test_a_line_is_measured_once_between_two_cases() -> None:
    a, b = Counted("a"), Counted("b")
    found = measured((a, b), probe=given(0.04, 0.06, 0.08))
    assert found[a].readings == [Reading(1.0, 0.05)]
    assert found[b].readings == [Reading(1.0, pytest.approx(0.07))]


def test_a_case_in_which_the_phase_changed_is_measured_again() -> None:
    a = Counted("a")
    found = measured((a,), probe=given(NEAR, FAR, FAR))
    assert found[a].readings == [Reading(2.0, FAR)]


def test_a_line_that_was_missing_once_is_no_phase() -> None:
    a = Counted("a")
    found = measured((a,), probe=given(None, FAR, FAR))
    assert found[a].readings == [Reading(2.0, FAR)]


def test_a_pair_between_which_the_phase_changed_is_measured_again() -> None:
    ours, peer = Counted("ours"), Counted("peer")
    found = measured((ours, peer), probe=given(NEAR, NEAR, FAR, FAR, FAR, FAR))
    assert found[ours].readings == [Reading(1.0, NEAR), Reading(2.0, FAR)]
    assert found[peer].readings == [Reading(2.0, FAR), Reading(3.0, FAR)]


def test_a_case_of_two_rows_is_compared_with_both_peers() -> None:
    """Ours was read for the first row; before the second one's peer the phase changed."""
    ours, first, second = Counted("ours"), Counted("first"), Counted("second")
    probe = given(NEAR, NEAR, NEAR, FAR, FAR, FAR, FAR)
    found = measured((ours, first), (ours, second), probe=probe)
    assert [reading.phase for reading in found[ours].readings] == [Phase.ONE_CORE, Phase.TWO_CORES]
    assert {reading.phase for reading in found[second].readings} == {Phase.TWO_CORES}
    assert len(first.calls) == 1


def test_a_machine_without_a_steady_phase_is_given_up() -> None:
    a = Counted("a")
    found = measured((a,), probe=given(*[NEAR, FAR] * 2, NEAR))
    assert (found[a].readings, len(a.calls)) == ([], runner.TRIES)
    row = report.row(latency(a, None), found)
    assert row.failed
    assert "changed its phase" in row.verdict


def test_nothing_is_repeated_beyond_the_limit() -> None:
    a, ours, peer = Counted("a"), Counted("ours"), Counted("peer")
    measured((a,), probe=given(NEAR, FAR), limit=0)
    assert len(a.calls) == 1
    found = measured((ours,), (a,), (ours, peer), probe=given(NEAR, NEAR, FAR, FAR), limit=0)
    assert (len(ours.calls), len(peer.calls)) == (1, 1)
    assert report.row(latency(ours, peer), found).problem == report.TWO_PHASES


def test_a_machine_without_a_line_is_measured_as_it_is() -> None:
    ours, peer = Counted("ours"), Counted("peer")
    found = measured((ours, peer), probe=lambda: None, rounds=3)
    row = report.row(latency(ours, peer), found)
    assert (row.ours, row.peer, row.phase, row.lines, row.met) == (2.0, 2.0, None, (), True)


# ---- the report ----------------------------------------------------------------------------------


def row_of(
    ours: list[tuple[float, float]], peer: list[tuple[float, float]], bound: float = 1.0
) -> report.Row:
    a, b = Counted("ours"), Counted("peer")
    series = {
        case: Series([Reading(value, length) for value, length in readings])
        for case, readings in ((a, ours), (b, peer))
    }
    return report.row(latency(a, b, bound), series)


def test_a_row_compares_within_the_phase_that_has_more() -> None:
    """Near, ours is better; all readings together would say that the goal is met."""
    row = row_of(
        ours=[(0.01, NEAR), (0.5, FAR), (0.4, FAR), (0.6, FAR)],
        peer=[(0.1, NEAR), (0.25, FAR), (0.26, FAR)],
    )
    assert (row.ours, row.peer, row.phase) == (0.5, 0.255, Phase.TWO_CORES)
    assert row.met is False
    assert row.lines == (pytest.approx(2.5), pytest.approx(1.275))
    assert row.cells()[4:6] == ["2.50 / 1.27", "two cores"]


def test_each_latency_is_a_multiple_of_the_line_beside_it() -> None:
    row = row_of(ours=[(0.08, 0.04), (0.18, 0.06), (0.32, 0.08)], peer=[(0.05, 0.05)])
    assert row.phase is Phase.ONE_CORE
    assert row.lines == (pytest.approx(3.0), pytest.approx(1.0))


def test_a_row_whose_sides_have_no_phase_in_common_has_no_ratio() -> None:
    row = row_of(ours=[(0.1, NEAR)], peer=[(0.2, FAR)])
    assert (row.ours, row.peer, row.ratio, row.met) == (0.1, None, None, None)
    assert row.phase is Phase.ONE_CORE
    assert row.verdict == f"skipped: {report.TWO_PHASES}"


def test_what_is_no_latency_has_no_lines() -> None:
    a = Counted("ours", unit=Unit.MILLIONS)
    goal = Goal(Section.SHARED, "SEND rate", a, None, 1.0)
    row = report.row(goal, {a: Series([Reading(30.0, NEAR)])})
    assert (row.phase, row.lines, row.cells()[4:6]) == (Phase.ONE_CORE, (), ["", "one core"])


def test_the_report_tells_the_lines_of_each_phase() -> None:
    probe = line.Line(HERE, found=[0.05, 0.06, 0.07, 0.2])
    assert line.text(probe) == "0.060 µs on one core (3 times); 0.200 µs on two cores (1 times)"


# ---- the program ---------------------------------------------------------------------------------


def test_without_a_compiler_the_report_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with line.prepared(HERE) as probe:
        assert probe() is None
    assert "cc is not installed: sudo apt-get install gcc" in line.text(probe)


def test_one_processor_has_no_line() -> None:
    with line.prepared(Cores(3, 3)) as probe:
        assert probe() is None
    assert "there is only one processor" in line.text(probe)


def test_a_program_that_fails_is_no_line() -> None:
    """Of two processors one is not this machine's."""
    beyond = Cores(min(os.sched_getaffinity(0)), 4095)
    with line.prepared(beyond) as probe:
        assert probe() is None
    assert "may not use one of the two processors" in line.text(probe)


def test_the_line_of_this_machine() -> None:
    """Between 10 ns and what a busy machine's time slices make of it."""
    where = cores.choose()
    if not where.distinct:
        pytest.skip("the line needs two processors; a second one brings it")
    with line.prepared(where) as probe:
        found = probe()
    assert probe.problem is None
    assert found is not None
    assert 0.01 < found < 1e4
    assert probe.found == [found]
    assert line.phase_of(found) in Phase


def test_a_source_that_does_not_compile_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "line.c"
    broken.write_text("no C\n")
    monkeypatch.setattr(line, "SOURCE", broken)
    with pytest.raises(SkipError, match=r"line\.c does not compile: .*error"):
        line.build(tmp_path, HERE)
