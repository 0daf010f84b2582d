# SPDX-License-Identifier: Apache-2.0
"""Messages behind others that the peer's program has not received: who waits, and what is lost."""

from __future__ import annotations

import asyncio
import errno

import pytest

from tests.peers.conftest import Together
from verbena.peers import Ended, PeerConnection, PeerConnectionEnded, PeerError
from verbena.peers.wire import MessageKind

LARGE = 20_000
BEYOND = (16 << 20) + 1  # bytes of a message that is not fetched before the program receives


def test_a_large_message_does_not_wait_for_a_small_one_before_it(together: Together) -> None:
    """Both sides send a header and its data first, and receive only then."""

    async def exchange(conn: PeerConnection) -> list[int]:
        async with asyncio.timeout(10):
            for _ in range(3):
                await conn.send(b"header")
                await conn.send(bytes(LARGE))
        return [len(await conn.recv()) for _ in range(6)]

    assert together(exchange, exchange) == [[6, LARGE] * 3] * 2


def test_a_large_message_costs_one_confirmation(together: Together) -> None:
    """One control message says both that it was fetched, and that its credit is free."""

    async def send(conn: PeerConnection) -> None:
        for _ in range(8):
            await conn.send(bytes(LARGE))

    async def receive(conn: PeerConnection) -> list[MessageKind]:
        session, said = conn._session, []
        control_message = session._control_message

        def counted(kind: MessageKind, about: int = 0) -> None:
            said.append(kind)
            control_message(kind, about)

        session._control_message = counted  # type: ignore[method-assign]
        for _ in range(8):
            await conn.recv()
        return list(said)

    said = together(receive, send)[0]
    assert set(said) == {MessageKind.CONFIRM}
    assert len(said) <= 8


def test_credits_come_back_by_what_the_program_takes_alone(together: Together) -> None:
    """Large messages that were fetched, and not received, still hold their credits."""

    async def send(conn: PeerConnection) -> bool:
        await conn.send(b"first")
        for _ in range(3):
            await conn.send(bytes(LARGE))
        had_credit = conn.may_post
        await conn.send(b"last")
        return had_credit

    async def receive(conn: PeerConnection) -> list[int]:
        await asyncio.sleep(0.3)
        return [len(message) async for message in conn]

    assert together(receive, send, slots=4) == [[5, LARGE, LARGE, LARGE, 4], False]


def test_memory_is_free_when_send_returns(together: Together) -> None:
    """The peer receives what the memory held when ``send`` returned, also behind a small one."""

    async def send(conn: PeerConnection) -> None:
        data = bytearray(b"a" * LARGE)
        await conn.send(b"small")
        await conn.send(data)
        data[:] = b"b" * LARGE
        await conn.send(b"changed")

    async def receive(conn: PeerConnection) -> list[set[int]]:
        await asyncio.sleep(0.2)
        return [set(message) for message in [await conn.recv() for _ in range(3)]]

    assert together(receive, send)[0] == [set(b"small"), set(b"a"), set(b"changed")]


def test_a_message_that_is_not_fetched_is_lost_aloud(together: Together) -> None:
    """``close`` raises; the peer gets what had arrived, and is told that there was more."""

    async def leave(conn: PeerConnection) -> str:
        await conn.send(b"small")
        posted = asyncio.ensure_future(conn.send(bytes(BEYOND)))
        await asyncio.sleep(0.1)
        with pytest.raises(PeerError, match="did not take 1 of the messages") as caught:
            await conn.close(0.2)
        assert caught.value.errno == errno.ETIMEDOUT
        with pytest.raises(PeerConnectionEnded):
            await posted
        return "left"

    async def receive(conn: PeerConnection) -> tuple[bytes, Ended]:
        await conn.wait_closed()
        got = await conn.recv()
        with pytest.raises(PeerConnectionEnded, match="before this side had fetched") as caught:
            await anext(conn)
        return got, caught.value.reason

    assert together(receive, leave) == [(b"small", Ended.CUT), "left"]
