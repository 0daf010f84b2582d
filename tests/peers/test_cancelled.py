# SPDX-License-Identifier: Apache-2.0
"""Cancellation at every await of verbena.peers: arrays, posts, and the end of a connection."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

import verbena
from tests.cancelling import at_every_await
from tests.peers.conftest import Together
from verbena.peers import PeerConnection, RemoteArray
from verbena.verbs.here import place

_N = 1 << 15
_POSTED = bytes(100_000)
Work = Callable[[PeerConnection, RemoteArray], Awaitable[Any]]


async def _posted(conn: PeerConnection, remote: RemoteArray) -> None:
    for _ in range(3):
        await (await conn.post(_POSTED))
    await conn.settle()


WORKS: dict[str, Work] = {
    "get": lambda conn, remote: remote.get(),
    "put": lambda conn, remote: remote[: _N - 2].put(np.full(_N - 2, 7)),
    "fetch_add": lambda conn, remote: remote[_N - 1].fetch_add(1),
    "compare_swap": lambda conn, remote: remote[_N - 2].compare_swap(-1, -1),
    "post": _posted,
}


@pytest.mark.parametrize("name", WORKS)
def test_requests(together: Together, name: str) -> None:
    """The connection goes on, and the next request of each kind is right."""
    work = WORKS[name]

    async def own(conn: PeerConnection) -> int:
        mine = conn.array(_N, "i8")
        mine[:] = 0
        await conn.send(pickle.dumps(conn.share(mine)))
        async for message in conn:
            assert bytes(message) == _POSTED
        return int(mine[_N - 1])

    async def use(conn: PeerConnection) -> int:
        remote = pickle.loads(await conn.recv())
        added = 0

        async def run() -> None:
            await work(conn, remote)

        async def check() -> None:
            nonlocal added
            await remote[: _N - 2].put(np.full(_N - 2, added))
            got = await remote.get()
            assert set(got[: _N - 2].tolist()) == {added}
            before = await remote[_N - 1].fetch_add(1)
            added += 1
            assert added - 1 <= before
            assert conn.closed is None

        count = await at_every_await(run, check)
        assert count >= 1 or place.get() is None  # directly, most complete as they are posted
        return added

    total, added = together(own, use)
    assert total >= added


@pytest.mark.over_roce
@pytest.mark.parametrize("via", ["cm", "socket"])
@pytest.mark.parametrize("end", ["close", "wait_closed", "accept"])
def test_the_end_of_a_connection(via: Any, end: str) -> None:
    """The peer's wait ends, the listener goes on, and closing again does no harm."""

    async def attempt(listener: Any) -> None:
        accepting = asyncio.create_task(_accepted(listener))
        conn = None
        try:
            conn = await verbena.connect(f"127.0.0.1:{listener.port}", via=via)
            far = await accepting
            if end == "close":
                await conn.send(b"last")
                await conn.close()
            else:
                asyncio.get_running_loop().call_soon(conn.abort)
                await far.wait_closed()
        finally:
            if conn is not None:
                conn.abort()
            accepting.cancel()
            (got,) = await asyncio.gather(accepting, return_exceptions=True)
            if isinstance(got, PeerConnection):
                async with asyncio.timeout(10):
                    await got.wait_closed()

    async def main() -> int:
        async with asyncio.timeout(60), verbena.listen("127.0.0.1:0", via=via) as listener:

            async def work() -> None:
                if end != "accept":
                    await attempt(listener)
                    return
                dialing = asyncio.create_task(_dialed(listener.port, via))
                try:
                    async with await listener.accept() as conn:
                        await conn.recv()
                finally:
                    dialing.cancel()
                    await asyncio.gather(dialing, return_exceptions=True)

            async def check() -> None:
                """Take what cancelled attempts left in the listener, and exchange a message."""
                dialing = asyncio.create_task(_dialed(listener.port, via))
                heard = b""
                while heard != b"here":
                    async with await listener.accept() as conn:
                        try:
                            heard = await conn.recv()
                        except OSError:
                            continue
                await dialing

            return await at_every_await(work, check)

    assert asyncio.run(main()) >= 1


async def _accepted(listener: Any) -> PeerConnection:
    found = await listener.accept()
    assert isinstance(found, PeerConnection)
    return found


async def _dialed(port: int, via: Any) -> None:
    async with verbena.connect(f"127.0.0.1:{port}", via=via) as conn:
        await conn.send(b"here")
