# SPDX-License-Identifier: Apache-2.0
"""Two sides with different values of path_mtu, by packets and directly: docs/running.md."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from verbena import verbs

operation, near_mtu, far_mtu, length = sys.argv[1], *map(int, sys.argv[2:])
with verbs.open_device() as context:
    pd, cq = context.alloc_pd(), context.create_cq(16)
    near, far = pd.create_qp(send_cq=cq), pd.create_qp(send_cq=cq)
    here, index = verbs.local_qp_info(near)
    there, _ = verbs.local_qp_info(far)
    verbs.bring_up(near, here, there, index, path_mtu=verbs.MTU(near_mtu))
    verbs.bring_up(far, there, here, index, path_mtu=verbs.MTU(far_mtu))
    memory = pd.alloc(4096, 15)
    far.recv(memory)
    if operation == "send":
        near.send(memory, length=length)
    else:
        getattr(near, operation)(memory, memory.addr, memory.rkey, length=length)
    while (done := cq.wait_one(30)).qp_num != near.qp_num:
        pass
    print(done.status.name, context.explain(done.vendor_err) if done.vendor_err else "")
"""
SMALLER, LARGER = 1, 2  # MTU_256 and MTU_512
ENDS_WITH = {"send": "REM_INV_REQ_ERR", "write": "REM_INV_REQ_ERR", "read": "BAD_RESP_ERR"}
BOTH_WAYS = pytest.mark.parametrize(
    ("near", "far"), [(SMALLER, LARGER), (LARGER, SMALLER)], ids=["near less", "far less"]
)


def said(carrier: str, operation: str, near: int, far: int, length: int) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, operation, *map(str, (near, far, length))],
        env=os.environ | {"VERBENA_CARRIER": carrier},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@BOTH_WAYS
@pytest.mark.parametrize("operation", ENDS_WITH)
@pytest.mark.parametrize("length", [257, 300, 2000])
def test_by_packets_more_than_the_smaller_one_fails_and_the_text_asks_for_it(
    operation: str, near: int, far: int, length: int
) -> None:
    text = said("roce", operation, near, far, length)
    assert text.startswith(ENDS_WITH[operation])
    assert "Do both sides have one path MTU?" in text


@BOTH_WAYS
@pytest.mark.parametrize("operation", ENDS_WITH)
def test_by_packets_what_fits_the_smaller_one_succeeds(operation: str, near: int, far: int) -> None:
    assert said("roce", operation, near, far, 256).startswith("SUCCESS")


@BOTH_WAYS
@pytest.mark.parametrize("operation", ENDS_WITH)
def test_directly_the_difference_passes(operation: str, near: int, far: int) -> None:
    assert said("auto", operation, near, far, 2000).startswith("SUCCESS")
