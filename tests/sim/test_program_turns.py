# SPDX-License-Identifier: Apache-2.0
"""What a program and its world say to each other in one turn is more than their lists have room
for."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.sim.fabrics import star
from tests.sim.programs import ALL
from tests.sim.test_program_multicast import GROUP, gid, station
from verbena import aio, fabrics, sim, verbs

PORT = 7471
MANY = 48  # more than either list takes


async def connected(reader: Any, writer: Any, count: int) -> list[aio.AsyncQP]:
    """Return so many connections to the other end, with one CQ."""
    ctx = verbs.open_device()
    pd, made = ctx.alloc_pd(), []
    acq = aio.AsyncCQ(ctx.create_cq(4 * count, ctx.create_comp_channel()))
    for _ in range(count):
        qp = pd.create_qp(send_cq=acq.cq)
        await aio.connect_rc(qp, reader, writer)
        made.append(aio.AsyncQP(qp, acq))
    return made


async def takes(count: int) -> int:
    calls: asyncio.Queue[Any] = asyncio.Queue()
    async with await asyncio.start_server(lambda *pair: calls.put_nowait(pair), None, PORT):
        reader, writer = await calls.get()
        qps = await connected(reader, writer, count)
        mr = qps[0].qp.pd.alloc(4096, ALL)
        received = [qp.recv(mr) for qp in qps]
        writer.write(b"!")
        return sum([(await one).byte_len for one in received])


async def gives(count: int) -> None:
    reader, writer = await asyncio.open_connection("h0", PORT)
    qps = await connected(reader, writer, count)
    mr = qps[0].qp.pd.alloc(4096, ALL)
    await reader.readexactly(1)
    for sent in [qp.send(mr) for qp in qps]:
        await sent


@pytest.mark.parametrize("room", [8 << 10, 64 << 10])
def test_a_lane_holds_many_connections_at_once(room: int) -> None:
    world = sim.World(framing="infiniband", timeout=8)
    star(world, 2, lanes=[{"flow": "credits", "room": room}])
    result = sim.run({"h0": takes(MANY), "h1": gives(MANY)}, world)
    assert result.returned["h0"] == MANY * 4096
    assert world.check(at_rest=True) is None


def test_one_datagram_makes_many_channels_readable() -> None:
    async def members() -> list[int]:
        async with AsyncExitStack() as stack:
            stations = [await stack.enter_async_context(station(1)) for _ in range(MANY)]
            for one in stations:
                one.qp.attach_mcast(gid(GROUP))
            found = await asyncio.gather(*(one.numbers(1) for one in stations))
            return [number for numbers in found for number in numbers]

    async def sends() -> None:
        async with station() as one:
            await asyncio.sleep(1e-3)
            one.send(7)
            await asyncio.sleep(1e-3)

    fabric = fabrics.one_switch(2, rate="100GbE", length_m=5)
    assert sim.run({"h0": members, "h1": sends}, fabric).returned["h0"] == [7] * MANY
