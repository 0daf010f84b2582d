# SPDX-License-Identifier: Apache-2.0
"""Each fuzzing target over the inputs kept for it, so that no crash comes back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import native_build, plain_environment

HERE = Path(__file__).parent
TARGETS = sorted(path.stem.removeprefix("fuzz_") for path in HERE.glob("fuzz_*.c"))


@pytest.mark.timeout(600)  # the first one builds the core too
@pytest.mark.parametrize("target", TARGETS)
def test_corpus(target: str) -> None:
    inputs = sorted(str(path) for path in (HERE / "corpus" / target).iterdir())
    assert inputs
    build = native_build(f"fuzz_{target}")
    done = subprocess.run(
        [str(build / "fuzz" / f"fuzz_{target}"), *inputs],
        env=plain_environment() | {"ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=300,
    )
    assert done.returncode == 0, f"with {done.returncode}:\n{done.stdout}"
