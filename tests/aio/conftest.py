# SPDX-License-Identifier: Apache-2.0
"""Loops to run the asyncio tests on, and two connected ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tests.verbs.conftest import Pair
from tests.verbs.side import Side
from verbena import aio


class OtherClock(asyncio.SelectorEventLoop):
    """A loop whose clock has nothing to do with the machine's."""

    def __init__(self) -> None:
        super().__init__()
        self._turns = 0

    def time(self) -> float:
        self._turns += 1
        return 1e6 + self._turns * 1e-6


def uvloop_loop() -> asyncio.AbstractEventLoop:
    uvloop = pytest.importorskip(
        "uvloop", reason="uvloop, an optional event loop, is not installed"
    )
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=[asyncio.SelectorEventLoop, OtherClock, uvloop_loop])
def run(request: pytest.FixtureRequest) -> Run:
    """run(coroutine) on a loop of each kind; fails if it takes longer than 20 s."""

    def on_loop(program: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(program)

    return on_loop


class AsyncEnds:
    """Two connected QPs in this process with their AsyncCQ and AsyncQP."""

    def __init__(self, **options: Any) -> None:
        self.near, self.far = Side(**options), Side(**options)
        Pair(self.near, self.far).connect()
        self.near_cq, self.far_cq = aio.AsyncCQ(self.near.cq), aio.AsyncCQ(self.far.cq)
        self.qp = aio.AsyncQP(self.near.qp, self.near_cq)
        self.peer = aio.AsyncQP(self.far.qp, self.far_cq)

    def close(self) -> None:
        self.near_cq.close()
        self.far_cq.close()
        self.near.close()
        self.far.close()


@pytest.fixture
def ends() -> Iterator[AsyncEnds]:
    both = AsyncEnds()
    yield both
    both.close()
