# SPDX-License-Identifier: Apache-2.0
"""Random programs of calls against a plain model: a service that keeps values by key.

Hypothesis draws the steps, sizes and strategies. Each step is done by a call and by the model, and
some calls are cancelled on the way: such a call has either happened, once, or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.rpc.conftest import quiet
from verbena import fabrics, rpc, sim

STRATEGY = st.builds(
    rpc.Strategies,
    st.sampled_from(["auto", "inline", "ring", "rendezvous", "datagram"]),
    st.sampled_from(["auto", "inline", "write", "rendezvous"]),
)
KEY = st.integers(0, 3)
SIZE = st.sampled_from([0, 1, 64, 200, 4000, 5000, 40_000])
STEP = st.one_of(
    st.tuples(st.just("put"), KEY, SIZE),
    st.tuples(st.just("get"), KEY, st.just(0)),
    st.tuples(st.just("grow"), KEY, SIZE),
    st.tuples(st.just("put cancelled"), KEY, st.integers(0, 12)),
    st.tuples(st.just("collect"), KEY, st.integers(0, 40)),
    st.tuples(st.just("deal"), KEY, st.integers(0, 40)),
    st.tuples(st.just("leave"), KEY, st.integers(0, 5)),
)


@rpc.service
class Values:
    """The service under test."""

    def __init__(self) -> None:
        self.values: dict[int, bytes] = {}
        self.puts = 0

    def put(self, key: int, value: bytes) -> int:
        self.values[key] = value
        self.puts += 1
        return self.puts

    async def get(self, key: int) -> bytes:
        await asyncio.sleep(0)
        return self.values[key]

    def grow(self, data: rpc.Buffer) -> rpc.Buffer:
        return bytes(data) * 2

    async def collect(self, key: int, parts: AsyncIterator[bytes]) -> int:
        whole = b""
        async for part in parts:
            whole += part
        self.values[key] = whole
        return len(whole)

    async def deal(self, key: int, parts: int) -> AsyncIterator[bytes]:
        for number in range(parts):
            yield self.values.get(key, b"")[:50] + bytes([number])


@dataclass
class Model:
    """What the service should have."""

    values: dict[int, bytes]
    puts: int = 0


async def do(client: rpc.Client, model: Model, target: Values, step: Any, at: int) -> None:
    kind, key, size = step
    data = bytes([at % 256]) * size
    if kind == "put":
        model.values[key], model.puts = data, model.puts + 1
        assert await client.put(key, data) == model.puts
    elif kind == "get" and key in model.values:
        assert await client.get(key) == model.values[key]
    elif kind == "get":
        with pytest.raises(rpc.RemoteFailure, match="KeyError"):
            await client.get(key)
    elif kind == "grow":
        assert bytes(await client.grow(data)) == data * 2
    elif kind == "put cancelled":
        task = asyncio.create_task(client.put(key, bytes([at % 256]) * 5000))
        await asyncio.sleep(size * 1e-6)
        task.cancel()
        await asyncio.wait([task])
        await quiet(client)
        assert target.puts in (model.puts, model.puts + 1)
        if not task.cancelled():
            assert target.puts == model.puts + 1
        model.puts, model.values = target.puts, dict(target.values)
    elif kind == "collect":
        parts = [bytes([number]) * (number * 30) for number in range(size)]
        model.values[key] = b"".join(parts)
        assert await client.collect(key, parts) == len(model.values[key])
    else:
        head = model.values.get(key, b"")[:50]
        async with client.deal(key, 40) as items:
            for number in range(size):
                assert await anext(items) == head + bytes([number])
    assert target.values == model.values


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEP, max_size=25), plan=STRATEGY, slots=st.sampled_from([1, 2, 8, 32]))
def test_random_programs(steps: list[Any], plan: rpc.Strategies, slots: int) -> None:
    target = Values()
    servers: list[rpc.RpcServer] = []

    async def server() -> None:
        options: Any = {"slots": slots, "calls": 4, "strategies": plan}
        async with rpc.serve(target, ":7174", via="socket", **options) as made:
            servers.append(made)
            await made.wait_closed()

    async def client() -> None:
        options: Any = {"slots": slots, "strategies": plan, "via": "socket"}
        async with rpc.connect("h0:7174", Values, **options) as made:
            made.__dict__["server"] = servers[0]
            model = Model({})
            for at, step in enumerate(steps):
                await do(made, model, target, step, at)
            await quiet(made)

    sim.run({"h0": server, "h1": client}, fabrics.ring(4, rate="100GbE"), background={"h0"})
