# SPDX-License-Identifier: Apache-2.0
"""What connections to peers, calls and collective calls say of options that do not exist."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import verbena
from verbena import collectives, rpc
from verbena.collectives import sync as sync_collectives
from verbena.peers import sync
from verbena.peers.connection import shape_of

OPENERS: list[tuple[Callable[..., Any], str]] = [
    (verbena.connect, "slots"),
    (verbena.listen, "slots"),
    (sync.connect, "timeout"),
    (sync.listen, "slots"),
    (rpc.serve, "calls"),
    (rpc.connect, "timeout"),
    (collectives.join, "timeout"),
    (sync_collectives.join, "timeout"),
]


@pytest.mark.parametrize(("opener", "option"), OPENERS)
def test_an_unknown_option(opener: Callable[..., Any], option: str) -> None:
    """It is refused at the call, before anything was opened."""
    wrong = option[:-2] + option[:-3:-1]
    with pytest.raises(TypeError, match=f"no option '{wrong}': did you mean '{option}'"):
        opener("127.0.0.1:7174", **{wrong: 3})
    assert option in inspect.signature(opener).parameters


def test_a_timeout_is_seconds() -> None:
    with pytest.raises(TypeError, match="timeout must be seconds or None, not str"):
        rpc.connect("127.0.0.1:7174", timeout="3")  # type: ignore[arg-type]


def test_slots_are_numbers() -> None:
    async def listen(**options: Any) -> None:
        async with verbena.listen("127.0.0.1:0", **options):
            pass

    with pytest.raises(TypeError, match="slots must be a whole number, not str"):
        asyncio.run(listen(slots="4"))
    with pytest.raises(TypeError, match="slot_size must be a whole number, not float"):
        asyncio.run(listen(slot_size=4096.0))
    with pytest.raises(ValueError, match="slots is from 1 to 4096"):
        asyncio.run(listen(slots=0))


@pytest.mark.parametrize(
    ("shape", "dims"), [(3, (3,)), ((), ()), ([2, 0], (2, 0)), (np.int64(4), (4,))]
)
def test_shapes_of_arrays(shape: Any, dims: tuple[int, ...]) -> None:
    assert shape_of(shape) == dims


@pytest.mark.parametrize("shape", [-1, (2, -1)])
def test_negative_shapes(shape: Any) -> None:
    with pytest.raises(ValueError, match="shape has no negative numbers"):
        shape_of(shape)


@pytest.mark.parametrize("shape", ["x", 2.5, None, ("a",)])
def test_what_is_no_shape(shape: Any) -> None:
    with pytest.raises(TypeError, match="shape is a number, or a tuple of numbers, and not"):
        shape_of(shape)


def test_a_taken_port_says_what_to_do() -> None:
    async def main() -> None:
        async with (
            verbena.listen("127.0.0.1:7198", via="cm"),
            verbena.listen("127.0.0.1:7198", via="cm"),
        ):
            pass

    with pytest.raises(OSError, match="choose another port") as caught:
        asyncio.run(main())
    assert "REUSEADDR" not in str(caught.value)
