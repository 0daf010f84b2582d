# SPDX-License-Identifier: Apache-2.0
"""What is open and has nothing to do costs nothing. (What is closed leaves nothing:
tests/native/test_visitors.c.)"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.robust.conftest import StartChild, connect
from tests.verbs.side import RemoteSide

REST = 2.0
AT_MOST = 0.005  # seconds of processor time, of all threads
TRIES = 5  # on a busy machine something may come late; what comes again and again is never at rest


def test_a_connected_pair_that_rests_uses_no_processor(start_child: StartChild) -> None:
    first, second = start_child(), start_child()
    near, far = first.make(), second.make()
    connect(near, far)
    near.write(*far.region(), 8)
    assert [one.status for one in near.wait()] == ["SUCCESS"]

    def rests() -> bool:
        first.ask(0, "idle", REST)
        return bool(max(far.idle(REST), first.answer()) < AT_MOST)

    assert any(rests() for _ in range(TRIES))


def sleeps(far: RemoteSide) -> bool:
    before = far.processor_seconds()
    assert far.wait(1, 1.0) == []
    return bool(far.processor_seconds() - before < 0.05)


def test_a_sleeper_on_a_channel_sleeps(start_child: StartChild) -> None:
    near, far = start_child().make(), start_child().make()
    connect(near, far)
    far.post_recv()
    far.wait(1, 0.1)  # what is imported and allocated once
    assert any(sleeps(far) for _ in range(TRIES))


@pytest.mark.parametrize(("carrier", "threads"), [("auto", 3), ("roce", 3), ("direct", 2)])
def test_a_device_has_as_many_threads_as_the_page_says(
    start_child: StartChild, monkeypatch: pytest.MonkeyPatch, carrier: str, threads: int
) -> None:
    """docs/design.md, "How two processes connect"."""
    monkeypatch.setenv("VERBENA_CARRIER", carrier)
    child = start_child()
    tasks = Path(f"/proc/{child.process.pid}/task")
    side = child.make()
    with_device = len(list(tasks.iterdir()))
    side.close()
    assert with_device - len(list(tasks.iterdir())) == threads


COPIED = 512 << 20
LONG = 0.02  # seconds; a wait that met the copy


def test_the_end_of_a_region_waits_for_a_copy_asleep(start_child: StartChild) -> None:
    """One that yielded all the time would take the processor of whoever copies."""
    first = start_child()
    near, far = (
        first.make(kind="own", nbytes=COPIED),
        start_child().make(kind="own", nbytes=COPIED),
    )
    connect(near, far)
    region = far.region()
    near.read(*region, 8)
    near.wait()

    def waits() -> tuple[float, float]:
        first.ask(0, "read", *region, COPIED)
        longest = max(far.deregister_another() for _ in range(1000))
        first.answer()
        near.wait(timeout=30)
        return longest

    for _ in range(TRIES):
        took, busy = waits()
        if took > LONG:
            break
    else:
        pytest.fail("no end of a region met the copy")
    assert busy < took / 4
