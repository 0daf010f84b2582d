# SPDX-License-Identifier: Apache-2.0
"""Few file descriptors: the doctor says whether a pair of programs has enough of them."""

from __future__ import annotations

import os
import resource
import subprocess

import pytest

from tests.support import own_network, verbena_command
from verbena.cli import host
from verbena.cli.finding import Verdict

TOO_FEW = [24, 25, 26]
ENOUGH = [host.LEAST_DESCRIPTORS, host.LEAST_DESCRIPTORS + 1, 44]
pytestmark = [
    pytest.mark.debian,
    pytest.mark.not_sanitized("AddressSanitizer opens files of its own"),
]


def pair(limit: int, carrier: str) -> subprocess.CompletedProcess[str]:
    program = ["ibv_rc_pingpong", "-g", "0", "-e"]
    words = ["pair", "--log", "errors", "--", *program, "--", *program, "localhost"]
    return subprocess.run(
        [*own_network(), *verbena_command(*words)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
        env=os.environ | {"VERBENA_CARRIER": carrier},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("limit", TOO_FEW + ENOUGH)
def test_the_doctor_says_what_pairs_find(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the two it is a matter of chance: a thread may have a file open for a moment."""
    for carrier in ("auto", "roce"):
        done = pair(limit, carrier)
        assert (done.returncode == 0) == (limit in ENOUGH), done.stdout + done.stderr
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    assert (host.descriptors().verdict is Verdict.BAD) == (limit in TOO_FEW)
