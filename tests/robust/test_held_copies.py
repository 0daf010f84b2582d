# SPDX-License-Identifier: Apache-2.0
"""A process is stopped in the middle of a copy that its peer waits for.

The peer's timeout and retry_cnt say how long it waits, as for a copy that has not begun. A page
whose fault nobody answers holds the copy for as long as a test wants.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from tests.robust.child import Child
from tests.robust.conftest import StartChild, connect
from tests.verbs.side import RemoteSide

NO_COPIES = "deny=process_vm_readv,process_vm_writev"
PAGE = 4096
PATIENT, HASTY = 20, 14  # timeouts: 4.3 s and 67 ms, eight times
LONGER_THAN_A_CHUNK = 1.5  # s


@dataclass
class Held:
    """A requester whose next copy stops half-way, in the process ``child``."""

    near: RemoteSide
    far: RemoteSide
    child: Child

    def is_waiting(self) -> bool:
        """For longer than any chunk takes, without a completion."""
        time.sleep(LONGER_THAN_A_CHUNK)
        return self.near.poll() == []

    def end(self) -> str:
        (wc,) = self.near.wait()
        return str(wc.status)


def hold(start_child: StartChild, timeout: int) -> Held:
    here, there = start_child(NO_COPIES), start_child()
    near, far = here.make(kind="own"), there.make(kind="own")
    far.map_buffer(PAGE, "own")
    connect(near, far, timeout=timeout)
    if not far.hold_copies():
        pytest.skip("this system forbids userfaultfd; run the tests outside of a container")
    return Held(near, far, there)


@pytest.mark.parametrize("operation", ["read", "write"])
def test_the_request_waits_for_the_copy_and_succeeds(
    start_child: StartChild, operation: str
) -> None:
    held = hold(start_child, PATIENT)
    held.near.fill(b"from here")
    getattr(held.near, operation)(*held.far.buffer_region(), 9)
    assert held.is_waiting()
    held.far.let_copies_go(b"from afar")
    assert held.end() == "SUCCESS"
    assert held.near.bytes_at(0, 9) == (b"from afar" if operation == "read" else b"from here")
    assert held.far.read_buffer(9) == held.near.bytes_at(0, 9)


def test_the_process_ends_in_the_copy(start_child: StartChild) -> None:
    held = hold(start_child, PATIENT)
    held.near.read(*held.far.buffer_region(), 8)
    assert held.is_waiting()
    held.child.process.kill()
    assert held.end() == "RETRY_EXC_ERR"
    assert held.near.next_event() == "QP_FATAL"
    assert held.near.next_event(0.02) is None


def test_the_retries_are_used_up(start_child: StartChild) -> None:
    """And the process has one copy less to offer: the next request ends likewise."""
    held = hold(start_child, HASTY)
    held.near.read(*held.far.buffer_region(), 8)
    assert held.end() == "RETRY_EXC_ERR"
    held.far.let_copies_go(b"too late")
    held.child.process.kill()
    assert held.near.next_event(0.5) is None  # it was in ERR when the process ended
