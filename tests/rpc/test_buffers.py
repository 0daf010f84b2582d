# SPDX-License-Identifier: Apache-2.0
"""Methods of which one side is a Buffer, which travels as it is, and the other is encoded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from tests.rpc.conftest import Sample, live, quiet
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


ONE_NUMBER = [np.array(3), np.array(3, "u1"), np.int64(3), np.bool_(True), np.array(1.5)]


@pytest.mark.parametrize("number", ONE_NUMBER, ids=repr)
@pytest.mark.parametrize("strategy", ["auto", "ring", "rendezvous", "datagram"])
@pytest.mark.parametrize("least_reply", [0, 64])
def test_an_array_of_one_number_travels_as_its_bytes(
    number: Any, strategy: str, least_reply: int
) -> None:
    """``bytes`` of such an object would be so many zeros."""

    async def side(client: rpc.Client) -> bytes:
        client._calls.least_reply = least_reply  # the request is behind a token
        return bytes(await client.turn(number))

    asked = {"strategies": rpc.Strategies(strategy)}
    assert asyncio.run(live(Sample(), side, {}, asked))[::-1] == number.tobytes()


@rpc.service
class Wrong:
    """A service that yields other items than it says."""

    async def numbers(self) -> AsyncIterator[int]:
        yield 1
        yield "two"  # type: ignore[misc]


def test_an_item_of_another_type_is_an_error_of_the_call() -> None:
    async def main() -> None:
        serving = rpc.serve(Wrong(), "127.0.0.1:0")
        async with serving as server, rpc.connect(f"127.0.0.1:{server.port}", Wrong) as client:
            items = aiter(client.numbers())
            assert await anext(items) == 1
            with pytest.raises(rpc.RpcError, match="item of numbers: Expected `int`, got `str`"):
                await anext(items)

    asyncio.run(main())
