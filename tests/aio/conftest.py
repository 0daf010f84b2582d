# SPDX-License-Identifier: Apache-2.0
"""Loops to run the asyncio tests on, and two connected ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import pytest

from tests.carriers import carriers_of, value
from tests.verbs.conftest import Pair, two_hosts
from tests.verbs.side import DEVICE, Side
from verbena import aio
from verbena.sim import Hosts
from verbena.sim.loop import Loop


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
        "uvloop", reason="uvloop, an event loop, is not installed; pip install '.[test]' brings it"
    )
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


Run = Callable[[Coroutine[Any, Any, Any]], Any]
NewLoop = Callable[[], asyncio.AbstractEventLoop]


@dataclass
class Where:
    """A kind of loop; on simulated hosts the test itself is on one, and far ends on the other."""

    loop: NewLoop
    hosts: Hosts | None = None

    def far(self) -> AbstractContextManager[object]:
        """Within this context, devices are those of the far end's host."""
        return self.hosts["far"].here() if self.hosts else nullcontext()


# A carrier decides which descriptors a loop watches. With the direct one, every kind of loop is
# tested; that packets wake a loop up is tested with one kind.
LOOPS: dict[str, tuple[NewLoop, ...]] = {
    "direct": (asyncio.SelectorEventLoop, OtherClock, uvloop_loop),
    "roce": (asyncio.SelectorEventLoop,),
    "sim": (Loop,),
}


@pytest.hookimpl(tryfirst=True)  # else the order of the values depends on how pytest was called
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test on each kind of loop, with each carrier with which it has a meaning
    (tests/carriers.py)."""
    carriers = carriers_of(metafunc, "where")
    if carriers:
        values = [
            value(carrier, loop, id=f"{carrier}-{loop.__name__.lstrip('_')}")
            for carrier in carriers
            for loop in LOOPS[carrier]
        ]
        metafunc.parametrize("where", values, indirect=True)


@pytest.fixture
def where(request: pytest.FixtureRequest) -> Iterator[Where]:
    if request.param is not Loop:
        yield Where(request.param)
        return
    hosts = two_hosts()
    with hosts[DEVICE].here():
        yield Where(lambda: Loop(hosts), hosts)
    assert hosts.world.check() is None


@pytest.fixture
def run(where: Where) -> Run:
    """run(coroutine) on a loop of each kind; fails if it takes longer than 20 s."""

    def on_loop(program: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=where.loop) as runner:
            return runner.run(program)

    return on_loop


class AsyncEnds:
    """Two connected QPs in this process with their AsyncCQ and AsyncQP."""

    def __init__(self, where: Where, **options: Any) -> None:
        self.near = Side(**options)
        with where.far():
            self.far = Side(**options)
        Pair(self.near, self.far).connect()
        self.near_cq, self.far_cq = aio.AsyncCQ(self.near.cq), aio.AsyncCQ(self.far.cq)
        self.qp = aio.AsyncQP(self.near.qp, self.near_cq)
        self.peer = aio.AsyncQP(self.far.qp, self.far_cq)

    def close(self) -> None:
        self.near_cq.close()
        self.far_cq.close()
        self.near.close()
        self.far.close()


MakeEnds = Callable[..., AsyncEnds]


@pytest.fixture
def make_ends(where: Where) -> Iterator[MakeEnds]:
    """make_ends(**options of Side): two ends, which are closed at the end."""
    made: list[AsyncEnds] = []

    def make(**options: Any) -> AsyncEnds:
        made.append(AsyncEnds(where, **options))
        return made[-1]

    yield make
    for both in made:
        both.close()


@pytest.fixture
def ends(make_ends: MakeEnds) -> AsyncEnds:
    return make_ends()
