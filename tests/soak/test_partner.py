# SPDX-License-Identifier: Apache-2.0
"""What the soak makes of a partner that is killed."""

from __future__ import annotations

import time
from pathlib import Path

from tests.soak.driver import Soak
from tests.soak.plan import Shape, Talk

WORK = 1.5  # seconds: a slow reader takes 0.1 for each round
TALK = Talk(
    number=0,
    a=0,
    b=1,
    qp_type="RC",
    kind="slow",
    memory="own",
    rounds=100,
    depth=64,
    length=70000,
    srq=True,
    channel=False,
    own_device=False,
    upset="",
    packets=True,
)


def test_a_receiver_by_packets_is_told_of_a_death_by_nobody(tmp_path: Path) -> None:
    """An adapter has no heartbeat: who only receives looks itself whether there is a partner."""
    with Soak("", Shape(processes=2, direct=0), str(tmp_path)) as soak:
        soak._begin(TALK)
        time.sleep(WORK)
        soak._kill(TALK.a)
        soak.rest()
        assert soak.counts.partners_gone == 1
