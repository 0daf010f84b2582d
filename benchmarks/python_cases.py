# SPDX-License-Identifier: Apache-2.0
"""Cases that Python measures in one or two fresh processes, besides `Script`."""

from __future__ import annotations

import os
import statistics
import sys
from dataclasses import dataclass, field
from typing import Any

from benchmarks import plain_scripts
from verbena.measure.case import GIB, MIB, Effort, Sample, Unit
from verbena.measure.cores import Cores
from verbena.measure.processes import Program, SkipError, run_alone
from verbena.measure.scripts import Function, run

TIMEOUT = 60.0
OPENINGS = 7
OPEN_DEVICE = """
import time
start = time.perf_counter()
from verbena import verbs
verbs.open_device()
print(time.perf_counter() - start)
"""
MEMORY_PER_WALK = 3.5  # source, target, and room for the rest


@dataclass(frozen=True)
class Walk:
    """A function that walks over `total` bytes; skipped where memory is short."""

    function: Function
    label: str
    total: int = GIB
    arguments: tuple[tuple[str, Any], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    unit: Unit = field(default=Unit.BANDWIDTH, init=False)

    def measure(self, effort: Effort, cores: Cores) -> Sample:
        free = available_memory()
        if free < MEMORY_PER_WALK * self.total:
            raise SkipError(
                f"walking {self.total // MIB} MiB needs {MEMORY_PER_WALK * self.total / GIB:.1f} "
                f"GiB of memory, {free / GIB:.1f} GiB are free"
            )
        arguments = {"seconds": effort.seconds, "total": self.total, **dict(self.arguments)}
        return Sample(float(run(self.function, cores, dict(self.environment), **arguments)))


@dataclass(frozen=True)
class Wakeup:
    """A bare eventfd's half round trip between the two processes."""

    label: str = "eventfd"
    unit: Unit = field(default=Unit.MICROSECONDS, init=False)

    def measure(self, effort: Effort, cores: Cores) -> Sample:
        fds = [os.eventfd(0), os.eventfd(0)]
        try:
            value = run(plain_scripts.eventfd_latency, cores, fds=fds, seconds=effort.seconds)
        finally:
            for fd in fds:
                os.close(fd)
        return Sample(float(value))


@dataclass(frozen=True)
class OpenDevice:
    """Seconds to import verbena.verbs and open the device in a fresh interpreter."""

    label: str = "import and open the device"
    unit: Unit = field(default=Unit.SECONDS, init=False)

    def measure(self, effort: Effort, cores: Cores) -> Sample:
        program = Program([sys.executable, "-c", OPEN_DEVICE], os.environ)
        times = [float(run_alone(program, cores.first, TIMEOUT)) for _ in range(OPENINGS)]
        return Sample(statistics.median(times))


def available_memory() -> int:
    """Bytes that programs can still get."""
    with open("/proc/meminfo") as lines:
        found = next((line for line in lines if line.startswith("MemAvailable:")), None)
    return int(found.split()[1]) * 1024 if found else 1 << 62
