# SPDX-License-Identifier: Apache-2.0
"""How connections of verbena.peers end: processes that die, refusals, TLS, and coming back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verbena
from tests.carriers import live_carriers
from tests.peers.conftest import calling, certificate, listening
from verbena import cm
from verbena.peers import (
    Ended,
    PeerConnection,
    PeerConnectionEnded,
    PeerError,
    PeerListener,
    Reconnect,
    sync,
)

pytest_generate_tests = live_carriers
CHILD = str(Path(__file__).with_name("peer_child.py"))
WAYS = ["cm", "socket"]


@pytest.fixture(params=WAYS)
def server(request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """A process that echoes messages: (process, port, via)."""
    with subprocess.Popen(
        [sys.executable, CHILD, request.param], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline()), request.param
        finally:
            process.kill()


@pytest.mark.parametrize("via", WAYS)
def test_a_message_that_nobody_took_is_gone_with_the_connection(via: str) -> None:
    async def program() -> None:
        async with await verbena.listen("127.0.0.1:0", via=via) as listener:
            calls = asyncio.ensure_future(
                verbena.connect(f"127.0.0.1:{listener.port}", via=via).__aenter__()
            )
            there = await listener.accept()
            here = await calls
            await there.send(b"unread")
            await here.close()
            with pytest.raises(PeerConnectionEnded, match="it was closed here"):
                await here.recv()
            await there.close()

    asyncio.run(asyncio.wait_for(program(), 30))


def test_two_processes(server: Any) -> None:
    _, port, via = server

    async def ask(conn: PeerConnection) -> list[int]:
        sizes = []
        for size in (5, 5_000_000):
            await conn.send(bytes(size))
            sizes.append(len(await conn.recv()))
        return sizes

    assert asyncio.run(calling(ask, f"127.0.0.1:{port}", via=via)) == [5, 5_000_000]


def test_death_of_the_peer(server: Any) -> None:
    process, port, via = server

    async def ask(conn: PeerConnection) -> Any:
        await conn.send(b"hello")
        assert await conn.recv() == b"hello"
        waiting = asyncio.create_task(conn.recv()._bytes())
        await asyncio.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(PeerConnectionEnded, match="has ended without closing"):
            await waiting
        with pytest.raises(PeerConnectionEnded):
            await conn.send(bytes(100_000))
        return conn.closed

    async def limited() -> Any:
        async with asyncio.timeout(20):
            return await calling(ask, f"127.0.0.1:{port}", via=via)

    assert asyncio.run(limited()) is Ended.DIED


def test_synchronous(server: Any) -> None:
    _, port, via = server
    with sync.connect(f"127.0.0.1:{port}", via=via, timeout=10) as conn:
        for size in (5, 500_000):
            conn.send(b"x" * size, timeout=10)
            with conn.borrow(timeout=10) as view:
                assert len(view) == size
        with pytest.raises(TimeoutError):
            conn.recv(timeout=0.05)
        conn.send(b"after")
        assert conn.recv(timeout=10) == b"after"
        mine = conn.array(4, "i8")
        with conn.lend(mine) as window:
            assert window.lent
    assert conn.closed is Ended.HERE


def test_a_synchronous_listener() -> None:
    def serve(listener: sync.SyncPeerListener) -> Any:
        with listener.accept(timeout=10) as far:
            far.send(b"first")
            return list(far), far.closed

    with sync.listen("127.0.0.1:0") as listener, ThreadPoolExecutor() as pool:
        serving = pool.submit(serve, listener)
        with sync.connect(f"127.0.0.1:{listener.port}", timeout=10) as near:
            assert near.recv(timeout=10) == b"first"
            mine = near.array(4)
            near.send(mine + 1)
        got, closed = serving.result(10)
        assert np.frombuffer(got[0]).tolist() == [1, 1, 1, 1]
        assert closed is Ended.PEER


def test_a_thread_closes_while_another_sends() -> None:
    def receive(conn: sync.SyncPeerConnection) -> int:
        return sum(1 for _ in conn)

    def send_on(conn: sync.SyncPeerConnection, begun: threading.Event) -> int:
        sent = 0
        with contextlib.suppress(PeerConnectionEnded):
            while True:
                conn.send(b"message")
                sent += 1
                if sent == 50:
                    begun.set()
        return sent

    with sync.listen("127.0.0.1:0") as listener, ThreadPoolExecutor() as pool:
        for _ in range(20):
            accepting = pool.submit(listener.accept, 10)
            near = sync.connect(f"127.0.0.1:{listener.port}", timeout=10)
            far = accepting.result(10)
            begun = threading.Event()
            receiving, sending = pool.submit(receive, far), pool.submit(send_on, near, begun)
            assert begun.wait(10)
            near.close(patience=3)
            assert receiving.result(10) == sending.result(10)
            far.close()


@pytest.mark.parametrize("via", WAYS)
def test_who_has_restarted_does_not_know_the_session(via: str) -> None:
    async def both() -> Any:
        ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def leave(conn: PeerConnection) -> None:
            conn.abort()

        policy = Reconnect(within=20, first=0.3)
        task = asyncio.create_task(
            listening(leave, ready.set_result, "127.0.0.1:0", via=via, reconnect=policy)
        )
        port = await ready
        async with verbena.connect(f"127.0.0.1:{port}", via=via, reconnect=policy) as conn:
            await task
            async with verbena.listen(f"127.0.0.1:{port}", via=via):
                async with asyncio.timeout(10):
                    return await conn.wait_closed()

    assert asyncio.run(both()) is Ended.RESTARTED


@pytest.mark.parametrize("via", WAYS)
def test_attempts_that_are_cancelled(via: str) -> None:
    """At each step of the loop; the listener goes on, and gives the attempt that is not."""

    async def serve(listener: PeerListener) -> bytes:
        async for conn in listener:
            async with conn:
                with contextlib.suppress(PeerConnectionEnded):
                    return await conn.recv()
        return b""

    async def attempt(address: str) -> None:
        async with verbena.connect(address, via=via) as conn:
            await conn.send(b"whole")

    async def both() -> bytes:
        async with asyncio.timeout(30), verbena.listen("127.0.0.1:0", via=via) as listener:
            server = asyncio.create_task(serve(listener))
            address = f"127.0.0.1:{listener.port}"
            for steps in range(30):
                task = asyncio.create_task(attempt(address))
                for _ in range(steps):
                    await asyncio.sleep(0 if steps % 2 else 1e-4)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                if server.done():
                    break
            else:
                await attempt(address)
            return await server

    assert asyncio.run(both()) == b"whole"


def test_nobody_listens() -> None:
    async def attempt(via: str) -> None:
        async with verbena.connect("127.0.0.1:7999", via=via):
            pass

    with pytest.raises(cm.NoListener):
        asyncio.run(attempt("cm"))
    with pytest.raises(ConnectionRefusedError):
        asyncio.run(attempt("socket"))


@pytest.mark.parametrize("address", ["host", "::1:7", "host:port", ":7"])
def test_addresses_that_are_none(address: str) -> None:
    async def attempt() -> None:
        await verbena.connect(address)

    with pytest.raises(ValueError, match=address):
        asyncio.run(attempt())


@pytest.mark.parametrize("via", WAYS)
def test_addresses_of_both_sides_are_as_connect_takes_them(via: str) -> None:
    async def program() -> None:
        async with verbena.listen("[::1]:0", via=via) as listener:
            address = f"[::1]:{listener.port}"
            accepting = asyncio.ensure_future(listener.accept())
            async with verbena.connect(address, via=via) as near, await accepting as far:
                assert near.peer == far.local == address
                assert near.local == far.peer
                assert near.local.startswith("[::1]:")

    asyncio.run(asyncio.wait_for(program(), 30))


def test_another_program_at_the_socket() -> None:
    async def attempt() -> None:
        async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n" * 3)

        async with await asyncio.start_server(other, "127.0.0.1", 0) as stranger:
            port = stranger.sockets[0].getsockname()[1]
            await verbena.connect(f"127.0.0.1:{port}", via="socket")

    with pytest.raises(PeerError, match="speaks something else"):
        asyncio.run(attempt())


def test_tls(tmp_path: Path) -> None:
    key, cert = certificate(tmp_path)
    there = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    there.load_cert_chain(cert, key)
    here = ssl.create_default_context(cafile=cert)

    async def both(tls: ssl.SSLContext | None) -> Any:
        ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def one(conn: PeerConnection) -> Any:
            await conn.send(b"x" * 10_000)
            return len(await conn.recv())

        server = asyncio.create_task(listening(one, ready.set_result, "127.0.0.1:0", tls=there))
        try:
            address = f"127.0.0.1:{await ready}"
            async with asyncio.timeout(20):
                return await calling(one, address, via="socket", tls=tls)
        finally:
            server.cancel()

    assert asyncio.run(both(here)) == 10_000
    with pytest.raises(ssl.SSLError):
        asyncio.run(both(ssl.create_default_context()))
    with pytest.raises(OSError, match="TLS"):
        asyncio.run(both(None))
    there.load_verify_locations(cert)
    there.verify_mode = ssl.CERT_REQUIRED
    with pytest.raises(OSError, match="a certificate of this side"):
        asyncio.run(both(here))
    with pytest.raises(ValueError, match="via='cm'"):
        asyncio.run(calling(lambda conn: conn.wait_closed(), "h:1", via="cm", tls=here))
