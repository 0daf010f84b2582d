# SPDX-License-Identifier: Apache-2.0
"""Measuring many cases in turn, again and again."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from verbena.measure.case import Case, Effort
from verbena.measure.cores import Cores
from verbena.measure.processes import MeasureError, SkipError

MAX_FAILURES = 2


@dataclass
class Series:
    """What a case gave so far; `problem` is the last reason that it gave nothing."""

    values: list[float] = field(default_factory=list)
    rate: float | None = None
    problem: str | None = None
    skipped: bool = False
    failures: int = 0

    @property
    def median(self) -> float | None:
        return statistics.median(self.values) if self.values else None

    @property
    def open(self) -> bool:
        """Whether it makes sense to measure again."""
        return not self.skipped and self.failures < MAX_FAILURES


@dataclass(frozen=True)
class Plan:
    """How often and how long to measure; no round starts that would end after `limit` seconds."""

    rounds: int
    seconds: float
    limit: float


def measure(
    cases: Iterable[Case], cores: Cores, plan: Plan, progress: Callable[[str], None]
) -> dict[Case, Series]:
    """Measure every case once a round. A case that failed twice is left alone."""
    series = {case: Series() for case in cases}
    start = round_start = time.monotonic()
    for number in range(plan.rounds):
        for case, so_far in series.items():
            if so_far.open:
                progress(f"round {number + 1} of {plan.rounds}: {case.label}")
                measure_once(case, so_far, plan.seconds, cores)
        now = time.monotonic()
        if now + (now - round_start) > start + plan.limit and number + 1 < plan.rounds:
            progress(f"{number + 1} of {plan.rounds} rounds: the time is over")
            break
        round_start = now
    return series


def measure_once(case: Case, so_far: Series, seconds: float, cores: Cores) -> None:
    try:
        sample = case.measure(Effort(seconds, so_far.rate), cores)
    except SkipError as error:
        so_far.skipped, so_far.problem = True, str(error)
    except MeasureError as error:
        so_far.failures += 1
        so_far.problem = str(error)
    else:
        so_far.values.append(sample.value)
        so_far.rate = sample.rate
