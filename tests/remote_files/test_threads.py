# SPDX-License-Identifier: Apache-2.0
"""verbena:// with many threads on one file system, frozen servers, and requests that are none."""

from __future__ import annotations

import asyncio
import errno
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("fsspec", reason="no package fsspec; the extra fsspec has it")

from tests.remote_files.test_remote_files import SERVER
from tests.support import own_network_or_skip
from verbena import peers
from verbena.agent.client import describe_agent
from verbena.peers import sync
from verbena.remote_files import RemoteMemoryFileSystem, serve

pytestmark = pytest.mark.over_roce
THREADS = 8


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[int, int]]:
    """A port, and the process that serves there."""
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process.pid
        finally:
            process.kill()


def file_system(port: int, **options: Any) -> RemoteMemoryFileSystem:
    return RemoteMemoryFileSystem("127.0.0.1", port, skip_instance_cache=True, **options)


@pytest.mark.parametrize("size", [1000, 200_000])
@pytest.mark.parametrize("warm", [False, True])
def test_threads_that_share_a_file_system(server: tuple[int, int], warm: bool, size: int) -> None:
    files = file_system(server[0])
    if warm:
        files.ls("/")

    def work(thread: int) -> None:
        for each in range(5):
            path, data = f"/t{thread}/{each}", bytes([thread]) * size
            files.pipe_file(path, data)
            assert files.cat_file(path) == data
            assert files.info(path)["size"] == size

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    for thread in range(THREADS):
        for each in range(5):
            assert files.cat_file(f"/t{thread}/{each}") == bytes([thread]) * size


def test_a_frozen_server(server: tuple[int, int]) -> None:
    files = file_system(server[0], timeout=0.3)
    files.ls("/")
    os.kill(server[1], signal.SIGSTOP)
    try:
        for _ in range(2):  # the second one connects again, in vain
            with pytest.raises(TimeoutError, match=r"did not answer within 0\.3 s"):
                files.ls("/")
    finally:
        os.kill(server[1], signal.SIGCONT)
    assert file_system(server[0]).exists("/")
    with pytest.raises(ValueError, match="more than 0"):
        file_system(server[0], timeout=-1)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TimeoutError(), "did not answer within 20 s"),
        (ConnectionResetError(errno.ECONNRESET, "the peer has ended"), "the peer has ended"),
        (KeyboardInterrupt(), r"a request was interrupted \(KeyboardInterrupt\)"),
    ],
)
def test_an_open_file_whose_connection_was_given_up(
    server: tuple[int, int], error: BaseException, text: str
) -> None:
    """Each read says why, and not that the program closed something."""
    files = file_system(server[0], timeout=20)
    files.pipe_file("/opened", b"o" * 10_000)
    with (
        files.open("/opened", block_size=512) as first,
        files.open("/opened", block_size=512) as second,
    ):
        assert first.read(10) == b"o" * 10
        with pytest.raises(type(error)), files.exchange():
            raise error
        for opened in (first, second, first):
            opened.seek(9000)
            with pytest.raises(ConnectionResetError, match=f"{text}.*pen the file again") as caught:
                opened.read(100)
            assert caught.value.errno == errno.ECONNRESET
            files.ls("/")  # on another connection
    assert files.cat_file("/opened") == b"o" * 10_000


def test_a_turn_that_comes_too_late_to_connect(
    server: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = file_system(server[0], timeout=0.3)
    wait_turn = files._wait_turn

    def late(lock: threading.Lock, limit: float | None) -> float:
        wait_turn(lock, limit)
        return time.monotonic()

    with monkeypatch.context() as patch:
        patch.setattr(files, "_wait_turn", late)
        with pytest.raises(TimeoutError, match=r"did not answer within 0\.3 s"):
            files.ls("/")
    files.ls("/")


def test_threads_at_a_frozen_server(server: tuple[int, int]) -> None:
    """The time of each counts from its call, and not from when it has the connection."""
    files = file_system(server[0], timeout=0.5)
    files.ls("/")
    os.kill(server[1], signal.SIGSTOP)

    def ask(thread: int) -> float:
        begun = time.monotonic()
        with pytest.raises(TimeoutError, match=r"did not answer within 0\.5 s"):
            files.ls("/")
        return time.monotonic() - begun

    try:
        with ThreadPoolExecutor(4) as pool:
            assert max(pool.map(ask, range(4))) < 1.4  # one after the other they would take 2 s
    finally:
        os.kill(server[1], signal.SIGCONT)


def test_threads_that_wait_for_a_slow_server(
    server: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that waits for others has its time from the server's last answer on."""
    files = file_system(server[0], timeout=0.5)
    files.ls("/")
    plain = sync.SyncPeerConnection.recv

    def slow(conn: sync.SyncPeerConnection, timeout: float | None = None) -> bytes:
        time.sleep(0.2)
        return plain(conn, timeout)

    monkeypatch.setattr(sync.SyncPeerConnection, "recv", slow)
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda _: files.ls("/"), range(5)))


def test_what_has_no_bytes(server: tuple[int, int]) -> None:
    with pytest.raises(TypeError, match="str has neither the buffer protocol nor DLPack: give b"):
        file_system(server[0]).pipe_file("/a", "text")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"host": None}, "host must be a str, not NoneType"),
        ({"host": ""}, "host is the name or the address of a host, and not ''"),
        ({"port": -1}, "port is a whole number from 1 to 65535, and not -1"),
        ({"port": "x"}, "port is a whole number from 1 to 65535, and not 'x'"),
        ({"timeout": "a"}, "timeout is a number of seconds, more than 0, .* or None, and not 'a'"),
        ({"timeout": 0}, "timeout is a number of seconds, more than 0"),
        ({"timeout": float("nan")}, "timeout is a number of seconds"),
        ({"timeout": float("inf")}, "timeout is .* more than 0, 1,000,000,000 at most"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        RemoteMemoryFileSystem(**options)


@pytest.mark.parametrize(
    "message",
    [
        b"\xff",
        b"[1]",
        b"{}",
        b'{"do": "fly", "path": "/"}',
        b'{"do": "mkdir", "path": "/"}',
        b'{"do": "write", "path": "/a", "exclusive": true, "replaces": "a"}',
    ],
)
def test_a_malformed_request(message: bytes) -> None:
    async def main() -> list[Any]:
        noise: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, about: noise.append(about))
        async with (
            serve("127.0.0.1:0") as found,
            await peers.connect(f"127.0.0.1:{found.port}") as conn,
        ):
            await conn.send(message)
            assert b"ends this connection" in bytes(await conn.recv())
            with pytest.raises(peers.PeerConnectionEnded):
                await conn.recv()
        return noise

    assert asyncio.run(main()) == []


def ask_until_it_listens(port: int) -> bytes:
    """By a client that tries until the server listens again."""
    for _ in range(200):
        with suppress(OSError):
            return file_system(port).cat_file("/kept")
        time.sleep(0.05)
    raise AssertionError("the server does not listen again")


def wait_until_it_listens(port: int) -> None:
    """The agent that is killed was also that of the server which the other tests share."""
    for _ in range(200):
        with suppress(ConnectionError):
            file_system(port).ls("/")
            return
        time.sleep(0.05)
    raise AssertionError("the server that tests share does not listen again")


def end_agent() -> None:
    described = describe_agent()
    assert described is not None
    os.kill(described["pid"], signal.SIGKILL)


def test_an_agent_that_is_killed(
    server: tuple[int, int], capfd: pytest.CaptureFixture[str]
) -> None:
    """The server listens by the next one, says so, and has its files still."""
    own_network_or_skip()
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            file_system(port).pipe_file("/kept", b"1")
            for _ in range(2):
                end_agent()
                assert ask_until_it_listens(port) == b"1"
        finally:
            process.kill()
    said = capfd.readouterr().err
    wait_until_it_listens(server[0])
    assert said.count("remote_files.serve: listening again: ") == 2


def test_an_agent_that_is_killed_and_a_port_that_another_took(
    server: tuple[int, int], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    own_network_or_skip()

    async def refuse(*arguments: object) -> Any:
        raise OSError(errno.EADDRINUSE, "another listener has the port")

    async def main() -> None:
        async with asyncio.timeout(20), serve("127.0.0.1:0"):
            monkeypatch.setattr(peers, "listen", refuse)
            end_agent()
            while "takes no more clients: another listener" not in capfd.readouterr().err:
                await asyncio.sleep(0.05)

    asyncio.run(main())
    wait_until_it_listens(server[0])


def test_pyarrow_takes_addresses_of_fsspec(server: tuple[int, int]) -> None:
    arrow = pytest.importorskip("pyarrow", reason="no package pyarrow; the extra sim has it")
    parquet = importlib.import_module("pyarrow.parquet")
    table = arrow.table({"numbers": list(range(1000))})
    address = f"fsspec+verbena://127.0.0.1:{server[0]}/numbers.parquet"
    parquet.write_table(table, address)
    assert parquet.read_table(address) == table
    assert parquet.read_table("numbers.parquet", filesystem=file_system(server[0])) == table


def test_a_forked_child_has_a_connection_of_its_own(server: tuple[int, int]) -> None:
    files = file_system(server[0])
    files.pipe_file("/before", b"the fork")
    child = os.fork()
    if not child:
        try:
            files.pipe_file("/child", files.cat_file("/before"))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert files.cat_file("/child") == files.cat_file("/before") == b"the fork"
