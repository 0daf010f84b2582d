# SPDX-License-Identifier: Apache-2.0
"""Processes for the tests of verbena.rpc.

``rpc_child.py serve VIA`` prints its port and serves; ``rpc_child.py call VIA PORT REQUEST`` calls
a method that does not return, and prints when it has begun. ``rpc_child.py fork VIA PORT`` forks
between calls; its child leaves the blocks by ``sys.exit``.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from verbena import rpc


@rpc.service
class Held:
    async def hold(self, data: bytes) -> int:
        await asyncio.sleep(60)
        return len(data)

    def echo(self, data: bytes) -> bytes:
        return data

    def split(self, how: str) -> int:
        return forked(how)

    async def split_later(self, how: str) -> int:
        await asyncio.sleep(0)
        return forked(how)

    def status(self, child: int) -> int:
        """Return the exit status of a child; -1: it lives."""
        ended, status = os.waitpid(child, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if ended else -1


def forked(how: str) -> int:
    """Return the child in the parent; the child leaves the method in some way."""
    child = os.fork()
    if child or how == "return":
        return child
    raise SystemExit(5) if how == "exit" else ValueError("of the child")


async def serve(via: Any) -> None:
    async with rpc.serve(Held(), "127.0.0.1:0", via=via) as server:
        print(server.port, flush=True)
        await server.wait_closed()


async def call(via: Any, port: str, request: str) -> None:
    plan = rpc.Strategies(request)
    async with rpc.connect(f"127.0.0.1:{port}", via=via, strategies=plan) as client:
        held = asyncio.create_task(client.held("by a child"))
        await asyncio.sleep(0)  # its request is sent before the next one
        await client.add(1)
        print("calls", flush=True)
        await held


async def fork(via: Any, port: str) -> None:
    async def go_on(client: rpc.Client) -> None:
        for number in range(5):
            assert await client.echo(b"%d" % number) == b"%d" % number
            await asyncio.sleep(0.02)

    async with (
        rpc.connect(f"127.0.0.1:{port}", via=via) as client,
        rpc.serve(Held(), "127.0.0.1:0", via=via) as server,
    ):
        await go_on(client)
        child = os.fork()
        if not child:
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        await go_on(client)
        async with rpc.connect(f"127.0.0.1:{server.port}", via=via) as other:
            await go_on(other)
    print("goes on")


if __name__ == "__main__":
    asyncio.run({"serve": serve, "call": call, "fork": fork}[sys.argv[1]](*sys.argv[2:]))
