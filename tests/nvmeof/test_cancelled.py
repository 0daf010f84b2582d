# SPDX-License-Identifier: Apache-2.0
"""Cancellation at every await of a host of verbena.nvmeof, and of a target's start and end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tests.cancelling import Moment, at_every_await, cancelled_at
from tests.nvmeof.conftest import HOST, MIB, NQN, connected, pair, run, serving
from verbena import nvmeof
from verbena.nvmeof.fabrics import Property
from verbena.nvmeof.logs import LogPage

PAGE = 4096
Work = Callable[[nvmeof.HostController], Awaitable[Any]]


async def _reserve(controller: nvmeof.HostController) -> None:
    disk = controller.disks[1]
    await disk.register(5, 0)
    await disk.acquire(5, nvmeof.ReservationType.WRITE_EXCLUSIVE)
    await disk.reservations()
    await disk.release(5, nvmeof.ReservationType.WRITE_EXCLUSIVE)


WORKS: dict[str, Work] = {
    "read": lambda each: each.disks[1].read(0, 3 * PAGE),
    "read into": lambda each: each.disks[1].read_into(0, bytearray(PAGE)),
    "write": lambda each: each.disks[1].write(PAGE, bytes(600 * PAGE)),
    "durable": lambda each: each.disks[1].write(PAGE, bytes(PAGE), durable=True),
    "compare": lambda each: each.disks[1].compare(MIB * 3, bytes(PAGE)),
    "flush": lambda each: each.disks[1].flush(),
    "zeroes": lambda each: each.disks[1].write_zeroes(PAGE, 8 * PAGE),
    "discard": lambda each: each.disks[1].discard((PAGE, PAGE), (5 * PAGE, PAGE)),
    "reservations": _reserve,
    "property": lambda each: each.get_property(Property.CSTS),
    "log": lambda each: each.get_log(LogPage.SMART, 512),
}


def test_commands() -> None:
    """After each the same controller goes on, has all room in its queues, and reads what it wrote.

    A WRITE that was cancelled may still be executed, in whole blocks; no other block changes.
    """
    slow = nvmeof.DelayedStore(nvmeof.MemoryStore(4 * MIB), 5e-4, 8)

    async def main() -> dict[str, int]:
        counts = {}
        async with pair(slow, entries=8) as (controller, _, _):
            disk = controller.disks[1]
            number = 0

            async def check() -> None:
                nonlocal number
                number += 1
                data = number.to_bytes(4, "little") * (PAGE // 4)
                await asyncio.gather(*(disk.write(at * PAGE, data) for at in range(700, 732)))
                assert await disk.read(731 * PAGE, PAGE) == data
                assert controller.reconnects == 0

            for name, work in WORKS.items():
                counts[name] = await at_every_await(lambda work=work: _run(work, controller), check)
            await disk.read(0, PAGE)
        return counts

    counts = run(main())
    assert min(counts.values()) >= 1, counts


async def _run(work: Work, controller: nvmeof.HostController) -> None:
    await work(controller)


class Gated(nvmeof.Store):
    """Its first write waits for the gate; ``log`` has where writes begin."""

    def __init__(self) -> None:
        self.size = 4 * MIB
        self.bytes = bytearray(self.size)
        self.gate = asyncio.Event()
        self.log: list[int] = []

    def read(self, offset: int, into: memoryview) -> None:
        into[:] = self.bytes[offset : offset + len(into)]

    async def write(self, offset: int, data: memoryview, is_durable: bool) -> None:
        self.log.append(offset)
        if len(self.log) == 1:
            await self.gate.wait()
        self.bytes[offset : offset + len(data)] = data

    def flush(self) -> None:
        pass

    def zero(self, offset: int, length: int) -> None:
        self.bytes[offset : offset + length] = bytes(length)

    discard = zero


@pytest.mark.parametrize("size", [PAGE, 16 * PAGE])
def test_a_write_that_was_cancelled_does_not_undo_a_newer_one(size: int) -> None:
    """What is about its blocks waits for its end, and so does a flush; all else goes on."""

    async def main() -> None:
        store = Gated()
        async with pair(store) as (controller, _, _):
            disk = controller.disks[1]
            old = bytearray(b"a" * size)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await disk.write(0, old)
            later = [
                asyncio.ensure_future(each)
                for each in (
                    disk.write(0, b"b" * size),
                    disk.read(0, size),
                    disk.write_zeroes(0, PAGE),
                    disk.discard((MIB, PAGE)),
                    disk.flush(),
                )
            ]
            gone = asyncio.ensure_future(disk.write(0, b"c" * size))
            await disk.write(2 * MIB, b"d" * size)
            assert await disk.read(2 * MIB, size) == b"d" * size
            gone.cancel()
            await asyncio.wait([gone])
            assert not any(each.done() for each in later)
            assert store.log == [0, 2 * MIB]
            store.gate.set()
            await asyncio.gather(*later)
            await disk.write(0, b"b" * size)
            await disk.flush()
            assert await disk.read(0, size) == b"b" * size
            assert store.log == [0, 2 * MIB, 0, 0]

    run(main())


def test_a_write_that_was_cancelled_before_it_was_sent_is_not_sent() -> None:
    async def main() -> None:
        store = Gated()
        async with pair(store, entries=2) as (controller, _, _):
            disk = controller.disks[1]
            first = asyncio.ensure_future(disk.write(0, bytes(PAGE)))
            await asyncio.sleep(0.05)
            waiting = asyncio.ensure_future(disk.write(MIB, bytes(PAGE)))
            await asyncio.sleep(0.01)
            waiting.cancel()
            await asyncio.wait([waiting])
            store.gate.set()
            await first
            await disk.write(MIB, b"e" * PAGE)
            assert await disk.read(MIB, PAGE) == b"e" * PAGE
            assert store.log == [0, MIB]

    run(main())


@pytest.mark.parametrize("way", ["connect", "discover"])
def test_connecting(way: str) -> None:
    """The target keeps no controller of an attempt that was cancelled, and takes the next host."""

    async def main() -> int:
        async with serving(nvmeof.MemoryStore(MIB)) as (target, subsystem):

            async def attempt() -> None:
                if way == "discover":
                    await nvmeof.discover(HOST, target.port)
                    return
                controller = await nvmeof.connect(HOST, NQN, target.port)
                await controller.close()

            async def check() -> None:
                async with asyncio.timeout(10):
                    while subsystem.controllers or target.queues:
                        await asyncio.sleep(1e-3)

            count = await at_every_await(attempt, check)
            async with await connected(target) as controller:
                await controller.disks[1].read(0, PAGE)
            return count

    assert run(main()) >= 5


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def _close(controller: nvmeof.HostController) -> None:
    await controller.close()


async def _leave_block(controller: nvmeof.HostController) -> None:
    async with controller:
        pass


@asynccontextmanager
async def counted() -> AsyncIterator[tuple[nvmeof.Target, Callable[[], Awaitable[None]]]]:
    """A target, and a check that neither it nor its hosts have kept anything."""
    async with serving(nvmeof.MemoryStore(MIB)) as (target, _):

        async def check() -> None:
            async with asyncio.timeout(10):
                while target.queues or descriptors() != before:
                    await asyncio.sleep(1e-3)

        await (await connected(target, queues=2)).close()
        before = descriptors()
        async with asyncio.timeout(10):
            while target.queues or descriptors() != before:
                before = descriptors()
                await asyncio.sleep(0.05)
        yield target, check


@pytest.mark.parametrize("how", [_close, _leave_block])
def test_closing(how: Callable[[nvmeof.HostController], Any]) -> None:
    """A close that was cancelled has released everything, the target knows, and the next close has
    nothing to do."""

    async def main() -> int:
        async with counted() as (target, check):
            most = 0
            for moment in Moment:
                at, is_over = 0, False
                while not is_over:
                    controller = await connected(target, queues=2)
                    is_over = await cancelled_at(how(controller), at, moment)
                    released = descriptors()
                    await controller.close()
                    assert descriptors() == released
                    await check()
                    at += 1
                most = max(most, at)
            return most

    assert run(main()) >= 2


@pytest.mark.parametrize("is_lost", [False, True])
def test_closing_after_a_time(is_lost: bool) -> None:
    """It is cancelled after so many turns of the loop; one that was lost is being made again."""

    async def main() -> None:
        async with counted() as (target, check):
            for turns in range(1, 40):
                controller = await connected(target, queues=2, reconnect_delay=0.0)
                if is_lost:
                    target.end_controllers(NQN)
                    await asyncio.sleep(turns * 5e-4)
                closing = asyncio.ensure_future(controller.close())
                for _ in range(turns):
                    await asyncio.sleep(0)
                closing.cancel()
                await asyncio.wait([closing])
                await check()

    run(main())


@pytest.mark.parametrize("way", ["connect", "discover"])
def test_a_limited_time(way: str) -> None:
    """Connecting, what is done then, and closing are in one limit, which ends at any time."""

    async def main() -> None:
        async with counted() as (target, check):
            for step in range(40):
                with suppress(TimeoutError):
                    async with asyncio.timeout(step * 1e-3):
                        if way == "discover":
                            await nvmeof.discover(HOST, target.port)
                            continue
                        async with await connected(target, queues=2) as controller:
                            await controller.disks[1].write(0, bytes(16 * PAGE))
                await check()

    run(main())


def test_the_second_close_waits_for_the_first() -> None:
    async def main() -> None:
        async with pair(nvmeof.MemoryStore(MIB), queues=2) as (controller, _, _):
            first = asyncio.ensure_future(controller.close())
            await asyncio.sleep(0)
            assert controller.queues  # it shuts the controller down
            await controller.close()
            assert not controller.queues
            assert first.done()

    run(main())


def test_a_target_that_starts() -> None:
    """Its port is free after each attempt that was cancelled."""

    async def main() -> int:
        model = nvmeof.TargetModel()
        async with nvmeof.Target(model, host=HOST, port=0) as found:
            port = found.port

        async def attempt() -> None:
            async with nvmeof.Target(model, host=HOST, port=port):
                pass

        return await at_every_await(attempt, attempt)

    assert run(main()) >= 1
