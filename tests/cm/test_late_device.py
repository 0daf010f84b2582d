# SPDX-License-Identifier: Apache-2.0
"""A connection manager that opens late: the seconds of a call are for that, too.

`open_device` opens the agent's device after a pause, as an agent that only starts does.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.cm.conftest import HOST, Run
from verbena import cm, verbs
from verbena.cm import sync
from verbena.cm.agent_device import AgentDevice, Pause, open_agent_device
from verbena.cm.channel import block

pytestmark = pytest.mark.over_roce
PAUSE, TIMEOUT = 1.0, 1.3
MOST = PAUSE + TIMEOUT - 0.1
# A loop's clock counts milliseconds (uvloop), so that its timers may be early by one.
EARLY = 0.01


async def open_after(pause: Pause) -> AgentDevice:
    await pause(PAUSE)
    return await open_agent_device(pause, verbs.get_device_list())


async def open_late() -> AgentDevice:
    return await open_after(asyncio.sleep)


async def open_late_blocking() -> AgentDevice:
    return await open_after(block)


def test_a_connection_has_one_deadline(run: Run) -> None:
    """The listener answers nobody, so that the time ends the calls."""

    async def program() -> None:
        async with cm.listen(0) as listener, cm.listen(0, datagram=True) as other:
            for call in (
                cm.connect(HOST, listener.port, timeout=TIMEOUT, open_device=open_late),
                cm.resolve_datagram(HOST, other.port, timeout=TIMEOUT, open_device=open_late),
            ):
                begun = time.monotonic()
                with pytest.raises(cm.ConnectTimeout):
                    await call
                assert TIMEOUT - EARLY <= time.monotonic() - begun < MOST

    run(program())


def test_a_connection_of_a_thread_has_one_deadline() -> None:
    with sync.listen(0) as listener:
        begun = time.monotonic()
        with pytest.raises(cm.ConnectTimeout):
            sync.connect(HOST, listener.port, timeout=TIMEOUT, open_device=open_late_blocking)
        assert TIMEOUT <= time.monotonic() - begun < MOST


def test_the_time_is_over_before_the_device_is_open(run: Run) -> None:
    """Of two calls of a loop the second one waits for the first one's device no longer."""

    async def program() -> None:
        async with cm.listen(0) as listener:
            first = asyncio.ensure_future(
                cm.connect(HOST, listener.port, timeout=TIMEOUT, open_device=open_late)
            )
            await asyncio.sleep(0)
            for _ in range(2):
                begun = time.monotonic()
                with pytest.raises(cm.ManagerAbsent, match="the time was over before"):
                    await cm.connect(HOST, listener.port, timeout=0.1, open_device=open_late)
                assert 0.1 - EARLY <= time.monotonic() - begun < PAUSE - 0.2
            with pytest.raises(cm.ConnectTimeout):
                await first
            with pytest.raises(cm.ManagerAbsent, match="the time was over before"):
                await cm.connect(HOST, listener.port, timeout=0.1, open_device=open_late)

    run(program())
