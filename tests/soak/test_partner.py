# SPDX-License-Identifier: Apache-2.0
"""What the soak makes of a partner that is killed."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.soak import end as end_module
from tests.soak.driver import Soak
from tests.soak.end import End, PartnerGone
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


def test_what_a_partner_said_before_it_was_killed_does_not_hide_its_death() -> None:
    """Its memory went, a request failed, and its word for the next meeting waits in the socket."""
    here, there = socket.socketpair()
    end = SimpleNamespace(socket=here)
    there.sendall(b".")
    dying = threading.Timer(0.3, there.close)
    dying.start()
    with pytest.raises(PartnerGone):
        End.raise_if_partner_died(cast("End", end))
    dying.join()
    here.close()


def test_a_partner_that_lives_explains_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end_module, "DYING", 0.1)
    here, there = socket.socketpair()
    there.sendall(b".")
    with here, there:
        End.raise_if_partner_died(cast("End", SimpleNamespace(socket=here)))


def test_a_receiver_by_packets_is_told_of_a_death_by_nobody(tmp_path: Path) -> None:
    """An adapter has no heartbeat: who only receives looks itself whether there is a partner."""
    with Soak("", Shape(processes=2, direct=0), str(tmp_path)) as soak:
        soak._begin(TALK)
        time.sleep(WORK)
        soak._kill(TALK.a)
        soak.rest()
        assert soak.counts.partners_gone == 1
