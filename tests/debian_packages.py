# SPDX-License-Identifier: Apache-2.0
"""Debian packages that a test needs unpacked somewhere, and not installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

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


def kept(package: str, alone: bool = False) -> Path:
    """A package that is not installed, with what it depends on: unpacked, and kept for later.

    ``alone``: without what it depends on, where the program needs none of that.
    """
    folder = CACHE / package
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            made, work = Path(scratch) / "made", Path(scratch) / "work"
            made.mkdir()
            work.mkdir()
            packages = [package] if alone else would_be_installed(package)
            if packages and all(unpack(each, made, work) for each in packages):
                made.rename(folder)
    if not (folder / f"usr/bin/{package}").exists():
        pytest.skip(f"{package} is missing; on Debian apt-get fetches it")
    return folder


def command(package: str, alone: bool = False) -> list[str]:
    """A package's program of the same name, or what starts it where it is only unpacked.

    Libraries may be in a folder of their own, as Ceph's are, which fio needs.
    """
    installed = shutil.which(package)
    if installed:
        return [installed]
    root = kept(package, alone)
    folders = [str(each) for each in (root / "usr/lib").glob("*-linux-gnu")]
    folders += [f"{each}/ceph" for each in folders]
    added = f'LD_LIBRARY_PATH="{":".join(folders)}:$LD_LIBRARY_PATH" exec "$0" "$@"'
    return ["sh", "-c", added, str(root / f"usr/bin/{package}")]
