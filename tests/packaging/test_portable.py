# SPDX-License-Identifier: Apache-2.0
"""`make wheel-portable`: a wheel for glibc 2.28 or newer, built by Zig's compiler on any machine.

Zig has no function that glibc 2.28 does not have, so that the use of one fails the build here.
"""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support import install_wheel, own_network, run_tool

for module in ("ziglang", "auditwheel"):
    pytest.importorskip(
        module,
        reason=f"{module} is not installed; `scripts/extras.py wheel portable | xargs -d '\\n'"
        " .venv/bin/pip install` brings what builds portable wheels",
    )
pytestmark = [
    pytest.mark.not_sanitized("a build with sanitizers is never packaged"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("portable")
    run_tool(sys.executable, "scripts/portable_wheel.py", folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_the_tag_names_the_oldest_c_library(wheel: Path) -> None:
    assert wheel.stem.endswith("manylinux_2_28_x86_64")


def test_what_zig_built_does_not_need_its_libraries(wheel: Path) -> None:
    """auditwheel copies what a system may not have into the wheel: that of the unwinder."""
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if "verbena.libs/" in name] == []


def test_copies_are_those_of_the_c_library(wheel: Path, tmp_path: Path) -> None:
    """Zig's own memcpy has no unwind tables: a fault in it would end the program."""
    zipfile.ZipFile(wheel).extract("verbena/lib/libibverbs.so.1", tmp_path)
    said = run_tool("nm", "--dynamic", "--undefined-only", tmp_path / "verbena/lib/libibverbs.so.1")
    wanted = {"memcpy", "memmove", "memset"}
    assert wanted - set(re.findall(r" U (\w+)", said)) == set()


def test_the_wheel_runs(wheel: Path, tmp_path: Path) -> None:
    machine = install_wheel(wheel, tmp_path / "machine")
    python = machine / "bin" / "python"
    verbena = machine / "bin" / "verbena"
    program = [python, "examples/first_write.py"]
    assert "verbena0" in run_tool(verbena, "devices")
    run_tool(*own_network(), verbena, "pair", "--", *program, "--", *program, "localhost")
