# SPDX-License-Identifier: Apache-2.0
"""Preempt and Abort: it completes after what the other hosts have begun; and full reservations."""

from __future__ import annotations

import asyncio
import struct
import time
from pathlib import Path

import pytest

from tests.nvmeof.conftest import HOST, MIB, connected, run, serving
from verbena import nvmeof
from verbena.nvmeof.replies import Failure
from verbena.nvmeof.reservation_files import ReservationFile
from verbena.nvmeof.reservations import MOST_REGISTRANTS, Reservations
from verbena.nvmeof.send_queue import SendQueue
from verbena.nvmeof.status import Status

KIND = nvmeof.ReservationType.WRITE_EXCLUSIVE
PAGE = 4096
OLD, NEW = b"old host" * (PAGE // 8), b"new host" * (PAGE // 8)


class GatedStore(nvmeof.MemoryStore):
    """A store whose writes wait for ``gate`` once they have begun."""

    def __init__(self) -> None:
        super().__init__(MIB)
        self.memory = None  # so that blocks go by ``write``
        self.gate = asyncio.Event()
        self.begun = asyncio.Event()
        self.writes = 0

    def write(self, offset: int, data: memoryview, is_durable: bool) -> asyncio.Future[None]:
        self.writes += 1
        self.begun.set()

        async def write() -> None:
            await self.gate.wait()
            super(GatedStore, self).write(offset, data, is_durable)

        return asyncio.ensure_future(write())


async def _two(
    target: nvmeof.Target,
) -> tuple[nvmeof.HostController, nvmeof.HostController]:
    """Two hosts, registered with keys 5 and 6."""
    first, second = await connected(target), await connected(target)
    await first.disks[1].register(5)
    await second.disks[1].register(6)
    return first, second


@pytest.mark.parametrize("is_saved", [False, True])
def test_it_waits_for_writes_of_stores(is_saved: bool, tmp_path: Path) -> None:
    async def main() -> None:
        store = GatedStore()
        model, subsystem = nvmeof.TargetModel(), nvmeof.Subsystem("nqn.2026-01.org.example:disk0")
        subsystem.add(
            store, PAGE, reservation_file=ReservationFile(tmp_path / "file") if is_saved else None
        )
        model.add(subsystem)
        async with nvmeof.Target(model, host=HOST, port=0) as target:
            first, second = await _two(target)
            one, two = first.disks[1], second.disks[1]
            if is_saved:
                await two.register(6, 6, action=2, persist=True)
            await one.acquire(5, KIND)
            writing = asyncio.ensure_future(one.write(0, OLD))
            await store.begun.wait()
            taking = asyncio.ensure_future(two.acquire(6, KIND, preempt=5, abort=True))
            done, _ = await asyncio.wait([taking], timeout=0.3)
            assert not done  # the first host's write may still reach the disk
            with pytest.raises(nvmeof.CommandFailed) as caught:
                await one.write(PAGE, OLD)  # what begins now does not
            assert caught.value.status is Status.RESERVATION_CONFLICT
            store.gate.set()
            await taking
            assert bytes(await two.read(0, PAGE)) == OLD
            await writing
            await two.write(0, NEW)
            assert bytes(await two.read(0, PAGE)) == NEW
            assert store.writes == 2
            await first.close()
            await second.close()

    run(main())


def test_it_waits_for_writes_of_queues_that_have_ended() -> None:
    async def main() -> None:
        store = GatedStore()
        async with serving(store) as (target, subsystem):
            first, second = await _two(target)
            writing = asyncio.ensure_future(first.disks[1].write(0, OLD))
            await store.begun.wait()
            writing.cancel()
            closing = asyncio.ensure_future(first.close())
            while len(subsystem.controllers) > 1:
                await asyncio.sleep(1e-3)
            taking = asyncio.ensure_future(second.disks[1].acquire(6, KIND, preempt=5, abort=True))
            done, _ = await asyncio.wait([taking], timeout=0.3)
            assert not done
            store.gate.set()
            await taking
            await closing
            await second.close()

    run(main())


@pytest.mark.parametrize("is_aborting", [False, True])
def test_it_waits_for_data_on_their_way_into_memory(
    is_aborting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Preempt alone does not; the write fails either way, since its host is registered no more."""
    real = SendQueue.add_read
    held: list[tuple[SendQueue, tuple[int, ...]]] = []

    async def main() -> None:
        async with serving(nvmeof.MemoryStore(MIB)) as (target, _):
            first, second = await _two(target)
            two = second.disks[1]
            monkeypatch.setattr(
                SendQueue, "add_read", lambda queue, *words: held.append((queue, words))
            )
            writing = asyncio.ensure_future(first.disks[1].write(0, OLD * 8))
            while not held:
                await asyncio.sleep(1e-3)
            monkeypatch.setattr(SendQueue, "add_read", real)
            taking = asyncio.ensure_future(two.acquire(6, KIND, preempt=5, abort=is_aborting))
            done, _ = await asyncio.wait([taking], timeout=0.3)
            assert bool(done) == (not is_aborting)
            if done:
                await two.acquire(6, KIND)
            for queue, words in held:
                real(queue, *words)
                queue.flush()
            await taking
            if is_aborting:
                await writing  # nobody holds a reservation yet
                await two.acquire(6, KIND)
            else:
                with pytest.raises(nvmeof.CommandFailed):
                    await writing
            await two.write(0, NEW)
            assert bytes(await two.read(0, PAGE)) == NEW
            await first.close()
            await second.close()

    run(main())


def test_two_hosts_that_preempt_each_other() -> None:
    """Neither waits for the other one's command for ever."""

    async def main() -> None:
        async with serving(nvmeof.DelayedStore(nvmeof.MemoryStore(MIB), 1e-3, 4)) as (target, _):
            first, second = await _two(target)

            async def fight(host: nvmeof.HostController, own: int, other: int) -> int:
                disk, won = host.disks[1], 0
                for _ in range(30):
                    try:
                        await asyncio.gather(
                            disk.register(own),
                            disk.acquire(own, KIND, preempt=other, abort=True),
                            disk.write(0, NEW),
                        )
                        won += 1
                    except nvmeof.CommandFailed as error:
                        if error.status is not Status.RESERVATION_CONFLICT:
                            raise
                return won

            await asyncio.gather(fight(first, 5, 6), fight(second, 6, 5))
            await first.close()
            await second.close()

    run(main())


def test_abort_goes_with_a_key() -> None:
    async def main() -> None:
        async with (
            serving(nvmeof.MemoryStore(MIB)) as (target, _),
            await connected(target) as host,
        ):
            with pytest.raises(ValueError, match="abort goes with preempt"):
                await host.disks[1].acquire(5, KIND, abort=True)

    run(main())


def test_many_hosts_with_one_key() -> None:
    """There is a bound, and neither a report nor a preemption of all takes long."""
    made = Reservations()
    word, key = 0, struct.pack("<QQ", 0, 7)
    hosts = [number.to_bytes(16, "little") for number in range(1, MOST_REGISTRANTS + 2)]
    for host in hosts[:-1]:
        made.register(host, word, key)
    with pytest.raises(Failure, match="INTERNAL_ERROR"):
        made.register(hosts[-1], word, key)
    made.register(hosts[0], word, key)  # one that is registered may say so again
    begin = time.process_time()
    report = made.report({}, is_extended=True)
    assert time.process_time() - begin < 0.3
    assert len(report) == 64 * (MOST_REGISTRANTS + 1) <= nvmeof.Limits().transfer
    made.acquire(hosts[0], 1 | KIND << 8, struct.pack("<QQ", 7, 7))
    assert list(made.keys) == hosts[:1]
