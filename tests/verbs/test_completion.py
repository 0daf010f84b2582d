# SPDX-License-Identifier: Apache-2.0
"""Polling, waiting, arming, channels and overruns."""

from __future__ import annotations

import select
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from tests.verbs.conftest import Carrier, Pair
from tests.verbs.side import Side
from verbena import verbs
from verbena.verbs import SendFlags


def write(side: Side, other: Side, count: int = 1, flags: int = SendFlags.SIGNALED) -> None:
    for number in range(count):
        side.qp.write(side.mr, *other.region(), length=8, wr_id=number, flags=flags)


def test_an_empty_queue_polls_empty(near: Side) -> None:
    assert near.cq.poll() == []


@pytest.mark.direct_only("by packets requests take time, which a poll alone does not wait for")
@pytest.mark.parametrize("most", [1, 5, 16, 40])
def test_poll_takes_at_most_what_is_asked(near: Side, far: Side, most: int) -> None:
    write(near, far, 50)
    taken = near.cq.poll(most)
    assert [wc.wr_id for wc in taken] == list(range(most))
    assert len(near.wait(50 - most)) == 50 - most


@pytest.mark.direct_only("by packets requests take time, which a poll alone does not wait for")
def test_poll_fills_an_array(near: Side, far: Side) -> None:
    write(near, far, 20)
    out = np.zeros(64, verbs.wc_dtype)
    assert near.cq.poll(out=out) == 20
    assert out["wr_id"][:20].tolist() == list(range(20))
    assert set(out["qp_num"][:20]) == {near.qp.qp_num}
    assert (out["status"][:20] == verbs.WCStatus.SUCCESS).all()
    assert (out["opcode"][:20] == verbs.WCOpcode.RDMA_WRITE).all()


def test_an_array_shows_immediate_data_in_host_order(near: Side, far: Side) -> None:
    far.post_recv()
    near.qp.send(near.mr, length=1, imm_data=258)
    out = np.zeros(1, verbs.wc_dtype)
    assert far.cq.wait(1, 10, out=out) == 1
    assert out["imm_data"][0] == 258


@pytest.mark.parametrize("out", [np.zeros(4), bytearray(96), [1]])
def test_poll_refuses_other_arrays(near: Side, out: object) -> None:
    with pytest.raises(TypeError, match="wc_dtype"):
        near.cq.poll(out=out)  # type: ignore[call-overload]


def test_poll_refuses_a_read_only_array(near: Side) -> None:
    out = np.zeros(4, verbs.wc_dtype)
    out.flags.writeable = False
    with pytest.raises((BufferError, ValueError)):
        near.cq.poll(out=out)


def test_wait_returns_what_there_is_when_time_is_over(near: Side, far: Side) -> None:
    write(near, far, 2)
    assert len(near.cq.wait(5, timeout=0.05)) == 2


@pytest.mark.not_simulated("timeouts are in virtual time")
def test_wait_without_a_channel_spins(ctx: verbs.Context) -> None:
    start = time.monotonic()
    assert ctx.create_cq(4).wait(1, timeout=0.05) == []
    assert time.monotonic() - start >= 0.05


def test_wait_sleeps_on_the_channel(near: Side) -> None:
    def sleeps() -> bool:
        start = time.process_time()
        assert near.cq.wait(1, timeout=0.3) == []
        return time.process_time() - start < 0.1

    assert any(sleeps() for _ in range(5))


@pytest.mark.not_simulated("a world has one thread, and its time passes at once")
def test_wait_is_woken_by_a_completion(near: Side, far: Side) -> None:
    far.post_recv()
    timer = threading.Timer(0.1, near.qp.send, (near.mr, 0, 8))
    timer.start()
    assert [wc.opcode for wc in far.cq.wait(1, timeout=10, spin=0)] == [verbs.WCOpcode.RECV]
    timer.join()


def test_wait_into_an_array_without_room_is_refused(near: Side) -> None:
    with pytest.raises(ValueError, match="no room for 5"):
        near.cq.wait(5, 0, out=np.zeros(4, verbs.wc_dtype))


@pytest.fixture
def alarm() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, ring)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.not_simulated("a world has one thread, and its time passes at once")
@pytest.mark.parametrize("with_channel", [True, False])
def test_a_signal_interrupts_a_wait(ctx: verbs.Context, alarm: None, with_channel: bool) -> None:
    cq = ctx.create_cq(4, ctx.create_comp_channel() if with_channel else None)
    main = threading.main_thread().ident
    assert main is not None
    threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGUSR1)).start()
    with pytest.raises(KeyboardInterrupt):
        cq.wait(1, timeout=10)


def readable(side: Side, timeout: float = 0) -> bool:
    return bool(select.select([side.channel.fd], [], [], timeout)[0])


@pytest.mark.not_simulated("virtual time does not pass in select")
def test_an_armed_queue_makes_one_event(near: Side, far: Side) -> None:
    near.cq.req_notify()
    assert not readable(near)
    write(near, far, 3)
    assert readable(near, 10)
    assert near.channel.get_cq_event(10) is near.cq
    assert near.channel.get_cq_event(0) is None


def test_a_queue_that_is_not_armed_makes_no_event(near: Side, far: Side) -> None:
    write(near, far)
    assert not readable(near, 0.05)


@pytest.mark.not_simulated("virtual time does not pass in select")
def test_only_a_solicited_completion_makes_a_solicited_event(near: Side, far: Side) -> None:
    far.post_recv()
    far.post_recv()
    far.cq.req_notify(solicited_only=True)
    near.qp.send(near.mr, length=8)
    near.wait()
    assert not readable(far, 0.05)
    near.qp.send(near.mr, length=8, flags=SendFlags.SIGNALED | SendFlags.SOLICITED)
    assert readable(far, 10)
    assert len(far.wait(2)) == 2


@pytest.mark.not_simulated("virtual time does not pass in select")
def test_an_error_counts_as_solicited(near: Side, far: Side) -> None:
    near.cq.req_notify(solicited_only=True)
    near.qp.write(near.mr, far.mr.addr, 0xDEAD, length=8)
    assert readable(near, 10)


def shared_channel(
    ctx: verbs.Context,
) -> tuple[verbs.CompChannel, list[verbs.CQ], list[verbs.QP], verbs.MR]:
    """Two connected queue pairs, each with a completion queue of the one channel."""
    channel = ctx.create_comp_channel()
    pd = ctx.alloc_pd()
    mr = pd.alloc(64, 15)
    cqs = [ctx.create_cq(8, channel) for _ in range(2)]
    qps = [pd.create_qp(send_cq=cq) for cq in cqs]
    verbs.connect_pair(*qps)
    return channel, cqs, qps, mr


def test_each_queue_of_a_shared_channel_gets_its_event(ctx: verbs.Context) -> None:
    channel, cqs, qps, mr = shared_channel(ctx)
    for cq in cqs:
        cq.req_notify()
    for qp in qps:
        qp.write(mr, mr.addr, mr.rkey, 0, 8)
    assert {channel.get_cq_event(10), channel.get_cq_event(10)} == set(cqs)


@pytest.mark.not_simulated("virtual time does not pass meanwhile")
def test_events_are_drained_one_by_one(ctx: verbs.Context) -> None:
    channel, cqs, qps, mr = shared_channel(ctx)
    for cq, qp in zip(cqs, qps, strict=True):
        cq.req_notify()
        qp.write(mr, mr.addr, mr.rkey, 0, 8)
    end = time.monotonic() + 10
    counts = []
    while sum(counts) < 2:
        counts.append(channel.drain(1))
        assert time.monotonic() < end
    assert max(counts) == 1
    assert channel.drain() == 0
    with pytest.raises(ValueError, match="most"):
        channel.drain(-1)


def test_waiting_for_one_queue_keeps_the_events_of_another(ctx: verbs.Context) -> None:
    channel, cqs, qps, mr = shared_channel(ctx)
    cqs[1].req_notify()
    qps[1].write(mr, mr.addr, mr.rkey, 0, 8)
    assert cqs[0].wait(1, timeout=0.05) == []
    assert channel.get_cq_event(10) is cqs[1]


def test_a_queue_is_grown(near: Side) -> None:
    near.cq.resize(1000)
    assert near.cq.cqe >= 1000


@pytest.mark.parametrize("cqe", [0, -1, 1 << 30])
def test_a_queue_has_a_size(ctx: verbs.Context, cqe: int) -> None:
    with pytest.raises(verbs.VerbsError, match="max_cqe"):
        ctx.create_cq(cqe)


def poll_often(cq: verbs.CQ) -> None:
    for _ in range(4):
        cq.poll()


@contextmanager
def two_sides(
    carrier: Carrier, near_cqe: int = 32, far_cqe: int = 32, qp_type: str = "RC"
) -> Iterator[tuple[Side, Side]]:
    near = Side(cqe=near_cqe, max_send_wr=64, qp_type=qp_type)
    with carrier.far():
        far = Side(cqe=far_cqe, qp_type=qp_type)
    Pair(near, far).connect()
    with near.ctx, far.ctx:
        yield near, far


def lost(ctx: verbs.Context) -> int:
    """What the device has counted so far, of all tests of this process."""
    return int(ctx.counters()["engine"]["completions_lost"])


def test_an_overrun_is_an_event_and_an_error_queue(carrier: Carrier) -> None:
    with two_sides(carrier, near_cqe=2) as (near, far):
        before = lost(near.ctx)
        write(near, far, near.cq.cqe + 1)
        event = near.ctx.get_async_event(10)
        assert event is not None
        assert event.event_type == verbs.EventType.CQ_ERR
        assert event.element is near.cq
        assert event.text.startswith(f"it overran: it has room for {near.cq.cqe} completions")
        deadline = time.monotonic() + 10  # by packets the event can be seen before the count
        while lost(near.ctx) == before and time.monotonic() < deadline:
            time.sleep(0.001)
        assert lost(near.ctx) - before == 1
        assert near.qp.query().qp_state == verbs.QPState.RTS
        with pytest.raises(verbs.VerbsError, match="CQ is in error"):
            poll_often(near.cq)


def test_a_receive_without_an_entry_ends_the_connection_and_says_why(carrier: Carrier) -> None:
    with two_sides(carrier, far_cqe=2) as (near, far):
        before = lost(far.ctx)
        for _ in range(far.cq.cqe + 1):
            far.post_recv()
            near.qp.send(near.mr, 0, 8)
        assert near.wait(far.cq.cqe + 1)[-1].status == "REM_OP_ERR"
        events = [far.ctx.get_async_event(10) for _ in range(2)]
        texts = {event.event_type: event.text for event in events if event}
        assert set(texts) == {verbs.EventType.CQ_ERR, verbs.EventType.QP_FATAL}
        why = f"the completion queue of QP {far.qp.qp_num:#x} was full"
        assert why in texts[verbs.EventType.QP_FATAL]
        assert lost(far.ctx) - before == 1


@pytest.mark.parametrize("kind", ["UC", "UD"])
def test_an_unreliable_qp_whose_receive_finds_no_entry_stays(carrier: Carrier, kind: str) -> None:
    with two_sides(carrier, far_cqe=2, qp_type=kind) as (near, far):
        before = lost(far.ctx)
        how: dict[str, Any] = {}
        if kind == "UD":
            how = {"ah": near.pd.create_ah(verbs.address_of(far.info(), near.gid_index))}
            how |= {"remote_qpn": far.qp.qp_num, "remote_qkey": 0x11111111}
        for _ in range(far.cq.cqe + 1):
            far.post_recv()
            near.qp.send(near.mr, 0, 8, **how)
        assert [done.status for done in near.wait(far.cq.cqe + 1)] == ["SUCCESS"] * 3
        event = far.ctx.get_async_event(10)
        assert event is not None
        assert event.event_type == verbs.EventType.CQ_ERR
        assert far.ctx.get_async_event(0.2) is None
        assert far.qp.query().qp_state == verbs.QPState.RTS
        assert lost(far.ctx) - before == 1


def test_a_wait_returns_what_came_before_the_overrun(carrier: Carrier) -> None:
    with two_sides(carrier, near_cqe=4) as (near, far):
        write(near, far, near.cq.cqe + 3)
        assert near.ctx.get_async_event(10) is not None
        assert len(near.cq.wait(near.cq.cqe + 3, 10)) == near.cq.cqe
        with pytest.raises(verbs.VerbsError, match="CQ is in error"):
            near.cq.wait(1, 10)


def test_no_event_is_none(ctx: verbs.Context) -> None:
    assert ctx.get_async_event(0) is None


def test_a_wait_spins_as_long_as_it_is_told(near: Side, far: Side) -> None:
    """Who only spins arms nothing, so what completes afterwards makes no event."""
    assert near.cq.wait(1, timeout=0.1, spin=10) == []
    write(near, far)
    assert near.channel.get_cq_event(0) is None
    assert near.cq.wait(1, timeout=0.1, spin=float("inf"))


def test_more_completions_than_have_room_are_refused(near: Side) -> None:
    with pytest.raises(ValueError, match="out has no room for 2147483647 completions"):
        near.cq.wait(2**31 - 1, 0, out=np.zeros(4, verbs.wc_dtype))


def test_a_channel_knows_whether_it_is_shared(ctx: verbs.Context) -> None:
    channel = ctx.create_comp_channel()
    first, second = ctx.create_cq(4, channel), ctx.create_cq(4, channel)
    assert channel.is_shared
    second.close()
    assert not channel.is_shared
    first.close()
