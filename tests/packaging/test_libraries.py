# SPDX-License-Identifier: Apache-2.0
"""The installed native libraries, as the dynamic linker sees them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import SANITIZED
from verbena._native import library, library_dir
from verbena.sim import _world
from verbena.verbs import _verbs
from verbena.wire import _wire

LIBRARIES = ["libibverbs.so.1", "libibverbs.so", "libverbena_paths.so", "libverbena_heap.so"]
SYSTEM_LIBRARIES = {"libc.so.6", "libm.so.6", "libpthread.so.0", "librt.so.1", "libdl.so.2"}
SANITIZER_LIBRARIES = {"libasan.so.8", "libubsan.so.1", "libgcc_s.so.1"}

# Opens the names given, in order, and prints for each the address of one versioned symbol, then
# how many copies of the library are mapped.
OPEN_NAMES = """
import ctypes, sys
libc = ctypes.CDLL(None)
libc.dlvsym.restype = ctypes.c_void_p
libc.dlvsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
libc.dlsym.restype = ctypes.c_void_p
libc.dlsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
for name in sys.argv[1:]:
    handle = ctypes.CDLL(name)._handle
    versioned = libc.dlvsym(handle, b"ibv_fork_init", b"IBVERBS_1.1")
    print(versioned, libc.dlsym(handle, b"ibv_fork_init"))
maps = {line.split()[-1] for line in open("/proc/self/maps")}
print(sum("libibverbs" in path and path.endswith(".so.1") for path in maps))
"""


def open_names(*names: str, preload: str = "") -> list[list[str]]:
    environment = os.environ | {"LD_LIBRARY_PATH": str(library_dir())}
    before = environment.get("LD_PRELOAD", "")
    environment["LD_PRELOAD"] = f"{before} {preload}".strip()
    command = [sys.executable, "-c", OPEN_NAMES, *names]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [line.split() for line in output.stdout.splitlines()]


@pytest.mark.parametrize("preloaded", [False, True], ids=["library path", "preloaded"])
@pytest.mark.parametrize(
    "names",
    [["libibverbs.so", "libibverbs.so.1"], ["libibverbs.so.1", "libibverbs.so"]],
    ids=" then ".join,
)
def test_both_names_open_one_library(names: list[str], preloaded: bool) -> None:
    *addresses, copies = open_names(
        *names, preload=str(library("libibverbs.so.1")) if preloaded else ""
    )
    found = {address for pair in addresses for address in pair}
    assert len(found) == 1
    assert found != {"None"}
    assert copies == ["1"]


def dynamic_section(path: Path) -> str:
    command = ["readelf", "--wide", "--dynamic", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", LIBRARIES)
def test_library_needs_only_the_system_and_its_neighbours(name: str) -> None:
    dynamic = dynamic_section(library(name))
    needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic))
    allowed = SYSTEM_LIBRARIES | {"libibverbs.so.1", "ld-linux-x86-64.so.2"}
    assert needed <= allowed | (SANITIZER_LIBRARIES if SANITIZED else set())
    assert re.findall(r"\(SONAME\).*\[(.+)\]", dynamic) == [name]
    if "libibverbs.so.1" in needed:
        assert re.findall(r"\(RUNPATH\).*\[(.+)\]", dynamic) == ["$ORIGIN"]


def test_only_the_abi_is_exported() -> None:
    """A name of the core that leaked could be taken for the program's own."""
    command = ["nm", "--dynamic", "--defined-only", str(library("libibverbs.so.1"))]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = [line.split()[-1] for line in output.splitlines()]
    nodes = ("IBVERBS_", "VERBENA_")
    assert names
    assert [name for name in names if name.startswith("vb_")] == []
    assert [name for name in names if "@" not in name and not name.startswith(nodes)] == []


# ---- the C library ------------------------------------------------------------------------------

NEWEST = (2, 28)  # manylinux_2_28, for which pyproject.toml has wheels built
# What an older C library has by other means: stat() and its like as inline functions, and libgcc's
# unwinder looks for its tables by dl_iterate_phdr().
OTHERWISE = {"stat", "fstat", "lstat", "_dl_find_object"}
VERSIONED = re.compile(r"\s(\S+)@+GLIBC_(\d+)\.(\d+)")


def versions(path: Path, *, defined: bool) -> set[tuple[str, tuple[int, int]]]:
    """Names of the C library's functions with their versions: those in it, or those needed."""
    command = ["readelf", "--wide", "--dyn-syms", str(path)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [line for line in output.splitlines() if (" UND " in line) != defined]
    return {
        (name, (int(major), int(minor)))
        for line in lines
        for name, major, minor in VERSIONED.findall(line)
    }


@pytest.mark.not_sanitized("a build with sanitizers is never packaged")
def test_no_function_is_newer_than_the_c_library_that_wheels_are_for() -> None:
    """Built here, a function has the newest version of this C library; an older one must be there
    as well."""
    maps = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
    libc = next(path for path in maps if Path(path).name == "libc.so.6")
    old = {name for name, version in versions(Path(libc), defined=True) if version <= NEWEST}
    modules = [Path(module.__file__ or "") for module in (_verbs, _wire, _world)]
    needed = {
        name
        for path in [*map(library, LIBRARIES), *modules]
        for name, version in versions(path, defined=False)
        if version > NEWEST
    }
    assert needed - old - OTHERWISE == set()
    assert "pthread_create" in {name for name, _ in versions(Path(libc), defined=True)}
