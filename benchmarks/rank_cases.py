# SPDX-License-Identifier: Apache-2.0
"""Collective calls of ranks in processes: verbena.collectives, and Open MPI by mpi4py.

The worker of both is rank_worker.py. Open MPI is Debian's; ``transport`` is its BTL: "tcp", or
"vader", which is shared memory.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec

from verbena.measure.case import Effort, Sample, Unit
from verbena.measure.cores import Cores
from verbena.measure.processes import MeasureError, SkipError

TIMEOUT = 120.0
LAUNCH = (sys.executable, "-m", "verbena", "launch")


@dataclass(frozen=True)
class RankCall:
    """A call of verbena.collectives, or of Open MPI over a transport."""

    call: str
    nbytes: int = 0
    transport: str | None = None
    ranks: int = 2
    unit: Unit = Unit.MICROSECONDS

    @property
    def label(self) -> str:
        if self.transport is None:
            return "verbena.collectives"
        return f"Open MPI, {'shared memory' if self.transport == 'vader' else self.transport}"

    def measure(self, effort: Effort, cores: Cores) -> Sample:
        how = "verbena" if self.transport is None else "mpi"
        seconds = str(max(effort.seconds, 0.5))
        worker = [sys.executable, "-m", "benchmarks.rank_worker", how, self.call, str(self.nbytes)]
        command = [*self.launcher(), *worker, seconds]
        try:
            done = subprocess.run(
                command, env=os.environ, capture_output=True, text=True, timeout=TIMEOUT
            )
        except subprocess.TimeoutExpired as error:
            raise MeasureError(f"{' '.join(command)} took over {TIMEOUT:.0f} s") from error
        found = re.search(r"median ([\d.]+)", done.stdout)
        if found is None:
            raise MeasureError(f"{self.label} said no time: {(done.stdout + done.stderr)[-300:]}")
        return Sample(float(found[1]))

    def launcher(self) -> list[str]:
        """What starts the ranks. Raises SkipError."""
        if self.transport is None:
            return [*LAUNCH, "-n", str(self.ranks), "--"]
        mpirun = shutil.which("mpirun")
        if mpirun is None or find_spec("mpi4py") is None:
            raise SkipError(
                "mpirun or mpi4py is not installed: sudo apt-get install openmpi-bin; pip install"
                " mpi4py"
            )
        return [
            *(mpirun, "--allow-run-as-root", "--oversubscribe", "-n", str(self.ranks)),
            *("--mca", "pml", "ob1", "--mca", "btl", f"{self.transport},self"),
            *("--mca", "btl_tcp_if_include", "lo"),
        ]
