# SPDX-License-Identifier: Apache-2.0
"""A peer whose process gets the processor seldom, as on a machine with far more to do than it can:
it lives, so that a copy which it has to help with comes to its end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.robust.conftest import StartChild, connect

NO_COPIES = "deny=process_vm_readv,process_vm_writev"
LENGTH = 64 << 20  # 256 jobs of the bounce ring, far more than one moment is enough for
AWAY, HERE = 0.03, 0.002  # seconds: longer than a poster's patience, and enough for some jobs


@contextmanager
def seldom_run(pid: int) -> Iterator[None]:
    """The process is stopped for most of the time, and runs for a moment in between."""
    over = threading.Event()

    def keep_away() -> None:
        while not over.is_set():
            os.kill(pid, signal.SIGSTOP)
            over.wait(AWAY)
            os.kill(pid, signal.SIGCONT)
            over.wait(HERE)

    scheduler = threading.Thread(target=keep_away)
    scheduler.start()
    try:
        yield
    finally:
        over.set()
        scheduler.join()


@pytest.mark.parametrize("operation", ["write", "read", "send"])
def test_a_copy_of_many_jobs_comes_to_its_end(start_child: StartChild, operation: str) -> None:
    """perftest's terms: a timeout of 67 ms, seven retries."""
    here, there = start_child(NO_COPIES), start_child()
    near, far = here.make(kind="own", nbytes=LENGTH), there.make(kind="own", nbytes=LENGTH)
    connect(near, far, timeout=14, retry_cnt=7)
    source, target = (far, near) if operation == "read" else (near, far)
    source.fill(bytes(range(256)) * (LENGTH >> 8))
    region = far.region()
    if operation == "send":
        far.post_recv(0, LENGTH)
    with seldom_run(there.process.pid):
        if operation == "send":
            near.send(LENGTH)
        else:
            getattr(near, operation)(*region, LENGTH)
        assert [done.status for done in near.wait(timeout=30)] == ["SUCCESS"]
    assert target.bytes_at(0, LENGTH) == bytes(range(256)) * (LENGTH >> 8)
