# SPDX-License-Identifier: Apache-2.0
"""The peer: UCX over shared memory, from the PyPI package libucx-cu12 (no GPU is needed)."""

from __future__ import annotations

import csv
import importlib.metadata
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

from verbena.measure.case import SMALL, Effort, Memory, Sample, Unit, expected_rate, unit_of
from verbena.measure.cores import Cores
from verbena.measure.processes import (
    MeasureError,
    Program,
    SkipError,
    free_port,
    run_server_and_client,
)

DISTRIBUTION = "libucx-cu12"
TIMEOUT = 30.0
TCP = "tcp"
# posix reaches only memory that UCX allocated; cma is what it has for a program's own.
TRANSPORTS = {Memory.SHARED: "posix,self", Memory.OWN: "posix,cma"}
EXPECTED = {Memory.SHARED: (5e6, 10e9), Memory.OWN: (1e6, 5e9)}
EXPECTED_TCP = (100e3, 1e9)
MAX_WARM_UP = 10_000
COUNT, MEDIAN, AVERAGE = "iterations", "50.0_percentile_lat", "overall_lat"
BANDWIDTH, RATE = "overall_bw", "overall_mr"


@dataclass(frozen=True)
class Ucx:
    """`ucx_perftest -t TEST -s SIZE`: half round trip, or bandwidth (8 bytes: rate)."""

    test: str
    size: int = SMALL
    memory: Memory = Memory.SHARED
    average: bool = False
    over_tcp: bool = False

    @property
    def transports(self) -> str:
        return TCP if self.over_tcp else TRANSPORTS[self.memory]

    @property
    def unit(self) -> Unit:
        return unit_of(self.test, self.size)

    @property
    def label(self) -> str:
        transports = self.transports.replace(",self", "").replace(",", "+")
        return f"UCX {transports} {self.test}"

    def measure(self, effort: Effort, cores: Cores) -> Sample:
        usual = EXPECTED_TCP if self.over_tcp else EXPECTED[self.memory]
        count = effort.iterations(expected_rate(self.size, *usual))
        port = free_port()
        server = self.program("-p", str(port))
        client = self.program(*self.words(count), "-p", str(port), "127.0.0.1")
        _, said = run_server_and_client(server, client, port, cores, TIMEOUT)
        return self.sample(last_record(said))

    def words(self, count: int) -> list[str]:
        # The default warm-up, 10,000 messages of any size, takes minutes with large ones.
        warm_up = min(max(count // 10, 2), MAX_WARM_UP)
        sizes = ["-t", self.test, "-s", str(self.size)]
        return [*sizes, "-n", str(count), "-w", str(warm_up), "-f", "-v"]

    def program(self, *words: str) -> Program:
        root = package_dir()
        changed = {
            "LD_LIBRARY_PATH": str(root / "lib"),  # or Debian's older UCX is taken
            "UCX_TLS": self.transports,
            "UCX_WARN_UNUSED_ENV_VARS": "n",
        }
        mine = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        return Program([str(root / "bin" / "ucx_perftest"), *words], mine | changed)

    def sample(self, record: dict[str, str]) -> Sample:
        rate = float(record[RATE])
        if self.unit is Unit.MICROSECONDS:
            return Sample(float(record[AVERAGE if self.average else MEDIAN]), rate / 2)
        if self.unit is Unit.MILLIONS:
            return Sample(rate / 1e6, rate)
        return Sample(float(record[BANDWIDTH]), rate)


def package_dir() -> Path:
    """The folder of the package libucx. Raises SkipError when it or its program is missing."""
    spec = importlib.util.find_spec("libucx")
    places = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    for place in places:
        if (place / "bin" / "ucx_perftest").exists():
            return place
    if places:
        raise SkipError(f"{DISTRIBUTION} {version()} carries no ucx_perftest")
    raise SkipError(f"{DISTRIBUTION} is not installed: pip install {DISTRIBUTION}")


def version() -> str | None:
    """The installed version of UCX, or None."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return None


def last_record(text: str) -> dict[str, str]:
    """The final line of ucx_perftest's CSV, by its heading. Raises MeasureError."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith(f"{COUNT},")), None)
    if start is not None:
        table = [line for line in lines[start:] if line.count(",") == lines[start].count(",")]
        records = list(csv.DictReader(table))
        if records:
            return records[-1]
    raise MeasureError(f"ucx_perftest printed no result: {' | '.join(lines[-3:])}")
