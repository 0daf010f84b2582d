# SPDX-License-Identifier: Apache-2.0
"""Collective calls of ranks in processes: verbena.collectives, and Open MPI by mpi4py.

The worker of both is rank_worker.py. Open MPI is Debian's; where it is not installed, it is
unpacked into the cache of the tests. ``transport`` is its BTL: "tcp", or "vader", which is shared
memory.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec

from tests import debian_packages
from verbena.measure.case import Effort, Sample, Unit
from verbena.measure.cores import Cores
from verbena.measure.processes import MeasureError, SkipError

TIMEOUT, LEAST_SECONDS = 120.0, 0.1
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
        seconds = str(max(effort.seconds, LEAST_SECONDS))
        worker = [sys.executable, "-m", "benchmarks.rank_worker", how, self.call, str(self.nbytes)]
        launcher, added = self.launcher()
        command = [*launcher, *worker, seconds]
        try:
            done = subprocess.run(
                command, env=os.environ | added, capture_output=True, text=True, timeout=TIMEOUT
            )
        except subprocess.TimeoutExpired as error:
            raise MeasureError(f"{' '.join(command)} took over {TIMEOUT:.0f} s") from error
        found = re.search(r"median ([\d.]+)", done.stdout)
        if found is None:
            raise MeasureError(f"{self.label} said no time: {(done.stdout + done.stderr)[-300:]}")
        return Sample(float(found[1]))

    def launcher(self) -> tuple[list[str], dict[str, str]]:
        """What starts the ranks, and what it adds to their environment. Raises SkipError."""
        if self.transport is None:
            return [*LAUNCH, "-n", str(self.ranks), "--"], {}
        mpirun, added = open_mpi()
        command = [
            *(mpirun, "--allow-run-as-root", "--oversubscribe", "-n", str(self.ranks)),
            *("--mca", "pml", "ob1", "--mca", "btl", f"{self.transport},self"),
            *("--mca", "btl_tcp_if_include", "lo"),
        ]
        return command, added


def open_mpi() -> tuple[str, dict[str, str]]:
    """Open MPI's mpirun, and the environment in which it finds its parts. Raises SkipError."""
    if find_spec("mpi4py") is None:
        raise SkipError("mpi4py is missing; `make bench` installs it")
    installed = shutil.which("mpirun.openmpi")
    if installed:
        return installed, {}
    root = debian_packages.fetched("openmpi-bin") / "usr"
    mpirun = root / "bin" / "mpirun.openmpi"
    libraries = next(root.glob("lib/*-linux-gnu"), None)
    if libraries is None or not mpirun.exists():
        raise SkipError("Open MPI is missing; on Debian apt-get fetches it")
    return str(mpirun), {
        "OPAL_PREFIX": str(root),
        "LD_LIBRARY_PATH": str(libraries),
        "PMIX_INSTALL_PREFIX": str(libraries / "pmix2"),
    }
