# SPDX-License-Identifier: Apache-2.0
"""What the peer has acknowledged has succeeded, also where nobody has read that yet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("acknowledged_program.py")
ROUNDS = 10


def test_a_qp_that_moves_to_err_takes_the_acknowledgements_that_are_here() -> None:
    """An adapter takes them on arrival, whatever its program does. As after a peer that has all it
    wants and disconnects: the last request's acknowledgement is before the disconnect request."""
    done = subprocess.run(
        [sys.executable, PROGRAM, str(ROUNDS)],
        env=os.environ | {"VERBENA_CARRIER": "roce"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.stdout.split() == ["SUCCESS"] * ROUNDS, done.stdout + done.stderr
