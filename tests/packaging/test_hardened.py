# SPDX-License-Identifier: Apache-2.0
"""The native libraries build as distributions build them: by several compilers, hardened.

Ubuntu's gcc sets _FORTIFY_SOURCE by itself, and the flags of Debian, Fedora and conda-forge do. The
C library's headers then replace open(), realpath() and others, which the preload libraries define,
by inline functions.

Each case compiles all of the core, for some 20 s. `make test` has those that found something which
others did not; `make compilers` has all.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support import ROOT, cmake, plain_environment, program_or_skip

LIBRARIES = ["libibverbs.so.1", "libibverbs.so", "libverbena_paths.so", "libverbena_heap.so"]
HARDENED = "-O2 -g -fstack-protector-strong -Wformat -Werror=format-security -D_FORTIFY_SOURCE="
# What dpkg-buildflags says in Ubuntu 24.04, for packages.
UBUNTU = (
    "-g -O2 -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer -flto=auto -ffat-lto-objects "
    "-fstack-protector-strong -fstack-clash-protection -Wformat -Werror=format-security "
    "-fcf-protection -Wdate-time -D_FORTIFY_SOURCE=3"
)
# -Wall again for the link-time optimiser, which is told the compiler's flags and not a target's.
ALL = os.environ.get("VERBENA_ALL_COMPILERS") == "1"
EVERYWHERE = f"{HARDENED}3 -Wall -Wextra -fcf-protection -fstack-clash-protection"
UBUNTU_LINKER = "-Wl,-Bsymbolic-functions -flto=auto -ffat-lto-objects -Wl,-z,relro"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "compiler", "flags", "linker", "lto"),
    [
        pytest.param("clang-3", "clang", f"{HARDENED}3", "", "ON", id="clang-3"),
        pytest.param("ubuntu", "gcc", UBUNTU, UBUNTU_LINKER, "OFF", id="ubuntu"),
        *[
            pytest.param("gcc-2", "gcc", f"{HARDENED}2", "", "OFF", id="gcc-2"),
            pytest.param("gcc-3", "gcc", f"{HARDENED}3", "", "ON", id="gcc-3"),
        ][: 2 * ALL],
    ],
)
def test_hardened_builds_have_all_libraries(
    name: str, compiler: str, flags: str, linker: str, lto: str
) -> None:
    program_or_skip(compiler)
    build = ROOT / "build" / f"hardened-{name}"
    cmake(
        *("-S", str(ROOT), "-B", str(build), f"-DCMAKE_C_COMPILER={compiler}"),
        *(f"-DCMAKE_C_FLAGS={flags}", f"-DCMAKE_SHARED_LINKER_FLAGS={linker}"),
        *(f"-DVERBENA_LTO={lto}", "-DVERBENA_WERROR=ON"),
    )
    cmake("--build", str(build))
    assert [name for name in LIBRARIES if not (build / "lib" / name).exists()] == []


def versioned_compilers() -> list[str]:
    """gcc-12, clang-23 and their like: all that PATH has, each once."""
    folders = [Path(folder) for folder in os.environ["PATH"].split(":")]
    names = {path.name for folder in folders if folder.is_dir() for path in folder.iterdir()}
    return sorted(name for name in names if re.fullmatch(r"(gcc|clang)-\d+", name))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("compiler", versioned_compilers() if ALL else ["gcc"])
def test_each_version_of_a_compiler_builds_it_without_a_warning(
    compiler: str, tmp_path: Path
) -> None:
    cmake(
        *("-S", str(ROOT), "-B", str(tmp_path), f"-DCMAKE_C_COMPILER={compiler}"),
        *(f"-DCMAKE_C_FLAGS={EVERYWHERE} -Werror", "-DVERBENA_WERROR=ON"),
        "-DCMAKE_SHARED_LINKER_FLAGS=-Wl,-z,relro,-z,now",
    )
    cmake("--build", str(tmp_path))
    assert [name for name in LIBRARIES if not (tmp_path / "lib" / name).exists()] == []


# Programs in which copies fault: the handler, and not the function, makes their result.
FAULTING = ["test_gone_memory", "test_limits"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("lto", ["ON", "OFF"] if ALL else ["ON"])
@pytest.mark.parametrize("compiler", ["clang", "gcc"] if ALL else ["clang"])
def test_a_copy_that_faults_fails_whatever_the_compiler_knows(
    compiler: str, lto: str, tmp_path: Path
) -> None:
    """clang once put the constant that a guarded function returns in place of its result."""
    program_or_skip(compiler)
    cmake(
        *("-S", str(ROOT), "-B", str(tmp_path), f"-DCMAKE_C_COMPILER={compiler}"),
        *(f"-DVERBENA_LTO={lto}", "-DVERBENA_NATIVE_TESTS=ON"),
    )
    cmake("--build", str(tmp_path), "--target", *FAULTING)
    for name in FAULTING:
        program = [str(tmp_path / "tests" / name)]
        done = subprocess.run(program, env=plain_environment(), capture_output=True, text=True)
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
