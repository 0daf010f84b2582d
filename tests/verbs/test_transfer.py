# SPDX-License-Identifier: Apache-2.0
"""Every operation between two QPs: over each kind of memory, in one process and in two."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.verbs.conftest import Carrier, MakePair, Pair
from tests.verbs.side import Side
from verbena import verbs
from verbena.verbs import SendFlags, WROpcode

SIZES = [0, 1, 8, 63, 64, 4095, 4096, 65536, 3_000_000]
TEXT = b"The quick brown fox jumps over the lazy dog"


def pattern(n: int) -> bytes:
    return bytes((i * 7 + i // 256) % 256 for i in range(min(n, 65536))) * (n // 65536 + 1)


@pytest.mark.parametrize("size", SIZES)
def test_write(make_pair: MakePair, size: int) -> None:
    pair = make_pair(nbytes=max(size, 8))
    data = pattern(size)[:size]
    pair.near.fill(data)
    pair.near.qp.write(pair.near.mr, *pair.far.region(), length=size, wr_id=5)
    (one,) = pair.near.wait()
    assert (one.status, one.opcode, one.wr_id) == ("SUCCESS", "RDMA_WRITE", 5)
    assert pair.far.bytes_at(0, size) == data


@pytest.mark.parametrize("size", SIZES)
def test_read(make_pair: MakePair, size: int) -> None:
    pair = make_pair(nbytes=max(size, 8))
    data = pattern(size)[:size]
    pair.far.fill(data)
    pair.near.qp.read(pair.near.mr, *pair.far.region(), length=size)
    (one,) = pair.near.wait()
    assert (one.status, one.opcode) == ("SUCCESS", "RDMA_READ")
    assert pair.near.bytes_at(0, size) == data


@pytest.mark.parametrize("size", SIZES)
def test_send(make_pair: MakePair, size: int) -> None:
    pair = make_pair(nbytes=max(size, 8))
    data = pattern(size)[:size]
    pair.near.fill(data)
    pair.far.post_recv(wr_id=9)
    pair.near.qp.send(pair.near.mr, length=size)
    (sent,) = pair.near.wait()
    (received,) = pair.far.wait()
    assert (sent.status, sent.opcode) == ("SUCCESS", "SEND")
    assert (received.status, received.opcode, received.wr_id) == ("SUCCESS", "RECV", 9)
    assert received.byte_len == size
    assert pair.far.bytes_at(0, size) == data


def test_send_with_immediate(pair: Pair) -> None:
    pair.far.post_recv()
    pair.near.qp.send(pair.near.mr, length=4, imm_data=0x01020304)
    (received,) = pair.far.wait()
    assert received.imm_data == 0x01020304
    assert received.opcode == "RECV"


def test_write_with_immediate_takes_a_receive(pair: Pair) -> None:
    pair.near.fill(TEXT)
    pair.far.post_recv(wr_id=3)
    pair.near.qp.write(pair.near.mr, *pair.far.region(), length=len(TEXT), imm_data=0xFFFFFFFF)
    (received,) = pair.far.wait()
    assert (received.opcode, received.wr_id) == ("RECV_RDMA_WITH_IMM", 3)
    assert (received.imm_data, received.byte_len) == (0xFFFFFFFF, len(TEXT))
    assert pair.far.bytes_at(0, len(TEXT)) == TEXT


def test_write_tells_the_target_nothing(pair: Pair) -> None:
    pair.far.post_recv()
    pair.near.qp.write(pair.near.mr, *pair.far.region(), length=8)
    pair.near.wait()
    assert pair.far.wait(1, timeout=0.05) == []


def test_compare_and_swap_that_matches(pair: Pair) -> None:
    pair.far.fill((40).to_bytes(8, "little"), 16)
    addr, rkey = pair.far.region()
    pair.near.qp.compare_swap(pair.near.mr, addr + 16, rkey, 40, 99, offset=8)
    (one,) = pair.near.wait()
    assert (one.status, one.opcode) == ("SUCCESS", "COMP_SWAP")
    assert pair.near.mr.load_u64(8) == 40
    assert int.from_bytes(pair.far.bytes_at(16, 8), "little") == 99


def test_compare_and_swap_that_differs(pair: Pair) -> None:
    pair.far.fill((41).to_bytes(8, "little"))
    pair.near.qp.compare_swap(pair.near.mr, *pair.far.region(), 40, 99, offset=8)
    pair.near.wait()
    assert pair.near.mr.load_u64(8) == 41
    assert int.from_bytes(pair.far.bytes_at(0, 8), "little") == 41


def test_atomic_write(pair: Pair) -> None:
    pair.near.fill(b"eight by", 8)
    addr, rkey = pair.far.region()
    pair.near.qp.atomic_write(pair.near.mr, addr + 16, rkey, offset=8)
    (one,) = pair.near.wait()
    assert (one.status, one.opcode) == ("SUCCESS", "ATOMIC_WRITE")
    assert pair.far.bytes_at(16, 8) == b"eight by"
    pair.near.qp.atomic_write(
        b"by value", addr + 24, rkey, flags=SendFlags.INLINE | SendFlags.SIGNALED
    )
    pair.near.wait()
    assert pair.far.bytes_at(16, 16) == b"eight byby value"


def test_fetch_and_add_wraps_around(pair: Pair) -> None:
    pair.far.fill((2**64 - 1).to_bytes(8, "little"))
    pair.near.qp.fetch_add(pair.near.mr, *pair.far.region(), 3)
    (one,) = pair.near.wait()
    assert (one.status, one.opcode) == ("SUCCESS", "FETCH_ADD")
    assert pair.near.mr.load_u64(0) == 2**64 - 1
    assert int.from_bytes(pair.far.bytes_at(0, 8), "little") == 2


def test_write_gathers(make_pair: MakePair) -> None:
    pair = make_pair(max_send_sge=8)
    mr = pair.near.mr
    pair.near.fill(bytes(range(100)))
    pieces = [mr.sge(1, 0), mr.sge(7, 10), mr.sge(0, 50), mr.sge(3, 20), mr.sge(2, 40)]
    pair.near.qp.write(pieces, *pair.far.region())
    assert pair.near.wait()[0].ok
    assert pair.far.bytes_at(0, 14) == bytes([0, *range(10, 17), 20, 21, 22, 40, 41, 0])


def test_read_scatters(make_pair: MakePair) -> None:
    pair = make_pair(max_send_sge=4)
    mr = pair.near.mr
    pair.far.fill(bytes(range(1, 11)))
    pair.near.qp.read([mr.sge(3, 100), mr.sge(7, 0)], *pair.far.region())
    assert pair.near.wait()[0].ok
    assert pair.near.bytes_at(100, 3) == bytes([1, 2, 3])
    assert pair.near.bytes_at(0, 7) == bytes(range(4, 11))


def test_send_gathers_and_the_receive_scatters(local_pair: Pair) -> None:
    near, far = local_pair.near, local_pair.far
    qp_a = near.pd.create_qp(send_cq=near.cq, max_send_sge=2)
    qp_b = far.pd.create_qp(send_cq=far.cq, max_recv_sge=3)
    verbs.connect_pair(qp_a, qp_b)
    near.fill(b"abcdefgh")
    qp_b.recv([far.mr.sge(1, 0), far.mr.sge(4, 10), far.mr.sge(9, 20)])
    qp_a.send([near.mr.sge(2, 6), near.mr.sge(6, 0)])
    assert far.wait()[0].byte_len == 8
    assert far.bytes_at(0, 1) + far.bytes_at(10, 4) + far.bytes_at(20, 3) == b"ghabcdef"


@pytest.mark.parametrize("operation", ["send", "write"])
def test_inline_data_needs_no_region(make_pair: MakePair, operation: str) -> None:
    pair = make_pair(max_inline_data=64)
    pair.far.post_recv()
    data = bytearray(TEXT)
    flags = SendFlags.INLINE | SendFlags.SIGNALED
    if operation == "send":
        pair.near.qp.send(data, flags=flags)
        pair.far.wait()
    else:
        pair.near.qp.write(data, *pair.far.region(), flags=flags)
    data[:] = bytes(len(data))
    assert pair.near.wait()[0].ok
    assert pair.far.bytes_at(0, len(TEXT)) == TEXT


def test_inline_data_beyond_the_limit_is_refused(make_pair: MakePair) -> None:
    near = make_pair(max_inline_data=32).near
    with pytest.raises(verbs.VerbsError, match="inline data is too long"):
        near.qp.send(
            bytes(near.qp.cap.max_inline_data + 1), flags=SendFlags.INLINE | SendFlags.SIGNALED
        )


def test_unsignalled_requests_do_not_complete(pair: Pair) -> None:
    near = pair.near
    for offset in range(3):
        near.qp.write(near.mr, *pair.far.region(), offset, 1, flags=0, wr_id=offset)
    near.qp.write(near.mr, *pair.far.region(), 3, 1, wr_id=3)
    assert [one.wr_id for one in near.wait(2, timeout=0.1)] == [3]


def test_a_queue_full_of_unsignalled_requests_says_that_it_stays_so(carrier: Carrier) -> None:
    near = Side(max_send_wr=8)
    with carrier.far():
        far = Side()
    Pair(near, far).connect()
    with near.ctx, far.ctx:
        for _ in range(near.qp.cap.max_send_wr):
            near.qp.write(near.mr, *far.region(), 0, 8, flags=0)
        assert near.wait(1, timeout=0.3) == []
        with pytest.raises(verbs.VerbsError, match=r"full and stays so.*reset the QP, and signal"):
            near.qp.write(near.mr, *far.region(), 0, 8)


def test_sq_sig_all_completes_unsignalled_requests(make_pair: MakePair) -> None:
    pair = make_pair(sq_sig_all=True)
    pair.near.qp.write(pair.near.mr, *pair.far.region(), flags=0, wr_id=6)
    assert [one.wr_id for one in pair.near.wait()] == [6]


def test_a_fenced_send_carries_what_a_read_before_it_fetched(pair: Pair) -> None:
    pair.far.fill(TEXT, 1000)
    pair.far.post_recv(2000, 100)
    addr, rkey = pair.far.region()
    near = pair.near
    near.qp.read(near.mr, addr + 1000, rkey, 0, len(TEXT))
    near.qp.send(near.mr, 0, len(TEXT), flags=SendFlags.FENCE | SendFlags.SIGNALED)
    assert all(one.ok for one in near.wait(2))
    pair.far.wait()
    assert pair.far.bytes_at(2000, len(TEXT)) == TEXT


def test_completions_come_in_the_order_of_posting(pair: Pair) -> None:
    near = pair.near
    for number in range(60):
        near.qp.write(near.mr, *pair.far.region(), length=8 * (number % 3), wr_id=number)
    assert [one.wr_id for one in near.wait(60)] == list(range(60))


def test_receives_are_taken_in_the_order_of_posting(pair: Pair) -> None:
    for number in range(20):
        pair.far.post_recv(number * 8, 8, wr_id=number)
    for number in range(20):
        pair.near.fill(bytes([number] * 8))
        pair.near.qp.send(pair.near.mr, length=8)
        pair.near.wait()
    assert [one.wr_id for one in pair.far.wait(20)] == list(range(20))
    assert [pair.far.bytes_at(n * 8, 1)[0] for n in range(20)] == list(range(20))


def test_a_receiver_that_is_late_gets_the_message(pair: Pair) -> None:
    pair.near.fill(TEXT)
    pair.near.qp.send(pair.near.mr, length=len(TEXT))
    assert pair.near.wait(1, timeout=0.05) == []
    pair.far.post_recv()
    assert pair.near.wait()[0].ok
    assert pair.far.wait()[0].byte_len == len(TEXT)


def test_a_request_object_is_posted_often(pair: Pair) -> None:
    near = pair.near
    addr, rkey = pair.far.region()
    request = verbs.SendWR(1, near.mr.sge(8), WROpcode.RDMA_WRITE, remote_addr=addr, rkey=rkey)
    for number in range(10):
        near.mr.store_u64(0, number)
        request.wr_id = number
        request.remote_addr = addr + 8 * number
        near.qp.post_send(request)
        assert near.wait()[0].wr_id == number
    assert list(pair.far.bytes_at(0, 80)[::8]) == list(range(10))


def test_a_list_of_requests_is_one_posting(pair: Pair) -> None:
    near = pair.near
    addr, rkey = pair.far.region()
    request = verbs.SendWR(
        4, near.mr.sge(8), WROpcode.ATOMIC_FETCH_AND_ADD, remote_addr=addr, rkey=rkey, compare_add=1
    )
    near.qp.post_send([request] * 5)
    assert [one.wr_id for one in near.wait(5)] == [4] * 5
    assert int.from_bytes(pair.far.bytes_at(0, 8), "little") == 5


@pytest.mark.direct_only("by packets the last WRITE is under way when it completes")
def test_uc_sends_and_writes(make_pair: MakePair) -> None:
    pair = make_pair(qp_type="UC")
    pair.near.fill(TEXT)
    pair.far.post_recv(100, 100)
    pair.near.qp.send(pair.near.mr, length=len(TEXT))
    pair.near.qp.write(pair.near.mr, *pair.far.region(), length=len(TEXT))
    assert all(one.ok for one in pair.near.wait(2))
    assert pair.far.wait()[0].byte_len == len(TEXT)
    assert pair.far.bytes_at(100, len(TEXT)) == pair.far.bytes_at(0, len(TEXT)) == TEXT


def test_both_ends_post_at_the_same_time(local_pair: Pair) -> None:
    near, far = local_pair.near, local_pair.far
    for number in range(30):
        near.qp.write(near.mr, *far.region(), 0, 8, wr_id=number)
        far.qp.write(far.mr, *near.region(), 0, 8, wr_id=number)
    assert [one.wr_id for one in near.wait(30)] == list(range(30))
    assert [one.wr_id for one in far.wait(30)] == list(range(30))


LARGEST = 2**31 - 1
PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.not_simulated("4 GiB would be a million packets")
@pytest.mark.skipif(
    PHYSICAL < 8 << 30, reason="two regions of 2 GiB do not fit; a machine with 8 GiB has room"
)
def test_the_largest_message_and_one_byte_more(ctx: verbs.Context, pd: verbs.PD) -> None:
    cq = ctx.create_cq(16)
    a, b = pd.create_qp(send_cq=cq), pd.create_qp(send_cq=cq)
    verbs.connect_pair(a, b)
    access = verbs.AccessFlags.LOCAL_WRITE | verbs.AccessFlags.REMOTE_WRITE
    source, target = pd.alloc(LARGEST + 1, access), pd.alloc(LARGEST + 1, access)
    view = source.array("u1")
    view[0], view[LARGEST // 2], view[LARGEST - 1] = 1, 2, 3
    a.write(source, target.addr, target.rkey, 0, LARGEST)
    assert cq.wait()[0].status == verbs.WCStatus.SUCCESS
    written = target.array("u1")
    assert (written[0], written[LARGEST // 2], written[LARGEST - 1]) == (1, 2, 3)
    a.write(source, target.addr, target.rkey, 0, LARGEST + 1)
    assert cq.wait()[0].status == verbs.WCStatus.LOC_LEN_ERR


@pytest.mark.parametrize("make", [verbs.SendWR, verbs.RecvWR])
@pytest.mark.parametrize("wrong", [None, 7])
def test_what_is_no_sge_is_refused(local_pair: Pair, make: Any, wrong: Any) -> None:
    pieces = [local_pair.near.mr.sge(8) for _ in range(6)]
    with pytest.raises(TypeError, match="SGE"):
        make(1, [*pieces, wrong])
    request = make(1, pieces)
    with pytest.raises(TypeError, match="SGE"):
        request.sg_list = [wrong]
    assert request.sg_list == pieces
