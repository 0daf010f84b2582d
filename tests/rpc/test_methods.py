# SPDX-License-Identifier: Apache-2.0
"""Services: which classes are refused, and how arguments are checked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verbena import rpc
from verbena.rpc.codecs import codec_named
from verbena.rpc.memory import bucket_of
from verbena.rpc.methods import methods_of
from verbena.rpc.strategies import (
    RequestWay,
    ResponseWay,
    Strategies,
    request_way,
    response_way,
    wants_memory,
)


class Plain:
    """An object that MessagePack does not know."""


@rpc.service
class Typed:
    def numbers(self, a: int, b: float = 0.5, c: list[int] | None = None) -> None: ...

    def nothing(self) -> None: ...

    def plain(self, value: Plain) -> None: ...

    def raw(self, data: np.ndarray) -> None: ...

    def _hidden(self, anything: Any) -> None: ...


def test_a_class_has_to_be_marked() -> None:
    with pytest.raises(TypeError, match=r"put @rpc\.service before the class"):
        methods_of(Plain, Plain(), codec_named("msgpack"))


def test_what_cannot_be_sent_is_refused_where_it_is_written() -> None:
    with pytest.raises(TypeError, match=r"Bad\.method: a needs a type hint"):

        @rpc.service
        class Bad:
            def method(self, a) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(TypeError, match="keyword-only parameters cannot be sent"):

        @rpc.service
        class Keywords:
            def method(self, *, a: int) -> None: ...

    with pytest.raises(TypeError, match=r"Names\.close: a client's own attributes are"):

        @rpc.service
        class Names:
            def close(self) -> None: ...

    with pytest.raises(TypeError, match=r"@rpc\.service is for a class, and not for 5"):
        rpc.service(5)  # type: ignore[type-var]


def test_a_name_of_the_client_in_a_class_below_a_service() -> None:
    class Below(Typed):
        def within(self, seconds: float) -> None: ...

    with pytest.raises(TypeError, match=r"Below\.within: a client's own"):
        methods_of(Below, Below(), codec_named("msgpack"))


@pytest.mark.parametrize("given", [{"calls": 0}, {"calls": -1}, {"max_message": 0}])
def test_numbers_of_servers_that_cannot_be(given: Any) -> None:
    async def main() -> None:
        await rpc.serve(Typed(), "127.0.0.1:0", **given)

    with pytest.raises(ValueError, match=f"{next(iter(given))} is . or more"):
        asyncio.run(main())


@pytest.mark.parametrize("spin", [-1.0, 2, float("inf"), float("nan"), True])
def test_a_spin_that_would_keep_the_loop(spin: Any) -> None:
    async def serve() -> None:
        await rpc.serve(Typed(), "127.0.0.1:0", spin=spin)

    async def connect() -> None:
        await rpc.connect("127.0.0.1:7995", spin=spin)

    for main in (serve, connect):
        with pytest.raises((TypeError, ValueError), match=r"spin is .* 1 at most, or None"):
            asyncio.run(main())


def test_what_is_no_service_for_a_client() -> None:
    async def main() -> None:
        await rpc.connect("127.0.0.1:7995", 5)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="a service is a class"):
        asyncio.run(main())


def test_strategies_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="inline_most is 0 or more"):
        Strategies(inline_most=-1)

    with pytest.raises(TypeError, match="is the last parameter"):

        @rpc.service
        class Order:
            async def method(self, items: AsyncIterator[int], a: int) -> None: ...

    with pytest.raises(TypeError, match="a raw method has one parameter"):

        @rpc.service
        class Raw:
            def method(self, a: int, data: rpc.Buffer) -> None: ...

    with pytest.raises(TypeError, match="is an async generator"):

        @rpc.service
        class Iterator:
            async def method(self) -> AsyncIterator[int]:  # it returns one, and yields nothing
                return None  # type: ignore[return-value]


@pytest.mark.parametrize("codec", ["msgpack", "pickle"])
def test_arguments(codec: str) -> None:
    methods = methods_of(Typed, Typed(), codec_named(codec))
    encode = codec_named(codec).encode
    assert list(methods) == ["nothing", "numbers", "plain", "raw"]
    numbers = methods["numbers"]
    assert numbers.arguments(encode((1,)), False) == (1, 0.5, None)
    assert numbers.arguments(encode((1, 2.0, [3])), False) == (1, 2.0, [3])
    assert numbers.arguments(encode({"a": 1, "c": [2]}), True) == (1, 0.5, [2])
    assert methods["nothing"].arguments(encode(()), False) == ()
    for wrong in ((), (1, 2.0, [3], 4), ("1",), (1, 2.0, ["x"]), (None,)):
        with pytest.raises(rpc.WrongArguments):
            numbers.arguments(encode(wrong), False)
    with pytest.raises(rpc.WrongArguments, match="`c"):
        numbers.arguments(encode((1, 2.0, ["x"])), False)
    with pytest.raises(rpc.WrongArguments):
        numbers.arguments(encode({"a": 1, "d": 2}), True)


def test_objects_of_any_class_by_pickle() -> None:
    methods = methods_of(Typed, Typed(), codec_named("pickle"))
    encode = codec_named("pickle").encode
    (value,) = methods["plain"].arguments(encode((Plain(),)), False)
    assert isinstance(value, Plain)
    with pytest.raises(rpc.WrongArguments, match="Expected `Plain`, got `int`"):
        methods["plain"].arguments(encode((3,)), False)
    with pytest.raises(rpc.WrongArguments):
        methods["plain"].arguments(b"no pickle", False)


@pytest.mark.parametrize("given", [(), (1, 2.0, None, 4)])
def test_how_many_arguments_there_are(given: tuple[Any, ...]) -> None:
    codec = codec_named("msgpack")
    numbers = methods_of(Typed, Typed(), codec)["numbers"]
    text = rf"numbers: {len(given)} arguments, and the parameters are \(a, b, c\)"
    with pytest.raises(rpc.WrongArguments, match=text):
        numbers.arguments(codec.encode(given), False)


@given(st.binary(max_size=60))
def test_garbage_is_wrong_arguments(data: bytes) -> None:
    methods = methods_of(Typed, Typed(), codec_named("msgpack"))
    for named in (False, True):
        try:
            methods["numbers"].arguments(data, named)
        except rpc.WrongArguments:
            continue


@given(st.integers(1, 1 << 16))
def test_a_bucket_holds_its_size(size: int) -> None:
    assert 64 << bucket_of(size) >= size
    assert bucket_of(size) == 0 or 64 << (bucket_of(size) - 1) < size


def test_the_default_strategy_follows_the_size() -> None:
    plan = Strategies()
    assert request_way(plan, 16 << 10, 4000, 220) is RequestWay.INLINE
    assert request_way(plan, (16 << 10) + 1, 4000, 220) is RequestWay.RENDEZVOUS
    assert request_way(Strategies("ring"), 4001, 4000, 0) is RequestWay.INLINE
    assert request_way(Strategies("datagram"), 220, 0, 220) is RequestWay.DATAGRAM
    assert request_way(Strategies("datagram"), 221, 0, 220) is RequestWay.INLINE
    assert response_way(plan, 1 << 20, 1 << 20) is ResponseWay.WRITE
    assert response_way(plan, 1 << 20, 0) is ResponseWay.RENDEZVOUS
    assert response_way(plan, 5000, 0) is ResponseWay.INLINE
    assert response_way(Strategies(response="write"), 5000, 0) is ResponseWay.RENDEZVOUS
    room = 4000  # of one SEND
    assert response_way(plan, room, 1 << 20, room) is ResponseWay.INLINE
    assert response_way(plan, 16 << 10, 1 << 20, room) is ResponseWay.INLINE
    assert response_way(Strategies(inline_most=0), room, 0, room) is ResponseWay.INLINE
    assert response_way(Strategies(response="write"), room, 0, room) is ResponseWay.INLINE
    assert response_way(Strategies(response="write"), room, room, room) is ResponseWay.WRITE
    assert response_way(Strategies(response="rendezvous"), 1, 0, room) is ResponseWay.RENDEZVOUS
    assert response_way(Strategies(response="rendezvous"), 0, 0, room) is ResponseWay.INLINE


@pytest.mark.parametrize(
    ("plan", "least"),
    [
        (Strategies(), (16 << 10) + 1),
        (Strategies(inline_most=0), 4001),
        (Strategies(response="write"), 4001),
        (Strategies(response="inline"), None),
        (Strategies(response="rendezvous"), None),
    ],
)
def test_requests_name_memory_for_responses_that_are_written_there(
    plan: Strategies, least: int | None
) -> None:
    wanted = [
        size
        for size in (1, 4000, 4001, 16 << 10, (16 << 10) + 1, 1 << 20)
        if wants_memory(plan, size, 4000)
    ]
    assert (min(wanted) if wanted else None) == least
