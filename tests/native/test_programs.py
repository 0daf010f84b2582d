# SPDX-License-Identifier: Apache-2.0
"""Builds the C unit-test programs beside this file and runs each as one test.

A program passes with exit status 0, and skips with 77, its last line being the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT, SANITIZED, plain_environment

HERE = Path(__file__).parent
SKIP_STATUS = 77
SOURCES = sorted(
    str(path.relative_to(HERE).with_suffix(""))
    for pattern in ("test_*.c", "dropin/test_*.c")
    for path in HERE.glob(pattern)
)


@pytest.fixture(scope="session")
def build_folder() -> Path:
    build = ROOT / "build" / ("native-tests-sanitize" if SANITIZED else "native-tests")
    configure = ["-S", str(ROOT), "-B", str(build), "-DVERBENA_NATIVE_TESTS=ON"]
    configure += ["-DVERBENA_LTO=OFF", f"-DVERBENA_SANITIZE={'ON' if SANITIZED else 'OFF'}"]
    cmake(*configure)
    return build


def cmake(*arguments: str) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    program = shutil.which("cmake", path=path)
    if program is None:
        pytest.fail("cmake is not installed: run make setup, or pip install cmake", pytrace=False)
    environment = plain_environment() | {"PATH": path, "CMAKE_GENERATOR": "Ninja"}
    command = [program, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        pytest.fail(f"{' '.join(command)}\n{done.stdout}{done.stderr}", pytrace=False)


@pytest.mark.timeout(600)  # the first one builds the core too
@pytest.mark.parametrize("name", SOURCES)
def test_program(build_folder: Path, tmp_path: Path, name: str) -> None:
    cmake("--build", str(build_folder), "--target", name.replace("/", "_"))
    environment = plain_environment()
    environment["ASAN_OPTIONS"] = "detect_leaks=1:abort_on_error=1"
    done = subprocess.run(
        [str(build_folder / "tests" / name)],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=100,
    )
    if done.returncode == SKIP_STATUS:
        pytest.skip(done.stdout.strip().rpartition("\n")[2])
    assert done.returncode == 0, f"{name} exited with {done.returncode}:\n{done.stdout}"
