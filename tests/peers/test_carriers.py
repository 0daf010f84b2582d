# SPDX-License-Identifier: Apache-2.0
"""Two processes of one host of which only one has VERBENA_CARRIER=roce: they are told, at once."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import verbena
from tests.carriers import live_carriers
from verbena import verbs
from verbena.peers import PeerListener, sync
from verbena.peers.wire import Hello
from verbena.verbs.local_carrier import sends_local_packets

pytest_generate_tests = live_carriers
CHILD = str(Path(__file__).with_name("peer_child.py"))


def own_carrier() -> bool:
    with verbs.open_device() as context:
        packets = sends_local_packets(context)
    assert packets is not None
    return packets


@pytest.fixture(params=["cm", "socket"])
def other(request: pytest.FixtureRequest) -> Iterator[tuple[int, str]]:
    """A process with the other carrier that echoes messages: (port, via)."""
    environment = os.environ | {"VERBENA_CARRIER": "auto" if own_carrier() else "roce"}
    with subprocess.Popen(
        [sys.executable, CHILD, request.param], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), request.param
        finally:
            process.kill()


def check(error: verbs.ConnectError) -> None:
    here, there = str(error).split("and the peer, on the same host,")
    packets, direct = "(VERBENA_CARRIER=roce)", "(VERBENA_CARRIER=auto, the default, or direct)"
    if own_carrier():
        packets, direct = direct, packets
    assert error.errno == errno.EPROTONOSUPPORT
    assert direct in here
    assert packets in there
    assert "set VERBENA_CARRIER alike for both programs" in there


def test_connecting_is_refused(other: tuple[int, str]) -> None:
    port, via = other

    async def program() -> None:
        async with verbena.connect(f"127.0.0.1:{port}", via=via) as conn:
            await conn.send(b"never answered")
            await conn.recv()

    with pytest.raises(verbs.ConnectError) as refused:
        asyncio.run(asyncio.wait_for(program(), 8))
    check(refused.value)


def test_connecting_without_asyncio_is_refused(other: tuple[int, str]) -> None:
    port, via = other
    with pytest.raises(verbs.ConnectError) as refused:
        sync.connect(f"127.0.0.1:{port}", via=via, timeout=8).__enter__()
    check(refused.value)


@pytest.mark.parametrize("packets", [True, False, None])
def test_a_hello_says_it(packets: bool | None) -> None:
    hello = Hello(7, 32, 4096, 5, True, True, 0, True, packets)
    assert Hello.from_bytes(hello.to_bytes()) == hello


def test_one_that_does_not_say_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of an earlier version."""
    monkeypatch.setattr("verbena.peers.listening.sends_local_packets", lambda _: None)

    async def echo(listener: PeerListener) -> None:
        async with await listener.accept() as conn:
            await conn.send(await conn.recv())

    async def program() -> bytes:
        async with verbena.listen("127.0.0.1:0") as listener, asyncio.TaskGroup() as group:
            group.create_task(echo(listener))
            async with verbena.connect(f"127.0.0.1:{listener.port}") as conn:
                await conn.send(b"hello")
                return await conn.recv()

    assert asyncio.run(asyncio.wait_for(program(), 20)) == b"hello"
