# SPDX-License-Identifier: Apache-2.0
"""Retries end when their attributes say, whether the sender polls or sleeps, and not before."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.robust.conftest import StartChild, connect
from tests.verbs.side import RemoteSide, Side

SLACK = 0.1  # seconds for a busy machine


def poll(side: Side, seconds: float) -> list[str]:
    """Spins, as a program without a channel does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := side.cq.poll(1):
            return [wc.status.name for wc in found]
    return []


def sleep(side: Side, seconds: float) -> list[str]:
    return [one.status for one in side.wait(1, seconds)]


Wait = Callable[[Side, float], list[str]]
WAITERS = pytest.mark.parametrize("wait", [poll, sleep])


@pytest.fixture
def near() -> Iterator[Side]:
    side = Side()
    yield side
    side.close()


@pytest.fixture
def far(start_child: StartChild) -> RemoteSide:
    return start_child().make()


def timed(near: Side, wait: Wait) -> tuple[list[str], float]:
    start = time.monotonic()
    statuses = wait(near, 10)
    return statuses, time.monotonic() - start


@WAITERS
@pytest.mark.parametrize(("timeout", "retry_cnt"), [(14, 1), (15, 0)])
def test_a_peer_that_left_is_retry_exceeded_in_time(
    near: Side, far: RemoteSide, wait: Wait, timeout: int, retry_cnt: int
) -> None:
    nominal = 4.096e-6 * 2**timeout * (retry_cnt + 1)
    connect(near, far, timeout=timeout, retry_cnt=retry_cnt)
    far.set_state("RESET")
    near.qp.write(near.mr, *far.region(), length=8)
    statuses, seconds = timed(near, wait)
    assert statuses == ["RETRY_EXC_ERR"]
    assert nominal * 0.95 <= seconds <= 4 * nominal + SLACK


@WAITERS
def test_receiver_not_ready_ends_after_its_retries(near: Side, far: RemoteSide, wait: Wait) -> None:
    connect(near, far, min_rnr_timer=22, rnr_retry=6)
    nominal = 6 * 0.02048  # code 22: 20.48 ms, InfiniBand specification table 45
    near.qp.send(near.mr, length=8)
    statuses, seconds = timed(near, wait)
    assert statuses == ["RNR_RETRY_EXC_ERR"]
    assert nominal * 0.95 <= seconds <= 4 * nominal + SLACK


@WAITERS
def test_endless_retries_wait_for_the_receive(near: Side, far: RemoteSide, wait: Wait) -> None:
    connect(near, far, min_rnr_timer=1, rnr_retry=7, timeout=1, retry_cnt=0)
    near.fill(b"patience")
    near.qp.send(near.mr, length=8)
    assert wait(near, 0.3) == []
    far.post_recv()
    assert wait(near, 1) == ["SUCCESS"]
    assert [one.byte_len for one in far.wait()] == [8]
    assert far.bytes_at(0, 8) == b"patience"


@WAITERS
def test_timeout_0_waits_for_a_peer_that_comes_late(
    near: Side, far: RemoteSide, wait: Wait
) -> None:
    near_info, far_info = near.info(), far.info()
    near.connect(far_info, timeout=0)
    near.fill(b"late")
    near.qp.write(near.mr, *far.region(), length=4)
    assert wait(near, 0.3) == []
    far.connect(near_info)
    assert wait(near, 1) == ["SUCCESS"]
    assert far.bytes_at(0, 4) == b"late"


@WAITERS
def test_a_killed_peer_is_retry_exceeded_in_time(
    start_child: StartChild, near: Side, wait: Wait
) -> None:
    child = start_child()
    far = child.make()
    connect(near, far, timeout=14, retry_cnt=1)
    region = far.region()
    near.qp.send(near.mr, length=8)  # waits: there is no receive
    child.process.kill()
    statuses, seconds = timed(near, wait)
    assert statuses == ["RETRY_EXC_ERR"]
    assert seconds <= 4 * 4.096e-6 * 2**14 * 2 + SLACK
    near.qp.write(near.mr, *region, length=8)
    assert wait(near, 1) == ["WR_FLUSH_ERR"]
