# SPDX-License-Identifier: Apache-2.0
"""Waiting: for exactly one, without keeping a core busy, and ended by another thread."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from tests.verbs.conftest import Pair
from verbena import verbs

ONE_THREAD = pytest.mark.not_simulated("a world has one thread")


def test_one_completion(local_pair: Pair) -> None:
    near, far = local_pair.near, local_pair.far
    near.qp.write(near.mr, *far.region(), length=8, wr_id=7)
    assert near.cq.wait_one(10).wr_id == 7


def test_one_completion_with_an_error_is_returned(local_pair: Pair) -> None:
    near = local_pair.near
    near.qp.write(near.mr, near.mr.addr, 0xDEAD, length=8)
    with pytest.raises(verbs.CompletionError):
        near.cq.wait_one(10).raise_for_status()


def test_none_in_time_is_a_timeout(cq: verbs.CQ) -> None:
    with pytest.raises(TimeoutError, match=r"within 0\.01 s") as caught:
        cq.wait_one(0.01)
    assert caught.value.errno == errno.ETIMEDOUT
    assert not isinstance(caught.value, verbs.VerbsError)


def test_each_wait_says_in_its_way_that_the_time_is_over(ctx: verbs.Context) -> None:
    """The table of docs/python.md."""
    channel, mr = ctx.create_comp_channel(), ctx.alloc_pd().alloc(64)
    cq = ctx.create_cq(4, channel)
    assert cq.wait(1, 0.01) == []
    assert cq.wait(1, 0.01, out=np.zeros(1, verbs.wc_dtype)) == 0
    assert channel.get_cq_event(0.01) is None
    assert ctx.get_async_event(0.01) is None
    assert mr.wait_u64(0, 1, 0.01) is False


def test_a_timeout_names_the_request_that_waits(local_pair: Pair) -> None:
    near = local_pair.near
    near.qp.send(near.mr, length=8)  # and nobody posts a receive
    with pytest.raises(TimeoutError, match="has no receive request for it"):
        near.cq.wait_one(1.5)


def test_what_is_no_time_and_no_number_is_refused(cq: verbs.CQ) -> None:
    with pytest.raises(ValueError, match="nan"):
        cq.wait(timeout=float("nan"))
    with pytest.raises(ValueError, match="nan"):
        cq.wait(spin=float("nan"), timeout=0)
    with pytest.raises(TypeError, match=r"n is 0\.5, .*timeout="):
        cq.wait(0.5)  # type: ignore[call-overload]


def test_an_offset_beyond_the_region_is_refused(local_pair: Pair) -> None:
    """It would be a request of no bytes, which succeeds."""
    near = local_pair.near
    with pytest.raises(ValueError, match="beyond the MR"):
        near.qp.recv(near.mr, offset=near.mr.length + 1)
    with pytest.raises(ValueError, match="beyond the MR"):
        near.mr.sge(offset=near.mr.length + 1)
    assert near.mr.sge(offset=near.mr.length).length == 0


# ---- without a core ----


@ONE_THREAD
def test_a_queue_without_a_channel_sleeps(ctx: verbs.Context) -> None:
    cq = ctx.create_cq(4)
    assert cq.channel is None

    def sleeps() -> bool:
        start = time.process_time()
        assert cq.wait(1, timeout=0.3) == []
        return time.process_time() - start < 0.1

    assert any(sleeps() for _ in range(5))


@ONE_THREAD
def test_a_queue_without_a_channel_is_woken(ctx: verbs.Context) -> None:
    """By what completes while it sleeps: its events take no slice of the timeout."""
    pd, cq = ctx.alloc_pd(), ctx.create_cq(4)
    near, far = pd.create_qp(send_cq=ctx.create_cq(4)), pd.create_qp(send_cq=cq)
    verbs.connect_pair(near, far)
    mr = pd.alloc(64)
    for _ in range(3):
        far.recv(mr)
        timer = threading.Timer(0.05, near.send, (mr,), {"length": 8})
        timer.start()
        assert cq.wait_one(30, spin=0).byte_len == 8
        timer.join()


@contextmanager
def few_descriptors() -> Iterator[None]:
    """No descriptor can be opened within."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@ONE_THREAD
def test_without_a_descriptor_it_naps(ctx: verbs.Context) -> None:
    pd = ctx.alloc_pd()
    with few_descriptors():
        cq = ctx.create_cq(4)
    near, far = pd.create_qp(send_cq=cq), pd.create_qp(send_cq=cq)
    verbs.connect_pair(near, far)
    mr = pd.alloc(64, 15)
    assert cq.wait(1, timeout=0.05) == []
    timer = threading.Timer(0.05, near.write, (mr, mr.addr, mr.rkey))
    timer.start()
    assert cq.wait_one(10).is_success
    timer.join()


# ---- ended by another thread ----


class Waiter(threading.Thread):
    """Calls something that waits, and keeps what came of it."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__()
        self._call = call
        self.outcome: object = None
        self.start()
        time.sleep(0.05)

    def run(self) -> None:
        try:
            self.outcome = self._call()
        except BaseException as error:
            self.outcome = error

    def was_ended(self) -> bool:
        self.join(20)
        return isinstance(self.outcome, verbs.VerbsError) and (
            self.outcome.errno == errno.ECANCELED
        )


def waits(ctx: verbs.Context) -> dict[str, tuple[Callable[[], object], Callable[[], None]]]:
    """Each call that waits, and what ends it."""
    channel, plain = ctx.create_comp_channel(), ctx.create_cq(4)
    cq = ctx.create_cq(4, channel)
    mr = ctx.alloc_pd().alloc(64)
    return {
        "wait": (cq.wait, cq.cancel_wait),
        "wait_one": (cq.wait_one, cq.cancel_wait),
        "without a channel": (plain.wait, plain.cancel_wait),
        "spinning": (lambda: cq.wait(spin=float("inf")), cq.cancel_wait),
        "get_cq_event": (channel.get_cq_event, channel.cancel_wait),
        "get_async_event": (ctx.get_async_event, ctx.cancel_wait),
        "wait_u64": (lambda: mr.wait_u64(0, 5), mr.cancel_wait),
    }


KINDS = [
    *("wait", "wait_one", "without a channel", "spinning"),
    *("get_cq_event", "get_async_event", "wait_u64"),
]


@ONE_THREAD
@pytest.mark.parametrize("kind", KINDS)
def test_another_thread_ends_a_wait(ctx: verbs.Context, kind: str) -> None:
    call, cancel = waits(ctx)[kind]
    waiters = [Waiter(call) for _ in range(2)]
    cancel()
    assert all(waiter.was_ended() for waiter in waiters)


@ONE_THREAD
@pytest.mark.parametrize("kind", KINDS)
def test_closing_the_context_ends_a_wait(ctx: verbs.Context, kind: str) -> None:
    waiter = Waiter(waits(ctx)[kind][0])
    ctx.close()
    assert ctx.closed
    assert waiter.was_ended()


@ONE_THREAD
def test_leaving_a_with_block_ends_a_wait(ctx: verbs.Context) -> None:
    """And what was raised in the block is what comes out of it."""

    def fail() -> None:
        with ctx.create_cq(4) as cq:
            waiters.append(Waiter(cq.wait))
            raise KeyError("the program's own")

    waiters: list[Waiter] = []
    with pytest.raises(KeyError):
        fail()
    assert waiters[0].was_ended()


@ONE_THREAD
def test_close_alone_says_how_to_end_a_wait(ctx: verbs.Context) -> None:
    cq = ctx.create_cq(4)
    waiter = Waiter(cq.wait)
    with pytest.raises(verbs.VerbsError, match="cancel_wait") as caught:
        cq.close()
    assert caught.value.errno == errno.EBUSY
    cq.cancel_wait()
    assert waiter.was_ended()
    cq.close()


def test_a_wait_that_begins_later_is_not_ended(cq: verbs.CQ) -> None:
    cq.cancel_wait()
    assert cq.wait(1, 0.01) == []


@ONE_THREAD
def test_an_ended_wait_gives_what_it_has(local_pair: Pair) -> None:
    """No completion is lost."""
    near, far = local_pair.near, local_pair.far
    near.qp.write(near.mr, *far.region(), length=8, wr_id=9)
    waiter = Waiter(lambda: near.cq.wait(5))
    near.cq.cancel_wait()
    waiter.join(20)
    assert isinstance(waiter.outcome, list)
    assert [wc.wr_id for wc in waiter.outcome] == [9]


@ONE_THREAD
def test_waits_end_and_begin_again(ctx: verbs.Context) -> None:
    cq = ctx.create_cq(4)
    for _ in range(5):
        waiter = Waiter(lambda: cq.wait(1, 20))
        cq.cancel_wait()
        assert waiter.was_ended()
    start = time.process_time()
    assert cq.wait(1, 0.3) == []
    assert time.process_time() - start < 0.25  # nothing still wakes it


@pytest.mark.parametrize("kind", ["cq", "channel", "mr"])
def test_no_wait_of_a_closed_object_is_ended(ctx: verbs.Context, kind: str) -> None:
    made = {
        "cq": lambda: ctx.create_cq(4),
        "channel": ctx.create_comp_channel,
        "mr": lambda: ctx.alloc_pd().alloc(64),
    }[kind]()
    assert isinstance(made, (verbs.CQ, verbs.CompChannel, verbs.MR))
    made.close()
    with pytest.raises(verbs.VerbsError, match="is closed"):
        made.cancel_wait()


# At the end of its time a wait looks once more, and finds what it was not woken for.
LONG = 10.0


@ONE_THREAD
def test_all_that_sleep_on_one_queue_are_woken_by_what_comes_at_once(local_pair: Pair) -> None:
    """One event tells of several completions, and only one of the threads finds it."""
    near, far = local_pair.near, local_pair.far
    waiters, rounds = 4, 50
    took: list[float] = []
    begun = threading.Barrier(waiters + 1)

    def wait() -> None:
        for _ in range(rounds):
            begun.wait()
            since = time.monotonic()
            near.cq.wait_one(LONG, spin=0)
            took.append(time.monotonic() - since)

    threads = [threading.Thread(target=wait) for _ in range(waiters)]
    for thread in threads:
        thread.start()
    for _ in range(rounds):
        begun.wait()
        time.sleep(0.002)  # most of them sleep now
        for _ in range(waiters):
            near.qp.write(near.mr, *far.region(), length=8)
    for thread in threads:
        thread.join()
    assert len(took) == waiters * rounds
    assert max(took) < LONG / 2


def eventfds() -> int:
    """How many this process has. Of other descriptors the device makes some at any time, as when
    another process of this host looks for its neighbours."""
    found = 0
    for one in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found += "eventfd" in os.readlink(f"/proc/self/fd/{one}")
    return found


@ONE_THREAD
@pytest.mark.parametrize("ends_early", [False, True])
def test_threads_that_are_the_first_to_sleep_on_a_queue_are_all_woken(
    ctx: verbs.Context, monkeypatch: pytest.MonkeyPatch, ends_early: bool
) -> None:
    """Each finds that nothing is there to wake it; all make something, and one is kept.

    The wait may even end before any of them has made it.
    """
    waiters = 4
    make, all_make = os.eventfd, threading.Barrier(waiters + 1)

    def make_together(*arguments: int) -> int:
        one = make(*arguments)
        all_make.wait()  # each has seen by now that there is none
        all_make.wait()
        return one

    def wait() -> None:
        since = time.monotonic()
        with pytest.raises(verbs.VerbsError, match="another thread ended the wait"):
            cq.wait_one(LONG, spin=0)
        took.append(time.monotonic() - since)

    took: list[float] = []
    cq = ctx.create_cq(8)
    before = eventfds()
    monkeypatch.setattr(os, "eventfd", make_together)
    threads = [threading.Thread(target=wait) for _ in range(waiters)]
    for thread in threads:
        thread.start()
    all_make.wait()
    if ends_early:
        cq.cancel_wait()
    all_make.wait()
    time.sleep(0.1)  # all sleep now, or have ended
    cq.cancel_wait()
    for thread in threads:
        thread.join()
    assert eventfds() <= before + 1
    assert len(took) == waiters
    assert max(took) < LONG / 2
