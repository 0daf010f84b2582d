# SPDX-License-Identifier: Apache-2.0
"""Commands a second of a disk in memory: of `verbena disk`, and of nbdkit as fio reads it.

goals.py has the rows. Each measurement starts a server on one core, writes its disk once, and reads
it from the other core. nbdkit and fio are Debian's; where they are not installed, they are unpacked
into the cache of the tests.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests import debian_packages
from verbena.measure.case import MIB, Effort, Sample, Unit, size_text
from verbena.measure.cores import Cores
from verbena.measure.processes import (
    MeasureError,
    Process,
    Program,
    SkipError,
    free_port,
    listens,
    python_environment,
    run_alone,
    running,
    wait_until,
)

HOST = "127.0.0.1"
DISK = "256M"
TIMEOUT, READY_WITHIN = 60.0, 15.0
LEAST_SECONDS = 0.5
VERBENA_DISK = (sys.executable, "-m", "verbena", "disk")


@dataclass(frozen=True)
class DiskLoad:
    """``depth`` commands of ``size`` bytes at once, in a pattern of `verbena disk bench`."""

    pattern: str
    size: int
    depth: int

    def __str__(self) -> str:
        how = {"randread": "random reads", "read": "reads in sequence"}[self.pattern]
        return f"{how} of {size_text(self.size)}, depth {self.depth}"


WRITE_ALL = DiskLoad("write", MIB, 8)


@dataclass(frozen=True)
class NvmeDisk:
    """`verbena disk bench` at a disk of `verbena disk serve`."""

    load: DiskLoad
    label: str = "verbena disk"
    unit: Unit = field(default=Unit.PER_SECOND, init=False)

    def measure(self, effort: Effort, cores: Cores) -> Sample:
        port = free_port()
        words = [*VERBENA_DISK, "serve", "--memory", DISK, "--listen", HOST, "--port", str(port)]
        with serving(words, cores.first, lambda process: f"port {port};" in process.text()):
            return written_and_read(self._rate, self.load, port, effort, cores)

    @staticmethod
    def _rate(load: DiskLoad, port: int, core: int, seconds: float) -> float:
        words = [*VERBENA_DISK, "bench", HOST, "--port", str(port), "--pattern", load.pattern]
        words += ["--size", str(load.size), "--depth", str(load.depth), "--seconds", str(seconds)]
        return bench_rate(run_alone(Program(words, python_environment()), core, TIMEOUT))


@dataclass(frozen=True)
class NbdDisk:
    """fio's engine `nbd` at nbdkit's memory plugin, over TCP on loopback."""

    load: DiskLoad
    label: str = "nbdkit and fio"
    unit: Unit = field(default=Unit.PER_SECOND, init=False)

    def measure(self, effort: Effort, cores: Cores) -> Sample:
        port = free_port()
        with serving(nbdkit(port), cores.first, lambda process: listens(port)):
            return written_and_read(self._rate, self.load, port, effort, cores)

    @staticmethod
    def _rate(load: DiskLoad, port: int, core: int, seconds: float) -> float:
        words = [*debian_command("fio"), "--name=disk", "--ioengine=nbd", "--output-format=json"]
        words += [f"--uri=nbd://{HOST}:{port}", f"--rw={load.pattern}", f"--bs={load.size}"]
        words += [f"--size={DISK}", f"--iodepth={load.depth}", "--time_based"]
        words += [f"--runtime={round(seconds * 1000)}ms"]
        return fio_rate(run_alone(Program(words, os.environ), core, TIMEOUT))


@contextmanager
def serving(words: list[str], core: int, ready: Callable[[Process], bool]) -> Iterator[Process]:
    """Run a server until the end. Raises MeasureError when it does not get ready."""
    with running(Program(words, python_environment()), core) as process:
        wait_until(lambda: ready(process), process, READY_WITHIN)
        yield process


def written_and_read(
    rate: Callable[[DiskLoad, int, int, float], float],
    load: DiskLoad,
    port: int,
    effort: Effort,
    cores: Cores,
) -> Sample:
    """Write the whole disk at a port, and return the commands a second of a load after that."""
    rate(WRITE_ALL, port, cores.second, LEAST_SECONDS)
    return Sample(rate(load, port, cores.second, max(effort.seconds, LEAST_SECONDS)))


def debian_command(package: str, *, alone: bool = False) -> list[str]:
    """The command of a package's program. Raises SkipError."""
    try:
        return debian_packages.command(package, alone=alone)
    except pytest.skip.Exception as error:
        raise SkipError(error.msg or package) from error


def nbdkit(port: int) -> list[str]:
    """The command that serves a disk in memory at a port."""
    words, plugin = debian_command("nbdkit", alone=True), "memory"
    if words[0] == "sh":  # it is only unpacked, and would search its plugins where it is not
        root = Path(words[-1]).parents[1]
        (found,) = root.glob("lib/*/nbdkit/plugins/nbdkit-memory-plugin.so")
        plugin = str(found)
    return [*words, "-f", "-i", HOST, "-p", str(port), plugin, DISK]


def bench_rate(said: str) -> float:
    """The commands a second of `verbena disk bench`. Raises MeasureError."""
    found = re.search(r"([\d,]+) commands/s", said)
    if found is None:
        raise MeasureError(f"verbena disk bench printed no rate: {said[-200:]!r}")
    return float(found[1].replace(",", ""))


def fio_rate(said: str) -> float:
    """The requests a second of fio's only job. Raises MeasureError."""
    try:
        (job,) = json.loads(said[said.index("{") :])["jobs"]
        return float(max(job["read"]["iops"], job["write"]["iops"]))
    except (ValueError, KeyError) as error:
        raise MeasureError(f"fio printed no result: {said[-200:]!r}") from error
