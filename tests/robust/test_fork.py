# SPDX-License-Identifier: Apache-2.0
"""A forked child that goes on running does not keep its parent's connections alive."""

from __future__ import annotations

import os
import signal

from tests.robust.conftest import StartChild, connect
from tests.verbs.side import Side


def test_a_parent_that_dies_before_its_child_is_dead_to_its_peers(start_child: StartChild) -> None:
    parent = start_child()
    near, far = Side(), parent.make()
    connect(near, far)
    grandchild = far.fork()
    try:
        near.post_recv()
        parent.process.kill()
        assert [one.status for one in near.wait(1, 5)] == ["WR_FLUSH_ERR"]
        assert near.next_event() == "QP_FATAL"
    finally:
        os.kill(grandchild, signal.SIGKILL)
        near.close()


def test_a_child_that_lives_on_hinders_no_traffic(start_child: StartChild) -> None:
    parent = start_child()
    near, far = Side(), parent.make()
    connect(near, far)
    grandchild = far.fork()
    try:
        near.fill(b"after the fork")
        near.qp.write(near.mr, *far.region(), length=14)
        assert [one.status for one in near.wait(1, 5)] == ["SUCCESS"]
        assert far.bytes_at(0, 14) == b"after the fork"
    finally:
        os.kill(grandchild, signal.SIGKILL)
        near.close()
