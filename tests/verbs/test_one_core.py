# SPDX-License-Identifier: Apache-2.0
"""Two processes on one core that wait for each other: a thread that polls in vain yields."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = Path(__file__).with_name("one_core_child.py")
# Where nobody yields, each message takes a time slice of 3 ms: some 170 round trips a second.
ENOUGH = 1000
TRIES = 8


def round_trips(way: str, carrier: str) -> int:
    """In a second, on a core that others may use too."""
    core = str(min(os.sched_getaffinity(0)))
    here, there = socket.socketpair()
    with here, there:
        words = [[sys.executable, str(CHILD), way, role, str(end.fileno()), core]
                 for role, end in (("first", here), ("second", there))]  # fmt: skip
        children = [
            subprocess.Popen(
                words[i], env=os.environ | {"VERBENA_CARRIER": carrier}, stdout=subprocess.PIPE,
                text=True, pass_fds=[end.fileno()],
            ) for i, end in enumerate((here, there))
        ]  # fmt: skip
    try:
        said = [child.communicate(timeout=60)[0] for child in children]
        assert [child.returncode for child in children] == [0, 0]
    finally:
        for child in children:
            child.kill()
    return int(said[0])


@pytest.mark.parametrize(
    ("way", "carrier"),
    [("poll", "auto"), ("wait", "auto"), ("wait_u64", "auto"), ("poll", "roce"), ("wait", "roce")],
)
def test_who_polls_in_vain_lets_the_peer_run(way: str, carrier: str) -> None:
    found: list[int] = []
    while len(found) < TRIES and max(found, default=0) < ENOUGH:
        found.append(round_trips(way, carrier))
    assert max(found) >= ENOUGH, found
