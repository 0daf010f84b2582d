# SPDX-License-Identifier: Apache-2.0
"""FLUSH: earlier writes are visible to the peer's host when it completes."""

from __future__ import annotations

import errno

import pytest

from tests.verbs.conftest import MakePair, Pair
from tests.verbs.side import ALL
from verbena import verbs
from verbena.verbs import AccessFlags, PlacementType, SendFlags

TEXT = b"what is to be seen"


@pytest.mark.parametrize("length", [len(TEXT), 0, None])
def test_what_was_written_is_there(pair: Pair, length: int | None) -> None:
    pair.near.fill(TEXT)
    addr, rkey = pair.far.region()
    pair.near.qp.write(pair.near.mr, addr + 100, rkey, length=len(TEXT), flags=0)
    pair.near.qp.flush(addr + 100, rkey, length, wr_id=5)
    (one,) = pair.near.wait()
    assert (one.wr_id, one.status, one.opcode, one.byte_len) == (5, "SUCCESS", "FLUSH", 0)
    assert pair.far.bytes_at(100, len(TEXT)) == TEXT


def test_what_was_sent_is_in_its_buffer(pair: Pair) -> None:
    """A small message reaches its buffer when its receiver polls, or before a FLUSH ends."""
    pair.far.post_recv(200, 64)
    pair.near.fill(TEXT)
    pair.near.qp.send(pair.near.mr, 0, len(TEXT), flags=0)
    pair.near.qp.flush(*pair.far.region())
    assert pair.near.wait()[0].ok
    assert pair.far.bytes_at(200, len(TEXT)) == TEXT
    assert pair.far.wait()[0].byte_len == len(TEXT)


def test_of_the_whole_region_only_the_key_is_looked_at(pair: Pair) -> None:
    _, rkey = pair.far.region()
    pair.near.qp.flush(2**64 - 1, rkey)
    assert pair.near.wait()[0].ok
    pair.near.qp.flush(0, rkey ^ 0xFFFFFF00)
    assert pair.near.wait()[0].status == "REM_ACCESS_ERR"


@pytest.mark.parametrize("lacks", ["region", "queue pair"])
def test_it_must_be_granted(make_pair: MakePair, lacks: str) -> None:
    without = ALL & ~AccessFlags.FLUSH_GLOBAL
    if lacks == "region":
        pair = make_pair(access=without, options={"access": ALL})
    else:
        pair = make_pair(options={"access": without})
    pair.near.qp.flush(*pair.far.region(), 8)
    (one,) = pair.near.wait()
    assert one.status == ("REM_ACCESS_ERR" if lacks == "region" else "REM_INV_REQ_ERR")
    assert "FLUSH" in one.text
    assert pair.far.state() == "ERR"


def test_it_stays_inside_the_region(pair: Pair) -> None:
    addr, rkey = pair.far.region()
    pair.near.qp.flush(addr + 4000, rkey, 97)
    assert pair.near.wait()[0].status == "REM_ACCESS_ERR"


def test_no_region_promises_persistence(make_pair: MakePair) -> None:
    both = PlacementType.GLOBAL | PlacementType.PERSISTENT
    pair = make_pair(options={"access": ALL | AccessFlags.FLUSH_PERSISTENT})
    pair.near.qp.flush(*pair.far.region(), 8, placement=both)
    (one,) = pair.near.wait()
    assert one.status == "REM_ACCESS_ERR"
    with pytest.raises(verbs.VerbsError, match="FLUSH_PERSISTENT") as refused:
        pair.near.pd.alloc(64, AccessFlags.LOCAL_WRITE | AccessFlags.FLUSH_PERSISTENT)
    assert refused.value.errno == errno.EINVAL


@pytest.mark.parametrize("placement", [0, 4, 5])
def test_an_unknown_placement_is_refused(local_pair: Pair, placement: int) -> None:
    with pytest.raises(verbs.VerbsError, match="placement") as refused:
        local_pair.near.qp.flush(*local_pair.far.region(), 8, placement=placement)
    assert refused.value.errno == errno.EINVAL
    assert local_pair.near.qp.state == verbs.QPState.RTS


@pytest.mark.parametrize("qp_type", ["UC", "UD"])
def test_only_a_reliable_connection_flushes(make_pair: MakePair, qp_type: str) -> None:
    pair = make_pair(qp_type=qp_type)
    with pytest.raises(verbs.VerbsError, match="does not suit") as refused:
        pair.near.qp.flush(0, 0)
    assert refused.value.errno == errno.EINVAL


def test_a_send_request_cannot_be_one(local_pair: Pair) -> None:
    """``ibv_send_wr`` has no fields for it."""
    addr, rkey = local_pair.far.region()
    request = verbs.SendWR(opcode=verbs.WROpcode.FLUSH, remote_addr=addr, rkey=rkey)
    with pytest.raises(verbs.VerbsError, match="ibv_wr_flush"):
        local_pair.near.qp.post_send(request)


def test_a_fence_waits_for_it(pair: Pair) -> None:
    addr, rkey = pair.far.region()
    pair.near.qp.flush(addr, rkey)
    pair.near.fill(TEXT)
    pair.near.qp.write(
        pair.near.mr, addr, rkey, length=4, flags=SendFlags.FENCE | SendFlags.SIGNALED
    )
    assert [one.opcode for one in pair.near.wait(2)] == ["FLUSH", "RDMA_WRITE"]
