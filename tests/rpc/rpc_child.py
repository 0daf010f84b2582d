# SPDX-License-Identifier: Apache-2.0
"""Processes for the tests of verbena.rpc.

``rpc_child.py serve VIA`` prints its port and serves; ``rpc_child.py call VIA PORT REQUEST`` calls
a method that does not return, and prints when it has begun.
"""

from __future__ import annotations

import asyncio
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


if __name__ == "__main__":
    asyncio.run({"serve": serve, "call": call}[sys.argv[1]](*sys.argv[2:]))
