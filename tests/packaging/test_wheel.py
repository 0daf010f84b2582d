# SPDX-License-Identifier: Apache-2.0
"""A wheel holds all that Verbena needs, and runs where there is no compiler."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.support import ROOT, SANITIZED, plain_environment

pytestmark = [
    pytest.mark.skipif(SANITIZED, reason="a sanitized build is never packaged"),
    pytest.mark.timeout(400),
]

CONTENTS = [
    "verbena/__init__.py",
    "verbena/py.typed",
    "verbena/verbs/_verbs.pyi",
    "verbena/lib/libibverbs.so.1",
    "verbena/lib/libibverbs.so",
    "verbena/lib/libverbena_paths.so",
    "verbena/lib/libverbena_heap.so",
    "verbena/lib/bin/rdma",
]


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        env=plain_environment() | (env or {}),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    path = f"{Path(sys.executable).parent}:{plain_environment()['PATH']}"
    command = ["pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps"]
    options = ["-Cbuild-dir=build/wheel", "--wheel-dir", folder]
    run(sys.executable, "-m", *command, *options, ".", env={"PATH": path})
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def machine(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel alone; NumPy comes from the one that runs the tests."""
    folder = tmp_path_factory.mktemp("machine")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    install = ["install", "--quiet", "--no-deps", "--no-index", "--only-binary", ":all:"]
    run(sys.executable, "-m", "pip", "--python", python, *install, wheel)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "numpy.pth").write_text(sysconfig.get_path("platlib"))
    return folder


def test_wheel_is_tagged_for_the_platform(wheel: Path) -> None:
    tag = wheel.stem.split("-", 2)[2]
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert tag.startswith(f"{version}-{version}-linux_")


def test_wheel_contains_all_parts_and_no_sources(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in CONTENTS if name not in names] == []
    assert any(name.startswith("verbena/verbs/_verbs.cpython") for name in names)
    assert [
        name for name in names if name.endswith((".c", ".h", ".pyx", ".pxi", ".pxd", ".a", ".o"))
    ] == []


def test_wheel_runs_without_a_compiler(machine: Path) -> None:
    environment = {"PATH": str(machine / "bin"), "CC": "/bin/false"}
    libraries = run(
        machine / "bin" / "python",
        "-c",
        "from verbena._native import library_dir; print(library_dir())",
        env=environment,
    )
    assert Path(libraries.strip()).is_relative_to(machine)
    assert "verbena0" in run(machine / "bin" / "verbena", "devices", env=environment)


def test_helper_programs_stay_executable(machine: Path) -> None:
    (program,) = machine.glob("lib/python*/site-packages/verbena/lib/bin/rdma")
    assert program.stat().st_mode & 0o111 == 0o111
