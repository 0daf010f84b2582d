# SPDX-License-Identifier: Apache-2.0
"""The PyPI package ibverbs over Verbena, and whether verbena.verbs has its names."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.conftest import Run

CHILD = Path(__file__).with_name("ibverbs_package_child.py")


def test_ibverbs_runs_over_verbena(verbena_run: Run) -> None:
    done = verbena_run(sys.executable, str(CHILD))
    assert done.stdout == "written True\nrefused remote access error\n"


def test_verbena_has_the_names_of_ibverbs(verbena_run: Run) -> None:
    done = verbena_run(sys.executable, str(CHILD), "names")
    assert done.stdout == ""
    assert done.returncode == 0
