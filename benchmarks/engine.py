# SPDX-License-Identifier: Apache-2.0
"""The packet engine alone: two adapters on one core exchange packets in memory.

goals.py makes this case; `make bench` builds the program that it runs.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from verbena.measure.case import Effort, Sample, Unit
from verbena.measure.cores import Cores
from verbena.measure.processes import MeasureError, Program, SkipError, run_alone

# tests/native/bench/bench_engine.c; `make bench` builds it.
PROGRAM = "VERBENA_BENCH_ENGINE"
TIMEOUT = 30.0


@dataclass(frozen=True)
class EngineAlone:
    """Data packets per second, with acknowledgements, path MTU 4096 and virtual payload."""

    operation: str
    size: int
    unit: Unit = Unit.MILLIONS

    @property
    def label(self) -> str:
        return f"bench_engine {self.operation} {self.size}"

    def measure(self, effort: Effort, cores: Cores) -> Sample:
        program = os.environ.get(PROGRAM)
        if not program:
            raise SkipError("`make bench` builds the program that measures it")
        words = [program, self.operation, str(self.size)]
        return Sample(
            packets_per_second(run_alone(Program(words, os.environ), cores.first, TIMEOUT))
        )


def packets_per_second(text: str) -> float:
    """Return millions of packets per second. Raises MeasureError, also if the engine allocated
    memory meanwhile."""
    found = re.search(r"([\d.]+) M data packets/s, (\d+) allocations", text)
    if found is None:
        raise MeasureError(f"bench_engine printed no result: {text[-200:]!r}")
    if int(found[2]):
        raise MeasureError(f"the engine allocated memory {found[2]} times while it ran")
    return float(found[1])
