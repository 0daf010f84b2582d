# SPDX-License-Identifier: Apache-2.0
"""Faults and captures do not apply to a connection without packets: stderr says so, once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conftest import Run

FAULT = ("--fault", "drop 1%")
CAPTURE = ("--capture", "out.pcapng")
TALK = """
import sys
from verbena import fault, verbs
from verbena.verbs import QPType

def talk(ctx, mr, near, far):
    far.recv(mr, length=128)
    if near.qp_type == QPType.UD:
        ah = mr.pd.create_ah(dgid=ctx.query_gid(1, 2), sgid_index=2, is_global=True)
        near.send(mr, length=64, ah=ah, remote_qpn=far.qp_num, remote_qkey=0x11111111)
    else:
        near.send(mr, length=64)
    near.send_cq.wait(2, 10)
"""

PAIR = f"""{TALK}
with verbs.open_device() as ctx:
    pd, cq = ctx.alloc_pd(), ctx.create_cq(64)
    mr = pd.alloc(4096)
    for _ in range(2):
        near, far = (pd.create_qp(send_cq=cq, qp_type=QPType[sys.argv[1]]) for _ in range(2))
        verbs.connect_pair(near, far)
        talk(ctx, mr, near, far)
"""


def said(run: Run, folder: Path, kind: str, *options: str, **env: str) -> list[str]:
    """Verbena's lines about what was asked for and does not happen."""
    words = tuple(str(folder / word) if word == CAPTURE[1] else word for word in options)
    done = run(sys.executable, "-c", PAIR, kind, options=words, env=env)
    assert done.returncode == 0, done.stdout
    return [line for line in done.stdout.splitlines() if line.startswith("verbena: ")]


@pytest.mark.parametrize("kind", ["RC", "UC", "UD"])
@pytest.mark.parametrize("carrier", ["auto", "direct"])
def test_each_process_says_once_what_does_nothing(
    verbena_run: Run, tmp_path: Path, kind: str, carrier: str
) -> None:
    (fault,) = said(verbena_run, tmp_path, kind, *FAULT, VERBENA_CARRIER=carrier)
    assert "--fault" in fault
    assert "VERBENA_CARRIER=roce" in fault
    (capture,) = said(verbena_run, tmp_path, kind, *CAPTURE, VERBENA_CARRIER=carrier)
    assert "--capture-direct" in capture


@pytest.mark.parametrize("kind", ["RC", "UD"])
def test_both_are_told_of_where_both_do_nothing(
    verbena_run: Run, tmp_path: Path, kind: str
) -> None:
    lines = said(verbena_run, tmp_path, kind, *FAULT, *CAPTURE)
    assert ["--fault" in line for line in lines] == [True, False]
    assert ["--capture" in line for line in lines] == [False, True]


RULES = f"""{TALK}
with verbs.open_device() as ctx:
    pd, cq = ctx.alloc_pd(), ctx.create_cq(64)
    mr = pd.alloc(4096)
    near, far = (pd.create_qp(send_cq=cq, qp_type=QPType[sys.argv[1]]) for _ in range(2))

    for step in sys.argv[2:]:
        print(step, flush=True)
        if step == "connect":
            verbs.connect_pair(near, far)
        elif step == "talk":
            talk(ctx, mr, near, far)
        elif step == "none":
            fault.set_rules(ctx)
        else:
            fault.set_rules(ctx, step)
"""


def told(run: Run, *words: str, **env: str) -> list[str]:
    """The steps, and Verbena's lines as they came between them."""
    done = run(sys.executable, "-c", RULES, *words, env=env)
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    unheard = [line for line in lines if line.startswith("verbena: ")]
    assert all("set_rules" in line and "VERBENA_CARRIER=roce" in line for line in unheard)
    return ["!" if line in unheard else line for line in lines]


RULE = "drop nth=1000"


@pytest.mark.parametrize("kind", ["RC", "UC", "UD"])
def test_rules_of_a_program_that_do_nothing_are_told_of_once(verbena_run: Run, kind: str) -> None:
    steps = [RULE, "connect", "talk", RULE, "talk"]
    at = 3 if kind == "UD" else 2  # a datagram's way is its address'
    assert told(verbena_run, kind, *steps) == [*steps[:at], "!", *steps[at:]]


@pytest.mark.parametrize("kind", ["RC", "UC"])
def test_rules_for_a_connection_that_goes_direct_are_told_of(verbena_run: Run, kind: str) -> None:
    steps = ["connect", "talk", RULE, "talk"]
    assert told(verbena_run, kind, *steps) == [*steps[:3], "!", steps[3]]


@pytest.mark.parametrize("kind", ["RC", "UD"])
def test_rules_that_are_heard_or_withdrawn_need_no_word(verbena_run: Run, kind: str) -> None:
    withdrawn = [RULE, "none", "connect", "talk", "seed 7"]
    assert told(verbena_run, kind, *withdrawn) == withdrawn
    heard = [RULE, "connect", "talk"]
    assert told(verbena_run, kind, *heard, VERBENA_CARRIER="roce") == heard


@pytest.mark.parametrize("kind", ["RC", "UD"])
def test_what_is_heard_needs_no_word(verbena_run: Run, tmp_path: Path, kind: str) -> None:
    assert said(verbena_run, tmp_path, kind) == []
    assert said(verbena_run, tmp_path, kind, *FAULT, *CAPTURE, VERBENA_CARRIER="roce") == []
    assert said(verbena_run, tmp_path, kind, *CAPTURE, "--capture-direct") == []


def test_a_capture_of_what_goes_direct_does_not_hide_the_faults(
    verbena_run: Run, tmp_path: Path
) -> None:
    (fault,) = said(verbena_run, tmp_path, "RC", *FAULT, *CAPTURE, "--capture-direct")
    assert "--fault" in fault
