# SPDX-License-Identifier: Apache-2.0
"""By packets, a program that polls its memory for what its peer writes is served in time."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.support import own_network, verbena_command

WRITES = 1000
TRIES = 3  # whatever else the machine does only adds
# The port's thread looks at a program that polls once a millisecond; an exchange that waited for
# these looks took 1,600 us one way. Without waiting it takes 10 to 40.
SOON_US = 500


def typical_us() -> float:
    """The median of the writes of a run of perftest."""
    program = ["ib_write_lat", "-n", str(WRITES)]
    words = ["pair", "--", *program, "--", *program, "localhost"]
    done = subprocess.run(
        [*own_network(), *verbena_command(*words)],
        env=os.environ | {"VERBENA_CARRIER": "roce"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(rf"^ *2 +{WRITES} +([\d.]+) +[\d.]+ +([\d.]+)", done.stdout, re.MULTILINE)
    assert len(rows) == 1, done.stdout
    return float(rows[0][1])


@pytest.mark.debian
def test_a_write_does_not_wait_for_the_next_look_at_a_poller() -> None:
    seen: list[float] = []
    while len(seen) < TRIES and min(seen, default=SOON_US) >= SOON_US:
        seen.append(typical_us())
    assert min(seen) < SOON_US, seen
