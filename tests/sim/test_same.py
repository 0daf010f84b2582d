# SPDX-License-Identifier: Apache-2.0
"""Runs with one seed are equal to the byte: all the way, and in another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import zip_longest

import pytest

from tests.sim.same import WORLDS, course, digest, digests
from tests.support import ROOT


@pytest.mark.parametrize("name", WORLDS)
def test_one_seed_gives_one_course(name: str) -> None:
    make = WORLDS[name]
    assert digest(make(3)) == digest(make(3))
    assert digest(make(3)) != digest(make(4))


def test_another_process_finds_the_same() -> None:
    """With other addresses in memory, and other hashes of Python's."""
    words = [sys.executable, "-m", "tests.sim.same", "3"]
    done = subprocess.run(
        words,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "1234"},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == digests(3)


def test_worlds_beside_each_other_do_not_meet() -> None:
    """Two in one process, run in turn, are what each is alone."""
    one, other = WORLDS["lossy"](3), WORLDS["lanes"](3)
    parts = list(zip_longest(course(one), course(other), fillvalue=b""))
    assert b"".join(part for part, _ in parts) == b"".join(course(WORLDS["lossy"](3)))
    assert b"".join(part for _, part in parts) == b"".join(course(WORLDS["lanes"](3)))
