# SPDX-License-Identifier: Apache-2.0
"""Messages, arrays, atomics and windows while packets are lost, duplicated and late."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import numpy as np
import pytest

from tests.carriers import OVER_ROCE
from tests.peers.conftest import live, on_hosts
from verbena import fault
from verbena.peers import PeerConnection, PeerMemoryRevoked, RemoteArray

RULES = "drop 4% dir=both; duplicate 3%; delay 1ms-3ms 2%; seed 9"
SIZES = [0, 1, 4000, 5000, 70_000, 300_000] * 3
N = 20_000


async def own(conn: PeerConnection) -> Any:
    fault.set_rules(conn._session.pd.context, RULES)
    mine = conn.array(N, "i8")
    mine[...] = range(N)
    await conn.send(pickle.dumps(conn.share(mine)))
    for at, size in enumerate(SIZES):
        message = await conn.recv()
        assert message == bytes([at]) * size
        await conn.send(message)
    async with conn.lend(mine[:10], write=True) as window:
        await conn.send(pickle.dumps(window))
        assert await conn.recv() == b"used"
    await conn.send(b"over")
    await conn.wait_closed()
    return mine.copy()


async def use(conn: PeerConnection) -> int:
    context = conn._session.pd.context
    fault.set_rules(context, RULES)
    remote: RemoteArray = pickle.loads(await conn.recv())
    for at, size in enumerate(SIZES):
        await conn.send(bytes([at]) * size)
        assert await conn.recv() == bytes([at]) * size
    assert (await remote.get()).tolist() == list(range(N))
    await remote[10 : N - 1].put(np.full(N - 11, 7))
    before = await asyncio.gather(*(remote[N - 1].fetch_add(1) for _ in range(40)))
    assert sorted(before) == list(range(N - 1, N + 39))
    window: RemoteArray = pickle.loads(await conn.recv())
    await window.put(np.full(10, 3))
    await conn.send(b"used")
    assert await conn.recv() == b"over"
    with pytest.raises(PeerMemoryRevoked):
        await window.get()
    acted = sum(each.acted for each in fault.counters(context))
    fault.set_rules(context, "")
    assert conn.closed is None
    return acted


@pytest.mark.parametrize("carrier", ["simulated", pytest.param("roce", marks=OVER_ROCE)])
def test_each_arrives_once(carrier: str) -> None:
    """Each message is there once and in order, and each atomic was done once."""
    if carrier == "simulated":
        mine, acted = on_hosts(own, use, via="socket")
    else:
        mine, acted = asyncio.run(live(own, use, via="socket"))
    expected = np.full(N, 7)
    expected[:10], expected[N - 1] = 3, N - 1 + 40
    assert (mine == expected).all()
    assert acted > 10
