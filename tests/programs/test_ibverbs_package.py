# SPDX-License-Identifier: Apache-2.0
"""The PyPI package ibverbs over Verbena, and whether verbena.verbs has its names."""

from __future__ import annotations

import ctypes.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.support import ROOT, clean_environment

SERVER = ROOT / "tests" / "cm" / "child.py"
CHILD = Path(__file__).with_name("ibverbs_package_child.py")


def test_ibverbs_runs_over_verbena(verbena_run: Run) -> None:
    done = verbena_run(sys.executable, str(CHILD))
    assert done.stdout == "written True\nrefused remote access error\n"


def test_its_cmid_connects(verbena_run: Run) -> None:
    """It loads librdmacm, whose connections the agent manages; the server is verbena.cm's."""
    if not ctypes.util.find_library("rdmacm"):
        pytest.skip("librdmacm.so.1 is not installed; apt-get install librdmacm1 brings it")
    words = [sys.executable, str(SERVER), "serve", "0"]
    with subprocess.Popen(
        words, env=clean_environment(), stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            listening, port = server.stdout.readline().split()
            assert listening == "listening"
            done = verbena_run(sys.executable, str(CHILD), "connect", port)
            assert done.stdout == "connected True served\nechoed True\nconnected False\n"
            assert server.stdout.readline() == "connected ibverbs\n"
            assert server.stdout.readline() == "closed: the peer disconnected, or ended\n"
        finally:
            server.kill()


def test_verbena_has_the_names_of_ibverbs(verbena_run: Run) -> None:
    done = verbena_run(sys.executable, str(CHILD), "names")
    assert done.stdout == ""
    assert done.returncode == 0
