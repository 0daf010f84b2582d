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


def fetched(package: str, *, alone: bool = False) -> Path:
    """The folder of a package that is not installed, with what it depends on: it is unpacked once
    and kept for later. Where it cannot be had the folder is missing. ``alone``: without what it
    depends on, where the program needs none of that."""
    folder = CACHE / package
    if not folder.exists() and shutil.which("apt-get"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            made, work = Path(scratch) / "made", Path(scratch) / "work"
            made.mkdir()
            work.mkdir()
            packages = [package] if alone else would_be_installed(package)
            if packages and all(unpack(each, made, work) for each in packages):
                made.rename(folder)
    return folder


def kept(package: str, program: str = "", *, alone: bool = False) -> Path:
    """As `fetched`; a test is skipped where the program cannot be had."""
    folder = fetched(package, alone=alone)
    if not (folder / (program or f"usr/bin/{package}")).exists():
        pytest.skip(f"{package} is missing; on Debian apt-get fetches it")
    return folder


def with_libraries(root: Path, program: str) -> list[str]:
    """The command that starts a program of an unpacked package with the libraries beside it."""
    folders = [str(each) for each in (root / "usr/lib").glob("*-linux-gnu")]
    folders += [f"{each}/ceph" for each in folders]  # fio needs those
    added = f'LD_LIBRARY_PATH="{":".join(folders)}:$LD_LIBRARY_PATH" exec "$0" "$@"'
    return ["sh", "-c", added, str(root / program)]


def command(package: str, *, alone: bool = False) -> list[str]:
    """A package's program of the same name, or what starts it where it is only unpacked."""
    installed = shutil.which(package)
    if installed:
        return [installed]
    return with_libraries(kept(package, alone=alone), f"usr/bin/{package}")


def fio() -> list[str]:
    return command("fio")


def iperf() -> str:
    return shutil.which("iperf") or str(kept("iperf") / "usr/bin/iperf")


def preloaded_rsocket() -> dict[str, str]:
    """The environment in which a program of TCP runs over librspreload."""
    (library,) = Path("/usr/lib").glob("*/rsocket/librspreload.so")
    return {"LD_PRELOAD": str(library)}
