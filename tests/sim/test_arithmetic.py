# SPDX-License-Identifier: Apache-2.0
"""Runs of one seed are equal on all machines: no build fuses a multiplication with an addition,
which rounds once where two operations round twice; and the core compiles for 32-bit targets."""

from __future__ import annotations

import json
import platform
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT, SANITIZED, native_build_folder, plain_environment

NATIVE = ROOT / "src" / "native"
ROOMS = ("wire", "memory", "hca", "tcp", "event", "sim", "wrap")
FUSED = re.compile(r"^\s+(?:vf|f)n?m(?:add|sub|la|ls)\w*\s", re.MULTILINE)
# A processor that has such instructions; every arm64 has them.
PROCESSOR = {"x86_64": ["-march=x86-64-v3"], "aarch64": []}


def ran(command: list[str], where: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=where, env=plain_environment(), capture_output=True, text=True, timeout=100
    )


def compilations(build: Path) -> list[tuple[Path, list[str]]]:
    """Source and command of each C file in a build folder."""
    ninja = shutil.which("ninja", path=f"{Path(sys.executable).parent}:/usr/bin")
    if ninja is None or not (build / "build.ninja").exists():
        pytest.skip(f"ninja did not build {build}; make setup has it do so")
    listed = ran([ninja, "-C", str(build), "-t", "compdb"]).stdout
    entries = json.loads(listed[listed.index("[") :])
    return [
        (Path(entry["file"]), shlex.split(entry["command"]))
        for entry in entries
        if entry["file"].endswith(".c") and " -c " in entry["command"]
    ]


def test_every_file_is_compiled_without_fused_operations() -> None:
    """The Cython extensions, too."""
    build = ROOT / "build" / ("venv-sanitize" if SANITIZED else "venv")
    found = compilations(build)
    assert {"dcqcn.c", "hpcc.c", "cubic.c", "dctcp.c", "_world.c"} <= {at.name for at, _ in found}
    assert [str(at) for at, command in found if "-ffp-contract=off" not in command] == []


@pytest.mark.skipif(
    platform.machine() not in PROCESSOR,
    reason="such a processor is not known here; an entry of PROCESSOR makes it so",
)
def test_the_core_has_no_fused_operation_where_the_processor_has() -> None:
    """Where floating point counts: as it is compiled, and as the compiler would have it."""
    count = {"as built": 0, "fast": 0}
    for source, command in compilations(native_build_folder()):
        counts = source.is_relative_to(NATIVE) and source.parent.name in ("event", "sim", "tcp")
        if not counts or "double" not in source.read_text():
            continue
        words = command[
            : min(command.index("-o"), command.index("-MD"))
        ]  # no list of what it reads
        begin = words + PROCESSOR[platform.machine()]
        for name, more in (("as built", []), ("fast", ["-ffp-contract=fast"])):
            done = ran([*begin, *more, "-O3", "-fno-lto", "-S", "-o", "-", str(source)])
            assert done.returncode == 0, done.stderr
            count[name] += len(FUSED.findall(done.stdout))
    assert count["as built"] == 0
    assert count["fast"] >= 5  # or there is nothing to be seen here


@pytest.mark.skipif(
    platform.machine() != "x86_64",
    reason="only gcc for x86-64 has -m32; a machine with such a processor runs this",
)
def test_the_core_compiles_for_a_32_bit_target(tmp_path: Path) -> None:
    """With the headers of the 64-bit library, which are the same: nothing is linked."""
    (tmp_path / "gnu").mkdir()
    (tmp_path / "gnu" / "stubs-32.h").touch()
    headers = f"/usr/include/{ran(['gcc', '-print-multiarch']).stdout.strip()}"
    options = ["-m32", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-Wno-psabi"]
    options += ['-DVERBENA_VERSION="0"']
    options += ["-fsyntax-only", "-isystem", str(tmp_path), "-isystem", headers, f"-I{NATIVE}"]
    (tmp_path / "probe.c").write_text("#include <stdlib.h>\n#include <stdatomic.h>\n")
    probe = ran(["gcc", *options, str(tmp_path / "probe.c")])
    if probe.returncode:
        why = probe.stderr.splitlines()[-1]
        pytest.skip(f"gcc -m32 fails: {why}; apt-get install gcc-multilib may mend it")
    sources = [str(path) for room in ROOMS for path in sorted((NATIVE / room).glob("*.c"))]
    assert len(sources) > 80
    done = ran(["gcc", *options, *sources])
    assert done.returncode == 0, done.stderr[:4000]
