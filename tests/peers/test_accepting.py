# SPDX-License-Identifier: Apache-2.0
"""Accepts that are cancelled, or run out of time, in the middle of a peer's handshake."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

import verbena
from tests.peers.conftest import Dial, Meet, live_meeting, simulated_meeting
from verbena.peers import PeerConnection, PeerError, PeerListener, listening, sync
from verbena.peers.connection import new_hello
from verbena.peers.session import Session
from verbena.verbs import VerbsError
from verbena.verbs.here import place

CLIENTS = 5
TURNS = 4
LIVE_MOMENTS = [n * 60e-6 for n in range(40)]
SIMULATED_MOMENTS = [n * 0.5e-6 for n in range(100)]
UNCLEAR = ("does not fit the state", "RTR and RTS need")


async def pause(seconds: float) -> None:
    """Wait so long, where the loop's own timers are coarser."""
    if place.get() is not None:
        await asyncio.sleep(seconds)
        return
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while loop.time() < until:
        await asyncio.sleep(0)


async def greeted(dial: Dial) -> bytes:
    async with asyncio.timeout(20), dial() as conn:
        return bytes(await conn.recv())


@pytest.mark.parametrize("seconds", [0, 20e-6, 2e-3])
def test_accept_with_a_short_timeout_serves_everybody(meet: Meet, seconds: float) -> None:
    async def serve(listener: PeerListener) -> int:
        conns: list[PeerConnection] = []
        while len(conns) < CLIENTS * TURNS:
            await asyncio.sleep(1e-6)
            try:
                async with asyncio.timeout(seconds):
                    conns.append(await listener.accept())
            except TimeoutError:
                continue
            await conns[-1].send(b"hi")
        return len([await conn.wait_closed() for conn in conns])

    async def client(dial: Dial) -> list[bytes]:
        return [await greeted(dial) for _ in range(TURNS)]

    served, *got = meet(serve, *[client] * CLIENTS)
    assert served == CLIENTS * TURNS
    assert got == [[b"hi"] * TURNS] * CLIENTS


def test_an_accept_may_be_cancelled_at_any_moment(meet: Meet) -> None:
    """Each time the connection is the cancelled accept's or the next one's, and works."""

    async def serve(listener: PeerListener) -> tuple[int, int]:
        moments = SIMULATED_MOMENTS if place.get() else LIVE_MOMENTS
        cancelled = 0
        for moment in moments:
            accepting = asyncio.ensure_future(listener.accept())
            await pause(moment)
            accepting.cancel()
            await asyncio.wait([accepting])
            if accepting.cancelled():
                cancelled += 1
                accepting = asyncio.ensure_future(listener.accept())
            async with await accepting as conn:
                await conn.send(b"last" if moment == moments[-1] else b"hi")
                await conn.wait_closed()
        return cancelled, len(moments)

    async def client(dial: Dial) -> int:
        turns = 1
        while await greeted(dial) != b"last":
            turns += 1
        return turns

    (cancelled, turns), dialed = meet(serve, client)
    assert dialed == turns
    assert cancelled > 1


def test_many_accepts_of_which_some_are_cancelled(meet: Meet) -> None:
    """Clients come at once, and each is served once."""

    async def serve(listener: PeerListener) -> int:
        conns: list[PeerConnection] = []
        while len(conns) < CLIENTS * TURNS:
            accepts = [asyncio.ensure_future(listener.accept()) for _ in range(3)]
            await pause(10e-6 if place.get() else 300e-6)
            for each in accepts[:2]:
                each.cancel()
            await asyncio.wait(accepts[:2])
            async with asyncio.timeout(20):
                await asyncio.wait(accepts, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(1e-3)
            accepts[2].cancel()
            await asyncio.wait(accepts)
            for each in accepts:
                if not each.cancelled():
                    conns.append(each.result())
                    await conns[-1].send(bytes([len(conns)]))
        return len([await conn.wait_closed() for conn in conns])

    async def client(dial: Dial) -> list[bytes]:
        return [await greeted(dial) for _ in range(TURNS)]

    served, *got = meet(serve, *[client] * CLIENTS)
    numbers = sorted(each[0] for one in got for each in one)
    assert numbers == [n + 1 for n in range(served)]


# ---- the end of the listener ---------------------------------------------------------------------


async def refusal(dial: Dial) -> str:
    """Return why a client's connection was not made, or has ended."""
    try:
        conn = await dial()
        async with conn:
            async with asyncio.timeout(20):
                await conn.recv()
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    return "a message"


async def closed_in(seconds: float, listener: PeerListener) -> None:
    """Cancel an accept so long after a peer has asked, and close the listener."""
    while not listener._backlog.has_asking:
        await asyncio.sleep(0 if place.get() is None else 1e-7)
    accepting = asyncio.ensure_future(listener.accept())
    await pause(seconds)
    accepting.cancel()
    await asyncio.wait([accepting])
    listener.close()
    if not accepting.cancelled():
        accepting.result().abort()
    await asyncio.sleep(0.01)


@pytest.mark.parametrize("via", ["cm", "socket"])
@pytest.mark.parametrize("carrier", ["live", "simulated"])
def test_a_client_learns_that_the_listener_closes_in_its_handshake(carrier: str, via: str) -> None:
    """Whatever the moment is, it is told at once, by a sentence that says what has happened."""
    said: set[str] = set()
    for moment in SIMULATED_MOMENTS[::2] if carrier == "simulated" else LIVE_MOMENTS[::2]:
        serve = partial(closed_in, moment)
        if carrier == "simulated":
            _, refused = simulated_meeting(serve, (refusal,), via=via)
        else:
            options = {"via": via}
            _, refused = asyncio.run(live_meeting(serve, (refusal,), options, options))
        assert not any(each in refused for each in UNCLEAR), (moment, refused)
        assert "Timeout" not in refused, (moment, refused)
        assert refused != "a message"
        said.add(refused.partition(":")[0])
    assert "PeerConnectionEnded" in said, "no handshake was nearly done"


@pytest.mark.parametrize("says_hello", [False, True])
def test_a_socket_that_has_not_said_enough_as_the_listener_closes(says_hello: bool) -> None:
    """It is closed, whatever the moment is: before its task has begun, and after its hello."""

    async def attempt(steps: int) -> None:
        async with verbena.listen("127.0.0.1:0", via="socket") as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            if says_hello:
                writer.write(new_hello({}).to_bytes())
            for _ in range(steps):
                await asyncio.sleep(0)
            listener.close()
            async with asyncio.timeout(5):
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
            writer.close()

    for steps in range(12):
        asyncio.run(attempt(steps))


def test_a_socket_that_comes_as_the_listener_has_closed() -> None:
    """asyncio may have it already, and tells of it later."""

    async def main() -> None:
        near, far = socket.socketpair()
        reader, _ = await asyncio.open_connection(sock=near)
        listener = await verbena.listen("127.0.0.1:0", via="socket")
        listener.close()
        listener._on_call(*await asyncio.open_connection(sock=far))
        async with asyncio.timeout(5):
            assert await reader.read() == b""

    asyncio.run(main())


def test_a_socket_that_stops_in_its_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    """An accept does not wait for it for longer than a client would, and serves the next one."""
    monkeypatch.setattr(listening, "CONNECT_SECONDS", 0.3)

    async def serve(listener: PeerListener) -> None:
        async with asyncio.timeout(20), await listener.accept() as conn:
            await conn.send(b"hi")
            await conn.wait_closed()

    async def client(dial: Dial) -> bytes:
        host, port = dial.args[0].split(":")  # type: ignore[attr-defined]
        _, writer = await asyncio.open_connection(host, port)
        writer.write(new_hello({}).to_bytes())
        await asyncio.sleep(0.1)
        greeting = await greeted(dial)
        writer.close()
        return greeting

    options = {"via": "socket"}
    assert asyncio.run(live_meeting(serve, (client,), options, options)) == [None, b"hi"]


def test_an_accept_that_waits_as_the_listener_closes(meet: Meet) -> None:
    async def serve(listener: PeerListener) -> str:
        accepting = [asyncio.ensure_future(listener.accept()) for _ in range(2)]
        await asyncio.sleep(0)
        listener.close()
        with pytest.raises(PeerError, match="listen again") as caught:
            await accepting[0]
        with pytest.raises(PeerError, match="listen again"):
            await accepting[1]
        return type(caught.value).__name__

    assert meet(serve) == ["PeerError"]


# ---- this side's device --------------------------------------------------------------------------


def test_a_failure_of_this_side_s_device_is_the_next_accept_s(
    meet: Meet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is raised once, and the peers after it are served."""
    prepare = Session.prepare
    attempts = 0

    def fail_once(session: Session, qp: Any) -> None:
        nonlocal attempts
        if isinstance(getattr(session._on_lost, "__self__", None), PeerListener):
            attempts += 1
            if attempts == 1:
                raise VerbsError(errno.ENOMEM, "no room for a ring")
        prepare(session, qp)

    monkeypatch.setattr(Session, "prepare", fail_once)

    async def serve(listener: PeerListener) -> list[Any]:
        reported: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, said: reported.append(said))
        while not listener._backlog.has_asking:
            await asyncio.sleep(1e-6)
        accepting = asyncio.ensure_future(listener.accept())
        await asyncio.sleep(0)
        accepting.cancel()
        await asyncio.wait([accepting])
        assert accepting.cancelled()
        with pytest.raises(VerbsError, match="no room for a ring"):
            await listener.accept()
        async with await listener.accept() as conn:
            await conn.send(b"hi")
            await conn.wait_closed()
        gc.collect()
        return reported

    async def client(dial: Dial) -> bytes:
        try:
            await greeted(dial)
        except OSError:
            return await greeted(dial)
        raise AssertionError("the first attempt was served")

    assert meet(serve, client) == [[], b"hi"]


# ---- calls that block ----------------------------------------------------------------------------


def _greeted_by(port: int, via: Any) -> bytes:
    with sync.connect(f"127.0.0.1:{port}", timeout=20, via=via) as conn:
        return conn.recv(timeout=20)


@pytest.mark.parametrize("via", ["cm", "socket"])
@pytest.mark.parametrize("seconds", [0, 1e-3])
def test_a_blocking_accept_can_be_polled(seconds: float, via: Any) -> None:
    conns: list[Any] = []
    with sync.listen("127.0.0.1:0", via=via) as listener, ThreadPoolExecutor(4) as pool:
        got = [pool.submit(_greeted_by, listener.port, via) for _ in range(CLIENTS * TURNS)]
        for _ in range(20_000):
            if len(conns) == len(got):
                break
            try:
                conns.append(listener.accept(timeout=seconds))
            except TimeoutError:
                threading.Event().wait(1e-3)
                continue
            conns[-1].send(b"hi")
        assert [each.result(20) for each in got] == [b"hi"] * CLIENTS * TURNS
        for conn in conns:
            conn.close()
