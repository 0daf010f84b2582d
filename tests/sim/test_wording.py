# SPDX-License-Identifier: Apache-2.0
"""What programs on simulated hosts see when a run ends, or a name is unknown."""

from __future__ import annotations

import asyncio
import logging
import socket

import pytest

from verbena import fabrics, sim
from verbena.internet import Internet


def two_hosts() -> Internet:
    net = Internet(seed=1)
    net.host("h0"), net.host("h1")
    net.link("h0", "h1")
    return net


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(await reader.readexactly(5))


async def serve() -> None:
    async with await asyncio.start_server(echo, port=7000) as server:
        await server.serve_forever()


async def ask() -> bytes:
    reader, writer = await asyncio.open_connection("h0", 7000)
    writer.write(b"hello")
    return await reader.readexactly(5)


@pytest.mark.parametrize("kind", ["internet", "fabric"])
def test_a_server_that_is_cancelled_at_the_end_says_nothing(
    kind: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.WARNING)
    programs = {"h0": serve, "h1": ask}
    if kind == "internet":
        result = sim.run(programs, two_hosts(), background=["h0"])
    else:
        fabric = fabrics.ring(3, rate="10GbE", length_m=10)
        result = sim.run(programs, fabric, sockets="tcp", background=["h0"])
    assert result.returned["h1"] == b"hello"
    assert caplog.records == []
    assert "Traceback" not in capfd.readouterr().err


def test_a_name_that_is_unknown_is_one_error() -> None:
    async def lost() -> None:
        await asyncio.open_connection("nowhere", 7000)

    with pytest.raises(socket.gaierror, match=r"no host .* is called 'nowhere'") as caught:
        sim.run({"h0": lost}, two_hosts())
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


def test_an_error_of_a_callback_is_still_said(caplog: pytest.LogCaptureFixture) -> None:
    async def careless() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    sim.run({"h0": careless}, two_hosts())
    assert "division by zero" in caplog.text
