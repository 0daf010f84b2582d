# SPDX-License-Identifier: Apache-2.0
"""Python programs on simulated hosts, as fabric_scripts measures them.

As in ``docs/simulation.md``: an AsyncCQ and an AsyncQP at each end, and SENDs of 64 bytes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from verbena import aio, fabrics, sim, verbs

PORT, SIZE, ALL = 7471, 64, 15
MESSAGES = 20_000  # of a run
WINDOW = 64  # SENDs and receives under way in a stream
BATCH = 16  # completions of one poll

Client = Callable[["End"], Coroutine[Any, Any, float]]
Server = Callable[["End"], Coroutine[Any, Any, None]]


class End:
    """One end of an RC connection."""

    def __init__(self, qp: aio.AsyncQP, mr: verbs.MR) -> None:
        self.qp = qp
        self.mr = mr

    def send(self) -> aio.Operation:
        return self.qp.send(self.mr, 0, SIZE)

    def recv(self) -> aio.Operation:
        return self.qp.recv(self.mr, 0, SIZE)


@asynccontextmanager
async def connected(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> AsyncIterator[End]:
    with verbs.open_device() as ctx:
        pd = ctx.alloc_pd()
        acq = aio.AsyncCQ(ctx.create_cq(512, ctx.create_comp_channel()))
        qp = pd.create_qp(send_cq=acq.cq)
        await aio.connect_rc(qp, reader, writer)
        yield End(aio.AsyncQP(qp, acq), pd.alloc(SIZE, ALL))
        writer.write(b"!")
        await reader.readexactly(1)  # the other end is done too
        writer.close()


def measured(server: Server, client: Client) -> float:
    """The seconds on the wall that ``client`` says it took, connected to ``server``."""

    async def serve() -> None:
        calls: asyncio.Queue[Any] = asyncio.Queue()
        async with await asyncio.start_server(lambda *pair: calls.put_nowait(pair), port=PORT):
            reader, writer = await calls.get()
            async with connected(reader, writer) as end:
                await server(end)

    async def call() -> float:
        async with connected(*await asyncio.open_connection("h0", PORT)) as end:
            return await client(end)

    fabric = fabrics.ring(6, rate="100GbE", length_m=5)
    seconds: float = sim.run({"h0": serve, "h5": call}, fabric).returned["h5"]
    return seconds


def ping_pong() -> float:
    """Measure messages that each end awaits and answers."""

    async def server(end: End) -> None:
        received = end.recv()
        for _ in range(MESSAGES // 2):
            await received
            received = end.recv()
            end.send()

    async def client(end: End) -> float:
        await asyncio.sleep(1e-3)  # the first receive is posted
        start = time.perf_counter()
        for _ in range(MESSAGES // 2):
            answer = end.recv()
            end.send()
            await answer
        return time.perf_counter() - start

    return MESSAGES / measured(server, client)


def stream() -> float:
    """Measure a stream: one end awaits each SEND, the other each message."""

    async def server(end: End) -> None:
        posted = [end.recv() for _ in range(2 * WINDOW)]
        for n in range(MESSAGES):
            at = n % len(posted)
            await posted[at]
            posted[at] = end.recv()

    async def client(end: End) -> float:
        await asyncio.sleep(1e-3)
        start = time.perf_counter()
        sent = [end.send() for _ in range(WINDOW)]
        for n in range(MESSAGES - WINDOW):
            at = n % WINDOW
            await sent[at]
            sent[at] = end.send()
        for operation in sent:
            await operation
        return time.perf_counter() - start

    return MESSAGES / measured(server, client)


def callbacks() -> float:
    """Return the seconds for each completion that is polled and passed to a function."""

    async def program() -> float:
        took = 0.0
        with verbs.open_device() as ctx:
            cq = ctx.create_cq(2 * BATCH)
            pair = [ctx.alloc_pd().create_qp(send_cq=cq) for _ in range(2)]
            verbs.connect_pair(*pair)
            mr = pair[0].pd.alloc(SIZE, ALL)
            target = pair[1].pd.alloc(SIZE, ALL)
            given: list[verbs.WC] = []
            for _ in range(MESSAGES // BATCH):
                for _ in range(BATCH):
                    pair[0].write(mr, target.addr, target.rkey)
                await asyncio.sleep(1e-3)
                given.clear()
                took += handed(cq, given.append)
                if len(given) != BATCH or not all(wc.is_success for wc in given):
                    raise RuntimeError(f"of {BATCH} WRITEs these completed: {given}")
        return took

    seconds: float = sim.run({"h0": program}, fabrics.one_switch(2)).returned["h0"]
    return seconds / MESSAGES


def handed(cq: verbs.CQ, function: Callable[[verbs.WC], None]) -> float:
    """Return the seconds for the whole run."""

    def callback(wc: verbs.WC) -> None:
        function(wc)

    start = time.perf_counter()
    for wc in cq.poll(BATCH):
        callback(wc)
    return time.perf_counter() - start
