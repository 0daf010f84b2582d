# SPDX-License-Identifier: Apache-2.0
"""What a fault rule holds is delivered although its sender closes the device, or ends.

A slow network delivers it too: a program that ends when its own work is done is correct.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.support import ROOT, own_network, verbena_command

LATE = 0.05  # seconds
ENDS = """
import ctypes, os, socket, sys
from verbena import verbs

end, how = socket.socket(fileno=int(sys.argv[1])), sys.argv[2]
context = verbs.open_device()
pd, cq = context.alloc_pd(), context.create_cq(16)
qp = pd.create_qp(send_cq=cq, qp_type=verbs.QPType.UC)
mr = pd.alloc(64, 1)
qp.to_init()
if how == "receive":
    qp.recv(mr)
verbs.connect_rc(qp, end)
if how == "receive":
    print([one.byte_len for one in cq.wait(timeout=10)])
    sys.exit()
qp.send(mr, length=33)
if how == "close":
    context.close()
    os._exit(0)
ctypes.CDLL(None).exit(0)  # the device stays open
"""


@pytest.mark.debian
@pytest.mark.parametrize("late", ["100us", "1ms", "5ms", "1ms opcode=ack"])
def test_pingpongs_end_well_on_a_slow_network(late: str) -> None:
    program = ["ibv_rc_pingpong", "-g", "0", "-e", "-n", "100"]
    ends(pair(f"delay {late}; seed 1", program))


@pytest.mark.debian
def test_the_last_packet_of_uc_arrives() -> None:
    ends(pair("delay 1ms", ["ibv_uc_pingpong", "-g", "0", "-n", "100"]))


def pair(rules: str, program: list[str]) -> subprocess.CompletedProcess[str]:
    words = ["pair", "--fault", rules, "--", *program, "--", *program, "localhost"]
    return subprocess.run(
        [*own_network(), *verbena_command(*words)],
        env=os.environ | {"VERBENA_CARRIER": "roce"},
        capture_output=True,
        text=True,
        timeout=60,
    )


def ends(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("how", ["close", "exit"])
@pytest.mark.parametrize("rule", [f"delay {LATE}s", "reorder by=50 within=50ms", "delay 60s"])
def test_a_sender_that_goes_leaves_nothing_behind(how: str, rule: str) -> None:
    """What is due only after a second leaves when that is over, so the rule of a minute, too."""
    script = (
        "import os, socket, subprocess, sys\n"
        "ends, program, rule, how = socket.socketpair(), *sys.argv[1:]\n"
        "faults = [{}, {'VERBENA_FAULT': rule}]\n"
        "sides = [subprocess.Popen([sys.executable, '-c', program, str(end.fileno()), word],\n"
        "         pass_fds=[end.fileno()], env=os.environ | more)\n"
        "         for end, word, more in zip(ends, ('receive', how), faults)]\n"
        "sys.exit(any(side.wait() for side in sides))\n"
    )
    begin = time.monotonic()
    done = subprocess.run(
        [*own_network(), sys.executable, "-c", script, ENDS, rule, how],
        cwd=ROOT,
        env=os.environ | {"VERBENA_CARRIER": "roce"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.returncode) == ("[33]\n", 0), done.stderr
    assert time.monotonic() - begin >= (1 if rule == "delay 60s" else LATE)
