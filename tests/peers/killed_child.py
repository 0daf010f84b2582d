# SPDX-License-Identifier: Apache-2.0
"""A peer that shares an array, echoes messages and lends windows until the test kills it:
``killed_child.py VIA`` prints its port."""

from __future__ import annotations

import asyncio
import pickle
import sys

import verbena


async def main() -> None:
    async with verbena.listen("127.0.0.1:0", via=sys.argv[1]) as listener:
        print(listener.port, flush=True)
        async with await listener.accept() as conn:
            mine = conn.array(1 << 16, "i8")
            await conn.send(pickle.dumps(conn.share(mine)))
            async for message in conn:
                async with conn.lend(mine[:100]) as window:
                    await conn.send(pickle.dumps(window))
                    await conn.send(message)


asyncio.run(main())
