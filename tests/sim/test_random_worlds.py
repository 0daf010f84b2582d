# SPDX-License-Identifier: Apache-2.0
"""A few hundred random worlds (`make worlds` runs many more)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.sim.random_world import make

SEEDS = 120


@pytest.mark.parametrize("first", [0, SEEDS])
def test_worlds_by_chance_hold(first: int) -> None:
    """In a process of its own: what crashes or hangs names its seed, too."""
    words = [sys.executable, "-m", "tests.sim.random_world", str(first), str(first + SEEDS)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout[-200:] + done.stderr
    assert done.stdout.count("\n") == SEEDS


@pytest.mark.filterwarnings("ignore::verbena.fabrics.FabricWarning")
def test_some_worlds_have_hosts_with_an_inside() -> None:
    assert sum(bool(make(seed).insides) for seed in range(20)) >= 3
