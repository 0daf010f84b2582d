# SPDX-License-Identifier: Apache-2.0
"""Programs on simulated hosts that close nothing: the interpreter's end finds all of it."""

from __future__ import annotations

import asyncio
from typing import Any

from verbena import aio, fabrics, sim, verbs

PORT, MESSAGES, AT_ONCE = 7471, 300, 64


async def connect(reader: Any, writer: Any) -> tuple[aio.AsyncQP, verbs.MR]:
    ctx = verbs.open_device()
    pd = ctx.alloc_pd()
    cq = aio.AsyncCQ(ctx.create_cq(512, ctx.create_comp_channel()))
    qp = pd.create_qp(send_cq=cq.cq)
    await aio.connect_rc(qp, reader, writer)
    return aio.AsyncQP(qp, cq), pd.alloc(4096, verbs.AccessFlags.LOCAL_WRITE)


async def server() -> None:
    calls: asyncio.Queue[tuple[Any, Any]] = asyncio.Queue()
    async with await asyncio.start_server(lambda *call: calls.put_nowait(call), port=PORT):
        reader, writer = await calls.get()
        qp, mr = await connect(reader, writer)
        receives = [qp.recv(mr, 0, 64) for _ in range(100)]
        writer.write(b"!")
        for n in range(MESSAGES):
            await receives[n % 100]
            receives[n % 100] = qp.recv(mr, 0, 64)
        writer.close()


async def client() -> None:
    reader, writer = await asyncio.open_connection("h0", PORT)
    qp, mr = await connect(reader, writer)
    await reader.readexactly(1)
    sends = [qp.send(mr, 0, 64) for _ in range(AT_ONCE)]
    for n in range(MESSAGES - AT_ONCE):
        await sends[n % AT_ONCE]
        sends[n % AT_ONCE] = qp.send(mr, 0, 64)
    for send in sends:
        await send
    writer.close()


sim.run({"h0": server, "h5": client}, fabrics.ring(6, rate="100GbE", length_m=5))
