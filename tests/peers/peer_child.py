# SPDX-License-Identifier: Apache-2.0
"""An echo server of verbena.peers for the tests: ``peer_child.py VIA`` prints its port."""

from __future__ import annotations

import asyncio
import sys

import verbena


async def main() -> None:
    async with verbena.listen("127.0.0.1:0", via=sys.argv[1]) as listener:
        print(listener.port, flush=True)
        async for conn in listener:
            async with conn:
                async for message in conn:
                    await conn.send(message)


asyncio.run(main())
