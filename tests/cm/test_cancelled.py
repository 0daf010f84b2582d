# SPDX-License-Identifier: Apache-2.0
"""Attempts that end at each of their steps: nothing stays behind, and the peer is told.

A device that keeps its events back holds an attempt at a step.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.cm.conftest import HOST, Run, identifiers, limited, messages, until
from verbena import cm, verbs
from verbena.manage.cm_messages import RejReason

pytestmark = pytest.mark.over_roce
STEPS = ("address", "route", "response")


class HoldingDevice:
    """A device that gives so many events and keeps back what follows."""

    def __init__(self, device: cm.ConnectionManagerDevice, allowed: int) -> None:
        self._device = device
        self.left = allowed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def next_event(self) -> cm.DeviceAnswer | None:
        if self.left <= 0:
            self._device.unwatch()
            return None
        answer = self._device.next_event()
        self.left -= answer is not None
        return answer


def holding(allowed: int, made: list[HoldingDevice]) -> Callable[[], Any]:
    async def open_device() -> HoldingDevice:
        made.append(HoldingDevice(await cm.choose_device(), allowed))
        return made[-1]

    return open_device


@pytest.mark.parametrize("step", STEPS)
def test_a_connect(alone: None, run: Run, step: str) -> None:
    async def program() -> None:
        made: list[HoldingDevice] = []
        opener = holding(STEPS.index(step), made)
        async with cm.listen(0) as listener:
            before, refusals = identifiers(), messages("cm_tx_msgs/rej")
            task = asyncio.create_task(connect(listener.port, opener))
            await until(lambda: made and made[0].left == 0)
            if step == "response":
                request = await listener.get_request()
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            sent = messages("cm_tx_msgs/rej") - refusals
            assert sent == (1 if step == "response" else 0)
            if step == "response":
                with pytest.raises(cm.ConnectionManagerError):
                    await request.accept()
            assert identifiers() == before
        assert identifiers() == 0

    run(program())


async def connect(port: int, opener: Callable[[], Any]) -> None:
    async with cm.connect(HOST, port, open_device=opener):
        raise AssertionError("it cannot be connected")


def test_a_connect_whose_answer_is_there(alone: None) -> None:
    """The REP has come, and the program has not seen it: the listener's program is refused."""

    async def program() -> None:
        made: list[HoldingDevice] = []
        async with cm.listen(0) as listener:
            task = asyncio.create_task(connect(listener.port, holding(2, made)))
            request = await listener.get_request()
            accepting = asyncio.create_task(request.accept())
            await asyncio.sleep(0.1)
            assert not accepting.done()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            with pytest.raises(cm.Rejected) as caught:
                await accepting
            assert caught.value.reason is RejReason.CONSUMER_REJECT
        assert identifiers() == 0

    asyncio.run(limited(program()))


def test_an_accept(alone: None) -> None:
    """The client's program has not seen the REP, so that the RTU is awaited."""

    async def program() -> None:
        made: list[HoldingDevice] = []
        async with cm.listen(0) as listener:
            opener = holding(2, made)
            connecting = asyncio.create_task(connect(listener.port, opener))
            request = await listener.get_request()
            accepting = asyncio.create_task(request.accept())
            await asyncio.sleep(0.1)
            accepting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await accepting
            made[0].left = 10
            made[0].watch(connecting_channel(made[0]))
            with pytest.raises(cm.ConnectionManagerError):
                await connecting
        assert identifiers() == 0

    asyncio.run(limited(program()))


def connecting_channel(device: HoldingDevice) -> Callable[[], None]:
    from verbena.cm.manager import _managers

    managers = _managers[asyncio.get_running_loop()].values()
    (found,) = (each.channel for each in managers if each._users and each.channel.device is device)
    return found.pump


def test_a_listener_s_wait_loses_no_request() -> None:
    async def program() -> None:
        async with cm.listen(0) as listener:
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await listener.get_request()
            async with asyncio.TaskGroup() as group:
                connecting = group.create_task(open_connection(listener.port))
                far = await (await listener.get_request()).accept()
                (await connecting).close()
                far.close()

    asyncio.run(limited(program()))


async def open_connection(port: int) -> cm.Connection:
    return await cm.connect(HOST, port)


def test_an_error_of_the_caller_s(alone: None) -> None:
    """``prepare`` fails: the connection is given up as if it were cancelled."""

    async def program() -> None:
        def fail(_: verbs.QP) -> None:
            raise KeyError("prepare")

        async with cm.listen(0) as listener:
            with pytest.raises(KeyError):
                await cm.connect(HOST, listener.port, prepare=fail)
            connecting = asyncio.create_task(open_connection(listener.port))
            request = await listener.get_request()
            with pytest.raises(KeyError):
                await request.accept(prepare=fail)
            with pytest.raises(cm.Rejected):
                await connecting
        assert identifiers() == 0

    asyncio.run(limited(program()))
