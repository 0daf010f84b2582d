# SPDX-License-Identifier: Apache-2.0
"""Methods of which one side is a Buffer, which travels as it is, and the other is encoded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest

from tests.rpc.conftest import live, quiet
from verbena import rpc


@rpc.service
class Mixed:
    """A service with Buffers at either side of its methods."""

    def length(self, data: rpc.Buffer) -> int:
        return len(data)

    async def length_by_task(self, data: rpc.Buffer) -> list[int]:
        return [len(data)]

    def nothing(self, data: rpc.Buffer) -> None:
        assert len(data)

    def fill(self, size: int, value: int = 7) -> rpc.Buffer:
        return bytes([value]) * size

    async def fill_by_task(self, size: int, value: int) -> rpc.Buffer:
        return np.full(size, value, np.uint8)

    def one(self) -> rpc.Buffer:
        return b"1"


@pytest.mark.parametrize("size", [3, 5000, 300_000])
@pytest.mark.parametrize("strategy", ["auto", "ring", "rendezvous"])
@pytest.mark.parametrize("codec", ["msgpack", "pickle"])
def test_one_side_is_a_buffer(size: int, strategy: str, codec: str) -> None:
    async def side(client: rpc.Client) -> None:
        for _ in range(2):  # the client learns how large the results are
            assert await client.length(bytes(size)) == size
            assert await client.length(data=bytes(size)) == size
            assert await client.length_by_task(np.zeros(size, np.uint8)) == [size]
            assert await client.nothing(bytes(size)) is None
            assert bytes(await client.fill(size)) == b"\7" * size
            assert bytes(await client.fill(size=size, value=1)) == b"\1" * size
            assert bytes(await client.fill_by_task(size, 2)) == b"\2" * size
            assert bytes(await client.one()) == b"1"
            with pytest.raises(rpc.WrongArguments, match="`size"):
                await client.fill("x")
            with pytest.raises(rpc.WrongArguments, match="the parameters are"):
                await client.length()
        await quiet(client)

    plan = rpc.Strategies(strategy)
    asyncio.run(
        live(Mixed(), side, {"pickle": True}, {"strategies": plan, "codec": codec}),
    )


def test_a_buffer_has_no_iterators_beside_it() -> None:
    with pytest.raises(TypeError, match=r"Bad\.method: a method with a Buffer has no iterators"):

        @rpc.service
        class Bad:
            async def method(self, items: AsyncIterator[int]) -> rpc.Buffer: ...
