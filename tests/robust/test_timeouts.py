# SPDX-License-Identifier: Apache-2.0
"""Retries end when their attributes say, whether the sender polls or sleeps, and not before."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from tests.robust.conftest import StartChild, connect
from tests.verbs.side import RemoteSide, Side

SLACK = 0.1  # seconds
TRIES = 5  # one of them is in time, on a busy machine too


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


def timed(near: Side, wait: Wait, status: str) -> float:
    """Seconds until the one request ended so."""
    start = time.monotonic()
    assert wait(near, 10) == [status]
    return time.monotonic() - start


def in_time(nominal: float, attempt: Callable[[], float]) -> bool:
    """Whether one of a few attempts ends within reach of its time; none ends before it."""
    for _ in range(TRIES):
        seconds = attempt()
        assert seconds >= nominal * 0.95
        if seconds <= 4 * nominal + SLACK:
            return True
    return False


@WAITERS
@pytest.mark.parametrize(("timeout", "retry_cnt"), [(14, 1), (15, 0)])
def test_a_peer_that_left_is_retry_exceeded_in_time(
    start_child: StartChild, wait: Wait, timeout: int, retry_cnt: int
) -> None:
    child = start_child()

    def attempt() -> float:
        with closing(Side()) as near:
            far = child.make()
            connect(near, far, timeout=timeout, retry_cnt=retry_cnt)
            far.set_state("RESET")
            near.qp.write(near.mr, *far.region(), length=8)
            return timed(near, wait, "RETRY_EXC_ERR")

    assert in_time(4.096e-6 * 2**timeout * (retry_cnt + 1), attempt)


@WAITERS
@pytest.mark.parametrize("ends", ["before", "after"])
@pytest.mark.parametrize(("timeout", "retry_cnt"), [(14, 1), (15, 0)])
def test_a_peer_that_closed_its_qp_and_ended_is_retry_exceeded_in_time(
    start_child: StartChild, wait: Wait, ends: str, timeout: int, retry_cnt: int
) -> None:
    """Not earlier: of two programs one may end while the other has requests to spare."""

    def attempt() -> float:
        child = start_child()
        with closing(Side()) as near:
            far = child.make()
            connect(near, far, timeout=timeout, retry_cnt=retry_cnt)
            region = far.region()
            far.close_qp()
            if ends == "before":
                child.stop()
            begun = time.monotonic()
            near.qp.write(near.mr, *region, length=8)
            if ends == "after":
                child.stop()
            timed(near, wait, "RETRY_EXC_ERR")
            return time.monotonic() - begun

    assert in_time(4.096e-6 * 2**timeout * (retry_cnt + 1), attempt)


@WAITERS
def test_a_peer_that_closed_its_qp_and_ended_is_told_where_no_timeout_would_tell(
    start_child: StartChild, wait: Wait
) -> None:
    child = start_child()
    with closing(Side()) as near:
        far = child.make()
        connect(near, far, timeout=0)
        region = far.region()
        far.close_qp()
        near.qp.write(near.mr, *region, length=8)
        assert wait(near, 0.3) == []
        child.stop()
        timed(near, wait, "RETRY_EXC_ERR")


@WAITERS
def test_receiver_not_ready_ends_after_its_retries(start_child: StartChild, wait: Wait) -> None:
    child = start_child()

    def attempt() -> float:
        with closing(Side()) as near:
            connect(near, child.make(), min_rnr_timer=22, rnr_retry=6)
            near.qp.send(near.mr, length=8)
            return timed(near, wait, "RNR_RETRY_EXC_ERR")

    assert in_time(6 * 0.02048, attempt)  # code 22: 20.48 ms, InfiniBand specification table 45


@WAITERS
def test_endless_retries_wait_for_the_receive(near: Side, far: RemoteSide, wait: Wait) -> None:
    connect(near, far, min_rnr_timer=1, rnr_retry=7, timeout=1, retry_cnt=0)
    near.fill(b"patience")
    near.qp.send(near.mr, length=8)
    assert wait(near, 0.3) == []
    far.post_recv()
    assert wait(near, 10) == ["SUCCESS"]
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
    assert wait(near, 10) == ["SUCCESS"]
    assert far.bytes_at(0, 4) == b"late"


@WAITERS
def test_a_killed_peer_is_retry_exceeded_in_time(start_child: StartChild, wait: Wait) -> None:
    def attempt() -> float:
        child = start_child()
        with closing(Side()) as near:
            far = child.make()
            connect(near, far, timeout=14, retry_cnt=1)
            region = far.region()
            near.qp.send(near.mr, length=8)  # waits: there is no receive
            child.process.kill()
            seconds = timed(near, wait, "RETRY_EXC_ERR")
            near.qp.write(near.mr, *region, length=8)
            assert wait(near, 10) == ["WR_FLUSH_ERR"]
            return seconds

    nominal = 4.096e-6 * 2**14 * 2
    assert any(attempt() <= 4 * nominal + SLACK for _ in range(TRIES))
