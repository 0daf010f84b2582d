# SPDX-License-Identifier: Apache-2.0
"""What the tests of verbena.cm share, and what they ask the agent.

The agent serves every program of a user in a network namespace. The tests run in the pytest of
tests/over_roce.py, which has a network of its own, so that nobody else's connections are counted.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tests.aio.conftest import uvloop_loop
from tests.support import own_network
from verbena.agent.client import describe_agent

HOST = "127.0.0.1"
ADDRESSES = ("10.88.0.1", "fd00:88::1")  # tests/over_roce.py
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def alone() -> None:
    """Nobody else uses the agent of this network namespace, and it has ADDRESSES."""
    if not own_network():
        pytest.skip("the agent may have other users here; run the tests as root")


@pytest.fixture(autouse=True, scope="package")
def agent_ends() -> Iterator[None]:
    """Whatever agent the tests have started does not outlive their network."""
    yield
    described = describe_agent() if own_network() else None
    if described is not None:
        os.kill(described["pid"], signal.SIGKILL)


@pytest.fixture(params=[asyncio.SelectorEventLoop, uvloop_loop], ids=["selector", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """run(coroutine) on a loop of each kind."""

    def on_loop(program: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(limited(program))

    return on_loop


async def limited(program: Coroutine[Any, Any, Any]) -> Any:
    async with asyncio.timeout(30):
        return await program


def identifiers() -> int:
    """How many identifiers the agent has."""
    described = describe_agent()
    return 0 if described is None else int(described["identifiers"])


def messages(name: str) -> int:
    """How many messages of a name, as "cm_tx_msgs/rej", the agent has counted."""
    described = describe_agent()
    return 0 if described is None else int(described["messages"].get(name, 0))


async def until(true: Callable[[], object], seconds: float = 10) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
