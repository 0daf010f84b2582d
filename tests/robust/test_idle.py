# SPDX-License-Identifier: Apache-2.0
"""What is open and has nothing to do costs nothing. (What is closed leaves nothing:
tests/native/test_visitors.c.)"""

from __future__ import annotations

from tests.robust.conftest import StartChild, connect

REST = 2.0
AT_MOST = 0.005  # seconds of processor time, of all threads


def test_a_connected_pair_that_rests_uses_no_processor(start_child: StartChild) -> None:
    first, second = start_child(), start_child()
    near, far = first.make(), second.make()
    connect(near, far)
    near.write(*far.region(), 8)
    assert [one.status for one in near.wait()] == ["SUCCESS"]
    first.ask(0, "idle", REST)
    assert far.idle(REST) < AT_MOST
    assert first.answer() < AT_MOST


def test_a_sleeper_on_a_channel_sleeps(start_child: StartChild) -> None:
    near, far = start_child().make(), start_child().make()
    connect(near, far)
    far.post_recv()
    far.wait(1, 0.1)  # what is imported and allocated once
    before = far.processor_seconds()
    assert far.wait(1, 1.0) == []
    assert far.processor_seconds() - before < 0.05
