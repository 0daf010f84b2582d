# SPDX-License-Identifier: Apache-2.0
"""Cancellation at every await of a comm of verbena://: the peer takes no part for a message."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from tests.cancelling import at_every_await

pytest.importorskip("distributed", reason="no package distributed; the extra dask has it")

from distributed.comm import CommClosedError, connect, listen
from distributed.protocol import to_serialize

pytestmark = pytest.mark.over_roce
SIZES = (10, 30_000, 10)
_MESSAGE = [to_serialize(np.full(size, 7)) for size in SIZES]


@pytest.mark.parametrize("what", ["connect and close", "write", "read"])
def test_a_comm(what: str) -> None:
    """The peer has whole messages or CommClosedError, and the listener takes the next comm."""

    async def main() -> int:
        accepted: asyncio.Queue[Any] = asyncio.Queue()
        listener = await listen("verbena://127.0.0.1", accepted.put)

        async def work() -> None:
            near = await connect(listener.contact_address)
            if what == "connect and close":
                await near.close()
                return
            far = await accepted.get()
            own, other = (near, far) if what == "write" else (far, near)
            beside = asyncio.create_task(_read(other) if what == "write" else _write(own))
            try:
                await (_write(own) if what == "write" else _read(other))
                await near.close()
            finally:
                near.abort()
                far.abort()
                await beside

        async def check() -> None:
            """Take what cancelled attempts left in the listener, and exchange a message."""
            near = await connect(listener.contact_address)
            await near.write(_MESSAGE)
            heard = 0
            while not heard:
                far = await accepted.get()
                heard = await _read(far, 1)
                far.abort()
            near.abort()

        count = await at_every_await(work, check)
        listener.stop()
        return count

    assert asyncio.run(asyncio.wait_for(main(), 60)) >= 2


async def _read(comm: Any, most: int = 3) -> int:
    """Return how many messages came; all are whole."""
    for number in range(most):
        try:
            got = await comm.read()
        except CommClosedError:
            return number
        assert [array.tolist() for array in got] == [[7] * size for size in SIZES]
    return most


async def _write(comm: Any) -> None:
    try:
        for _ in range(3):
            await comm.write(_MESSAGE)
    except CommClosedError:
        pass
