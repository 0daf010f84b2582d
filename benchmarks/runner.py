# SPDX-License-Identifier: Apache-2.0
"""Measuring many cases in turn, again and again, and each in one phase of the machine.

command.py calls `measure` with the groups of cases that are compared: ours and a peer's. Every
reading knows the line (line.py) beside it; a case during which the phase changed is measured again,
and so is a group whose readings have different phases.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from benchmarks.line import Phase, phase_of
from verbena.measure.case import Case, Effort
from verbena.measure.cores import Cores
from verbena.measure.processes import MeasureError, SkipError

MAX_FAILURES = 2
TRIES = 4  # of a case during which the phase changed, and of a group in two phases
UNSTEADY = f"the machine changed its phase during each of {TRIES} measurements: run it again"

Group = tuple[Case, ...]
Probe = Callable[[], float | None]


@dataclass(frozen=True)
class Reading:
    """A measured value, and the line in µs beside it where that was measured."""

    value: float
    line: float | None = None

    @property
    def phase(self) -> Phase | None:
        return phase_of(self.line)

    @property
    def lines(self) -> float | None:
        """The value as a multiple of the line; it has to be in µs."""
        return self.value / self.line if self.line else None


@dataclass
class Series:
    """What a case gave so far; `problem` is the last reason that it gave nothing."""

    readings: list[Reading] = field(default_factory=list)
    rate: float | None = None
    problem: str | None = None
    skipped: bool = False
    failures: int = 0

    @property
    def values(self) -> list[float]:
        return [reading.value for reading in self.readings]

    @property
    def median(self) -> float | None:
        return median(self.values)

    @property
    def open(self) -> bool:
        """Whether it makes sense to measure again."""
        return not self.skipped and self.failures < MAX_FAILURES

    def within(self, phase: Phase | None) -> list[Reading]:
        return [reading for reading in self.readings if reading.phase is phase]


def median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def common_phase(group: Sequence[Series]) -> tuple[Phase | None, int]:
    """The phase of which all the series have the most readings, and how many those are.

    None is the phase of readings without a line. Of two phases with as many it is that of two
    cores, as which most machines count.
    """
    counts = {
        phase: min(len(series.within(phase)) for series in group)
        for phase in (Phase.TWO_CORES, Phase.ONE_CORE, None)
    }
    best = max(counts, key=lambda phase: counts[phase])
    return best, counts[best]


@dataclass(frozen=True)
class Plan:
    """How often and how long to measure; no round starts that would end after `limit` seconds.

    Nothing is repeated for its phase after that time.
    """

    rounds: int
    seconds: float
    limit: float


def measure(
    groups: Iterable[Group],
    cores: Cores,
    plan: Plan,
    progress: Callable[[str], None],
    probe: Probe = lambda: None,
) -> dict[Case, Series]:
    """Measure every case once a round, or more often where the phase of the machine changed.

    A case that failed twice is left alone. `probe` measures the line.
    """
    groups = list(groups)
    series = {case: Series() for group in groups for case in group}
    start = round_start = time.monotonic()
    for number in range(plan.rounds):
        one = Round(series, cores, plan.seconds, probe, start + plan.limit)
        for group in groups:
            progress(f"round {number + 1} of {plan.rounds}: {beside(group)}")
            one.measure(group)
        now = time.monotonic()
        if now + (now - round_start) > start + plan.limit and number + 1 < plan.rounds:
            progress(f"{number + 1} of {plan.rounds} rounds: the time is over")
            break
        round_start = now
    return series


def beside(group: Group) -> str:
    return " beside ".join(case.label for case in group)


class Round:
    """Each case once, with the line between two of them."""

    def __init__(
        self,
        series: dict[Case, Series],
        cores: Cores,
        seconds: float,
        probe: Probe,
        deadline: float,
    ) -> None:
        self.series = series
        self.cores = cores
        self.seconds = seconds
        self.probe = probe
        self.deadline = deadline
        self.line = probe()
        self.latest: dict[Case, Reading | None] = {}

    def measure(self, group: Group) -> None:
        """Measure what the round does not have yet; all of it again while the phases differ."""
        for case in group:
            if case not in self.latest:
                self.latest[case] = self.read(case)
        for _ in range(TRIES - 1):
            if not self.parted(group) or time.monotonic() > self.deadline:
                return
            for case in group:
                self.latest[case] = self.read(case)

    def parted(self, group: Group) -> bool:
        """Whether the latest readings of a group cannot be compared."""
        found = [reading for case in group if (reading := self.latest[case])]
        return len({reading.phase for reading in found}) > 1

    def read(self, case: Case) -> Reading | None:
        """A reading of one phase, which the series has then too; None where there is none."""
        so_far = self.series[case]
        for _ in range(TRIES):
            if not so_far.open:
                return None
            before = self.line
            value = measure_once(case, so_far, self.seconds, self.cores)
            self.line = self.probe()
            if value is None:
                return None
            if phase_of(before) is phase_of(self.line):
                so_far.readings.append(Reading(value, mean(before, self.line)))
                return so_far.readings[-1]
            if time.monotonic() > self.deadline:
                break
        so_far.problem = UNSTEADY
        return None


def mean(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else (before + after) / 2


def measure_once(case: Case, so_far: Series, seconds: float, cores: Cores) -> float | None:
    """A value of the case, or None; the series has the reason then."""
    try:
        sample = case.measure(Effort(seconds, so_far.rate), cores)
    except SkipError as error:
        so_far.skipped, so_far.problem = True, str(error)
    except MeasureError as error:
        so_far.failures += 1
        so_far.problem = str(error)
    else:
        so_far.rate = sample.rate
        return sample.value
    return None
