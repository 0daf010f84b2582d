# SPDX-License-Identifier: Apache-2.0
"""The pool of buffers for large messages: what it keeps is of use to what comes next."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from verbena import verbs
from verbena.peers.memory import BufferPool

MIB = 1 << 20


@pytest.fixture
def pool() -> Iterator[BufferPool]:
    with verbs.open_device() as context:
        made = BufferPool(context.alloc_pd())
        yield made
        made.close()


@pytest.mark.parametrize("length", [1, 5000, MIB, 5 * MIB, 40 * MIB])
def test_a_buffer_is_used_again(pool: BufferPool, length: int) -> None:
    first = pool.get(length)
    assert first.length >= length
    second = pool.get(length)
    pool.put(first)
    assert pool.get(length) is first
    assert second is not first


def test_a_size_that_is_not_used_any_more_makes_room(pool: BufferPool) -> None:
    """64 MiB are kept."""
    old = [pool.get(5 * MIB) for _ in range(10)]
    for buffer in old:
        pool.put(buffer)
    new = [pool.get(20 * MIB) for _ in range(3)]
    for buffer in new:
        pool.put(buffer)
    assert {id(pool.get(20 * MIB)) for _ in range(2)} <= {id(buffer) for buffer in new}
    assert sum(not buffer.closed for buffer in old) <= 4


def test_no_more_is_kept_than_64_mib(pool: BufferPool) -> None:
    buffers = [pool.get(30 * MIB) for _ in range(4)]
    for buffer in buffers:
        pool.put(buffer)
    assert sum(not buffer.closed for buffer in buffers) == 2
    too_long = pool.get(100 * MIB)
    pool.put(too_long)
    assert too_long.closed
    assert sum(not buffer.closed for buffer in buffers) == 2
