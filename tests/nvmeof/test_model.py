# SPDX-License-Identifier: Apache-2.0
"""Random requests of two hosts at one disk, live and simulated, against a plain ``bytearray``.

Hypothesis draws them, the disk, and when the connection of a host is lost. Requests of a group are
under way at once, and are of blocks of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.carriers import value
from tests.nvmeof.conftest import HOST
from verbena import fabrics, nvmeof, sim

NQN = "nqn.2026-01.org.example:disk0"
BLOCK, BLOCKS, LANES = 512, 96, 4
KINDS = ["read", "read into", "write", "write array", "durable", "zeroes", "compare", "discard"]
REQUEST = st.tuples(st.sampled_from(KINDS), st.integers(0, 20), st.integers(1, 24))
GROUP = st.tuples(
    st.integers(0, 1),  # which host
    st.lists(REQUEST, min_size=1, max_size=LANES),
    st.booleans(),  # its connection is lost meanwhile
)


async def request(disk: nvmeof.Disk, model: bytearray, lane: int, drawn: Any, tag: int) -> None:
    """Make one request within a lane of the disk, and what it means in the model."""
    kind, first, count = drawn
    each = BLOCKS // LANES
    first, count = lane * each + first, min(count, each - first)
    at, length = first * BLOCK, count * BLOCK
    data = bytes([tag % 255 + 1, lane]) * (length // 2)
    if kind == "read":
        assert await disk.read(at, length) == model[at : at + length]
    elif kind == "read into":
        into = bytearray(length)
        await disk.read_into(at, into)
        assert into == model[at : at + length]
    elif kind == "zeroes":
        await disk.write_zeroes(at, length)
        model[at : at + length] = bytes(length)
    elif kind == "discard":  # what is there afterwards is not defined until it is written
        await disk.discard((at, length))
        await disk.write(at, bytes(model[at : at + length]))
    elif kind == "compare":
        await disk.compare(at, bytes(model[at : at + length]))
        with pytest.raises(nvmeof.CommandFailed, match="compare"):
            await disk.compare(at, bytes(model[at : at + length - 1]) + b"\xff")
    else:
        memory = bytearray(data) if kind == "write array" else data
        await disk.write(at, memory, durable=kind == "durable")
        model[at : at + length] = data


async def serve(size: int, is_slow: bool, ready: Callable[[int], object], **where: Any) -> None:
    """A target with a disk of so many bytes, until it is cancelled."""
    store: nvmeof.Store = nvmeof.MemoryStore(size)
    if is_slow:
        store = nvmeof.DelayedStore(store, 1e-4, 2)
    subsystem = nvmeof.Subsystem(NQN)
    subsystem.add(store, BLOCK)
    served = nvmeof.TargetModel()
    served.add(subsystem)
    async with nvmeof.Target(served, **where) as made:
        ready(made.port)
        await made.serve()


async def use(address: tuple[str, int], groups: list[Any], options: nvmeof.HostOptions) -> None:
    """Make the requests, from two hosts, and compare the disk with the model."""
    model = bytearray(BLOCKS * BLOCK)
    host, port = address
    used = [await nvmeof.connect(host, NQN, port, options) for _ in range(2)]
    lost = 0
    for tag, (who, requests, is_lost) in enumerate(groups):
        disk = used[who].disks[1]
        running = [
            asyncio.create_task(request(disk, model, lane, drawn, tag))
            for lane, drawn in enumerate(requests)
        ]
        await asyncio.sleep(1e-6)
        if is_lost and used[who].state is nvmeof.HostState.LIVE:
            lost += 1
            used[who].queues[-1].end("the test cuts it")
        await asyncio.gather(*running)
    await used[0].disks[1].flush()
    for each in used:
        assert await each.disks[1].read(0, len(model)) == model
    found = [each.reconnects for each in used]
    for each in used:
        await each.close()
    assert sum(found) == lost


def simulated(groups: list[Any], is_slow: bool, options: nvmeof.HostOptions) -> None:
    programs = {
        "h0": lambda: serve(BLOCKS * BLOCK, is_slow, lambda port: None),
        "h1": lambda: use(("h0", nvmeof.PORT), groups, options),
    }
    sim.run(programs, fabrics.ring(4, rate="100GbE"), background={"h0"})


async def live(groups: list[Any], is_slow: bool, options: nvmeof.HostOptions) -> None:
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve(BLOCKS * BLOCK, is_slow, port.set_result, host=HOST, port=0)
    )
    async with asyncio.timeout(60):
        await use((HOST, await port), groups, options)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


@pytest.mark.parametrize("carrier", ["sim", value("direct", "direct"), value("roce", "roce")])
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    groups=st.lists(GROUP, max_size=12),
    queues=st.integers(1, 3),
    entries=st.sampled_from([2, 3, 32]),
    is_slow=st.booleans(),
)
def test_random_requests(
    carrier: str, groups: list[Any], queues: int, entries: int, is_slow: bool
) -> None:
    options = nvmeof.HostOptions(queues=queues, entries=entries, reconnect_delay=0.01)
    if carrier == "sim":
        simulated(groups, is_slow, options)
    else:
        asyncio.run(live(groups, is_slow, options))
