# SPDX-License-Identifier: Apache-2.0
"""Measurements in which the two processes share their processors with others, or with each other.

goals.py makes these cases.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from verbena.measure.case import Case, Effort, Sample, Unit
from verbena.measure.cores import Cores
from verbena.measure.processes import Program, running

COMPUTES = Program([sys.executable, "-c", "while True: pass"], os.environ)
# The first run must also end if each message waits for the end of a time slice.
EXPECTED_RATE = 2e3


@dataclass(frozen=True)
class Crowded:
    """`case` with both processes on the first core, or each beside a process that computes."""

    case: Case
    neighbours: bool

    @property
    def label(self) -> str:
        return self.case.label

    @property
    def unit(self) -> Unit:
        return self.case.unit

    def measure(self, effort: Effort, cores: Cores) -> Sample:
        where = cores if self.neighbours else Cores(cores.first, cores.first)
        with busy(where) if self.neighbours else ExitStack():
            return self.case.measure(Effort(effort.seconds, effort.rate or EXPECTED_RATE), where)


@contextmanager
def busy(cores: Cores) -> Iterator[None]:
    """Run a process on each core that only computes."""
    with running(COMPUTES, cores.first), running(COMPUTES, cores.second):
        yield
