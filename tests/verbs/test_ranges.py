# SPDX-License-Identifier: Apache-2.0
"""A range that leaves its MR is refused at once, the argument is named, and nothing is posted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.verbs.conftest import Pair
from verbena import verbs

NBYTES = 4096  # of a Side's MR
Post = Callable[..., None]


def sends(pair: Pair) -> dict[str, Post]:
    """The calls that take memory of this side with an offset and a length."""
    near, place = pair.near, pair.far.region()
    return {
        "send": lambda *range_: near.qp.send(near.mr, *range_),
        "send_with_invalidate": lambda *range_: near.qp.send_with_invalidate(near.mr, 1, *range_),
        "write": lambda *range_: near.qp.write(near.mr, *place, *range_),
        "read": lambda *range_: near.qp.read(near.mr, *place, *range_),
        "recv": lambda *range_: near.qp.recv(near.mr, *range_),
        "sge": lambda offset, length=None: near.mr.sge(length, offset),
        "SGE": lambda offset, length=None: verbs.SGE(near.mr, length, offset=offset),
    }


POSTS = ("send", "send_with_invalidate", "write", "read", "recv", "sge", "SGE")


def expect_nothing_posted(pair: Pair) -> None:
    """Its first completion is that of a good request."""
    pair.near.qp.write(pair.near.mr, *pair.far.region(), NBYTES - 8, 8, wr_id=77)
    assert [(one.wr_id, one.ok) for one in pair.near.wait()] == [(77, True)]


@pytest.mark.parametrize("name", POSTS)
@pytest.mark.parametrize(
    ("offset", "length"), [(0, NBYTES + 1), (1, NBYTES), (NBYTES, 1), (8, 2**32 - 1), (1, 2**63)]
)
def test_a_length_that_leaves_the_region_is_refused(
    local_pair: Pair, name: str, offset: int, length: int
) -> None:
    said = (
        f"length {length} from offset {offset} on leaves the MR of {NBYTES} bytes: "
        f"at most {NBYTES - offset}$"
    )
    with pytest.raises(ValueError, match=said):
        sends(local_pair)[name](offset, length)
    expect_nothing_posted(local_pair)


@pytest.mark.parametrize("name", POSTS)
@pytest.mark.parametrize(
    ("range_", "said"),
    [((-8,), "offset is -8 "), ((-8, 8), "offset is -8 "), ((0, -8), "length is -8 ")],
)
def test_a_negative_number_is_a_value_error_as_every_range_outside(
    local_pair: Pair, name: str, range_: tuple[int, ...], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        sends(local_pair)[name](*range_)
    expect_nothing_posted(local_pair)


@pytest.mark.parametrize("name", POSTS)
@pytest.mark.parametrize("length", [(), (0,), (8,)])
def test_an_offset_beyond_the_region_is_refused(
    local_pair: Pair, name: str, length: tuple[int, ...]
) -> None:
    said = f"offset {NBYTES + 1} lies beyond the MR of {NBYTES} bytes$"
    with pytest.raises(ValueError, match=said):
        sends(local_pair)[name](NBYTES + 1, *length)
    expect_nothing_posted(local_pair)


@pytest.mark.parametrize("name", ["compare_swap", "fetch_add", "atomic_write"])
def test_eight_bytes_that_leave_the_region_are_refused(local_pair: Pair, name: str) -> None:
    near, place = local_pair.near, local_pair.far.region()
    numbers = {"compare_swap": (1, 2), "fetch_add": (1,), "atomic_write": ()}[name]
    with pytest.raises(ValueError, match=f"length 8 from offset {NBYTES - 4} on leaves the MR"):
        getattr(near.qp, name)(near.mr, *place, *numbers, NBYTES - 4)
    expect_nothing_posted(local_pair)


def test_a_receive_of_an_srq_is_refused_too(local_pair: Pair) -> None:
    near = local_pair.near
    srq = near.pd.create_srq(4)
    with pytest.raises(ValueError, match="length 9 from offset 0 on leaves the MR of 8 bytes"):
        srq.recv(near.pd.alloc(8), 0, 9)
    expect_nothing_posted(local_pair)


@pytest.mark.parametrize("name", ["send", "write", "read", "recv"])
def test_the_whole_region_and_its_end_are_within(local_pair: Pair, name: str) -> None:
    for range_ in ((0, NBYTES), (NBYTES, 0), (NBYTES,), (NBYTES - 1, 1)):
        sends(local_pair)[name](*range_)  # none is refused
