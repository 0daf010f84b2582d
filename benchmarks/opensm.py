# SPDX-License-Identifier: Apache-2.0
"""The time that OpenSM takes to bring up a subnet that ibsim or `verbena fabric` plays: the peer of
our subnet manager, and the measure of our agents.

goals.py has its rows. The programs are those of PATH, or those that the tests have unpacked in the
user's cache; OpenSM's package is not installed for it, since that starts a service. ibsim listens
at one name in a network namespace, so that each run has a namespace of its own, which needs root.
Beside our subnet manager it is OpenSM's processor time alone, without ibsim's, which answers as our
agents do: OpenSM waits for ibsim at each turn, and how long depends on what else the machine does.
That time on the wall is what ``OpenSmSweep`` compares.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from verbena import fabrics
from verbena.fabrics import Fabric, ibnetdiscover
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
TIMEFORMAT='%R %U %S'
{ time opensm -o -e -R minhop -f opensm.log > opensm.out 2>&1; } 2> times
"""
# The times are OpenSM's own, without the start of the programs around it.
LIVE_SCRIPT = """
$VERBENA fabric fabric.net --name bench --sm none > fabric.log 2>&1 &
simulator=$!
trap 'kill $simulator' EXIT
while ! grep -q 'is ready' fabric.log && kill -0 $simulator; do sleep 0.05; done
export OSM_CACHE_DIR=$PWD OSM_TMP_DIR=$PWD
cat > sweep.sh <<'END'
TIMEFORMAT='%R %U %S'
{ time opensm -o -e -R minhop -f opensm.log > opensm.out 2>&1; } 2> times
END
$VERBENA run --fabric bench --host h0 -- bash sweep.sh
"""


@dataclass(frozen=True)
class OpenSm:
    """Seconds of OpenSM's processor time to bring up ``clos2(radix)``."""

    radix: int
    label: str = "OpenSM over ibsim"
    unit: Unit = field(default=Unit.SECONDS, init=False)

    def measure(self, effort: Effort, cores: Cores) -> Sample:
        with tempfile.TemporaryDirectory() as folder:
            sweep_ibsim(fabrics.clos2(self.radix), Path(folder))
            return Sample(sum(times_of(Path(folder))[1:]))


@dataclass(frozen=True)
class OpenSmSweep:
    """Seconds on the wall until OpenSM has brought up ``clos2(radix)``, which ``over`` plays."""

    radix: int
    over: str
    unit: Unit = field(default=Unit.SECONDS, init=False)

    @property
    def label(self) -> str:
        return f"OpenSM over {self.over}"

    def measure(self, effort: Effort, cores: Cores) -> Sample:
        sweep = sweep_ibsim if self.over == "ibsim" else sweep_live
        with tempfile.TemporaryDirectory() as folder:
            sweep(fabrics.clos2(self.radix), Path(folder))
            return Sample(times_of(Path(folder))[0])


def sweep_ibsim(made: Fabric, folder: Path) -> None:
    """Run OpenSM once at the first host of a fabric that ibsim plays."""
    host = f"H-{made.guid(made.hosts[0]):016x}"
    _run_script(made, folder, SCRIPT, {"SIM_HOST": host})


def sweep_live(made: Fabric, folder: Path) -> None:
    """Run OpenSM once at the first host of a fabric that `verbena fabric` plays."""
    _run_script(
        made, folder, LIVE_SCRIPT, {"VERBENA": str(Path(sys.executable).parent / "verbena")}
    )


def _run_script(made: Fabric, folder: Path, script: str, more: dict[str, str]) -> None:
    (folder / "fabric.net").write_text(ibnetdiscover.write(made))
    subprocess.run(
        ["unshare", "--net", "bash", "-c", script],
        cwd=folder,
        env=os.environ | tools() | more,
        timeout=TIMEOUT,
        check=False,
    )


def times_of(folder: Path) -> list[float]:
    """Return the seconds that a run has left there: on the wall, in user and in system mode.

    Raises MeasureError if the subnet did not come up.
    """
    log, times = folder / "opensm.log", folder / "times"
    text = log.read_text() if log.exists() else ""
    if "SUBNET UP" not in text or not times.exists():
        raise MeasureError(f"OpenSM has not brought the subnet up: {text[-200:]!r}")
    return list(map(float, times.read_text().split()[-3:]))


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
        "opensm and ibsim are missing; pytest tests/fabrics/test_opensm.py fetches them"
    )
