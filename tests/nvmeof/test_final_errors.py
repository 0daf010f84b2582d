# SPDX-License-Identifier: Apache-2.0
"""DNR ("do not retry", bit 15 of a completion's status): set where the same command fails again.

A host repeats a command that failed without it, as Linux does five times.
"""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from tests.nvmeof.conftest import MIB, connected, pair, run, serving
from verbena import nvmeof
from verbena.nvmeof import Status, subsystems
from verbena.nvmeof.commands import SGL_KEYED, AdminOpcode, Command, IoOpcode, Sgl
from verbena.nvmeof.host_queue import HostQueue
from verbena.nvmeof.memory import Buffers
from verbena.nvmeof.status import DNR

BIT_15 = 0x8000
NOTHING = Sgl(SGL_KEYED, 0, 0, 0)
PAGE = Sgl(SGL_KEYED, 0, 4096, 0)  # these commands fail before the target uses the address


class Broken(nvmeof.MemoryStore):
    """A disk whose medium fails, and which is no memory that a target reads from directly."""

    def __init__(self) -> None:
        super().__init__(MIB)
        self.memory = None

    def read(self, offset: int, into: memoryview) -> Any:
        raise OSError(errno.EIO, "broken")

    def write(self, offset: int, data: memoryview, is_durable: bool) -> Any:
        raise OSError(errno.ENOSPC, "full")


async def status_of(queue: HostQueue, command: Command) -> int:
    """The 16 bits of the status in the completion of a command."""
    answered = asyncio.get_running_loop().create_future()
    queue.submit(command, lambda _, status: answered.set_result(status))
    return int(await asyncio.wait_for(answered, 10))


def admin_queue(controller: nvmeof.HostController) -> HostQueue:
    assert controller._admin is not None
    return controller._admin.queue


def test_the_bit_is_where_hosts_look_for_it() -> None:
    assert DNR == BIT_15


REFUSED = {
    "beyond the end": (IoOpcode.READ, 1, PAGE, 1 << 20, Status.LBA_RANGE),
    "no such namespace": (IoOpcode.READ, 9, PAGE, 0, Status.INVALID_NAMESPACE),
    "no such command": (0x7C, 1, NOTHING, 0, Status.INVALID_OPCODE),
    "another length": (IoOpcode.READ, 1, PAGE._replace(length=512), 0, Status.SGL_DATA_LENGTH),
    "the medium": (IoOpcode.READ, 1, PAGE, 0, Status.UNRECOVERED_READ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_command_for_blocks_that_would_fail_again(name: str) -> None:
    opcode, nsid, sgl, block, expected = REFUSED[name]

    async def main() -> None:
        async with pair(Broken()) as (controller, _, _):
            command = Command(opcode, 0, 0, nsid, sgl, block, 0, 0)
            assert await status_of(controller.queues[0], command) == expected << 1 | BIT_15

    run(main())


def test_an_admin_command_that_would_fail_again() -> None:
    """Also one that waits for an event and is one too many."""

    async def main() -> None:
        async with pair(nvmeof.MemoryStore(MIB)) as (controller, _, _):
            queue = admin_queue(controller)
            identify = Command(AdminOpcode.IDENTIFY, 0, 0, 0, PAGE, 99)
            assert await status_of(queue, identify) == Status.INVALID_FIELD << 1 | BIT_15
            event = Command(AdminOpcode.ASYNC_EVENT, 0, 0, 0, NOTHING)
            for _ in range(3):  # one waits already, and a controller takes four
                queue.submit(event, lambda *_: None)
            assert await status_of(queue, event) == Status.AER_LIMIT << 1 | BIT_15

    run(main())


def test_the_exception_says_that_the_command_would_fail_again() -> None:
    async def main() -> None:
        async with pair(Broken()) as (controller, _, target):
            disk = controller.disks[1]
            for call, status in (
                (disk.read(0, 4096), Status.UNRECOVERED_READ),
                (disk.write(0, bytes(4096)), Status.CAPACITY),
            ):
                with pytest.raises(nvmeof.CommandFailed) as caught:
                    await call
                assert (caught.value.status, caught.value.is_final) == (status, True)
            with pytest.raises(nvmeof.CommandFailed, match="no such subsystem") as caught:
                await nvmeof.connect("127.0.0.1", controller.nqn + "x", target.port)
            assert caught.value.is_final

    run(main())


def test_a_command_that_was_aborted_may_be_sent_again() -> None:
    async def main() -> None:
        async with pair(nvmeof.MemoryStore(MIB)) as (controller, _, _):
            queue = admin_queue(controller)
            answered = asyncio.get_running_loop().create_future()
            cid = queue.submit(
                Command(AdminOpcode.ASYNC_EVENT, 0, 0, 0, NOTHING),
                lambda _, status: answered.set_result(status),
            )
            abort = Command(AdminOpcode.ABORT, 0, 0, 0, NOTHING, cid << 16)
            assert await status_of(queue, abort) == 0
            assert await asyncio.wait_for(answered, 10) == Status.ABORTED << 1

    run(main())


def test_a_command_without_buffers_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target has none for a while; the program at the host hears nothing of it."""
    failures = iter((True, True))
    seen: list[int] = []
    plain = Buffers.take

    def take(buffers: Buffers, pd: Any, length: int) -> Any:
        if length == 8192 and next(failures, False):
            raise OSError(errno.ENOMEM, "no memory")
        return plain(buffers, pd, length)

    class Readable(Broken):
        def read(self, offset: int, into: memoryview) -> Any:
            into[:] = b"r" * len(into)

    async def main() -> None:
        async with pair(Readable()) as (controller, _, _):
            queue = controller.queues[0]
            command = Command(IoOpcode.READ, 0, 0, 1, PAGE._replace(length=8192), 0, 0, 1)
            monkeypatch.setattr(Buffers, "take", take)
            seen.append(await status_of(queue, command))
            target = bytearray(8192)
            await controller.disks[1].read_into(0, target)
            assert target == b"r" * 8192
            assert controller.reconnects == 0

    run(main())
    assert seen == [Status.INTERNAL_ERROR << 1]
    assert next(failures, None) is None


def test_a_busy_subsystem_may_be_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subsystems, "LAST_CONTROLLER", 1)

    async def main() -> None:
        async with (
            serving(nvmeof.MemoryStore(MIB)) as (target, _),
            await connected(target) as first,
        ):
            with pytest.raises(nvmeof.CommandFailed, match="connect again later") as caught:
                await connected(target)
            assert (caught.value.status, caught.value.is_final) == (Status.CONNECT_BUSY, False)
            await first.close()
            async with asyncio.timeout(10):
                while target.queues:
                    await asyncio.sleep(0.01)
            async with await connected(target) as again:
                assert again.disks

    run(main())
