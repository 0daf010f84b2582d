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
HARDENED = "-O2 -g -fstack-protector-strong -Wformat -Werror=format-security"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("compiler", "level", "lto"), [("gcc", 2, "OFF"), ("gcc", 3, "ON"), ("clang", 3, "ON")]
)
def test_hardened_builds_have_all_libraries(compiler: str, level: int, lto: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    build = ROOT / "build" / f"hardened-{compiler}-{level}"
    flags = f"{HARDENED} -D_FORTIFY_SOURCE={level}"
    cmake(
        *("-S", str(ROOT), "-B", str(build), f"-DCMAKE_C_COMPILER={compiler}"),
        *(f"-DCMAKE_C_FLAGS={flags}", f"-DVERBENA_LTO={lto}", "-DVERBENA_WERROR=ON"),
    )
    cmake("--build", str(build))
    assert [name for name in LIBRARIES if not (build / "lib" / name).exists()] == []
