# SPDX-License-Identifier: Apache-2.0
"""Debian's OpenSM, ibsim and ibnetdiscover: the installed ones, or unpacked for the tests alone.

OpenSM's package installs a service that would manage a real fabric, so the tests do not install it.
What they unpack is kept in the user's cache folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from tests.debian_packages import CACHE, unpack, would_be_installed

PACKAGES = ("opensm", "ibsim-utils", "infiniband-diags")
PROGRAMS = ("ibsim", "opensm", "ibnetdiscover")
UMAD2SIM = "*/umad2sim/libumad2sim.so"


@cache
def environment() -> dict[str, str] | str:
    """Variables with which the programs run, UMAD2SIM among them; or why they cannot."""
    if os.geteuid() != 0:
        return "this user may not make a network namespace; run the tests as root"
    if not shutil.which("unshare"):
        return "unshare is not installed; apt-get install util-linux brings it"
    found = within(Path("/"))
    if found is None and shutil.which("apt-get"):
        found = within(unpacked())
    return found or f"{', '.join(PACKAGES)} are missing; on Debian apt-get fetches them"


def within(root: Path) -> dict[str, str] | None:
    """If the programs are below ``root``."""
    path = os.pathsep.join(
        [str(root / "usr/sbin"), str(root / "usr/bin"), os.environ.get("PATH", "")]
    )
    simulator = sorted((root / "usr/lib").glob(UMAD2SIM))
    if not simulator or not all(shutil.which(name, path=path) for name in PROGRAMS):
        return None
    libraries = [str(folder) for folder in (root / "usr/lib").glob("*-linux-gnu")]
    found = {"PATH": path, "UMAD2SIM": str(simulator[0])}
    return found if root == Path("/") else found | {"LD_LIBRARY_PATH": os.pathsep.join(libraries)}


def unpacked() -> Path:
    """The folder with them, which may be empty: there are none."""
    kept = CACHE / "opensm"
    if kept.exists():
        return kept
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        made, work = Path(scratch) / "made", Path(scratch) / "work"
        made.mkdir()
        work.mkdir()
        if all(unpack(package, made, work) for package in would_be_installed(*PACKAGES)):
            made.rename(kept)
    return kept
