# SPDX-License-Identifier: Apache-2.0
"""Functions of a program that raise exceptions: connections go on, and end, as without them."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from tests.nvmeof.conftest import MIB, NQN, connected, run, serving
from verbena import nvmeof

PAGE = 4096


def raising(*_: Any) -> None:
    raise BrokenPipeError("nobody reads it")


def test_a_report_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    """Hosts connect and go, no descriptor stays, and the failure is logged once."""
    unhandled: list[dict[str, Any]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unhandled.append(context))
        async with serving(nvmeof.MemoryStore(MIB), report=raising) as (target, _):
            counts = []
            for _ in range(4):
                async with await connected(target, queues=2) as controller:
                    await controller.disks[1].write(0, bytes(PAGE))
                async with asyncio.timeout(10):
                    while target.queues:
                        await asyncio.sleep(1e-3)
                counts.append(len(os.listdir("/proc/self/fd")))
            assert counts == counts[:1] * 4

    run(main())
    assert unhandled == []
    (record,) = caplog.records
    assert "report of a target raised an exception" in record.message
    assert "nobody reads it" in caplog.text


def test_a_host_whose_functions_raise(caplog: pytest.LogCaptureFixture) -> None:
    """A lost connection is made again, and new disks are found."""

    async def main() -> None:
        async with (
            serving(nvmeof.MemoryStore(MIB)) as (target, subsystem),
            await connected(target, reconnect_delay=0.0) as controller,
        ):
            controller.on_state = controller.on_change = raising
            target.end_controllers(NQN)
            async with asyncio.timeout(10):
                while not controller.reconnects:
                    await asyncio.sleep(1e-3)
                await controller.disks[1].read(0, PAGE)
                for nsid in (2, 3):
                    subsystem.add(nvmeof.MemoryStore(MIB))
                    while nsid not in controller.disks:
                        await asyncio.sleep(1e-3)
                await asyncio.sleep(0.01)
        assert controller.state is nvmeof.HostState.CLOSED

    run(main())
    assert sorted(each.message.split(" raised")[0] for each in caplog.records) == [
        "on_change of a controller",
        "on_state of a controller",
    ]
