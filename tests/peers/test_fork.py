# SPDX-License-Identifier: Apache-2.0
"""Programs that fork: the child has the parent's connections, and the parent is not harmed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from verbena.peers import Ended, PeerConnectionEnded, sync

pytestmark = pytest.mark.over_roce
PROGRAM = str(Path(__file__).with_name("fork_program.py"))
WAYS = ["cm", "socket"]
CONNECT_ANEW = "it belongs to the process that forked: connect anew in the child"


def printed(via: str, what: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, PROGRAM, via, what], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    *lines, last = done.stdout.splitlines()
    assert last == "goes on"
    return lines


@pytest.mark.parametrize("via", WAYS)
def test_calls_of_the_child_fail_and_say_why(via: str) -> None:
    *refused, reason, closed = printed(via, "calls")
    assert len(refused) == 3
    for each in refused:
        assert each.startswith("PeerConnectionEnded")
        assert each.endswith(CONNECT_ANEW)
    assert (reason, closed) == (CONNECT_ANEW, "None")


@pytest.mark.parametrize("via", WAYS)
def test_a_child_that_ends_leaves_the_connection_and_the_listener(via: str) -> None:
    (refused,) = printed(via, "leaves")
    assert refused.startswith("PeerError")
    assert "listen at another port in the child" in refused


@pytest.mark.parametrize("via", WAYS)
@pytest.mark.parametrize("what", ["connects", "in a coroutine"])
def test_parent_and_child_each_have_their_own(via: str, what: str) -> None:
    assert printed(via, what) == []


def test_a_child_leaves_identifiers_of_the_connection_manager() -> None:
    closed, refused, disconnected = printed("cm", "connection manager")
    assert closed == disconnected == CONNECT_ANEW
    assert refused.startswith("ParentsConnection")


@pytest.mark.parametrize("via", WAYS)
def test_a_child_that_lives_longer_does_not_hide_the_end_of_its_parent(via: str) -> None:
    with sync.listen("127.0.0.1:0", via=via) as listener:
        words = [sys.executable, PROGRAM, via, "outlived", f"127.0.0.1:{listener.port}"]
        with (
            subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program,
            listener.accept(timeout=20) as conn,
        ):
            for _ in range(5):
                conn.send(conn.recv(timeout=20))
            assert program.stdout is not None
            child, port = map(int, program.stdout.readline().split())
            program.kill()
            try:
                with pytest.raises(PeerConnectionEnded) as ended:
                    conn.recv(timeout=5)
                assert ended.value.reason is Ended.DIED
                with pytest.raises(ConnectionRefusedError):
                    sync.connect(f"127.0.0.1:{port}", via=via, timeout=5)
            finally:
                os.kill(child, signal.SIGKILL)
