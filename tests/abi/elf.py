# SPDX-License-Identifier: Apache-2.0
"""Symbols of installed programs and libraries."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.support import plain_environment
from verbena._native import library, library_dir, sanitizer_preload

# Debian packages whose programs and libraries use libibverbs directly. (Those of ucx-utils use it
# by libucx0.)
PACKAGES = [
    "ibverbs-utils",
    "ibverbs-providers",
    "librdmacm1",
    "rdmacm-utils",
    "perftest",
    "python3-pyverbs",
    "libucx0",
    "libfabric1",
    "libgloo0",
    "qperf",
]


def environment_over_verbena() -> dict[str, str]:
    """The environment in which our libibverbs.so.1 stands before the system's."""
    preload = [*sanitizer_preload(), str(library("libibverbs.so.1"))]
    return plain_environment() | {
        "LD_LIBRARY_PATH": str(library_dir()),
        "LD_PRELOAD": " ".join(preload),
        "ASAN_OPTIONS": "detect_leaks=0",
    }


@cache
def files_of(package: str) -> tuple[Path, ...]:
    """The ELF files of a package that use libibverbs; skips the test if it is not installed."""
    if shutil.which("dpkg") is None:
        pytest.skip("no dpkg lists a package's files here; a Debian system runs this test")
    listed = subprocess.run(["dpkg", "-L", package], capture_output=True, text=True)
    if listed.returncode:
        pytest.skip(f"{package} is not installed; scripts/setup-debian.sh test may bring it")
    paths = {Path(line).resolve() for line in listed.stdout.splitlines()}
    found = tuple(sorted(path for path in paths if is_elf(path) and needed_symbols(path)))
    assert found, f"no file of {package} uses libibverbs directly"
    return found


def is_elf(path: Path) -> bool:
    if not path.is_file() or not os.access(path, os.R_OK):
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def dynamic_symbols(path: Path, which: str) -> set[tuple[str, str]]:
    """(name, version) pairs; which is "--defined-only" or "--undefined-only"."""
    command = ["nm", "--dynamic", "--with-symbol-versions", which, str(path)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = [line.split()[-1] for line in output.splitlines()]
    pairs = [name.replace("@@", "@").split("@") for name in names if "@" in name]
    return {(name, version) for name, version in pairs}


@cache
def needed_symbols(path: Path) -> frozenset[tuple[str, str]]:
    """The (name, version) pairs that the file takes from libibverbs."""
    undefined = dynamic_symbols(path, "--undefined-only")
    return frozenset(pair for pair in undefined if pair[1].startswith("IBVERBS_"))


@cache
def our_symbols() -> frozenset[tuple[str, str]]:
    return frozenset(dynamic_symbols(library("libibverbs.so.1"), "--defined-only"))
