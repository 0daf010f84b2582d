# SPDX-License-Identifier: Apache-2.0
"""The same measurements where the two processes share their processors."""

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
# The first run is to end also where each message waits for somebody's time slice.
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
    """A process on each core that does nothing but compute."""
    with running(COMPUTES, cores.first), running(COMPUTES, cores.second):
        yield
