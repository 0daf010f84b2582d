# SPDX-License-Identifier: Apache-2.0
"""The build folder of the C test programs, when two parts of scripts/test.sh build at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support import ROOT, clean_environment

# In place of CMake: a run says when it begins and ends.
BUILD = """
import pathlib, sys, time
from tests import support

def run(*words):
    with open(sys.argv[1], "a") as log:
        print("begin", file=log, flush=True)
        time.sleep(0.3)
        print("end", file=log, flush=True)

support.ROOT = pathlib.Path(sys.argv[2])
support.cmake = run
support.native_build("test_wrap")
"""


def test_one_builds_and_the_other_waits(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", BUILD, str(log), str(tmp_path)]
    both = [subprocess.Popen(command, cwd=ROOT, env=clean_environment()) for _ in range(2)]
    assert [each.wait(timeout=60) for each in both] == [0, 0]
    assert log.read_text().split() == ["begin", "end"] * 4  # each configures, then builds
