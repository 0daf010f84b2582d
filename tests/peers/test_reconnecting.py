# SPDX-License-Identifier: Apache-2.0
"""Connections that come back after their queue pair is lost, live and on simulated hosts."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

import verbena
from tests.peers.conftest import Together
from verbena.peers import Ended, PeerConnection, PeerError, PeerListener, Reconnect
from verbena.peers.session import Session
from verbena.peers.wire import Header


def test_a_connection_comes_back(together: Together) -> None:
    """Both sides lose the queue pair now and then; each message arrives once, in order."""
    count = 300

    async def receive(conn: PeerConnection) -> list[int]:
        return [int.from_bytes(m[:4], "little") async for m in conn]

    async def send(conn: PeerConnection) -> int:
        lost = 0
        for number in range(count):
            size = 6000 if number % 10 == 3 else 20
            await conn.send(number.to_bytes(4, "little") + bytes(size))
            transport = conn._session.transport
            if number % 60 == 30 and transport is not None:
                transport.close()
                lost += 1
        return lost

    policy = Reconnect(within=20, first=0.01)
    got, lost = together(receive, send, reconnect=policy, slots=8)
    assert lost == 5
    assert got == list(range(count))


@pytest.mark.parametrize("noticed", [False, True])
def test_who_leaves_right_after_a_loss_comes_back_for_its_messages(
    together: Together, noticed: bool
) -> None:
    async def receive(conn: PeerConnection) -> tuple[list[bytes], Ended | None]:
        return [bytes(m) async for m in conn], conn.closed

    async def send(conn: PeerConnection) -> None:
        await conn.send(b"first")
        transport = conn._session.transport
        assert transport is not None
        transport.close()
        if noticed:
            await asyncio.sleep(0.02)
        for word in (b"second", b"third"):
            await conn.send(word)

    policy = Reconnect(within=20, first=0.01)
    (got, closed), _ = together(receive, send, reconnect=policy)
    assert got == [b"first", b"second", b"third"]
    assert closed is Ended.PEER


def test_messages_that_are_sent_again_arrive_once(
    together: Together, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A side that comes back may not count what has arrived meanwhile, and gets it twice."""
    monkeypatch.setattr(Session, "arrived", property(lambda session: max(0, session._arrived - 3)))
    monkeypatch.setattr(Session, "_confirm", lambda session: None)  # else they are not sent again
    repeated = 0
    plain = Session._take

    def take(session: Session, transport: Any, slot: int) -> None:
        nonlocal repeated
        assert session._ring is not None
        number = Header.from_bytes(session._ring.view(slot)).number
        repeated += 0 < number <= session._arrived
        plain(session, transport, slot)

    monkeypatch.setattr(Session, "_take", take)

    async def receive(conn: PeerConnection) -> list[int]:
        return [int.from_bytes(m[:4], "little") async for m in conn]

    async def send(conn: PeerConnection) -> None:
        for number in range(60):
            await conn.send(number.to_bytes(4, "little"))
            if number % 20 == 10 and conn._session.transport is not None:
                await asyncio.sleep(0.01)
                conn._session.transport.close()
                await asyncio.sleep(0.1)  # so that it is noticed

    policy = Reconnect(within=20, first=0.01)
    got, _ = together(receive, send, reconnect=policy, slots=64)
    assert got == list(range(60))
    assert repeated


def test_who_does_not_come_back_is_given_up(together: Together) -> None:
    async def leave(conn: PeerConnection) -> None:
        await conn.send(b"seen")
        await asyncio.sleep(0.1)
        conn.abort()

    async def stay(conn: PeerConnection) -> Any:
        assert await conn.recv() == b"seen"
        return await conn.wait_closed()

    policy = Reconnect(within=0.3, first=0.01)
    assert together(stay, leave, reconnect=policy)[0] is Ended.GIVEN_UP


POLICY = Reconnect(within=20, first=0.01)


def lets_go(conn: PeerConnection) -> None:
    """Lose the queue pair."""
    transport = conn._session.transport
    assert transport is not None
    transport.close()


@pytest.mark.parametrize("via", ["cm", "socket"])
def test_a_listener_that_does_not_reconnect_says_so(via: str) -> None:
    async def serve(listener: PeerListener) -> Ended:
        async with await listener.accept() as conn:
            return await conn.wait_closed()

    async def both() -> None:
        async with verbena.listen("127.0.0.1:0", via=via) as listener:
            serving = asyncio.create_task(serve(listener))
            with pytest.raises(PeerError, match="does not reconnect: give reconnect=") as caught:
                async with verbena.connect(f"127.0.0.1:{listener.port}", via=via, reconnect=POLICY):
                    pass
            assert caught.value.errno == errno.EOPNOTSUPP
            assert await serving is Ended.DIED

    asyncio.run(both())


@pytest.mark.parametrize("via", ["cm", "socket"])
def test_a_peer_that_does_not_come_back_is_not_waited_for(via: str) -> None:
    """The listener serves both kinds of peers, and knows which one this is."""

    async def stay(listener: PeerListener) -> Any:
        async with await listener.accept() as conn:
            assert await conn.recv() == b"seen"
            return await conn.wait_closed()

    async def both() -> Any:
        async with verbena.listen("127.0.0.1:0", via=via, reconnect=POLICY) as listener:
            staying = asyncio.create_task(stay(listener))
            async with verbena.connect(f"127.0.0.1:{listener.port}", via=via) as conn:
                await conn.send(b"seen")
                lets_go(conn)
                async with asyncio.timeout(5):
                    return await staying

    assert asyncio.run(both()) is Ended.DIED
