# SPDX-License-Identifier: Apache-2.0
"""Cases that are measured by Python in one or two fresh processes."""

from __future__ import annotations

import json
import os
import socket
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from verbena.bench.case import GIB, MIB, Effort, Sample, Unit
from verbena.bench.cores import Cores
from verbena.bench.processes import (
    MeasureError,
    Program,
    SkipError,
    run_alone,
    run_together,
)

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
class Script:
    """A function of verbs_scripts or plain_scripts; `arguments` are (name, value) pairs."""

    name: str
    label: str
    unit: Unit
    arguments: tuple[tuple[str, Any], ...] = ()

    def measure(self, effort: Effort, cores: Cores) -> Sample:
        return Sample(float(run(self.name, cores, seconds=effort.seconds, **dict(self.arguments))))


@dataclass(frozen=True)
class Walk:
    """A script that walks over `total` bytes; over less where memory is short."""

    name: str
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
        return Sample(float(run(self.name, cores, dict(self.environment), **arguments)))


@dataclass(frozen=True)
class Wakeup:
    """A bare eventfd's half round trip between the two processes."""

    label: str = "eventfd"
    unit: Unit = field(default=Unit.MICROSECONDS, init=False)

    def measure(self, effort: Effort, cores: Cores) -> Sample:
        fds = [os.eventfd(0), os.eventfd(0)]
        try:
            value = run("eventfd_latency", cores, fds=fds, seconds=effort.seconds)
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


def run(
    name: str, cores: Cores, environment: dict[str, str] | None = None, **arguments: Any
) -> Any:
    """Run a script of worker.SCRIPTS in two processes; what the first one returned.

    `environment` is added to this process's.

    A list `fds` among the arguments is inherited by both. Raises MeasureError.
    """
    text = json.dumps(arguments)
    fds = tuple(arguments.get("fds", ()))
    with linked() as (a, b):
        first, second = (
            worker(name, role, fd, text, fds, environment or {})
            for role, fd in (("first", a), ("second", b))
        )
        said, _ = run_together(first, second, cores, TIMEOUT)
    try:
        return json.loads(said.splitlines()[-1])
    except (IndexError, ValueError) as error:
        raise MeasureError(f"{name} printed no result: {said[-200:]!r}") from error


@contextmanager
def linked() -> Iterator[tuple[int, int]]:
    """The descriptors of a socket pair."""
    a, b = socket.socketpair()
    with a, b:
        yield a.fileno(), b.fileno()


def worker(
    name: str,
    role: str,
    fd: int,
    arguments: str,
    fds: tuple[int, ...],
    environment: dict[str, str],
) -> Program:
    words = [sys.executable, "-m", "verbena.bench.worker", name, role, str(fd), arguments]
    return Program(words, os.environ | environment, (fd, *fds))


def available_memory() -> int:
    """Bytes that programs can still get."""
    with open("/proc/meminfo") as lines:
        found = next((line for line in lines if line.startswith("MemAvailable:")), None)
    return int(found.split()[1]) * 1024 if found else 1 << 62
