# SPDX-License-Identifier: Apache-2.0
"""The same programs on asyncio's own sockets and on simulated hosts, with equal results."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from verbena import fabrics, sim
from verbena.internet import Internet

PORT = 7000
TCP_KINDS = ("fabric", "internet")
KINDS = (*TCP_KINDS, "control")
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Client = Callable[[str, int], Awaitable[Any]]


def two_hosts(kind: str) -> tuple[Any, dict[str, Any]]:
    """Return a network with the hosts h0 and h1, and the keywords of ``sim.run`` for it."""
    if kind == "internet":
        net = Internet(seed=5)
        net.host("h0")
        net.host("h1")
        net.link("h0", "h1", delay_us=1000)
        return net, {}
    fabric = fabrics.one_switch(2, rate="10GbE")
    return fabric, {"sockets": "tcp"} if kind == "fabric" else {}


async def _idle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


def really(client: Client, serve: Handler = _idle) -> Any:
    """Run a client and a server with sockets of this machine; return what the client returned."""

    async def both() -> Any:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            return await client("127.0.0.1", server.sockets[0].getsockname()[1])

    return asyncio.run(asyncio.wait_for(both(), 30))


def simulated(kind: str, client: Client, serve: Handler = _idle) -> Any:
    """The same between two simulated hosts."""

    async def server() -> None:
        await (await asyncio.start_server(serve, None, PORT)).serve_forever()

    net, keywords = two_hosts(kind)
    programs: Any = {"h0": server, "h1": lambda: client("h0", PORT)}
    return sim.run(programs, net, background=["h0"], **keywords).returned["h1"]


def alone(kind: str, program: Callable[[str], Awaitable[Any]]) -> Any:
    """Run a program, which gets a name of its own host, on one simulated host."""
    net, keywords = two_hosts(kind)
    return sim.run({"h1": lambda: program("h1")}, net, **keywords).returned["h1"]


@pytest.mark.parametrize("kind", TCP_KINDS)
def test_nagle_is_off_until_the_program_turns_it_on(kind: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clock = asyncio.get_running_loop().time
        await reader.readexactly(100)
        began = clock()
        await reader.readexactly(200)
        writer.write(b"late" if clock() - began > 0.03 else b"soon")
        writer.close()

    async def client(host: str, port: int) -> list[Any]:
        seen: list[Any] = []
        for change in (None, 0):
            reader, writer = await asyncio.open_connection(host, port)
            options = writer.get_extra_info("socket")
            seen.append(bool(options.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
            if change is not None:
                options.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, change)
            await asyncio.sleep(0.1)
            for size in (100, 200):
                writer.write(bytes(size))
                await asyncio.sleep(0)
            seen.append(await reader.read())
            writer.close()
        return seen

    found = simulated(kind, client, serve)
    assert found == [True, b"soon", True, b"late"]
    assert really(client, serve)[:3] == found[:3]  # the machine's own delay varies
