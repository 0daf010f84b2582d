# SPDX-License-Identifier: Apache-2.0
"""Installed programs and libraries load, every symbol bound at once, with ours in front."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.abi.elf import PACKAGES, environment_over_verbena, files_of, needed_symbols
from verbena._native import library

LOAD = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print(False)"
# Opens each library of argv, then prints what the first one's function of argv[-1] says about
# our device.
IS_SUPPORTED = """
import ctypes, sys
*libraries, function = sys.argv[1:]
handles = [ctypes.CDLL(name) for name in libraries]
verbs = ctypes.CDLL("libibverbs.so.1")
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
devices = verbs.ibv_get_device_list(None)
ask = getattr(handles[0], function)
ask.argtypes = [ctypes.c_void_p]
ask.restype = ctypes.c_bool
print(ask(devices[0]))
"""


def unresolved(path: Path) -> list[str]:
    """What the dynamic linker cannot resolve of libibverbs' symbols, and whose library it took."""
    environment = environment_over_verbena()
    trace = {"LD_TRACE_LOADED_OBJECTS": "1", "LD_WARN": "yes", "LD_BIND_NOW": "yes"}
    linker = "/lib64/ld-linux-x86-64.so.2"
    done = subprocess.run(
        [linker, str(path)], env=environment | trace, capture_output=True, text=True
    )
    lines = (done.stdout + done.stderr).splitlines()
    assert any(str(library("libibverbs.so.1")) in line for line in lines), lines
    names = {name for name, _ in needed_symbols(path)}
    return [
        line
        for line in lines
        if ("undefined symbol" in line or "not found" in line or "not defined" in line)
        and ("IBVERBS" in line or any(name in line for name in names))
    ]


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.debian
def test_debian_package_binds_all_symbols(package: str) -> None:
    files = files_of(package)
    problems = {path.name: lines for path in files if (lines := unresolved(path))}
    assert problems == {}


@pytest.mark.parametrize(
    ("name", "function"),
    [("libmlx5.so.1", "mlx5dv_is_supported"), ("libmlx4.so.1", None), ("libefa.so.1", None)],
)
@pytest.mark.debian
def test_providers_load_and_disown_our_device(name: str, function: str | None) -> None:
    files_of("ibverbs-providers")
    program = IS_SUPPORTED if function else LOAD
    command = [sys.executable, "-c", program, name, *([function] if function else [])]
    environment = environment_over_verbena() | {"LD_BIND_NOW": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, ["False"]), done.stderr
