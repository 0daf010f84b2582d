# SPDX-License-Identifier: Apache-2.0
"""Runs Debian's unmodified perftest over the drop-in library. The demo and goals.py use it."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from verbena import launch, verbs
from verbena.measure.case import (
    SMALL,
    Effort,
    Memory,
    Sample,
    Unit,
    expected_rate,
    size_text,
    unit_of,
)
from verbena.measure.cores import Cores
from verbena.measure.processes import (
    MeasureError,
    Program,
    SkipError,
    free_port,
    run_server_and_client,
)

TIMEOUT = 30.0
# Every address handle of a RoCE device has a GRH; GID 1 is the RoCE v2 one that always exists.
GID_INDEX = "1"
# Operations per second and bytes per second of a modest machine: the first run is a short one.
EXPECTED = {Memory.SHARED: (10e6, 10e9), Memory.OWN: (1e6, 5e9)}
EXPECTED_EVENTS = 20e3
EXPECTED_PACKETS = (100e3, 4e9)
# For two processes that share a core and wait for each other. A program that polls its own memory
# does not yield the core: each message waits for the end of a time slice.
EXPECTED_ON_ONE_CORE = {"write_lat": 50.0, "send_lat": 2e3}
PACKETS_SECONDS = 1.0  # at least, as iperf3 does
# One interface, because perftest uses no larger path MTU than the port's.
PACKETS_ONLY = {"VERBENA_CARRIER": "roce", "VERBENA_NETDEV": "lo"}
LATENCY_COLUMN, AVERAGE_COLUMN = 4, 5
BANDWIDTH_COLUMN, RATE_COLUMN = 3, 4
PACKAGES = {"ibv_": "ibverbs-utils", "ib_": "perftest", "cmtime": "rdmacm-utils"}


@dataclass(frozen=True)
class Perftest:
    """`ib_TEST -s SIZE`: its typical latency, or its average bandwidth (8 bytes: message rate).

    WRITE and SEND latencies are half round trips, READ and atomic ones whole operations, as
    perftest reports them. `events` sleeps on a completion channel, after `spin_us` of spinning.
    `average` takes the average latency instead, where the clock's steps are too coarse. With a
    `path_mtu` it runs over RoCE on the loopback interface.
    """

    test: str
    size: int = SMALL
    memory: Memory = Memory.SHARED
    events: bool = False
    spin_us: int = 0
    average: bool = False
    path_mtu: int = 0

    @property
    def unit(self) -> Unit:
        return unit_of(self.test, self.size)

    @property
    def label(self) -> str:
        events = " -e" if self.events else ""
        packets = f", MTU {self.path_mtu}" if self.path_mtu else ""
        return f"ib_{self.test}{events}, {size_text(self.size)}{packets}"

    def measure(self, effort: Effort, cores: Cores) -> Sample:
        if self.path_mtu and self.unit is Unit.BANDWIDTH:
            effort = replace(effort, seconds=max(effort.seconds, PACKETS_SECONDS))
        words = self.words(effort.iterations(self.expected(cores)))
        _, said = run_pair(words, cores, self.environment())
        return self.sample(data_row(said))

    def expected(self, cores: Cores) -> float:
        """Operations per second, for a first run."""
        usual = EXPECTED_PACKETS if self.path_mtu else EXPECTED[self.memory]
        rate = EXPECTED_EVENTS if self.events else expected_rate(self.size, *usual)
        return rate if cores.distinct else min(rate, EXPECTED_ON_ONE_CORE.get(self.test, rate))

    def words(self, iterations: int) -> list[str]:
        size = [] if self.test.startswith("atomic") else ["-s", str(self.size)]
        events = ["-e"] if self.events else []
        cycles = ["-C"] if self.test.endswith("_lat") and cycles_per_us() else []
        common = ["-F", "-n", str(iterations), *self.way()]
        return [find(f"ib_{self.test}"), *common, *size, *events, *cycles]

    def way(self) -> list[str]:
        if not self.path_mtu:
            return ["-x", GID_INDEX]
        return ["-x", str(loopback_gid_of_packets()), "-m", str(self.path_mtu)]

    def environment(self) -> dict[str, str]:
        shared = self.memory is Memory.SHARED and not self.path_mtu
        made = launch.environment(shared_heap=shared, spin_us=self.spin_us or None)
        return made | (PACKETS_ONLY if self.path_mtu else {})

    def sample(self, row: list[float]) -> Sample:
        if self.unit is Unit.MICROSECONDS:
            scale = 1 / (cycles_per_us() or 1.0)
            value = finite(row[AVERAGE_COLUMN if self.average else LATENCY_COLUMN]) * scale
            trips = 2 if self.test in ("write_lat", "send_lat") else 1
            average = finite(row[AVERAGE_COLUMN]) * scale
            return Sample(value, 1e6 / max(average * trips, 1e-3))
        # The rate has six digits after the point and is 0.000332 for large messages.
        rate = finite(row[BANDWIDTH_COLUMN]) * 2**20 / self.size
        if self.unit is Unit.MILLIONS:
            return Sample(finite(row[RATE_COLUMN]), rate)
        return Sample(row[BANDWIDTH_COLUMN], rate)


@cache
def cycles_per_us() -> float | None:
    """Return the rate of x86's time stamp counter, or None if it is not known to be constant.

    perftest prints microseconds with two digits, too few for shared memory, but cycles exactly.
    """
    try:
        fields = dict(re.findall(r"^(\w+)\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M))
    except OSError:
        return None
    if "constant_tsc" not in fields.get("flags", "").split():
        return None
    return float(fields["bogomips"]) / 2


@cache
def loopback_gid_of_packets() -> int:
    """Return `loopback_gid` in another process with PACKETS_ONLY: settings are per process."""
    words = [sys.executable, "-c", f"from {__name__} import loopback_gid; print(loopback_gid())"]
    done = subprocess.run(words, env=os.environ | PACKETS_ONLY, capture_output=True, text=True)
    if done.returncode:
        raise SkipError(done.stderr.strip().rpartition(": ")[2] or "no GID for packets")
    return int(done.stdout)


def loopback_gid() -> int:
    """Return the index of the GID of 127.0.0.1. Raises SkipError when there is none."""
    with verbs.open_device() as context:
        for entry in context.query_gid_table():
            if entry.gid.raw[12:] == bytes([127, 0, 0, 1]) and entry.gid.is_ipv4_mapped:
                return entry.gid_index
    raise SkipError("the loopback interface has no address 127.0.0.1")


def find(name: str) -> str:
    """The path of a Debian program. Raises MeasureError with the command that installs it."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if path is None:
        package = next(p for prefix, p in PACKAGES.items() if name.startswith(prefix))
        raise MeasureError(f"{name} is not installed: sudo apt-get install {package}")
    return path


def run_pair(
    words: list[str], cores: Cores, environment: dict[str, str], timeout: float = TIMEOUT
) -> tuple[str, str]:
    """Run a perftest or pingpong program as server and client; return the output of both."""
    port = free_port()
    words = [*words, "-p", str(port)]
    server, client = Program(words, environment), Program([*words, "127.0.0.1"], environment)
    return run_server_and_client(server, client, port, cores, timeout)


def data_row(text: str) -> list[float]:
    """The numbers under perftest's heading. Raises MeasureError when there are none.

    Warnings may stand between. A number may be `inf`, `nan` or `-nan`: on a busy machine perftest
    prints a standard deviation of -nan beside latencies that are right.
    """
    lines = text.splitlines()
    heading = next((i for i, line in enumerate(lines) if line.lstrip().startswith("#bytes")), None)
    if heading is None:
        raise MeasureError(f"perftest printed no result: {' | '.join(lines[-3:])}")
    row = next(filter(None, map(numbers, lines[heading + 1 :])), None)
    if row is None:
        raise MeasureError(f"not a result of perftest: {' | '.join(lines[heading + 1 :])!r}")
    return row


def numbers(line: str) -> list[float]:
    """Return a line's numbers; an empty list if the line has anything else."""
    try:
        return [float(word) for word in line.split()]
    except ValueError:
        return []


def finite(value: float) -> float:
    """Return a finite value. Raises MeasureError when perftest could not compute it."""
    if not math.isfinite(value):
        raise MeasureError(f"perftest measured {value}: the machine is too busy, try again")
    return value
