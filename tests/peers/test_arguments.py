# SPDX-License-Identifier: Apache-2.0
"""What connections to peers, calls and collective calls say of options that do not exist."""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import verbena
from verbena import collectives, rpc
from verbena.collectives import sync as sync_collectives
from verbena.peers import PeerError, Reconnect, sync
from verbena.peers.connection import parse_address, shape_of

OPENERS: list[tuple[Callable[..., Any], str]] = [
    (verbena.connect, "slots"),
    (verbena.listen, "slots"),
    (sync.connect, "timeout"),
    (sync.listen, "slots"),
    (rpc.serve, "calls"),
    (rpc.connect, "timeout"),
    (collectives.join, "timeout"),
    (sync_collectives.join, "timeout"),
]


@pytest.mark.parametrize(("opener", "option"), OPENERS)
def test_an_unknown_option(opener: Callable[..., Any], option: str) -> None:
    """It is refused at the call, before anything was opened."""
    wrong = option[:-2] + option[:-3:-1]
    with pytest.raises(TypeError, match=f"no option '{wrong}': did you mean '{option}'"):
        opener("127.0.0.1:7174", **{wrong: 3})
    assert option in inspect.signature(opener).parameters


def test_a_timeout_is_seconds() -> None:
    with pytest.raises(TypeError, match=r"timeout is a number of seconds, .* and not '3'"):
        rpc.connect("127.0.0.1:7174", timeout="3")  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [-1, 0, -0.5])
@pytest.mark.parametrize("connect", [verbena.connect, sync.connect], ids=["async", "sync"])
def test_a_connection_needs_time(connect: Callable[..., Any], timeout: float) -> None:
    with pytest.raises(ValueError, match=f"timeout is .* more than 0, or None, and not {timeout}"):
        connect("127.0.0.1:7174", timeout=timeout)


@pytest.mark.parametrize("via", ["cm", "socket"])
@pytest.mark.parametrize("seconds", [1e10, 1e300])
def test_a_time_beyond_all_others_is_no_limit(via: str, seconds: float) -> None:
    async def main() -> str:
        async with verbena.listen("127.0.0.1:0", via=via) as listener:
            accepting = asyncio.create_task(listener.accept())
            address = f"127.0.0.1:{listener.port}"
            connecting = verbena.connect(address, via=via, timeout=seconds)
            async with connecting as conn, await accepting:
                return str(conn.closed)

    assert asyncio.run(main()) == "None"


@contextmanager
def blocking_pair(
    listener: sync.SyncPeerListener,
) -> Iterator[tuple[sync.SyncPeerConnection, sync.SyncPeerConnection]]:
    """Both sides of a connection."""
    with ThreadPoolExecutor(1) as thread:
        accepting = thread.submit(listener.accept, 20)
        with sync.connect(f"127.0.0.1:{listener.port}") as conn, accepting.result() as peer:
            yield conn, peer


WRONG_TIMES = [-1, float("nan"), float("inf"), "x", True]


@pytest.mark.parametrize("wrong", WRONG_TIMES)
def test_calls_that_block_check_their_timeouts(wrong: Any) -> None:
    """They do it before there is a coroutine, which nobody would await (and that is an error)."""
    expected = pytest.raises((TypeError, ValueError), match="timeout is a number of seconds")
    with sync.listen("127.0.0.1:0") as listener:
        with expected:
            listener.accept(wrong)
        with blocking_pair(listener) as (conn, peer):
            for call in (conn.recv, conn.wait_closed):
                with expected:
                    call(timeout=wrong)
            with expected:
                conn.send(b"x", wrong)
            with expected, conn.borrow(wrong):
                pass
            peer.send(b"y")
            assert conn.recv(1e300) == b"y"
    gc.collect()


def test_calls_that_block_say_what_has_not_happened() -> None:
    with sync.listen("127.0.0.1:0") as listener:
        with pytest.raises(TimeoutError, match=r"no peer connected within 0\.01 s"):
            listener.accept(0.01)
        with blocking_pair(listener) as (conn, peer):
            with pytest.raises(TimeoutError, match="no message came within 0 s"):
                conn.recv(0)
            late = pytest.raises(TimeoutError, match=r"no message came within 0\.01 s")
            with late, conn.borrow(0.01):
                pass
            with pytest.raises(TimeoutError, match=r"has not ended within 0\.01 s"):
                peer.wait_closed(0.01)


def test_a_connection_closes_in_a_number_of_seconds() -> None:
    async def main() -> None:
        async with verbena.listen("127.0.0.1:0") as listener:
            accepting = asyncio.create_task(listener.accept())
            async with verbena.connect(f"127.0.0.1:{listener.port}") as conn:
                peer = await accepting
                for wrong in (-1, float("nan"), "x", True):
                    with pytest.raises((TypeError, ValueError), match="patience is a number"):
                        await conn.close(wrong)  # type: ignore[arg-type]
                assert conn.closed is None
                await peer.close()

    asyncio.run(main())


def test_slots_are_numbers() -> None:
    async def listen(**options: Any) -> None:
        async with verbena.listen("127.0.0.1:0", **options):
            pass

    with pytest.raises(TypeError, match="slots must be a whole number, not str"):
        asyncio.run(listen(slots="4"))
    with pytest.raises(TypeError, match="slot_size must be a whole number, not float"):
        asyncio.run(listen(slot_size=4096.0))
    with pytest.raises(ValueError, match="slots is from 1 to 4096, and not 0"):
        asyncio.run(listen(slots=0))


@pytest.mark.parametrize(
    ("shape", "dims"), [(3, (3,)), ((), ()), ([2, 0], (2, 0)), (np.int64(4), (4,))]
)
def test_shapes_of_arrays(shape: Any, dims: tuple[int, ...]) -> None:
    assert shape_of(shape) == dims


@pytest.mark.parametrize("shape", [-1, (2, -1)])
def test_negative_shapes(shape: Any) -> None:
    with pytest.raises(ValueError, match="shape has no negative numbers"):
        shape_of(shape)


@pytest.mark.parametrize("shape", ["x", 2.5, None, ("a",), True, (2, False)])
def test_what_is_no_shape(shape: Any) -> None:
    with pytest.raises(TypeError, match="shape is a number, or a tuple of numbers, and not"):
        shape_of(shape)


def test_a_shape_beyond_all_memory() -> None:
    with pytest.raises(ValueError, match="more items than a memory has"):
        shape_of((1 << 62, 1 << 62))


def test_a_taken_port_says_what_to_do() -> None:
    async def main() -> None:
        async with (
            verbena.listen("127.0.0.1:7198", via="cm"),
            verbena.listen("127.0.0.1:7198", via="cm"),
        ):
            pass

    with pytest.raises(OSError, match="choose another port") as caught:
        asyncio.run(main())
    assert "REUSEADDR" not in str(caught.value)


@pytest.mark.parametrize("address", [None, 3.5, ("h", 1), b"h:1", True])
def test_what_is_no_address(address: Any) -> None:
    async def main() -> None:
        await verbena.listen(address)

    async def call() -> None:
        await verbena.connect(address)

    for open_it in (main, call):
        with pytest.raises(TypeError, match="is not an address"):
            asyncio.run(open_it())


def test_ports_that_do_not_exist() -> None:
    for address in (70_000, "127.0.0.1:70000"):
        with pytest.raises(ValueError, match="port must be from 0 to 65535"):
            parse_address(address)


@pytest.mark.parametrize(
    "given", [{"within": "x"}, {"within": -1}, {"first": -1}, {"most": 0}, {"first": 3, "most": 2}]
)
def test_reconnects_that_cannot_be(given: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(given))):
        Reconnect(**given)


def test_a_device_that_is_not_there() -> None:
    """The connection manager takes the device of the address, so it cannot have another one."""

    async def attempt(open_it: Callable[..., Any], **options: Any) -> None:
        await open_it("127.0.0.1:7997", device="nosuch", **options)

    for open_it in (verbena.listen, verbena.connect):
        with pytest.raises(OSError, match="nosuch"):
            asyncio.run(attempt(open_it))
        with pytest.raises(ValueError, match="device='nosuch' is for the exchange over a socket"):
            asyncio.run(attempt(open_it, via="cm"))


def test_a_server_that_says_nothing() -> None:
    async def main() -> float:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        async with await asyncio.start_server(silent, "127.0.0.1", 0) as stranger:
            address = "127.0.0.1:{1}".format(*stranger.sockets[0].getsockname())
            before = asyncio.get_running_loop().time()
            with pytest.raises(PeerError, match=r"has not answered in 0\.2 seconds"):
                await verbena.connect(address, via="socket", timeout=0.2)
            return asyncio.get_running_loop().time() - before

    assert asyncio.run(main()) < 5


async def attempt_at(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> None:
    """Connect to a server that is no listener."""
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as stranger:
        port = stranger.sockets[0].getsockname()[1]
        await verbena.connect(f"127.0.0.1:{port}", via="socket", timeout=5)


def test_a_server_that_sends_back_what_it_gets() -> None:
    async def mirror(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    with pytest.raises(PeerError, match=r"127\.0\.0\.1:[0-9]+ sends back what it gets"):
        asyncio.run(attempt_at(mirror))


@pytest.mark.parametrize("reads", [0, 1])
def test_a_server_that_closes_at_once(reads: int) -> None:
    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(reads)
        writer.close()

    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:[0-9]+ closed the socket"):
        asyncio.run(attempt_at(close))


@pytest.mark.parametrize("host", ["nohost.invalid", "a" * 300])
def test_a_host_without_an_address(host: str) -> None:
    async def main() -> None:
        await verbena.connect(f"{host}:7174", via="socket")

    with pytest.raises(OSError, match=f"{host}: .*: check the host's name"):
        asyncio.run(main())


@pytest.mark.parametrize("connect", [verbena.connect, rpc.connect])
def test_tls_is_a_context(connect: Callable[..., Any]) -> None:
    async def main() -> None:
        await connect("127.0.0.1:7174", tls=1)

    with pytest.raises(TypeError, match="tls"):
        asyncio.run(main())


def test_a_client_that_says_nothing_leaves_no_traceback(capfd: Any) -> None:
    async def main() -> None:
        listener = await verbena.listen("127.0.0.1:0", via="socket")
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        await asyncio.sleep(0.05)
        del writer

    asyncio.run(main())
    assert "Traceback" not in capfd.readouterr().err
