# SPDX-License-Identifier: Apache-2.0
"""Debian packages that a test needs unpacked somewhere, and not installed."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "verbena"


def unpack(package: str, folder: Path, work: Path) -> bool:
    """Fetches a package into ``work`` and unpacks it in ``folder``; False if there is none."""
    done = subprocess.run(["apt-get", "download", package], cwd=work, capture_output=True)
    if done.returncode:
        return False
    for deb in work.glob("*.deb"):
        subprocess.run(["dpkg", "-x", deb, folder], check=True)
        deb.unlink()
    return True


def would_be_installed(*packages: str) -> list[str]:
    """These packages and what they depend on, as far as it is not installed."""
    # Not --print-uris: that leaves out what is in apt's cache already.
    command = ["apt-get", "install", "--simulate", "--no-install-recommends", *packages]
    done = subprocess.run(command, capture_output=True, text=True)
    return re.findall(r"^Inst (\S+)", done.stdout, re.MULTILINE)
