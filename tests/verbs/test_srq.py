# SPDX-License-Identifier: Apache-2.0
"""Shared receive queues."""

from __future__ import annotations

import errno

import numpy as np
import pytest

from tests.verbs.conftest import MakePair, Pair
from tests.verbs.side import ALL, Side
from verbena import verbs


@pytest.fixture
def srq_pair(make_pair: MakePair) -> Pair:
    return make_pair(srq=16)


def test_a_message_takes_a_shared_receive(srq_pair: Pair) -> None:
    srq_pair.far.post_recv(0, 64, wr_id=12)
    srq_pair.near.fill(b"shared")
    srq_pair.near.qp.send(srq_pair.near.mr, length=6)
    (received,) = srq_pair.far.wait()
    assert (received.wr_id, received.byte_len) == (12, 6)
    assert srq_pair.far.bytes_at(0, 6) == b"shared"


def test_two_qps_share_the_receives(local_pair: Pair) -> None:
    near, far = local_pair.near, local_pair.far
    srq = far.pd.create_srq(8)
    senders = []
    for _ in range(2):
        a = near.pd.create_qp(send_cq=near.cq)
        b = far.pd.create_qp(send_cq=far.cq, srq=srq)
        verbs.connect_pair(a, b)
        senders.append((a, b))
    for number in range(4):
        srq.recv(far.mr, number * 8, 8, wr_id=number)
    for number in range(4):
        senders[number % 2][0].send(near.mr, length=8)
        near.wait()
    got = far.wait(4)
    assert [one.wr_id for one in got] == [0, 1, 2, 3]
    assert [one.qp_num for one in got] == [senders[n % 2][1].qp_num for n in range(4)]


def test_the_limit_event_comes_once(srq_pair: Pair) -> None:
    near, far = srq_pair.near, srq_pair.far
    for _ in range(4):
        far.post_recv(0, 8)
    far.arm_limit(3)
    assert far.next_event(0) is None
    for _ in range(3):
        near.qp.send(near.mr, length=8)
    near.wait(3)
    assert far.next_event() == "SRQ_LIMIT_REACHED"
    assert far.limit() == 0
    assert far.next_event(0.05) is None


def test_the_event_names_its_srq(local_pair: Pair) -> None:
    near, far = local_pair.near, local_pair.far
    srq = far.pd.create_srq(8)
    a = near.pd.create_qp(send_cq=near.cq)
    b = far.pd.create_qp(send_cq=far.cq, srq=srq)
    verbs.connect_pair(a, b)
    srq.recv(far.mr, 0, 8)
    srq.recv(far.mr, 0, 8)
    srq.modify(srq_limit=2)
    a.send(near.mr, length=8)
    near.wait()
    event = far.ctx.get_async_event(10)
    assert event is not None
    assert event.event_type == verbs.EventType.SRQ_LIMIT_REACHED
    assert event.element is srq


def test_an_srq_says_its_size(pd: verbs.PD) -> None:
    attr = pd.create_srq(100, 2).query()
    assert attr.max_wr >= 100
    assert attr.max_sge >= 2


def test_a_full_srq_is_enomem(pd: verbs.PD) -> None:
    srq = pd.create_srq(4)
    requests = [verbs.RecvWR(n) for n in range(srq.query().max_wr + 1)]
    with pytest.raises(verbs.VerbsError, match="shared receive queue is full") as caught:
        srq.post_recv(requests)
    assert caught.value.errno == errno.ENOMEM
    assert caught.value.posted == len(requests) - 1


def test_too_many_sges_are_einval(pd: verbs.PD) -> None:
    srq = pd.create_srq(4, 1)
    mr = pd.alloc(64)
    with pytest.raises(verbs.VerbsError) as caught:
        srq.recv([mr.sge(1)] * (srq.query().max_sge + 1))
    assert caught.value.errno == errno.EINVAL


def test_a_qp_with_an_srq_takes_no_receives_of_its_own(pd: verbs.PD, cq: verbs.CQ) -> None:
    qp = pd.create_qp(send_cq=cq, srq=pd.create_srq(4))
    qp.to_init()
    with pytest.raises(verbs.VerbsError, match="uses an SRQ"):
        qp.recv(pd.alloc(8))


def test_a_batch_of_receives(local_pair: Pair) -> None:
    near, far = local_pair.near, local_pair.far
    srq = far.pd.create_srq(200)
    a = near.pd.create_qp(send_cq=near.cq)
    b = far.pd.create_qp(send_cq=far.cq, srq=srq)
    verbs.connect_pair(a, b)
    records = np.zeros(48, verbs.recv_dtype)
    records["wr_id"] = np.arange(48)
    records["addr"] = far.mr.addr
    records["length"] = 8
    records["lkey"] = far.mr.lkey
    assert srq.post_many(records) == 48
    for _ in range(48):
        a.send(near.mr, length=8)
        near.wait()
    assert [one.wr_id for one in far.wait(48)] == list(range(48))


def test_an_srq_takes_no_batch_of_sends(pd: verbs.PD) -> None:
    with pytest.raises(TypeError, match="recv_dtype"):
        pd.create_srq(4).post_many(np.zeros(1, verbs.send_dtype))


@pytest.mark.parametrize("length", [8, 500])
def test_the_keys_of_its_receives_are_those_of_its_domain(length: int) -> None:
    """And not of the QP's: Create Shared Receive Queue takes one."""
    near, far = Side(), Side()
    other = far.ctx.alloc_pd()
    far.srq = other.create_srq()
    far.qp = far.pd.create_qp(send_cq=far.cq, srq=far.srq)
    Pair(near, far).connect()
    target = other.alloc(4096, ALL)
    near.fill(b"x" * length)
    far.srq.recv(target, wr_id=1)
    near.qp.send(near.mr, length=length)
    assert near.wait()[0].ok
    assert [one.wr_id for one in far.wait()] == [1]
    assert bytes(memoryview(target)[:length]) == b"x" * length
    far.srq.recv(far.mr, wr_id=2)
    near.qp.send(near.mr, length=length)
    assert [one.status for one in near.wait()] == ["REM_OP_ERR"]
    assert [(one.wr_id, one.status) for one in far.wait()] == [(2, "LOC_PROT_ERR")]
    near.close()
    far.close()
