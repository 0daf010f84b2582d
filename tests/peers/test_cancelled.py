# SPDX-License-Identifier: Apache-2.0
"""Cancellation at every await of verbena.peers: arrays, posts, and the end of a connection."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import numpy as np
import pytest

import verbena
from tests.cancelling import at_every_await
from tests.peers.conftest import Together
from verbena.peers import PeerConnection, PeerMemoryRevoked, RemoteArray
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


def test_windows(together: Together) -> None:
    """Whenever the block of a window is cancelled, the peer is told of its end before the next
    message comes."""

    async def own(conn: PeerConnection) -> int:
        mine = conn.array(64, "i8")

        async def lend() -> None:
            async with conn.lend(mine[8:16], write=True) as window:
                await conn.send(pickle.dumps(window))
                await asyncio.sleep(0)

        async def check() -> None:
            await conn.send(b"all of them")
            assert await conn.recv() == b"are revoked"

        return await at_every_await(lend, check)

    async def use(conn: PeerConnection) -> int:
        windows: list[RemoteArray] = []
        lent = 0
        async for message in conn:
            if message != b"all of them":
                windows.append(pickle.loads(message))
                continue
            lent += len(windows)
            for window in windows:
                with pytest.raises(PeerMemoryRevoked):
                    await window.get()
            windows.clear()
            await conn.send(b"are revoked")
        return lent

    suspended, lent = together(own, use)
    assert suspended >= 1
    assert lent >= 2


@pytest.mark.parametrize("size", [8, 20_000, 300_000])
@pytest.mark.parametrize("how", ["recv", "loan"])
def test_messages(together: Together, how: str, size: int) -> None:
    """What is sent arrives once or, where the sender was cancelled, perhaps not; what arrives is
    received once and in order, whenever the receiver is cancelled."""
    numbers: list[int] = []
    asked = 0

    def number(message: bytes | memoryview) -> int:
        assert bytes(message[8:]) == bytes(size)
        return int.from_bytes(message[:8], "little")

    async def own(conn: PeerConnection) -> int:
        async def ask() -> None:
            nonlocal asked
            await conn.send(b"next" + bytes(size))
            asked += 1
            if how == "recv":
                numbers.append(number(await conn.recv()))
                return
            async with conn.recv() as view:
                numbers.append(number(view))
                await asyncio.sleep(0)

        async def check() -> None:
            await conn.send(b"mark")
            while (message := await conn.recv()) != b"mark":
                numbers.append(number(message))

        return await at_every_await(ask, check)

    async def answer(conn: PeerConnection) -> int:
        answered = 0
        async for message in conn:
            await asyncio.sleep(0)
            if message == b"mark":
                await conn.send(b"mark")
                continue
            assert message == b"next" + bytes(size)
            await conn.send(answered.to_bytes(8, "little") + bytes(size))
            answered += 1
        return answered

    suspended, answered = together(own, answer)
    assert suspended >= 1
    assert numbers == list(range(answered))
    assert answered >= asked


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
        words = (b"%d" % number for number in count())
        async with asyncio.timeout(60), verbena.listen("127.0.0.1:0", via=via) as listener:

            async def work() -> None:
                if end != "accept":
                    await attempt(listener)
                    return
                dialing = asyncio.create_task(_dialed(listener.port, via, next(words)))
                try:
                    async with await listener.accept() as conn:
                        await conn.recv()
                finally:
                    dialing.cancel()
                    await asyncio.gather(dialing, return_exceptions=True)

            async def check() -> None:
                """Take what cancelled attempts left in the listener, and exchange a message."""
                word, heard = next(words), b""
                dialing = asyncio.create_task(_dialed(listener.port, via, word))
                while heard != word:
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


async def _dialed(port: int, via: Any, word: bytes) -> None:
    async with verbena.connect(f"127.0.0.1:{port}", via=via) as conn:
        await conn.send(word)
