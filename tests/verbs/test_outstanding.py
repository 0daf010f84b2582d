# SPDX-License-Identifier: Apache-2.0
"""A posted request holds its memory until its completion was polled, or its QP is gone."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.verbs.side import ALL, Side
from verbena import verbs
from verbena.verbs import SendFlags, WCStatus

INLINE = SendFlags.INLINE | SendFlags.SIGNALED
UNSIGNALED = SendFlags(0)


class Regions:
    """Makes regions, and looks which of them are still there."""

    def __init__(self, pd: verbs.PD) -> None:
        self._pd = pd
        self._made: list[weakref.ref[verbs.MR]] = []

    def __call__(self, nbytes: int = 64) -> verbs.MR:
        mr = self._pd.alloc(nbytes, ALL)
        self._made.append(weakref.ref(mr))
        return mr

    def left(self) -> list[int]:
        """The numbers, in the order of their making, of those that are there."""
        gc.collect()
        return [number for number, mr in enumerate(self._made) if mr() is not None]


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """The collector looks at the objects of the test alone, and not at all that pytest has."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def region(near: Side) -> Regions:
    return Regions(near.pd)


def succeed(side: Side, n: int = 1) -> list[verbs.WC]:
    wcs = side.cq.wait(n, 10)
    assert [wc.status for wc in wcs] == [WCStatus.SUCCESS] * n
    return wcs


def test_a_receive_into_a_temporary_region(near: Side, far: Side) -> None:
    region = Regions(far.pd)
    far.qp.recv(region())
    near.qp.send(near.mr, length=8)
    assert region.left() == [0]
    succeed(far)
    assert region.left() == []


@pytest.mark.parametrize("nbytes", [64, 1 << 20])
def test_a_send_from_a_temporary_region(
    near: Side, far: Side, region: Regions, nbytes: int
) -> None:
    target = far.pd.alloc(nbytes)
    far.qp.recv(target)
    near.qp.send(region(nbytes))
    assert region.left() == [0]
    succeed(near)
    assert region.left() == []
    assert succeed(far)[0].byte_len == nbytes


POLLS: dict[str, Callable[[verbs.CQ], object]] = {
    "poll": lambda cq: cq.poll(),
    "poll many": lambda cq: cq.poll(40),
    "poll out": lambda cq: cq.poll(out=np.zeros(4, verbs.wc_dtype)),
    "wait": lambda cq: cq.wait(2, 0.001),
    "wait many": lambda cq: cq.wait(30, 0.001),
    "wait out": lambda cq: cq.wait(2, 0.001, out=np.zeros(4, verbs.wc_dtype)),
    "wait one": lambda cq: cq.wait(1, 0.001),
}


@pytest.mark.parametrize("poll", POLLS.values(), ids=POLLS.keys())
def test_each_way_to_poll_lets_go(
    near: Side, far: Side, region: Regions, poll: Callable[[verbs.CQ], object]
) -> None:
    for _ in range(2):
        near.qp.write(region(), *far.region())
    assert region.left() == [0, 1]
    for _ in range(1000):
        poll(near.cq)
        if not region.left():
            break
    assert region.left() == []


def test_a_request_that_is_not_signaled_waits_for_one_that_is(
    near: Side, far: Side, region: Regions
) -> None:
    near.qp.write(region(), *far.region(), flags=UNSIGNALED)
    near.qp.write(region(), *far.region())
    near.qp.write(region(), *far.region(), flags=UNSIGNALED)
    succeed(near)
    assert region.left() == [2]
    near.qp.write(near.mr, *far.region())
    succeed(near)
    assert region.left() == []


def test_completions_are_counted_one_by_one(near: Side, far: Side, region: Regions) -> None:
    for _ in range(40):
        near.qp.write(region(), *far.region())
    for polled in range(40):
        assert region.left() == list(range(polled, 40))
        succeed(near)
    assert region.left() == []


def test_inline_data_is_not_held(carrier: object) -> None:
    del carrier
    with verbs.open_device() as ctx:
        pd = ctx.alloc_pd()
        near, far = (pd.create_qp(send_cq=ctx.create_cq(8), max_inline_data=64) for _ in range(2))
        verbs.connect_pair(near, far)
        region, target = Regions(pd), pd.alloc(64, ALL)
        near.write(region(), target.addr, target.rkey, flags=INLINE)
        assert region.left() == []


def test_lists_and_pieces_are_held(near: Side, far: Side, region: Regions) -> None:
    first = verbs.SendWR(sg_list=[region().sge(8)])
    second = verbs.SendWR(sg_list=[region().sge(8)])
    far.qp.post_recv([verbs.RecvWR(sg_list=far.mr.sge(64)) for _ in range(2)])
    near.qp.post_send([first, second])
    del first, second
    assert region.left() == [0, 1]
    succeed(near, 2)
    assert region.left() == []


def test_a_request_that_changes_afterwards_still_holds_what_was_posted(
    near: Side, far: Side, region: Regions
) -> None:
    request = verbs.RecvWR(sg_list=region().sge(64))
    near.qp.post_recv(request)
    request.sg_list = near.mr.sge(64)
    assert region.left() == [0]
    far.qp.send(far.mr, length=8)
    succeed(near)
    assert region.left() == []


def test_records_are_counted_too(near: Side, far: Side, region: Regions) -> None:
    records = np.zeros(3, verbs.send_dtype)
    records["opcode"] = verbs.WROpcode.RDMA_WRITE
    records["flags"] = SendFlags.SIGNALED
    records["addr"], records["lkey"], records["length"] = near.mr.addr, near.mr.lkey, 8
    records["remote_addr"], records["rkey"] = far.region()
    near.qp.post_many(records)
    near.qp.write(region(), *far.region())
    succeed(near, 3)
    assert region.left() == [0]
    succeed(near)
    assert region.left() == []


def test_a_request_that_is_refused_holds_nothing(near: Side, region: Regions) -> None:
    near.set_state("ERR")
    near.set_state("RESET")
    with pytest.raises(verbs.VerbsError):
        near.qp.send(region())
    with pytest.raises(verbs.VerbsError):
        near.qp.post_send([verbs.SendWR(sg_list=region().sge(8))])
    assert region.left() == []


def test_flushed_requests_let_go(near: Side, region: Regions) -> None:
    for _ in range(3):
        near.qp.recv(region())
    near.set_state("ERR")
    assert region.left() == [0, 1, 2]
    assert len(near.cq.wait(3, 10)) == 3
    assert region.left() == []


def test_a_failed_request_that_was_not_signaled_lets_go_when_the_qp_ends(
    near: Side, far: Side, region: Regions
) -> None:
    near.qp.write(region(), *far.region(), flags=UNSIGNALED)
    near.qp.write(region(), far.mr.addr, 0xDEAD, flags=UNSIGNALED)
    near.qp.write(region(), *far.region())
    assert len(near.cq.wait(2, 10)) == 2
    near.set_state("RESET")
    assert region.left() == []


@pytest.mark.parametrize("end", ["close", "reset", "garbage"])
def test_the_end_of_a_qp_lets_go(pd: verbs.PD, cq: verbs.CQ, end: str) -> None:
    region = Regions(pd)
    qp = pd.create_qp(send_cq=cq)
    qp.to_init()
    qp.recv(region())
    assert region.left() == [0]
    if end == "close":
        qp.close()
    elif end == "reset":
        qp.modify(qp_state=verbs.QPState.RESET)
    else:
        del qp
    assert region.left() == []


def test_a_closed_region_does_not_wait_for_its_requests(near: Side) -> None:
    """Who closes it means it."""
    mr = near.pd.alloc(64)
    near.qp.recv(mr)
    mr.close()
    assert mr.closed


def test_the_region_of_an_atomic_and_the_window_of_a_binding(
    near: Side, far: Side, region: Regions
) -> None:
    near.qp.fetch_add(region(), *far.region(), 1)
    window = near.pd.alloc_mw()
    bound = near.pd.alloc(64, ALL | verbs.AccessFlags.MW_BIND)
    near.qp.bind_mw(window, bound)
    known = weakref.ref(window)
    del window
    gc.collect()
    assert known() is not None
    succeed(near, 2)
    assert region.left() == []
    gc.collect()
    assert known() is None


class Served:
    """An SRQ, its CQ, and a QP that sends to a QP that takes its receives from there."""

    def __init__(self, ctx: verbs.Context) -> None:
        self.pd, self.cq = ctx.alloc_pd(), ctx.create_cq(64)
        self.srq = self.pd.create_srq()
        self.qp = self.pd.create_qp(send_cq=self.cq, srq=self.srq)
        self.sender = self.pd.create_qp(send_cq=ctx.create_cq(64))
        self.source = self.pd.alloc(64)
        verbs.connect_pair(self.sender, self.qp)

    def receive(self) -> verbs.WC:
        self.sender.send(self.source, length=8)
        return self.cq.wait_one(10)


def test_receives_of_an_srq_are_known_by_their_number(ctx: verbs.Context) -> None:
    served = Served(ctx)
    region = Regions(served.pd)
    for number in range(3):
        served.srq.recv(region(), wr_id=number)
    assert region.left() == [0, 1, 2]
    for polled in range(3):
        assert served.receive().wr_id == polled
        assert region.left() == list(range(polled + 1, 3))


def test_receives_of_an_srq_without_numbers_are_held_together(ctx: verbs.Context) -> None:
    served = Served(ctx)
    region = Regions(served.pd)
    for _ in range(2):
        served.srq.post_recv(verbs.RecvWR(0, region().sge()))
    served.receive()
    assert region.left() == [0, 1]
    served.receive()
    assert region.left() == []


def test_one_region_in_an_srq_again_and_again(ctx: verbs.Context) -> None:
    served = Served(ctx)
    region = Regions(served.pd)
    mr = region()
    for _ in range(50):
        served.srq.recv(mr)
        served.receive()
    del mr
    assert region.left() == []


def test_receives_of_an_xrc_domain(ctx: verbs.Context) -> None:
    pd, domain, done = ctx.alloc_pd(), ctx.open_xrcd(), ctx.create_cq(8)
    target = domain.create_qp()
    sender = pd.create_qp(send_cq=ctx.create_cq(8), qp_type=verbs.QPType.XRC_SEND)
    verbs.connect_pair(sender, target)
    srq = domain.create_srq(pd, done)
    region, source = Regions(pd), pd.alloc(64)
    srq.recv(region(), wr_id=1)
    srq.recv(region(), wr_id=2)
    sender.send(source, length=8, remote_srqn=srq.srq_num)
    done.wait_one(10)
    assert region.left() == [1]
    srq.close()
    assert region.left() == []


def test_an_address_handle_is_held(ctx: verbs.Context) -> None:
    pd = ctx.alloc_pd()
    near, far = (pd.create_qp(send_cq=ctx.create_cq(8), qp_type=verbs.QPType.UD) for _ in range(2))
    verbs.connect_pair(near, far)
    info, index = verbs.local_qp_info(far)
    ah, source = pd.create_ah(verbs.address_of(info, index)), pd.alloc(64)
    known = weakref.ref(ah)
    near.send(source, length=8, ah=ah, remote_qpn=far.qp_num, remote_qkey=0x11111111)
    del ah
    gc.collect()
    assert known() is not None
    near.send_cq.wait_one(10)
    gc.collect()
    assert known() is None


@pytest.mark.not_simulated("a world has one thread")
def test_threads_that_post_to_one_qp(near: Side, far: Side) -> None:
    """Large requests are posted without the GIL, and may overtake each other's books."""
    target = far.pd.alloc(1 << 18, ALL)
    failed: list[WCStatus] = []
    longest = [0.0]

    def post() -> None:
        for _ in range(100):
            mr = near.pd.alloc(1 << 16, ALL)
            near.qp.write(mr, target.addr, target.rkey)
            del mr
            begun = time.monotonic()
            failed.extend(wc.status for wc in near.cq.wait(1, 20) if not wc.is_success)
            longest[0] = max(longest[0], time.monotonic() - begun)

    threads = [threading.Thread(target=post) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert (
        longest[0] < 10
    )  # at the end of its time a wait looks once more, and finds what it missed
