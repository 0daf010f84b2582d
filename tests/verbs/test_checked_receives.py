# SPDX-License-Identifier: Apache-2.0
"""What was found of a receive's key when it was posted holds until a region changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.verbs.conftest import Pair
from tests.verbs.side import Side, allocate
from verbena import verbs
from verbena.verbs import AccessFlags


def close_region(far: Side, mr: verbs.MR) -> None:
    mr.close()


def make_read_only(far: Side, mr: verbs.MR) -> None:
    mr.reregister(access=0)


def move_to_another_domain(far: Side, mr: verbs.MR) -> None:
    mr.reregister(pd=far.ctx.alloc_pd())


def post(far: Side, mr: verbs.MR, wr_id: int, offset: int = 0) -> None:
    far.qp.recv([verbs.SGE(mr.addr + offset, 16, mr.lkey)], wr_id=wr_id)


@pytest.mark.parametrize("change", [close_region, make_read_only, move_to_another_domain])
def test_a_region_that_changes_after_the_post_is_refused(
    local_pair: Pair, kind: str, change: Callable[[Side, verbs.MR], None]
) -> None:
    near, far = local_pair.near, local_pair.far
    assert isinstance(far, Side)
    mr = allocate(far.pd, kind, 64, AccessFlags.LOCAL_WRITE)
    post(far, mr, 1)
    change(far, mr)
    near.qp.send(near.mr, 0, 8)
    assert near.wait()[0].status == "REM_OP_ERR"
    (received,) = far.wait()
    assert (received.wr_id, received.status) == (1, "LOC_PROT_ERR")


def test_a_change_of_another_region_refuses_nothing(local_pair: Pair, kind: str) -> None:
    near, far = local_pair.near, local_pair.far
    assert isinstance(far, Side)
    near.fill(b"firstsecond third")
    other = allocate(far.pd, kind, 64, AccessFlags.LOCAL_WRITE)
    post(far, far.mr, 1)
    post(far, far.mr, 2, 100)
    near.qp.send(near.mr, 0, 5)
    other.close()
    near.qp.send(near.mr, 5, 6)
    post(far, far.mr, 3, 200)
    near.qp.send(near.mr, 12, 5)
    assert [(one.wr_id, one.status) for one in far.wait(3)] == [
        (1, "SUCCESS"),
        (2, "SUCCESS"),
        (3, "SUCCESS"),
    ]
    assert [far.bytes_at(at, n) for at, n in ((0, 5), (100, 6), (200, 5))] == [
        b"first",
        b"second",
        b"third",
    ]


def test_what_arrived_before_a_region_goes_is_in_it(local_pair: Pair, kind: str) -> None:
    near, far = local_pair.near, local_pair.far
    assert isinstance(far, Side)
    near.fill(b"arrived!")
    buffer = bytearray(64)
    mr = far.pd.reg_mr(buffer, AccessFlags.LOCAL_WRITE)
    post(far, mr, 1)
    near.qp.send(near.mr, 0, 8)
    near.wait()
    mr.close()
    assert bytes(buffer[:8]) == b"arrived!"
    assert far.wait()[0].status == "SUCCESS"


def test_buffers_of_several_regions_each_get_theirs(local_pair: Pair, kind: str) -> None:
    near, far = local_pair.near, local_pair.far
    assert isinstance(far, Side)
    regions = [allocate(far.pd, kind, 64, AccessFlags.LOCAL_WRITE) for _ in range(3)]
    near.fill(bytes(range(24)))
    for n, mr in enumerate(regions * 2):
        post(far, mr, n, 8 * (n // 3))
    for n in range(6):
        near.qp.send(near.mr, n, 8)
    assert [one.wr_id for one in far.wait(6)] == list(range(6))
    for n, mr in enumerate(regions):
        assert bytes(memoryview(mr)[:16]) == bytes([*range(n, n + 8), *range(n + 3, n + 11)])
