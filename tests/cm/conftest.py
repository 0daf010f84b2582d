# SPDX-License-Identifier: Apache-2.0
"""A network namespace of its own for the tests of verbena.cm, and what they ask the agent.

The agent serves every program of a user in a network namespace. As root the tests move this thread
into a new one, so that nobody else's connections are counted and the agent can be killed.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from tests.aio.conftest import uvloop_loop
from tests.roce import networks
from verbena.agent.client import describe_agent

CLONE_NEWNET = 0x40000000
HOST = "127.0.0.1"
ADDRESSES = ("10.77.0.1", "fd00:77::1")
Run = Callable[[Coroutine[Any, Any, Any]], Any]


def check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@pytest.fixture(scope="package")
def namespace() -> Iterator[bool]:
    """Whether this thread is in a network namespace of its own, with ADDRESSES."""
    if networks.reason_not_to() is not None:
        yield False
        return
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    check(libc.unshare(CLONE_NEWNET))
    for words in (
        "link set lo up",
        "link add vbcm0 type veth peer name vbcm1",
        "link set vbcm0 up",
        "link set vbcm1 up",
        f"address add {ADDRESSES[0]}/24 dev vbcm0",
        f"address add {ADDRESSES[1]}/64 dev vbcm0 nodad",
    ):
        subprocess.run(["ip", *words.split()], check=True)
    yield True
    described = describe_agent()
    if described is not None:
        os.kill(described["pid"], signal.SIGKILL)
    check(libc.setns(before, CLONE_NEWNET))
    os.close(before)


@pytest.fixture(autouse=True)
def in_namespace(namespace: bool) -> None:
    """Every test here is in it."""


@pytest.fixture
def alone(namespace: bool) -> None:
    """Nobody else uses the agent."""
    if not namespace:
        pytest.skip("the agent may have other users here; run the tests as root")


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
