# SPDX-License-Identifier: Apache-2.0
"""A target and hosts of Verbena: blocks, queues, events, and hosts that end or misbehave."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import signal
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.carriers import live_carriers
from tests.nvmeof.conftest import (
    HOST,
    MIB,
    NQN,
    ChildTarget,
    connected,
    image,
    pair,
    run,
    serving,
)
from tests.support import own_network
from verbena import cm, nvmeof
from verbena.agent.client import describe_agent
from verbena.nvmeof import Status
from verbena.nvmeof.fabrics import RejectData, RejectStatus, RequestData
from verbena.nvmeof.load import Load, measure
from verbena.nvmeof.send_queue import SendQueue

pytest_generate_tests = live_carriers
WRONG = r"whole blocks|end of the disk"


@pytest.fixture(params=["memory", "file", "slow"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> nvmeof.Store:
    if request.param == "memory":
        return nvmeof.MemoryStore(16 * MIB)
    file = nvmeof.FileStore(image(tmp_path))
    if request.param == "file":
        return file
    return DelayedLater(file)


class DelayedLater(nvmeof.DelayedStore):
    """A slow disk that can be made before there is a loop."""

    def __init__(self, store: nvmeof.Store) -> None:
        super().__init__(store, 0.002, channels=4)


# ---- blocks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [4096, 8192, 12_288, 65_536, MIB, 3 * MIB + 4096])
def test_what_is_written_is_read(store: nvmeof.Store, length: int) -> None:
    async def main() -> None:
        async with pair(store) as (controller, _, _):
            disk = controller.disks[1]
            data = os.urandom(length)
            await disk.write(8192, data)
            assert await disk.read(8192, length) == data
            assert await disk.read(4096, 4096) == bytes(4096)
            assert await disk.read(8192 + length, 4096) == bytes(4096)

    run(main())
    store.close()


def test_buffers_and_arrays(store: nvmeof.Store) -> None:
    async def main() -> None:
        async with pair(store) as (controller, _, _):
            disk = controller.disks[1]
            source = np.arange(MIB // 8, dtype=np.uint64)
            await disk.write(0, source)
            target = np.zeros_like(source)
            await disk.read_into(0, target)
            assert (source == target).all()
            buffer = disk.buffer(MIB)
            await disk.read_into(4096, buffer, 8192)
            assert bytes(buffer.array()[:8192]) == source.tobytes()[4096:12_288]
            await disk.write(MIB, buffer, 8192)
            assert await disk.read(MIB, 8192) == source.tobytes()[4096:12_288]
            await disk.write(0, bytearray(b"y" * 4096))
            assert await disk.read(0, 4096) == b"y" * 4096

    run(main())
    store.close()


def test_other_commands(store: nvmeof.Store) -> None:
    async def main() -> None:
        async with pair(store) as (controller, _, _):
            disk = controller.disks[1]
            data = os.urandom(MIB)
            await disk.write(0, data, durable=True)
            await disk.flush()
            await disk.compare(4096, data[4096:12_288])
            with pytest.raises(nvmeof.CommandFailed) as caught:
                await disk.compare(0, data[4096:12_288])
            assert caught.value.status is Status.COMPARE_FAILURE
            await disk.write_zeroes(4096, 2 * 4096)
            assert await disk.read(0, MIB) == data[:4096] + bytes(8192) + data[12_288:]
            await disk.discard((65_536, 65_536), (0, 4096))
            assert await disk.read(4096, 8192) == bytes(8192)

    run(main())
    store.close()


@pytest.mark.over_roce
def test_many_at_once(store: nvmeof.Store) -> None:
    """More commands than the queues take, and than there are buffers for."""

    async def main() -> None:
        async with pair(store, queues=3, entries=8) as (controller, _, target):
            disk = controller.disks[1]
            assert target.queues == 4
            shadow = bytearray(16 * MIB)

            async def writer(number: int) -> None:
                draw = random.Random(number)
                for _ in range(12):
                    at = number * 65 + draw.randrange(50)
                    data = draw.randbytes(4096 * draw.randrange(1, 15))
                    await disk.write(at * 4096, data)
                    shadow[at * 4096 : at * 4096 + len(data)] = data
                    assert await disk.read(at * 4096, len(data)) == data

            await asyncio.gather(*(writer(number) for number in range(60)))
            assert await disk.read(0, 16 * MIB) == shadow

    run(main())
    store.close()


@pytest.mark.parametrize(
    ("offset", "length"), [(1, 4096), (0, 4095), (0, 0), (-4096, 4096), (16 * MIB, 4096)]
)
def test_wrong_arguments(offset: int, length: int) -> None:
    async def main() -> None:
        async with pair(nvmeof.MemoryStore(16 * MIB)) as (controller, _, _):
            with pytest.raises(ValueError, match=WRONG):
                await controller.disks[1].read(offset, length)
            with pytest.raises(ValueError, match=WRONG):
                await controller.disks[1].write(offset, bytes(length))

    run(main())


def test_a_store_that_fails() -> None:
    class Broken(nvmeof.MemoryStore):
        def __init__(self) -> None:
            super().__init__(MIB)
            self.memory = None
            self.code = errno.EIO

        def read(self, offset: int, into: memoryview) -> Any:
            raise OSError(self.code, "broken")

        def write(self, offset: int, data: memoryview, is_durable: bool) -> Any:
            async def fail() -> None:
                raise OSError(self.code, "broken")

            return fail()

        def flush(self) -> Any:
            async def fail() -> None:
                raise KeyError("a defect")

            return fail()

    async def main() -> None:
        store = Broken()
        async with pair(store) as (controller, _, _):
            disk = controller.disks[1]
            for code, status in (
                (errno.EIO, Status.WRITE_FAULT),
                (errno.ENOSPC, Status.CAPACITY),
            ):
                store.code = code
                with pytest.raises(nvmeof.CommandFailed) as caught:
                    await disk.write(0, bytes(4096))
                assert caught.value.status is status
            with pytest.raises(nvmeof.CommandFailed) as caught:
                await disk.read(0, 4096)
            with pytest.raises(nvmeof.CommandFailed) as caught:
                await disk.flush()
            assert caught.value.status is Status.INTERNAL_ERROR
            assert controller.reconnects == 0

    run(main())


def test_read_only(tmp_path: Path) -> None:
    async def main() -> None:
        store = nvmeof.FileStore(image(tmp_path), is_read_only=True)
        async with pair(store) as (controller, _, _):
            disk = controller.disks[1]
            assert disk.is_read_only
            assert await disk.read(0, 4096) == bytes(4096)
            for call in (disk.write(0, bytes(4096)), disk.write_zeroes(0, 4096)):
                with pytest.raises(nvmeof.CommandFailed) as caught:
                    await call
                assert caught.value.errno == errno.EROFS
        store.close()

    run(main())


# ---- hosts ---------------------------------------------------------------------------------------


def test_discovery_and_lists_of_hosts() -> None:
    async def main() -> None:
        async with serving(nvmeof.MemoryStore(MIB)) as (target, subsystem):
            allowed = nvmeof.HostOptions(host_nqn="nqn.2026-01.org.example:good")
            subsystem.allow(allowed.host_nqn)
            names = [e.nqn for e in await nvmeof.discover(HOST, target.port)]
            assert names == [nvmeof.DISCOVERY_NQN]
            entries = await nvmeof.discover(HOST, target.port, allowed)
            assert entries[1].nqn == NQN
            assert (entries[1].address, entries[1].service) == (HOST, str(target.port))
            with pytest.raises(nvmeof.CommandFailed, match="list of hosts") as caught:
                await connected(target)
            assert caught.value.errno == errno.EACCES
            async with await nvmeof.connect(HOST, NQN, target.port, allowed) as controller:
                assert controller.disks
            with pytest.raises(nvmeof.CommandFailed, match="no such subsystem"):
                await nvmeof.connect(HOST, NQN + "x", target.port, allowed)

    run(main())


def test_namespaces_that_come_and_go() -> None:
    async def main() -> None:
        async with pair(nvmeof.MemoryStore(MIB)) as (controller, subsystem, _):
            changed = asyncio.Event()
            controller.on_change = changed.set
            for step in range(3):
                changed.clear()
                subsystem.add(nvmeof.MemoryStore(2 * MIB), 512)
                await changed.wait()
                disk = controller.disks[2]
                await disk.write(512, b"z" * 512)
                assert await disk.read(512, 512) == b"z" * 512
                changed.clear()
                subsystem.remove(2)
                await changed.wait()
                assert list(controller.disks) == [1], step
                with pytest.raises(nvmeof.ConnectionLost, match="no namespace 2"):
                    await disk.read(0, 512)

    run(main())


def test_reservations_of_two_hosts() -> None:
    async def main() -> None:
        async with (
            serving(nvmeof.MemoryStore(MIB)) as (target, _),
            await connected(target) as first,
            await connected(target) as second,
        ):
            one, two = first.disks[1], second.disks[1]
            await one.register(5)
            await one.acquire(5, nvmeof.ReservationType.WRITE_EXCLUSIVE)
            with pytest.raises(nvmeof.CommandFailed) as caught:
                await two.write(0, bytes(4096))
            assert caught.value.status is Status.RESERVATION_CONFLICT
            with pytest.raises(nvmeof.CommandFailed):
                await two.flush()
            await two.read(0, 4096)
            await one.write(0, bytes(4096))
            await two.register(6)
            await two.acquire(6, nvmeof.ReservationType.EXCLUSIVE_ACCESS, preempt=5)
            with pytest.raises(nvmeof.CommandFailed):
                await one.read(0, 4096)
            report = await two.reservations()
            assert report[4] == nvmeof.ReservationType.EXCLUSIVE_ACCESS
            with pytest.raises(nvmeof.CommandFailed, match="of another kind than WRITE_EXCLUSIVE"):
                await two.release(6, nvmeof.ReservationType.WRITE_EXCLUSIVE)
            await two.release(6, nvmeof.ReservationType.EXCLUSIVE_ACCESS)
            await one.read(0, 4096)

    run(main())


def test_a_write_that_is_under_way_when_its_host_is_preempted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its data come afterwards, and must not reach the disk: the other host uses it then."""
    real = SendQueue.add_read
    kind = nvmeof.ReservationType.WRITE_EXCLUSIVE

    async def main() -> None:
        store = nvmeof.MemoryStore(MIB)
        async with (
            serving(store) as (target, subsystem),
            await connected(target) as first,
            await connected(target) as second,
        ):
            namespace = subsystem.namespaces[1]

            def preempt(queue: SendQueue, *arguments: int) -> None:
                keys = namespace.reservations.keys
                other = next(host for host, key in keys.items() if key == 6)
                if 5 in keys.values():
                    data = struct.pack("<QQ", 6, 5)
                    namespace.change_reservations(lambda it: it.acquire(other, 1 | kind << 8, data))
                real(queue, *arguments)

            one, two = first.disks[1], second.disks[1]
            await one.register(5)
            await one.acquire(5, kind)
            await one.write(0, b"before" * 4096)
            await two.register(6)
            monkeypatch.setattr(SendQueue, "add_read", preempt)
            with pytest.raises(nvmeof.CommandFailed) as caught:
                await one.write(0, b"behind" * 4096)
            assert caught.value.status is Status.RESERVATION_CONFLICT
            assert bytes(await two.read(0, 6 * 4096)) == b"before" * 4096
            await two.write(0, b"second" * 4096)
            assert bytes(await two.read(0, 6 * 4096)) == b"second" * 4096

    run(main())


def test_a_reservation_that_conflicts_says_with_what() -> None:
    async def main() -> None:
        kind = nvmeof.ReservationType.WRITE_EXCLUSIVE
        async with (
            serving(nvmeof.MemoryStore(MIB)) as (target, _),
            await connected(target) as first,
            await connected(target) as second,
        ):
            one, two = first.disks[1], second.disks[1]
            for early in (one.acquire(5, kind), one.release(5, kind), one.register(5, 4, action=2)):
                with pytest.raises(nvmeof.CommandFailed, match="not registered a key") as caught:
                    await early
                assert caught.value.status is Status.RESERVATION_CONFLICT
            await one.register(5)
            with pytest.raises(nvmeof.CommandFailed, match=r"has registered the key 5: give that"):
                await one.register(6)
            with pytest.raises(nvmeof.CommandFailed, match=r"action=RegisterAction\.REPLACE repl"):
                await one.register(6)
            for wrong in (one.acquire(6, kind), one.release(6, kind)):
                with pytest.raises(nvmeof.CommandFailed, match="the key 5, and not 6"):
                    await wrong
            await one.acquire(5, kind)
            await two.register(7)
            with pytest.raises(nvmeof.CommandFailed, match="preempt=, its key") as caught:
                await two.acquire(7, kind)
            assert "0x83" in str(caught.value)
            with pytest.raises(nvmeof.CommandFailed, match="no host has registered the key 77"):
                await two.acquire(7, kind, preempt=77)

    run(main())


def test_preempting_a_host_that_holds_no_reservation_takes_none() -> None:
    """Its registration ends, and the caller is told that nothing is reserved."""

    async def main() -> None:
        kind = nvmeof.ReservationType.WRITE_EXCLUSIVE
        async with (
            serving(nvmeof.MemoryStore(MIB)) as (target, _),
            await connected(target) as first,
            await connected(target) as second,
        ):
            one, two = first.disks[1], second.disks[1]
            await one.register(5)
            await two.register(7)
            assert await two.acquire(7, kind, preempt=5) is False
            await one.write(0, bytes(4096))
            assert await two.acquire(7, kind) is True
            await one.register(5)
            assert await one.acquire(5, kind, preempt=7) is True
            with pytest.raises(nvmeof.CommandFailed, match="not registered"):
                await two.acquire(7, kind)

    run(main())


def test_arguments_of_disks_are_checked() -> None:
    async def main() -> None:
        async with (
            serving(nvmeof.MemoryStore(MIB)) as (target, _),
            await connected(target) as controller,
        ):
            disk: Any = controller.disks[1]
            for wrong in ("0", 0.0, None, True):
                with pytest.raises(TypeError, match="offset is a number of bytes, and not"):
                    await disk.read(wrong, 512)
                with pytest.raises(TypeError, match="offset is a number of bytes, and not"):
                    await disk.write(wrong, bytes(512))
            assert await disk.read(np.int64(4096), 4096) == bytes(4096)
            with pytest.raises(TypeError, match=r"a range is \(offset, length\), and not 5"):
                await disk.discard(5)
            with pytest.raises(ValueError, match="key is 0"):
                await disk.register(0)

    run(main())


def test_keys_and_types_of_reservations_are_checked() -> None:
    async def main() -> None:
        async with (
            serving(nvmeof.MemoryStore(MIB)) as (target, _),
            await connected(target) as controller,
        ):
            disk: Any = controller.disks[1]
            with pytest.raises(TypeError, match=r"key is a whole number from 0 to .*'x'"):
                await disk.register("x")
            with pytest.raises(ValueError, match=r"current is a whole number from 0 to .*-1"):
                await disk.register(1, -1)
            with pytest.raises(ValueError, match="action is a whole number from 0 to 2"):
                await disk.register(1, action=3)
            with pytest.raises(TypeError, match="preempt is a whole number"):
                await disk.acquire(1, 1, preempt="x")
            with pytest.raises(ValueError, match="9 is not a valid ReservationType"):
                await disk.acquire(1, 9)
            with pytest.raises(ValueError, match="'x' is not a valid ReservationType"):
                await disk.release(1, "x")

    run(main())


@pytest.mark.over_roce
def test_a_host_that_is_silent() -> None:
    """It loses its own connection, and nothing else."""

    async def main() -> None:
        async with serving(nvmeof.MemoryStore(MIB)) as (target, subsystem):
            silent = await connected(target, keep_alive=0.2, loss_timeout=0)
            for task in list(silent._tasks):
                task.cancel()
            async with await connected(target, keep_alive=0.5) as other:
                while len(subsystem.controllers) > 1:
                    await asyncio.sleep(0.1)
                await other.disks[1].read(0, 4096)
                assert other.reconnects == 0
            await silent.close()

    run(main())


def test_requests_that_are_refused() -> None:
    async def main() -> None:
        async with serving(nvmeof.MemoryStore(MIB)) as (target, _):
            for data, status in (
                (RequestData(hrqsize=32, hsqsize=32), RejectStatus.HSQSIZE),
                (RequestData(recfmt=9, hrqsize=32, hsqsize=31), RejectStatus.FORMAT),
                (RequestData(qid=999, hrqsize=32, hsqsize=31), RejectStatus.QID),
            ):
                with pytest.raises(cm.Rejected) as caught:
                    await cm.connect(HOST, target.port, private_data=data.pack())
                said = RejectData.parse(caught.value.private_data)
                assert said.status == status

    run(main())


def test_no_target() -> None:
    async def main() -> None:
        with pytest.raises(cm.NoListener):
            await nvmeof.connect(HOST, NQN, 4999)

    run(main())


def test_a_cancelled_request_leaves_the_disk_usable() -> None:
    async def main() -> None:
        slow = nvmeof.DelayedStore(nvmeof.MemoryStore(MIB), 0.3)
        async with pair(slow) as (controller, _, _):
            disk = controller.disks[1]
            task = asyncio.create_task(disk.read(0, 4096))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await disk.write(0, b"q" * 4096)
            assert await disk.read(0, 4096) == b"q" * 4096

    run(main())


@pytest.mark.over_roce
def test_closing_with_requests_under_way() -> None:
    async def main() -> None:
        slow = nvmeof.DelayedStore(nvmeof.MemoryStore(MIB), 1.0)
        async with serving(slow) as (target, _):
            controller = await connected(target)
            reading = asyncio.create_task(controller.disks[1].read(0, 4096))
            await asyncio.sleep(0.1)
            await controller.close()
            with pytest.raises(nvmeof.ConnectionLost):
                await reading
            with pytest.raises(nvmeof.ConnectionLost):
                await controller.disks[1].read(0, 4096)
            async with await connected(target) as again:
                await again.disks[1].read(0, 4096)

    run(main())


@pytest.mark.over_roce
def test_writes_of_a_lost_connection_come_first() -> None:
    """A store that is slow with a write of the old connection does not undo one of the new."""

    class Slow(nvmeof.MemoryStore):
        seconds = 1.0

        def __init__(self) -> None:
            super().__init__(MIB)
            self.memory = None

        def write(self, offset: int, data: memoryview, is_durable: bool) -> Any:
            return self._write(offset, bytes(data))

        async def _write(self, offset: int, data: bytes) -> None:
            seconds, self.seconds = self.seconds, 0.0
            await asyncio.sleep(seconds)
            self._view[offset : offset + len(data)] = data

    async def main() -> None:
        async with pair(Slow(), reconnect_delay=0.05) as (controller, _, _):
            disk = controller.disks[1]
            first = asyncio.create_task(disk.write(0, b"1" * 4096))
            await asyncio.sleep(0.2)
            controller.queues[0].end("the test ends it")
            await first
            await disk.write(0, b"2" * 4096)
            await asyncio.sleep(1.2)
            assert await disk.read(0, 4096) == b"2" * 4096
            assert controller.reconnects == 1

    run(main())


@pytest.mark.over_roce
def test_an_agent_that_is_killed() -> None:
    """Connections go on, and hosts can connect again."""
    if not own_network():
        pytest.skip("the agent may have other users here; run the tests as root")

    async def main() -> None:
        async with pair(nvmeof.MemoryStore(MIB)) as (controller, _, target):
            disk = controller.disks[1]
            described = describe_agent()
            assert described is not None
            os.kill(described["pid"], signal.SIGKILL)
            await asyncio.sleep(0.2)
            await disk.write(0, b"a" * 4096)
            assert controller.reconnects == 0
            controller.queues[0].end("the test ends it")
            assert await disk.read(0, 4096) == b"a" * 4096
            assert controller.reconnects == 1
            async with await connected(target) as other:
                assert await other.disks[1].read(0, 4096) == b"a" * 4096

    run(main())


# ---- targets that end ----------------------------------------------------------------------------


@pytest.mark.over_roce
def test_a_target_that_is_killed_after_a_flush(tmp_path: Path) -> None:
    """No write that was acknowledged before is lost, and the connection is made again."""

    async def main() -> None:
        path = image(tmp_path)
        with ChildTarget(path) as target:
            async with await connected(target.port, reconnect_delay=0.1) as controller:
                disk = controller.disks[1]
                draw = random.Random(1)
                shadow = bytearray(16 * MIB)
                for step in range(3):
                    for _ in range(40):
                        at = draw.randrange(4000) * 4096
                        data = draw.randbytes(4096 * draw.randrange(1, 20))
                        await disk.write(at, data)
                        shadow[at : at + len(data)] = data
                    await disk.flush()
                    target.kill()
                    assert path.read_bytes() == shadow
                    target.restart()
                    assert await disk.read(0, 16 * MIB) == shadow
                    assert controller.reconnects == step + 1

    run(main())


@pytest.mark.over_roce
def test_a_target_that_is_killed_under_load(tmp_path: Path) -> None:
    async def main() -> None:
        with ChildTarget(image(tmp_path)) as target:
            async with await connected(target.port, reconnect_delay=0.1) as controller:
                disk = controller.disks[1]
                shadow = bytearray(16 * MIB)
                stop = False

                async def writer(number: int) -> int:
                    draw, done = random.Random(number), 0
                    while not stop:
                        at = (number * 500 + draw.randrange(480)) * 4096
                        data = draw.randbytes(4096 * draw.choice((1, 2, 16)))
                        await disk.write(at, data)
                        shadow[at : at + len(data)] = data
                        done += 1
                    return done

                writers = [asyncio.create_task(writer(number)) for number in range(8)]
                for _ in range(3):
                    await asyncio.sleep(0.5)
                    target.kill()
                    await asyncio.sleep(0.3)
                    target.restart()
                await asyncio.sleep(1)
                stop = True
                assert all(await asyncio.gather(*writers))
                assert await disk.read(0, 16 * MIB) == shadow
                assert controller.reconnects >= 3

    run(main(), 90)


@pytest.mark.over_roce
def test_a_target_that_stays_away(tmp_path: Path) -> None:
    async def main() -> None:
        with ChildTarget(image(tmp_path)) as target:
            controller = await connected(target.port, reconnect_delay=0.1, loss_timeout=0.5)
            disk = controller.disks[1]
            await disk.read(0, 4096)
            target.kill()
            with pytest.raises(nvmeof.ConnectionLost):
                await disk.read(0, 4096)
            assert controller.state is nvmeof.HostState.DEAD
            await controller.close()

    run(main())


@pytest.mark.over_roce
def test_a_host_that_is_killed(tmp_path: Path) -> None:
    """Its connections end at the target, and nobody else's."""

    async def main() -> None:
        with ChildTarget(image(tmp_path)) as target:
            async with await connected(target.port) as controller:
                assert target.tell("queues") == 2
                child = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", KILLED, str(target.port)
                )
                while target.tell("queues") < 4:
                    await asyncio.sleep(0.05)
                child.kill()
                await child.wait()
                while target.tell("queues") > 2:
                    await asyncio.sleep(0.05)
                await controller.disks[1].read(0, 4096)
                assert controller.reconnects == 0

    run(main())


KILLED = f"""
import asyncio, sys
from verbena import nvmeof
async def main():
    controller = await nvmeof.connect({HOST!r}, {NQN!r}, int(sys.argv[1]))
    while True:
        await asyncio.gather(*(controller.disks[1].read(0, 1 << 20) for _ in range(8)))
asyncio.run(main())
"""


@pytest.mark.over_roce
def test_a_load_ends_in_time_where_commands_do_not() -> None:
    async def main() -> None:
        async with pair(nvmeof.DelayedStore(nvmeof.MemoryStore(MIB), 1.6)) as (controller, _, _):
            begun = asyncio.get_running_loop().time()
            result = await measure(controller.disks[1], Load(depth=4, seconds=0.05))
            assert asyncio.get_running_loop().time() - begun < 1.5
            assert (result.commands, result.unended, result.rate) == (0, 4, 0.0)

    run(main())


def test_a_host_that_goes_without_a_word_is_reported_in_plain_words() -> None:
    async def main() -> None:
        said: list[str] = []
        async with serving(nvmeof.MemoryStore(MIB), report=said.append) as (target, _):
            controller = await connected(target, loss_timeout=0)
            assert controller._admin is not None
            controller._admin.conn.close()
            async with asyncio.timeout(10):
                while not any("was lost" in each for each in said):
                    await asyncio.sleep(0.02)
            await controller.close()
        lost = next(each for each in said if "was lost" in each)
        assert "modify_qp" not in lost
        assert "ended" in lost

    run(main())
