# SPDX-License-Identifier: Apache-2.0
"""Posting and polling many requests with one call."""

from __future__ import annotations

import errno
from typing import Any

import numpy as np
import pytest

from tests.verbs.conftest import MakePair, Pair
from verbena import verbs
from verbena.verbs import SendFlags, WROpcode


def records(pair: Pair, count: int, opcode: WROpcode) -> np.ndarray[Any, np.dtype[np.void]]:
    made = np.zeros(count, verbs.send_dtype)
    made["wr_id"] = np.arange(count)
    made["addr"] = pair.near.mr.addr + 8 * np.arange(count)
    made["length"] = 8
    made["lkey"] = pair.near.mr.lkey
    made["opcode"] = opcode
    made["flags"] = SendFlags.SIGNALED
    addr, rkey = pair.far.region()
    made["remote_addr"] = addr + 8 * np.arange(count)
    made["rkey"] = rkey
    return made


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
def test_a_batch_of_writes(make_pair: MakePair, count: int) -> None:
    pair = make_pair(max_send_wr=256)
    pair.near.mr.array("u8")[:count] = np.arange(count)
    assert pair.near.qp.post_many(records(pair, count, WROpcode.RDMA_WRITE)) == count
    out = np.zeros(count, verbs.wc_dtype)
    assert pair.near.cq.wait(count, 10, out=out) == count
    assert out["wr_id"].tolist() == list(range(count))
    assert np.frombuffer(pair.far.bytes_at(0, 8 * count), "u8").tolist() == list(range(count))


def test_a_batch_of_reads(pair: Pair) -> None:
    pair.far.fill(bytes(range(200)) * 2)
    pair.near.qp.post_many(records(pair, 50, WROpcode.RDMA_READ))
    assert all(one.ok for one in pair.near.wait(50))
    assert pair.near.bytes_at(0, 400) == bytes(range(200)) * 2


def test_a_batch_of_atomics(pair: Pair) -> None:
    batch = records(pair, 20, WROpcode.ATOMIC_FETCH_AND_ADD)
    batch["remote_addr"] = pair.far.region()[0]
    batch["compare_add"] = 3
    pair.near.qp.post_many(batch)
    assert all(one.ok for one in pair.near.wait(20))
    assert int.from_bytes(pair.far.bytes_at(0, 8), "little") == 60
    assert pair.near.mr.array("u8")[:20].tolist() == list(range(0, 60, 3))


def test_a_batch_of_compare_and_swaps(pair: Pair) -> None:
    batch = records(pair, 4, WROpcode.ATOMIC_CMP_AND_SWP)
    batch["remote_addr"] = pair.far.region()[0]
    batch["compare_add"] = np.arange(4)
    batch["swap"] = np.arange(1, 5)
    pair.near.qp.post_many(batch)
    assert all(one.ok for one in pair.near.wait(4))
    assert int.from_bytes(pair.far.bytes_at(0, 8), "little") == 4


def test_a_batch_of_sends_meets_a_batch_of_receives(local_pair: Pair) -> None:
    near, far = local_pair.near, local_pair.far
    receives = np.zeros(100, verbs.recv_dtype)
    receives["wr_id"] = np.arange(100)
    receives["addr"] = far.mr.addr + 8 * np.arange(100)
    receives["length"] = 8
    receives["lkey"] = far.mr.lkey
    assert far.qp.post_many(receives) == 100
    near.mr.array("u8")[:100] = np.arange(100)
    batch = records(local_pair, 100, WROpcode.SEND_WITH_IMM)
    batch["imm_data"] = np.arange(100) + 1000
    near.qp.post_many(batch)
    out = np.zeros(100, verbs.wc_dtype)
    assert far.cq.wait(100, 10, out=out) == 100
    assert out["imm_data"].tolist() == list(range(1000, 1100))
    assert far.mr.array("u8")[:100].tolist() == list(range(100))


def test_an_empty_batch_posts_nothing(local_pair: Pair) -> None:
    assert local_pair.near.qp.post_many(np.zeros(0, verbs.send_dtype)) == 0


@pytest.mark.parametrize("wrong", [np.zeros(3), [1, 2], np.zeros(1, verbs.wc_dtype)])
def test_other_arrays_are_refused(local_pair: Pair, wrong: Any) -> None:
    with pytest.raises(TypeError, match="takes a NumPy array"):
        local_pair.near.qp.post_many(wrong)


def test_a_strided_batch_is_refused(local_pair: Pair) -> None:
    with pytest.raises((BufferError, ValueError)):
        local_pair.near.qp.post_many(np.zeros(8, verbs.send_dtype)[::2])


def test_a_send_record_is_one_cache_line() -> None:
    assert verbs.send_dtype.itemsize == 64
    assert verbs.wc_dtype.itemsize == 48


def test_a_record_binds_no_window(local_pair: Pair) -> None:
    batch = records(local_pair, 3, WROpcode.RDMA_WRITE)
    batch["opcode"][1] = WROpcode.BIND_MW
    with pytest.raises(verbs.VerbsError) as caught:
        local_pair.near.qp.post_many(batch)
    assert (caught.value.errno, caught.value.posted) == (errno.EINVAL, 1)
