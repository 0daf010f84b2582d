# SPDX-License-Identifier: Apache-2.0
"""A program of verbena.peers whose agent is killed: what its listener says, and that it goes on."""

from __future__ import annotations

import asyncio
import os
import signal

import verbena
from verbena import cm
from verbena.agent.client import describe_agent
from verbena.peers import PeerConnection, PeerListener, Reconnect


async def echo(conn: PeerConnection) -> None:
    async with conn:
        async for message in conn:
            await conn.send(message)


async def serve(listener: PeerListener, group: asyncio.TaskGroup) -> None:
    try:
        async for conn in listener:
            group.create_task(echo(conn))
    except cm.ManagerEnded as ended:
        print("ended:", ended.strerror, flush=True)


async def ask(conn: PeerConnection, word: bytes) -> None:
    await conn.send(word)
    print(bytes(await conn.recv()).decode(), flush=True)


async def main() -> None:
    policy = Reconnect(within=5)
    async with asyncio.TaskGroup() as group:
        listener = await verbena.listen("127.0.0.1:0", reconnect=policy)
        serving = group.create_task(serve(listener, group))
        address = f"127.0.0.1:{listener.port}"
        async with listener, verbena.connect(address, reconnect=policy) as conn:
            await ask(conn, b"before")
            agent = describe_agent()
            assert agent is not None
            os.kill(agent["pid"], signal.SIGKILL)
            await serving
            await ask(conn, b"after")
            async with verbena.listen(address) as again:
                group.create_task(serve(again, group))
                async with verbena.connect(address) as new:
                    await ask(new, b"again")


asyncio.run(main())
