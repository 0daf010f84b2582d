# SPDX-License-Identifier: Apache-2.0
"""The peer for packets: one TCP connection over loopback, by iperf3."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass

from verbena.measure.case import Effort, Sample, Unit
from verbena.measure.cores import Cores
from verbena.measure.processes import (
    MeasureError,
    Program,
    SkipError,
    free_port,
    run_server_and_client,
)

TIMEOUT = 60.0
LEAST_SECONDS = 1.0


@dataclass(frozen=True)
class Iperf:
    """`iperf3`, with writes of `length` bytes ("1M"), or of its default."""

    length: str = ""
    unit: Unit = Unit.BANDWIDTH

    @property
    def label(self) -> str:
        return f"iperf3 -l {self.length}" if self.length else "iperf3"

    def measure(self, effort: Effort, cores: Cores) -> Sample:
        port = str(free_port())
        seconds = max(effort.seconds, LEAST_SECONDS)
        length = ["-l", self.length] if self.length else []
        words = ["-c", "127.0.0.1", "-p", port, "-t", f"{seconds:.0f}", "-J", *length]
        server = Program([find(), "-s", "-1", "-p", port], os.environ)
        client = Program([find(), *words], os.environ)
        _, said = run_server_and_client(server, client, int(port), cores, TIMEOUT)
        return Sample(mib_per_second(said))


def find() -> str:
    path = shutil.which("iperf3")
    if path is None:
        raise SkipError("iperf3 is not installed: sudo apt-get install iperf3")
    return path


def mib_per_second(text: str) -> float:
    """Return the receiver's MiB/s. Raises MeasureError."""
    try:
        return float(json.loads(text)["end"]["sum_received"]["bits_per_second"]) / 8 / 2**20
    except (ValueError, KeyError) as error:
        raise MeasureError(f"iperf3 printed no result: {text[-200:]!r}") from error
