# SPDX-License-Identifier: Apache-2.0
"""Dask over verbena:// and over its own tcp://. The worker is dask_worker.py."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec

from verbena.measure.case import Effort, Sample, Unit
from verbena.measure.cores import Cores
from verbena.measure.processes import MeasureError, SkipError

TIMEOUT = 180.0


@dataclass(frozen=True)
class DaskComm:
    """A message, an array, or arrays between workers, over a scheme."""

    what: str
    scheme: str
    unit: Unit

    @property
    def label(self) -> str:
        return f"Dask over {self.scheme}://"

    def measure(self, effort: Effort, cores: Cores) -> Sample:
        for module, extra in (("distributed", "dask"), ("pandas", "bench")):
            if find_spec(module) is None and (module == "distributed" or "table" in self.what):
                raise SkipError(f"{module} is not installed: pip install 'verbena[{extra}]'")
        seconds = str(max(effort.seconds, 1.0))
        command = [sys.executable, "-m", "benchmarks.dask_worker", self.what, self.scheme, seconds]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
        except subprocess.TimeoutExpired as error:
            raise MeasureError(f"{self.label} took over {TIMEOUT:.0f} s") from error
        found = re.search(r"took ([\d.]+)", done.stdout)
        if found is None:
            raise MeasureError(f"{self.label} said no time: {done.stderr[-300:]}")
        return Sample(float(found[1]))
