# SPDX-License-Identifier: Apache-2.0
"""What other tasks can do with a connection while ``close`` waits; test_ends.py has threads."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from tests.peers.conftest import Together
from tests.peers.test_unread_messages import BEYOND, LARGE
from verbena.peers import Ended, PeerConnection, PeerConnectionEnded, RemoteArray

CLOSING = "is being closed here, and takes no more messages or requests"
PATIENCE = 3.0
SENDERS = 3
N = 8
Work = Callable[[PeerConnection, RemoteArray], Awaitable[Any]]


async def _lend(conn: PeerConnection, remote: RemoteArray) -> None:
    async with conn.lend(conn.array(N, "i8")):
        pass


BEGUN: dict[str, Work] = {
    "send": lambda conn, remote: conn.send(b"late"),
    "send a large one": lambda conn, remote: conn.send(bytes(LARGE)),
    "post": lambda conn, remote: conn.post(b"late"),
    "get": lambda conn, remote: remote.get(),
    "put": lambda conn, remote: remote.put(np.ones(N, "i8")),
    "fetch_add": lambda conn, remote: remote[0].fetch_add(1),
    "compare_swap": lambda conn, remote: remote[0].compare_swap(0, 1),
    "lend": _lend,
}


def test_nothing_begins_after_close_has(together: Together) -> None:
    async def own(conn: PeerConnection) -> Any:
        mine = conn.array(N, "i8")
        mine[...] = 0
        await conn.send(pickle.dumps(conn.share(mine)))
        received = [message async for message in conn]
        return received, conn.closed, int(mine.sum())

    async def use(conn: PeerConnection) -> list[str]:
        remote = pickle.loads(await conn.recv())
        await conn.send(b"before")
        closing = asyncio.create_task(conn.close())
        await asyncio.sleep(0)
        assert conn.closed is None
        assert not conn.may_post
        assert not conn.post_now(b"late")
        conn.note(1)
        refused = []
        for name, work in BEGUN.items():
            with contextlib.suppress(PeerConnectionEnded):
                await work(conn, remote)
                continue
            refused.append(name)
        await closing
        assert conn.closed is Ended.HERE
        return refused

    assert together(own, use) == [([b"before"], Ended.PEER, 0), list(BEGUN)]


def test_the_error_says_that_it_is_being_closed(together: Together) -> None:
    async def receive(conn: PeerConnection) -> None:
        await conn.wait_closed()

    async def send(conn: PeerConnection) -> Ended:
        closing = asyncio.create_task(conn.close())
        await asyncio.sleep(0)
        with pytest.raises(PeerConnectionEnded, match=CLOSING) as caught:
            await conn.send(b"late")
        await closing
        return caught.value.reason

    assert together(receive, send)[1] is Ended.HERE


def test_close_waits_for_messages_that_have_a_credit(together: Together) -> None:
    """It refuses the others, and meanwhile messages of the peer are received."""

    async def receive(conn: PeerConnection) -> list[int]:
        await asyncio.sleep(0.3)
        await conn.send(b"last")
        return [len(message) async for message in conn]

    async def send(conn: PeerConnection) -> bytes:
        large = asyncio.create_task(conn.send(bytes(BEYOND)))
        await asyncio.sleep(0)
        await conn.send(b"small")
        waits = asyncio.create_task(conn.send(b"without a credit"))
        await asyncio.sleep(0)
        closing = asyncio.create_task(conn.close())
        with pytest.raises(PeerConnectionEnded, match=CLOSING):
            await waits
        last = await conn.recv()
        await large
        await closing
        return last

    assert together(receive, send, slots=2) == [[BEYOND, 5], b"last"]


@pytest.mark.parametrize("size", [10, LARGE])
def test_close_while_others_send_all_the_time(together: Together, size: int) -> None:
    """It does not wait for them, and the peer has each message whose ``send`` has returned."""

    async def receive(conn: PeerConnection) -> Any:
        return len([message async for message in conn]), conn.closed

    async def send(conn: PeerConnection) -> Any:
        sent = 0

        async def send_on() -> None:
            nonlocal sent
            with contextlib.suppress(PeerConnectionEnded):
                while True:
                    await conn.send(bytes(size))
                    sent += 1
                    await asyncio.sleep(0)

        senders = [asyncio.create_task(send_on()) for _ in range(SENDERS)]
        while sent < 100:
            await asyncio.sleep(1e-5)
        before = sent
        await conn.close(PATIENCE)
        await asyncio.gather(*senders)
        assert sent <= before + SENDERS  # those that had a credit
        return sent, Ended.PEER

    received, sent = together(receive, send)
    assert received == sent
