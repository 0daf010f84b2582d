# SPDX-License-Identifier: Apache-2.0
"""The circumstances of a run: date, processors, system and versions, for the report."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import ucx
from verbena import __version__
from verbena.measure.cores import Cores

BUSY = 0.5


@dataclass(frozen=True)
class Machine:
    """The circumstances of a run; `load` is the average number of running threads before it, `line`
    the text of line.py."""

    date: str
    cpu: str
    cores: str
    kernel: str
    system: str
    versions: dict[str, str]
    load: float
    line: str = ""

    def lines(self) -> list[str]:
        """The facts, one a line."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        line = [f"Line, half a round trip: {self.line}"] if self.line else []
        busy = [f"Busy before the run: load {self.load:.1f}"] if self.load > BUSY else []
        return [
            f"Date: {self.date}",
            f"CPU: {self.cpu}; {self.cores}",
            f"System: {self.system}, Linux {self.kernel}",
            f"Versions: {versions}",
            *line,
            *busy,
        ]


def look(cores: Cores) -> Machine:
    """Return the circumstances of this machine now."""
    return Machine(
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        cpu=cpu_model(),
        cores=f"{os.cpu_count()} cores, measured on {cores}",
        kernel=platform.release(),
        system=system_name(),
        versions=versions(),
        load=os.getloadavg()[0],
    )


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def system_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return "Linux"


def versions() -> dict[str, str]:
    import numpy as np

    found = {
        "Verbena": __version__,
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        "libc": " ".join(platform.libc_ver()).strip(),
        "perftest": debian_version("perftest"),
        "UCX": ucx.version(),
    }
    return {name: version for name, version in found.items() if version}


def debian_version(package: str) -> str | None:
    """The installed version of a Debian package, or None."""
    command = ["dpkg-query", "-W", "-f", "${Version}", package]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
