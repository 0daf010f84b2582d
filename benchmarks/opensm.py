# SPDX-License-Identifier: Apache-2.0
"""The processor time that OpenSM takes to bring up a subnet that ibsim plays: the peer of our
subnet manager.

goals.py has its rows. The programs are those of PATH, or those that the tests have unpacked in the
user's cache; OpenSM's package is not installed for it, since that starts a service. ibsim listens
at one name in a network namespace, so that each run has a namespace of its own, which needs root.
It is OpenSM's processor time alone, without ibsim's, which answers as our agents do: OpenSM waits
for ibsim at each turn, and how long depends on what else the machine does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from verbena import fabrics
from verbena.fabrics import ibnetdiscover
from verbena.measure.case import Effort, Sample, Unit
from verbena.measure.cores import Cores
from verbena.measure.processes import MeasureError, SkipError

TIMEOUT = 120.0
# ibsim needs a moment to read the topology.
SCRIPT = """
ibsim -s -n -N 8192 -S 1024 -P 65536 fabric.net > ibsim.log 2>&1 &
simulator=$!
trap 'kill $simulator' EXIT
export LD_PRELOAD=$UMAD2SIM OSM_CACHE_DIR=$PWD OSM_TMP_DIR=$PWD
sleep 1.5
TIMEFORMAT='%U %S'
{ time opensm -o -e -R minhop -f opensm.log > opensm.out 2>&1; } 2> times
"""


@dataclass(frozen=True)
class OpenSm:
    """Seconds of OpenSM's processor time to bring up ``clos2(radix)``."""

    radix: int
    label: str = "OpenSM over ibsim"
    unit: Unit = field(default=Unit.SECONDS, init=False)

    def measure(self, effort: Effort, cores: Cores) -> Sample:
        environment = tools()
        made = fabrics.clos2(self.radix)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "fabric.net").write_text(ibnetdiscover.write(made))
            host = f"H-{made.guid(made.hosts[0]):016x}"
            subprocess.run(
                ["unshare", "--net", "bash", "-c", SCRIPT],
                cwd=folder,
                env=os.environ | environment | {"SIM_HOST": host},
                timeout=TIMEOUT,
                check=False,
            )
            return Sample(processor_time(Path(folder)))


def processor_time(folder: Path) -> float:
    """Return what a run has left there. Raises MeasureError if the subnet did not come up."""
    log, times = folder / "opensm.log", folder / "times"
    text = log.read_text() if log.exists() else ""
    if "SUBNET UP" not in text or not times.exists():
        raise MeasureError(f"OpenSM has not brought the subnet up: {text[-200:]!r}")
    return sum(map(float, times.read_text().split()[-2:]))


def tools() -> dict[str, str]:
    """Return the variables with which the programs run. Raises SkipError."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        raise SkipError("OpenSM over ibsim needs a network namespace; run it as root")
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "verbena" / "opensm"
    for root in (Path("/"), kept):
        folders = [str(root / "usr/sbin"), str(root / "usr/bin"), os.environ.get("PATH", "")]
        path = os.pathsep.join(folders)
        simulators = sorted((root / "usr/lib").glob("*/umad2sim/libumad2sim.so"))
        if simulators and all(shutil.which(name, path=path) for name in ("opensm", "ibsim")):
            found = {"PATH": path, "UMAD2SIM": str(simulators[0])}
            libraries = [str(folder) for folder in (root / "usr/lib").glob("*-linux-gnu")]
            return found if root == Path("/") else found | {"LD_LIBRARY_PATH": ":".join(libraries)}
    raise SkipError(
        "opensm and ibsim are missing: pytest tests/fabrics/test_opensm.py fetches them"
    )
