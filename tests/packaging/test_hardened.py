# SPDX-License-Identifier: Apache-2.0
"""The native libraries build as distributions build them: by several compilers, hardened.

Ubuntu's gcc sets _FORTIFY_SOURCE by itself, and the flags of Debian, Fedora and conda-forge do. The
C library's headers then replace open(), realpath() and others, which the preload libraries define,
by inline functions.
"""

from __future__ import annotations

import shutil

import pytest

from tests.support import ROOT, cmake

LIBRARIES = ["libibverbs.so.1", "libibverbs.so", "libverbena_paths.so", "libverbena_heap.so"]
HARDENED = "-O2 -g -fstack-protector-strong -Wformat -Werror=format-security -D_FORTIFY_SOURCE="
# What dpkg-buildflags says in Ubuntu 24.04, for packages.
UBUNTU = (
    "-g -O2 -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer -flto=auto -ffat-lto-objects "
    "-fstack-protector-strong -fstack-clash-protection -Wformat -Werror=format-security "
    "-fcf-protection -Wdate-time -D_FORTIFY_SOURCE=3"
)
UBUNTU_LINKER = "-Wl,-Bsymbolic-functions -flto=auto -ffat-lto-objects -Wl,-z,relro"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "compiler", "flags", "linker", "lto"),
    [
        ("gcc-2", "gcc", f"{HARDENED}2", "", "OFF"),
        ("gcc-3", "gcc", f"{HARDENED}3", "", "ON"),
        ("clang-3", "clang", f"{HARDENED}3", "", "ON"),
        ("ubuntu", "gcc", UBUNTU, UBUNTU_LINKER, "OFF"),
    ],
    ids=["gcc-2", "gcc-3", "clang-3", "ubuntu"],
)
def test_hardened_builds_have_all_libraries(
    name: str, compiler: str, flags: str, linker: str, lto: str
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    build = ROOT / "build" / f"hardened-{name}"
    cmake(
        *("-S", str(ROOT), "-B", str(build), f"-DCMAKE_C_COMPILER={compiler}"),
        *(f"-DCMAKE_C_FLAGS={flags}", f"-DCMAKE_SHARED_LINKER_FLAGS={linker}"),
        *(f"-DVERBENA_LTO={lto}", "-DVERBENA_WERROR=ON"),
    )
    cmake("--build", str(build))
    assert [name for name in LIBRARIES if not (build / "lib" / name).exists()] == []
