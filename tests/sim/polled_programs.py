# SPDX-License-Identifier: Apache-2.0
"""Programs that tests run on simulated hosts, which poll where those of programs.py are woken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from verbena import aio, verbs

BEGIN = 1e-3  # the request is posted; the peer looks from then on
SOLICITED = verbs.SendFlags.SIGNALED | verbs.SendFlags.SOLICITED
LAST = 0x5A5A5A5A5A5A5A5A
PS = 1e-12


@dataclass
class Polled:
    """One end of an RC connection that has no thread and no loop to wake it."""

    cq: verbs.CQ
    qp: verbs.QP
    mr: verbs.MR
    channel: verbs.CompChannel
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def meet(self) -> None:
        self.writer.write(b"!")
        await self.reader.readexactly(1)


@asynccontextmanager
async def polled(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, nbytes: int
) -> AsyncIterator[Polled]:
    with verbs.open_device() as ctx:
        pd, channel = ctx.alloc_pd(), ctx.create_comp_channel()
        cq = ctx.create_cq(64, channel)
        qp, mr = pd.create_qp(send_cq=cq), pd.alloc(nbytes, 15)
        await aio.connect_rc(qp, reader, writer)
        yield Polled(cq, qp, mr, channel, reader, writer)
    writer.close()


def now() -> int:
    """ps"""
    return round(asyncio.get_running_loop().time() / PS)


async def at(seconds: float) -> None:
    await asyncio.sleep(seconds - asyncio.get_running_loop().time())


async def spin(cq: verbs.CQ, seconds: float = 1e-9) -> verbs.WC:
    """Polls every so often, and lets the other host's program run in between."""
    while not (found := cq.poll(1)):
        await asyncio.sleep(seconds)
    assert found[0].status == verbs.WCStatus.SUCCESS
    return found[0]


@asynccontextmanager
async def offered(port: int, nbytes: int) -> AsyncIterator[Polled]:
    """The end of a server: memory that its caller knows, and a receive."""
    calls: asyncio.Queue[Any] = asyncio.Queue()
    async with (
        await asyncio.start_server(lambda *call: calls.put_nowait(call), None, port),
        polled(*await calls.get(), nbytes) as end,
    ):
        end.qp.recv(end.mr)
        end.writer.write(end.mr.addr.to_bytes(8, "big") + end.mr.rkey.to_bytes(4, "big"))
        await end.meet()
        yield end
        await end.meet()


async def serve(port: int, nbytes: int, found_by: str) -> int:
    """Offers memory, and a receive if it polls; returns the time at which it found a message."""
    async with offered(port, nbytes) as end:
        await at(BEGIN + 1e-9)
        if found_by == "completion":
            await spin(end.cq)
        elif found_by == "call":
            end.cq.wait_one()
        elif found_by == "event":
            end.cq.req_notify()
            assert end.channel.get_cq_event() is end.cq
            assert end.cq.poll(1)
        elif found_by == "memory in short waits":
            while not end.mr.wait_u64(nbytes - 8, LAST, timeout=5e-8):
                pass
        elif found_by == "memory":
            assert end.mr.wait_u64(nbytes - 8, LAST)
        return now()


async def use(
    host: str, port: int, nbytes: int, operation: str, every: float = 1e-9
) -> tuple[int, int]:
    """Posts one request; returns the times of that, and of its completion."""
    async with polled(*await asyncio.open_connection(host, port), nbytes) as end:
        data = await end.reader.readexactly(12)
        there = int.from_bytes(data[:8], "big"), int.from_bytes(data[8:], "big")
        end.mr.store_u64(nbytes - 8, LAST)
        await end.meet()
        await at(BEGIN)
        begin = now()
        if operation == "send":
            end.qp.send(end.mr, flags=SOLICITED)
        elif operation == "write_imm":
            end.qp.write(end.mr, *there, imm_data=1)
        else:
            getattr(end.qp, operation)(end.mr, *there)
        await spin(end.cq, every)
        done = now()
        await end.meet()
        return begin, done


async def look(end: Polled, order: str, solicited: bool) -> int:
    for word in order.split():
        if word == "arm":
            end.cq.req_notify(solicited)
        elif word == "drain":
            end.channel.drain()
        elif end.cq.poll(1):
            return now()
    return 0


async def sleep_until_found(end: Polled, order: str, solicited: bool, first: float) -> int:
    """Arms, looks at ``first`` for a reason of its own, and then whenever it is woken."""
    woken, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(end.channel.fd, woken.set)
    try:
        end.cq.req_notify(solicited)
        await at(first)
        while not (found := await look(end, order, solicited)):
            woken.clear()
            loop.add_reader(end.channel.fd, woken.set)  # again, as some programs do
            async with asyncio.timeout(1e-3):
                await woken.wait()
        return found
    finally:
        loop.remove_reader(end.channel.fd)


async def look_early(port: int, order: str, solicited: bool, lag: int) -> int:
    async with offered(port, 64) as end:
        return await sleep_until_found(end, order, solicited, BEGIN + lag * PS)


async def change_meanwhile(port: int, lag: int, change: str) -> int:
    """Resizes its CQ, or destroys its QP, at ``lag`` ps. Returns when it found the message."""
    async with offered(port, 64) as end:
        await at(BEGIN + lag * PS)
        assert not end.cq.poll(1)
        if change == "resize":
            end.cq.resize(1024)
            await spin(end.cq)
        else:
            end.qp.close()
            await asyncio.sleep(1e-4)
            assert not end.cq.poll(1)
        return now()


async def sleep_for_one(end: Polled) -> int:
    """Returns when an interrupt has woken it, and it has the one completion."""
    woken, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(end.channel.fd, woken.set)
    end.cq.req_notify()
    await woken.wait()
    loop.remove_reader(end.channel.fd)
    end.channel.drain()
    assert len(end.cq.poll(8)) == 1
    return now()


async def take_many(port: int, polls: int) -> int:
    """Polls for so many messages, and sleeps until the last one."""
    async with offered(port, 64) as end:
        for _ in range(polls):
            await spin(end.cq, 1e-7)
            end.qp.recv(end.mr)
            end.writer.write(b"!")
        return await sleep_for_one(end)


async def send_many(host: str, port: int, polls: int) -> tuple[int, int]:
    """Sends so many messages, whose completions it polls for, and sleeps until that of the last."""
    async with polled(*await asyncio.open_connection(host, port), 64) as end:
        await end.reader.readexactly(12)
        await end.meet()
        for _ in range(polls):
            end.qp.send(end.mr)
            await spin(end.cq, 1e-7)
            await end.reader.readexactly(1)
        await asyncio.sleep(1e-3)
        begin = now()
        end.qp.send(end.mr)
        done = await sleep_for_one(end)
        await end.meet()
        return begin, done
