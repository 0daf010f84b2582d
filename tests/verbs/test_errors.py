# SPDX-License-Identifier: Apache-2.0
"""Bad requests: the error that the specification or libibverbs names, and no byte moved."""

from __future__ import annotations

import errno
from collections.abc import Callable

import numpy as np
import pytest

from tests.verbs.conftest import MakePair, Pair
from tests.verbs.side import ALL
from verbena import verbs
from verbena.verbs import AccessFlags, SendFlags, WROpcode

SECRET = b"must not move"


def write(pair: Pair, addr: int, rkey: int, length: int = 8) -> None:
    pair.near.qp.write(pair.near.mr, addr, rkey, length=length)


def read(pair: Pair, addr: int, rkey: int, length: int = 8) -> None:
    pair.near.qp.read(pair.near.mr, addr, rkey, length=length)


def fetch_add(pair: Pair, addr: int, rkey: int, length: int = 8) -> None:
    pair.near.qp.fetch_add(pair.near.mr, addr, rkey, 1)


Operation = Callable[..., None]
EACH = pytest.mark.parametrize("operation", [write, read, fetch_add])
WITHOUT = {
    write: ALL & ~AccessFlags.REMOTE_WRITE,
    read: ALL & ~AccessFlags.REMOTE_READ,
    fetch_add: ALL & ~AccessFlags.REMOTE_ATOMIC,
}


def expect(pair: Pair, status: str, *words: str) -> None:
    """The near end's request fails with ``status`` and a text that has every word."""
    (one,) = pair.near.wait()
    assert one.status == status
    for word in words:
        assert word in one.text
    assert pair.near.state() == "ERR"


def untouched(pair: Pair, operation: Operation) -> bool:
    pair_bytes = pair.near if operation is read else pair.far
    return bytes(pair_bytes.bytes_at(0, len(SECRET))) == SECRET


@pytest.fixture
def filled(pair: Pair) -> Pair:
    """A pair whose ends hold bytes that no failing request may change."""
    pair.near.fill(SECRET)
    pair.far.fill(SECRET)
    return pair


@EACH
def test_a_wrong_rkey(filled: Pair, operation: Operation) -> None:
    addr, rkey = filled.far.region()
    operation(filled, addr, rkey ^ 0xFFFFFF00)
    expect(filled, "REM_ACCESS_ERR", "remote access error")
    assert untouched(filled, operation)


@EACH
@pytest.mark.parametrize("offset", [-8, 4096, 1 << 40])
def test_a_range_outside_the_region(filled: Pair, operation: Operation, offset: int) -> None:
    addr, rkey = filled.far.region()
    operation(filled, addr + offset, rkey)
    expect(filled, "REM_ACCESS_ERR", hex(rkey))
    assert untouched(filled, operation)


@pytest.mark.parametrize("operation", [write, read])
def test_a_range_that_leaves_the_region(filled: Pair, operation: Operation) -> None:
    addr, rkey = filled.far.region()
    operation(filled, addr + 4090, rkey, 8)
    expect(filled, "REM_ACCESS_ERR")
    assert untouched(filled, operation)


@EACH
def test_a_region_without_the_access(filled: Pair, operation: Operation) -> None:
    filled.far.replace_region(int(WITHOUT[operation]))
    filled.far.fill(SECRET)
    operation(filled, *filled.far.region())
    expect(filled, "REM_ACCESS_ERR")
    assert untouched(filled, operation)


@EACH
def test_a_region_of_another_pd(filled: Pair, operation: Operation) -> None:
    filled.far.replace_region(int(ALL), other_pd=True)
    filled.far.fill(SECRET)
    operation(filled, *filled.far.region())
    expect(filled, "REM_ACCESS_ERR")
    assert untouched(filled, operation)


@EACH
def test_a_region_that_is_closed(filled: Pair, operation: Operation) -> None:
    region = filled.far.region()
    filled.far.close_region()
    operation(filled, *region)
    expect(filled, "REM_ACCESS_ERR")


@EACH
def test_a_qp_without_the_access(make_pair: MakePair, operation: Operation) -> None:
    pair = make_pair(options={"access": int(WITHOUT[operation])})
    pair.near.fill(SECRET)
    pair.far.fill(SECRET)
    operation(pair, *pair.far.region())
    expect(pair, "REM_INV_REQ_ERR")
    assert untouched(pair, operation)


def test_the_text_says_what_was_asked_and_what_there_is(filled: Pair) -> None:
    filled.far.replace_region(int(AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_READ))
    addr, rkey = filled.far.region()
    write(filled, addr, rkey, 16)
    expect(filled, "REM_ACCESS_ERR", hex(rkey), hex(addr), "WRITE")


def test_an_atomic_that_is_not_aligned(filled: Pair) -> None:
    addr, rkey = filled.far.region()
    fetch_add(filled, addr + 4, rkey)
    expect(filled, "REM_INV_REQ_ERR")
    assert untouched(filled, fetch_add)


def test_an_atomic_whose_result_is_not_8_bytes(local_pair: Pair) -> None:
    near = local_pair.near
    near.qp.fetch_add([near.mr.sge(4)], *local_pair.far.region(), 1)
    assert near.wait()[0].status == "LOC_LEN_ERR"


@pytest.mark.parametrize("operation", ["send", "write", "read"])
@pytest.mark.parametrize("fault", ["lkey", "range", "closed"])
def test_wrong_local_memory(pair: Pair, operation: str, fault: str) -> None:
    near = pair.near
    spare = near.pd.alloc(64)
    sge = {
        "lkey": verbs.SGE(near.mr.addr, 8, near.mr.lkey ^ 0xFFFFFF00),
        "range": verbs.SGE(spare.addr + 60, 8, spare.lkey),
        "closed": verbs.SGE(spare, 8),
    }[fault]
    if fault == "closed":
        spare.close()
    pair.far.post_recv()
    if operation == "send":
        near.qp.send([sge])
    else:
        getattr(near.qp, operation)([sge], *pair.far.region())
    expect(pair, "LOC_PROT_ERR", "local protection error")


def test_local_memory_of_another_pd(pair: Pair) -> None:
    other = pair.near.ctx.alloc_pd().alloc(64, ALL)
    pair.near.qp.write(other, *pair.far.region(), length=8)
    expect(pair, "LOC_PROT_ERR")


def test_a_read_into_memory_without_local_write(pair: Pair) -> None:
    target = pair.near.pd.reg_mr(bytes(64), 0)
    pair.near.qp.read(target, *pair.far.region(), length=8)
    expect(pair, "LOC_PROT_ERR")


def test_a_message_longer_than_the_receive(filled: Pair) -> None:
    filled.far.post_recv(0, 4, wr_id=8)
    filled.near.qp.send(filled.near.mr, 100, 8)
    expect(filled, "REM_INV_REQ_ERR")
    (received,) = filled.far.wait()
    assert (received.wr_id, received.status) == (8, "LOC_LEN_ERR")


def test_a_receive_into_wrong_memory(local_pair: Pair) -> None:
    near, far = local_pair.near, local_pair.far
    far.qp.recv([verbs.SGE(far.mr.addr, 64, far.mr.lkey ^ 0xFFFFFF00)], wr_id=8)
    near.qp.send(near.mr, 0, 8)
    expect(local_pair, "REM_OP_ERR")
    assert far.wait()[0].status == "LOC_PROT_ERR"


def test_what_follows_an_error_is_flushed(pair: Pair) -> None:
    near = pair.near
    near.post_recv(wr_id=50)
    write(pair, pair.far.region()[0], 0xBAD)
    near.qp.write(near.mr, *pair.far.region(), length=8, wr_id=51)
    got = {one.wr_id: one.status for one in near.wait(3)}
    assert got[0] == "REM_ACCESS_ERR"
    assert got[50] == got[51] == "WR_FLUSH_ERR"


def test_an_unsignalled_request_that_fails_completes(pair: Pair) -> None:
    pair.near.qp.write(pair.near.mr, 0, 0xBAD, length=8, flags=0, wr_id=4)
    (one,) = pair.near.wait()
    assert (one.wr_id, one.status) == (4, "REM_ACCESS_ERR")


def test_the_target_is_told_of_an_access_error(filled: Pair) -> None:
    write(filled, filled.far.region()[0], 0xBAD)
    filled.near.wait()
    assert filled.far.next_event() == "QP_ACCESS_ERR"
    assert filled.far.state() == "ERR"


def test_receiver_not_ready_ends_with_the_retries(make_pair: MakePair) -> None:
    pair = make_pair(options={"rnr_retry": 1, "min_rnr_timer": 1})
    pair.near.qp.send(pair.near.mr, length=8)
    expect(pair, "RNR_RETRY_EXC_ERR", "receive")


def test_a_peer_that_is_gone_is_retry_exceeded(make_pair: MakePair) -> None:
    pair = make_pair(options={"timeout": 8, "retry_cnt": 1})
    region = pair.far.region()
    pair.far.close_qp()
    write(pair, *region)
    expect(pair, "RETRY_EXC_ERR")


def test_a_completion_error_carries_its_completion(local_pair: Pair) -> None:
    local_pair.near.qp.write(local_pair.near.mr, 0, 0xBAD, length=8, wr_id=6)
    (wc,) = local_pair.near.cq.wait(1, 10)
    with pytest.raises(verbs.CompletionError) as caught:
        wc.raise_for_status()
    error = caught.value
    assert isinstance(error, verbs.VerbsError)
    assert error.wc is wc
    assert error.status == verbs.WCStatus.REM_ACCESS_ERR
    assert error.errno == errno.EACCES
    assert "wr_id 0x6" in str(error)


def test_a_success_raises_nothing(local_pair: Pair) -> None:
    write(local_pair, *local_pair.far.region())
    (wc,) = local_pair.near.cq.wait(1, 10)
    wc.raise_for_status()


# ---- calls that fail at once ----


def refused(call: Callable[[], object], number: int, words: str) -> verbs.VerbsError:
    with pytest.raises(verbs.VerbsError, match=words) as caught:
        call()
    assert caught.value.errno == number
    return caught.value


@pytest.mark.parametrize("state", ["RESET", "INIT", "RTR"])
def test_a_send_before_rts_is_refused(pd: verbs.PD, cq: verbs.CQ, state: str) -> None:
    qp = pd.create_qp(send_cq=cq, qp_type=verbs.QPType.UD)
    if state != "RESET":
        qp.to_init()
    if state == "RTR":
        qp.to_rtr()
    refused(lambda: qp.post_send(verbs.SendWR()), errno.EINVAL, "not in RTS")


def test_a_receive_in_reset_is_refused(pd: verbs.PD, cq: verbs.CQ) -> None:
    qp = pd.create_qp(send_cq=cq)
    refused(lambda: qp.post_recv(verbs.RecvWR()), errno.EINVAL, "RESET")


def test_a_receive_in_init_is_taken(pd: verbs.PD, cq: verbs.CQ) -> None:
    qp = pd.create_qp(send_cq=cq)
    qp.to_init()
    qp.post_recv(verbs.RecvWR())


def test_a_full_send_queue_says_so(make_pair: MakePair) -> None:
    pair = make_pair(max_send_wr=4)
    near = pair.near
    room = near.qp.cap.max_send_wr
    request = verbs.SendWR(0, near.mr.sge(8))
    error = refused(
        lambda: near.qp.post_send([request] * (room + 1)), errno.ENOMEM, "queue is full"
    )
    assert error.posted == room
    for _ in range(room):
        pair.far.post_recv()
    assert all(one.ok for one in near.wait(room))


def test_a_full_receive_queue_says_so(pd: verbs.PD, cq: verbs.CQ) -> None:
    qp = pd.create_qp(send_cq=cq, max_recv_wr=4)
    qp.to_init()
    room = qp.cap.max_recv_wr
    error = refused(
        lambda: qp.post_recv([verbs.RecvWR()] * (room + 1)), errno.ENOMEM, "receive queue is full"
    )
    assert error.posted == room


def test_too_many_sges_are_refused(local_pair: Pair) -> None:
    near = local_pair.near
    many = [near.mr.sge(1)] * (near.qp.cap.max_send_sge + 1)
    refused(lambda: near.qp.send(many), errno.EINVAL, "too many SGEs")


@pytest.mark.parametrize(
    ("kind", "opcode"),
    [
        ("UC", WROpcode.RDMA_READ),
        ("UC", WROpcode.ATOMIC_FETCH_AND_ADD),
        ("UD", WROpcode.RDMA_WRITE),
        ("UD", WROpcode.RDMA_READ),
    ],
)
def test_an_opcode_that_the_type_lacks_is_refused(
    ctx: verbs.Context, pd: verbs.PD, kind: str, opcode: WROpcode
) -> None:
    cq = ctx.create_cq(8)
    a, b = (pd.create_qp(send_cq=cq, qp_type=verbs.QPType[kind]) for _ in range(2))
    verbs.connect_pair(a, b)
    refused(lambda: a.post_send(verbs.SendWR(opcode=opcode)), errno.EINVAL, "suit its type")


def test_an_unknown_opcode_is_refused(local_pair: Pair) -> None:
    request = verbs.SendWR(0, local_pair.near.mr.sge(8), 77)
    refused(lambda: local_pair.near.qp.post_send(request), errno.EINVAL, "opcode")


def test_a_failed_list_names_where_it_stopped(local_pair: Pair) -> None:
    near, far = local_pair.near, local_pair.far
    addr, rkey = far.region()
    good = verbs.SendWR(1, near.mr.sge(8), WROpcode.RDMA_WRITE, remote_addr=addr, rkey=rkey)
    bad = verbs.SendWR(2, near.mr.sge(8), 77)
    error = refused(lambda: near.qp.post_send([good, good, bad, good]), errno.EINVAL, "opcode")
    assert error.posted == 2
    assert [one.wr_id for one in near.wait(3, 0.1)] == [1, 1]


def test_a_failed_batch_names_where_it_stopped(local_pair: Pair) -> None:
    near, far = local_pair.near, local_pair.far
    records = np.zeros(100, verbs.send_dtype)
    records["flags"] = SendFlags.SIGNALED
    records["remote_addr"], records["rkey"] = far.region()
    records["opcode"][70] = 77
    error = refused(lambda: near.qp.post_many(records), errno.EINVAL, "opcode")
    assert error.posted == 70
    assert len(near.wait(70)) == 70


@pytest.mark.parametrize(
    "caps",
    [
        {"max_send_wr": 1 << 30},
        {"max_recv_wr": 1 << 30},
        {"max_send_sge": 1 << 20},
        {"max_recv_sge": 1 << 20},
        {"max_inline_data": 1 << 30},
    ],
)
def test_a_qp_beyond_the_limits_is_refused(
    pd: verbs.PD, cq: verbs.CQ, caps: dict[str, int]
) -> None:
    refused(lambda: pd.create_qp(send_cq=cq, **caps), errno.EINVAL, "query_device")  # type: ignore[arg-type]


def test_a_srq_beyond_the_limits_is_refused(pd: verbs.PD) -> None:
    refused(lambda: pd.create_srq(1 << 30), errno.EINVAL, "query_device")


def test_a_full_send_queue_names_the_overrun_of_its_cq(ctx: verbs.Context, pd: verbs.PD) -> None:
    """Polling, which is the advice otherwise, would not help."""
    mr = pd.alloc(64, verbs.AccessFlags.LOCAL_WRITE | verbs.AccessFlags.REMOTE_WRITE)
    short, long = ctx.create_cq(1), ctx.create_cq(64)
    near, far = (pd.create_qp(send_cq=cq, max_send_wr=8) for cq in (short, long))
    verbs.connect_pair(near, far)
    for _ in range(8):
        near.write(mr, mr.addr, mr.rkey, length=8)
    long.wait(1, 0.05)  # where requests take time
    with pytest.raises(verbs.VerbsError, match="its CQ overran") as caught:
        near.write(mr, mr.addr, mr.rkey, length=8)
    assert caught.value.errno == errno.ENOMEM
    assert near.state == verbs.QPState.RTS  # as docs/errors.md says
