# SPDX-License-Identifier: Apache-2.0
"""The native libraries build as distributions build them: by several compilers, hardened.

Ubuntu's gcc sets _FORTIFY_SOURCE by itself, and the flags of Debian, Fedora and conda-forge do. The
C library's headers then replace open(), realpath() and others, which the preload libraries define,
by inline functions.

`make test` has gcc's hardened build, with which the C test programs run (tests.support), and
clang's warnings. `make compilers` has each compiler's, with link-time optimisation too: each case
compiles all of the core, for some 30 s.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import ROOT, cmake, native_build, plain_environment, program_or_skip

LIBRARIES = ["libibverbs.so.1", "libibverbs.so", "libverbena_paths.so", "libverbena_heap.so"]
HARDENED = "-O2 -g -fstack-protector-strong -Wformat -Werror=format-security -D_FORTIFY_SOURCE="
# What dpkg-buildflags says in Ubuntu 24.04, for packages.
UBUNTU = (
    "-g -O2 -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer -flto=auto -ffat-lto-objects "
    "-fstack-protector-strong -fstack-clash-protection -Wformat -Werror=format-security "
    "-fcf-protection -Wdate-time -D_FORTIFY_SOURCE=3"
)
UBUNTU_LINKER = "-Wl,-Bsymbolic-functions -flto=auto -ffat-lto-objects -Wl,-z,relro"
# Again for the link-time optimiser, which is told the compiler's flags and not a target's.
WARNINGS = "-Wall -Wextra -Werror"
ALL = os.environ.get("VERBENA_ALL_COMPILERS") == "1"
EVERYWHERE = f"{HARDENED}3 {WARNINGS} -fcf-protection -fstack-clash-protection"

# Programs in which copies fault: the handler, and not the function, makes their result. clang once
# put the constant that a guarded function returns in its place.
FAULTING = ["test_gone_memory", "test_limits"]
TARGETS = ["src/native/all"]


def configure(
    build: Path, compiler: str, flags: str, linker: str, lto: str, *settings: str
) -> None:
    program_or_skip(compiler)
    cmake(
        *("-S", str(ROOT), "-B", str(build), f"-DCMAKE_C_COMPILER={compiler}"),
        *(f"-DCMAKE_C_FLAGS={flags}", f"-DCMAKE_SHARED_LINKER_FLAGS={linker}"),
        *(f"-DVERBENA_LTO={lto}", "-DVERBENA_WERROR=ON", "-DVERBENA_NATIVE_TESTS=ON"),
        *settings,
    )


def assert_has_all_libraries(build: Path) -> None:
    assert [name for name in LIBRARIES if not (build / "lib" / name).exists()] == []


def assert_faults_are_reported(build: Path) -> None:
    cmake("--build", str(build), "--target", *FAULTING)
    for name in FAULTING:
        program = [str(build / "tests" / name)]
        done = subprocess.run(program, env=plain_environment(), capture_output=True, text=True)
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"


@pytest.mark.not_sanitized("sanitizers and _FORTIFY_SOURCE replace the same functions")
@pytest.mark.timeout(300)
def test_the_hardened_build_makes_all_libraries() -> None:
    """Its programs run in tests/native."""
    assert_has_all_libraries(native_build(*TARGETS))


def test_clang_has_nothing_to_warn_of(tmp_path: Path) -> None:
    """Each file as a hardened build compiles it, only read: an inline function of the C library's
    headers that a preload library defines too is an error here already."""
    flags = f"{HARDENED}3 {WARNINGS}"
    configure(tmp_path, "clang", flags, "", "OFF", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
    commands = json.loads((tmp_path / "compile_commands.json").read_text())
    ours = [one for one in commands if one["file"].startswith(str(ROOT / "src" / "native"))]
    assert len(ours) > 200

    def read(one: dict[str, str]) -> str:
        command = [*shlex.split(one["command"]), "-fsyntax-only"]
        done = subprocess.run(command, cwd=one["directory"], capture_output=True, text=True)
        return done.stderr if done.returncode or done.stderr else ""

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        assert "".join(threads.map(read, ours)) == ""


def versioned_compilers() -> list[str]:
    """gcc-12, clang-23 and their like: all that PATH has, each once."""
    folders = [Path(folder) for folder in os.environ["PATH"].split(":")]
    names = {path.name for folder in folders if folder.is_dir() for path in folder.iterdir()}
    return sorted(name for name in names if re.fullmatch(r"(gcc|clang)-\d+", name))


if ALL:

    @pytest.mark.timeout(300)
    @pytest.mark.parametrize(
        ("compiler", "flags", "linker", "lto"),
        [
            pytest.param("gcc", f"{UBUNTU} {WARNINGS}", UBUNTU_LINKER, "OFF", id="ubuntu"),
            pytest.param("clang", f"{HARDENED}3", "", "ON", id="clang-3"),
            pytest.param("gcc", f"{HARDENED}2", "", "OFF", id="gcc-2"),
            pytest.param("gcc", f"{HARDENED}3", "", "ON", id="gcc-3"),
            pytest.param("clang", f"{HARDENED}3", "", "OFF", id="clang-3-without-lto"),
        ],
    )
    def test_each_set_of_flags_makes_all_libraries_and_reports_faults(
        request: pytest.FixtureRequest, compiler: str, flags: str, linker: str, lto: str
    ) -> None:
        build = ROOT / "build" / f"hardened-{request.node.callspec.id}"
        configure(build, compiler, flags, linker, lto)
        cmake("--build", str(build), "--target", *TARGETS)
        assert_has_all_libraries(build)
        assert_faults_are_reported(build)

    @pytest.mark.timeout(300)
    @pytest.mark.parametrize("compiler", versioned_compilers())
    def test_each_version_of_a_compiler_builds_it_without_a_warning(
        compiler: str, tmp_path: Path
    ) -> None:
        configure(tmp_path, compiler, EVERYWHERE, "-Wl,-z,relro,-z,now", "ON")
        cmake("--build", str(tmp_path), "--target", *TARGETS)
        assert_has_all_libraries(tmp_path)
