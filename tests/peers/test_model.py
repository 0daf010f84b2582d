# SPDX-License-Identifier: Apache-2.0
"""Random requests for a peer's array, live and on simulated hosts, against a plain NumPy array.

Hypothesis draws shapes, parts and requests; some parts are lent by a window for one request.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.peers.conftest import Together
from verbena.peers import PeerConnection, PeerMemoryRevoked, RemoteArray

SHAPE = (6, 4, 3)
WORDS = st.integers(-(1 << 63), (1 << 63) - 1)


@st.composite
def parts(draw: st.DrawFn) -> Any:
    """An index: integers for some axes, then a slice; or a slice of the first axis, or all."""
    depth = draw(st.integers(0, 2))
    index: list[Any] = [draw(st.integers(-length, length - 1)) for length in SHAPE[:depth]]
    if draw(st.booleans()):
        length = SHAPE[depth]
        index.append(slice(draw(st.integers(-length, length)), draw(st.integers(-length, length))))
    return tuple(index)


ITEM = st.tuples(*(st.integers(-length, length - 1) for length in SHAPE))
STEP = st.one_of(
    st.tuples(st.sampled_from(["get", "get into", "put", "window"]), parts(), WORDS),
    st.tuples(st.sampled_from(["add", "swap", "no swap"]), ITEM, WORDS),
)


def wrapped(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEP, max_size=25))
def test_random_requests(together: Together, steps: list[Any]) -> None:
    model = np.arange(np.prod(SHAPE), dtype="i8").reshape(SHAPE)

    async def own(conn: PeerConnection) -> Any:
        mine = conn.array(SHAPE, "i8")
        mine[...] = np.arange(mine.size).reshape(SHAPE)
        await conn.send(pickle.dumps(conn.share(mine)))
        async for message in conn:  # a part to lend until the next message
            async with conn.lend(mine[pickle.loads(message)], write=True) as window:
                await conn.send(pickle.dumps(window))
                await conn.recv()
            await conn.send(b"over")
        return mine.copy()

    async def lent(conn: PeerConnection, index: Any, values: Any) -> None:
        await conn.send(pickle.dumps(index))
        window = pickle.loads(await conn.recv())
        assert ((await window.get()) == model[index]).all()
        await window.put(values)
        await conn.send(b"done")
        await conn.recv()
        with pytest.raises(PeerMemoryRevoked):
            await window.get()

    async def use(conn: PeerConnection) -> None:
        remote: RemoteArray = pickle.loads(await conn.recv())
        for kind, index, number in steps:
            part = remote[index]
            assert part.shape == model[index].shape
            values = np.full(part.shape, number, "i8") + np.arange(part.size).reshape(part.shape)
            before = int(model[index]) if isinstance(model[index], np.int64) else 0
            if kind == "get":
                assert ((await part.get()) == model[index]).all()
            elif kind == "get into":
                assert ((await part.get(values)) == model[index]).all()
            elif kind == "put":
                await part.put(values)
                model[index] = values
            elif kind == "window":
                await lent(conn, index, values)
                model[index] = values
            elif kind == "add":
                assert await part.fetch_add(number) == before
                model[index] = wrapped(before + number)
            else:
                expected = before if kind == "swap" else wrapped(before + 1)
                assert await part.compare_swap(expected, number) == before
                model[index] = number if kind == "swap" else before
        assert (await remote.get() == model).all()
        assert conn.closed is None

    assert (together(own, use)[0] == model).all()
