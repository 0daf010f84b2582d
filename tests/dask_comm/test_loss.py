# SPDX-License-Identifier: Apache-2.0
"""A comm whose packets are lost: every message arrives once, in order and as it was written."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

pytest.importorskip("distributed", reason="no package distributed; the extra dask has it")

from distributed.protocol import to_serialize

from tests.dask_comm.test_distributed import pair
from verbena import fault

pytestmark = pytest.mark.over_roce
SIZES = (3, 700, 20_000, 300_000)  # small frames, and those that the receiver fetches


async def exchanged(comm: Any, first: int) -> None:
    """Write to the peer and read what it writes, at once; it numbers its messages from another."""

    async def write() -> None:
        for number in range(60):
            array = np.full(SIZES[number % 4], number, np.uint8)
            await comm.write({"n": first + number, "a": to_serialize(array)})

    async def read() -> None:
        for number in range(60):
            got = await comm.read()
            assert got["n"] == 1000 - first + number
            assert np.array_equal(got["a"], np.full(SIZES[number % 4], number, np.uint8))

    await asyncio.gather(write(), read())


def test_a_comm_under_loss() -> None:
    async def main() -> None:
        near, far, listener = await pair()
        context = near._conn._session.pd.context
        fault.set_rules(context, "drop 1% dir=both; seed 4")
        await asyncio.gather(exchanged(near, 0), exchanged(far, 1000))
        (counter,) = fault.counters(context)
        assert counter.acted > 0
        fault.set_rules(context)
        await asyncio.gather(near.close(), far.close())
        listener.stop()

    asyncio.run(asyncio.wait_for(main(), 60))
