# SPDX-License-Identifier: Apache-2.0
"""Programs that tests run on simulated hosts and, as they are, on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from verbena import aio, verbs

ALL = 15


@dataclass
class End:
    """One end of an RC connection, with its memory."""

    ctx: verbs.Context
    acq: aio.AsyncCQ
    qp: aio.AsyncQP
    mr: verbs.MR
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def tell_region(self) -> None:
        self.writer.write(self.mr.addr.to_bytes(8, "big") + self.mr.rkey.to_bytes(4, "big"))

    async def region(self) -> tuple[int, int]:
        data = await self.reader.readexactly(12)
        return int.from_bytes(data[:8], "big"), int.from_bytes(data[8:], "big")

    async def wait_for_peer(self) -> None:
        """Both have come so far."""
        self.writer.write(b"!")
        await self.reader.readexactly(1)


@asynccontextmanager
async def opened(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, nbytes: int, **options: Any
) -> AsyncIterator[End]:
    with verbs.open_device() as ctx:
        pd = ctx.alloc_pd()
        with aio.AsyncCQ(ctx.create_cq(1024, ctx.create_comp_channel())) as acq:
            qp = pd.create_qp(send_cq=acq.cq)
            mr = pd.alloc(nbytes, ALL)
            await aio.connect_rc(qp, reader, writer, **options)
            yield End(ctx, acq, aio.AsyncQP(qp, acq), mr, reader, writer)
    writer.close()


@asynccontextmanager
async def called(port: int, /, nbytes: int = 4096, **options: Any) -> AsyncIterator[End]:
    """The end of a server that serves one caller."""
    calls: asyncio.Queue[Any] = asyncio.Queue()
    async with (
        await asyncio.start_server(lambda *pair: calls.put_nowait(pair), None, port),
        opened(*await calls.get(), nbytes, **options) as end,
    ):
        yield end


@asynccontextmanager
async def calling(
    host: str, port: int, /, nbytes: int = 4096, **options: Any
) -> AsyncIterator[End]:
    async with opened(*await asyncio.open_connection(host, port), nbytes, **options) as end:
        yield end


async def echo(port: int, count: int, size: int = 64) -> bytes:
    """Answers ``count`` messages with themselves; returns the last."""
    async with called(port) as end:
        received = end.qp.recv(end.mr)
        end.writer.write(b"!")
        for _ in range(count):
            wc = await received
            received = end.qp.recv(end.mr)
            sent = end.qp.send(end.mr, length=wc.byte_len)
        await sent
        return bytes(memoryview(end.mr)[:size])


async def ping(host: str, port: int, count: int, size: int = 64) -> float:
    """Sends ``count`` messages, each when the last was answered; the seconds that they took."""
    async with calling(host, port) as end:
        await end.reader.readexactly(1)  # the receive is posted
        begin = asyncio.get_running_loop().time()
        for number in range(count):
            memoryview(end.mr)[:size] = bytes([number % 256]) * size
            answer = end.qp.recv(end.mr, 1024, size)
            end.qp.send(end.mr, length=size)
            await answer
            assert memoryview(end.mr)[1024 : 1024 + size] == bytes([number % 256]) * size
        return asyncio.get_running_loop().time() - begin


async def take_writes(port: int, nbytes: int) -> bytes:
    """Offers memory, and returns what was written into it."""
    async with called(port, nbytes) as end:
        await end.tell_region()
        await end.wait_for_peer()
        return bytes(memoryview(end.mr))


async def write(host: str, port: int, data: bytes, pieces: int = 1) -> float:
    """Writes ``data`` into the server's memory; the seconds that it took."""
    async with calling(host, port, len(data)) as end:
        memoryview(end.mr)[:] = data
        addr, rkey = await end.region()
        begin = asyncio.get_running_loop().time()
        size = len(data) // pieces
        operations = [
            end.qp.write(end.mr, addr + at, rkey, at, size) for at in range(0, len(data), size)
        ]
        for operation in operations:
            await operation
        took = asyncio.get_running_loop().time() - begin
        await end.wait_for_peer()
        return took
