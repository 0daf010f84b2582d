# SPDX-License-Identifier: Apache-2.0
"""The lock of files on disks: a host whose lock was broken changes nothing of other hosts."""

from __future__ import annotations

import asyncio
import errno
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec", reason="no package fsspec; the extra fsspec has it")

from tests.nvmeof.conftest import HOST, MIB, ChildTarget, connected, image, run
from tests.nvmeof.test_disk_files import BEFORE, CHANGES, PAGE, contents, volumes
from verbena import nvmeof
from verbena.disk_files import DiskFileSystem, format_disk
from verbena.disk_files.layout import add_change, is_made
from verbena.disk_files.locking import IDLE, WriteLock
from verbena.disk_files.volume import make_volume
from verbena.nvmeof.reservations import is_holder, keys_of


@pytest.mark.parametrize("name", CHANGES)
def test_a_host_that_goes_on_after_its_lock_was_broken(name: str) -> None:
    """It is stopped before each of its writes; another host breaks its lock and changes files."""

    async def main() -> int:
        async with volumes(2) as (first, second):
            plain, held, go_on = first.disk.write, asyncio.Event(), asyncio.Event()
            left = 0

            async def write(*args: Any, **options: Any) -> None:
                nonlocal left
                left -= 1
                if left == -1:
                    held.set()
                    await go_on.wait()
                await plain(*args, **options)

            for at in range(20):
                await make_volume(second.disk, True, 5.0)
                for path, data in BEFORE.items():
                    await second.write(path, data, False)
                held.clear()
                go_on.clear()
                left = at
                first.disk.__dict__["write"] = write
                change = asyncio.ensure_future(CHANGES[name][0](first))
                await asyncio.wait(
                    [change, stop := asyncio.ensure_future(held.wait())],
                    return_when=asyncio.FIRST_COMPLETED,
                )
                stop.cancel()
                if change.done():
                    await change
                    return at
                assert await second.lock.break_lock()
                for number in range(4):
                    await second.write(f"/B/{number}", bytes([number]) * 30_000, False)
                expected = await contents(second)
                go_on.set()
                with pytest.raises(OSError, match="broken this host's lock") as caught:
                    await change
                assert caught.value.errno == errno.ESTALE
                assert await contents(second) == expected
                assert expected["/B/3"] == bytes([3]) * 30_000
                del first.disk.__dict__["write"]
                await CHANGES[name][0](first)  # it goes on, after what the other has done
                assert (await contents(second)).keys() >= {"/B/0", "/B/3"}
        raise AssertionError("it never ends")

    assert run(main()) >= 2  # index and superblock


def test_the_reservation_is_kept_between_changes() -> None:
    """A host that has the lock no more is refused, whoever changed files last; nobody is left
    registered but the one that has it, and those that wait."""

    async def main() -> None:
        async with volumes(3) as hosts:
            for each in (*hosts, *hosts[::-1]):
                await each.write("/a", b"1", False)
                report = await each.disk.reservations()
                assert list(keys_of(report).values()) == [IDLE]
                assert is_holder(report, each.disk.controller.options.host_id.bytes)
                for other in hosts:
                    if other is not each:
                        with pytest.raises(nvmeof.CommandFailed, match="reserv"):
                            await other.disk.write(2 * PAGE, bytes(PAGE))
            assert not await hosts[1].lock.break_lock()  # nobody makes a change

    run(main())


def test_breaking_a_lock_whose_host_has_just_ended_its_change() -> None:
    """The key that was read is no key any more: there is nothing to break."""

    async def main() -> None:
        async with volumes(2) as (first, second):
            await first.lock.__aenter__()
            report = second.disk.reservations

            async def late(*args: Any) -> bytes:
                found = await report(*args)
                del second.disk.__dict__["reservations"]
                await first.lock.__aexit__(None, None, None)
                return found

            second.disk.__dict__["reservations"] = late
            assert not await second.lock.break_lock()
            await first.write("/a", b"1", False)
            await second.write("/b", b"2", False)
            assert await contents(first) == {"/a": b"1", "/b": b"2"}

    run(main())


def test_the_reservation_outlasts_the_target(tmp_path: Path) -> None:
    """So a host that has lost its turn is refused also by a target that was killed and started."""
    with ChildTarget(image(tmp_path, MIB)) as target:
        format_disk(HOST, target.port)
        target.kill()
        target.restart()

        async def main() -> None:
            async with await connected(target.port) as controller:
                with pytest.raises(nvmeof.CommandFailed, match="reserv"):
                    await controller.disks[1].write(0, bytes(PAGE))

        run(main())
        files = DiskFileSystem(HOST, target.port, skip_instance_cache=True)
        files.pipe_file("/a", b"1")
        files.close()


INTERRUPTED = """
import sys, threading
from verbena import nvmeof
from verbena.disk_files import DiskFileSystem

files = DiskFileSystem(sys.argv[1], int(sys.argv[2]))
files.ls("/")
plain = nvmeof.Disk.write
async def write(self, offset, data, **options):
    import asyncio
    print("in a change", flush=True)
    await asyncio.sleep(0.3)
    await plain(self, offset, data, **options)
nvmeof.Disk.write = write
files.pipe_file("/child", b"c" * 9000)
"""


def test_a_program_that_is_interrupted_ends_its_change() -> None:
    """Ctrl-C in a write of a change: the disk is not left reserved by it."""
    with ChildTarget(4 * MIB) as target:
        format_disk(HOST, target.port)
        files = DiskFileSystem(HOST, target.port, patience=0.1, skip_instance_cache=True)
        child = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED, HOST, str(target.port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "in a change\n"
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=20)
        assert "KeyboardInterrupt" in errors
        files.pipe_file("/mine", b"1")
        assert files.cat_file("/child") == b"c" * 9000
        files.close()


def test_a_target_that_is_gone_for_good() -> None:
    with ChildTarget(4 * MIB) as target:
        format_disk(HOST, target.port)
        files = DiskFileSystem(HOST, target.port, loss_timeout=0.5, skip_instance_cache=True)
        files.pipe_file("/a", b"1")
        target.kill()
        began = time.monotonic()
        with pytest.raises(nvmeof.ConnectionLost):
            files.cat_file("/a")
        assert time.monotonic() - began < 20


@pytest.mark.parametrize("is_done", [False, True])
def test_the_connection_is_lost_in_a_command_of_reservations(is_done: bool) -> None:
    """Before the target has carried it out, or after that: the change is made all the same."""

    async def main() -> int:
        async with volumes(2) as (first, second):
            plain, left = first.disk._reserve, 0

            async def reserve(*args: Any) -> None:
                nonlocal left
                left -= 1
                if left != -1 or is_done:
                    await plain(*args)
                if left == -1:
                    raise nvmeof.ConnectionLost("lost")

            first.disk.__dict__["_reserve"] = reserve
            for at in range(40):
                await second.write("/b", bytes([at]), False)
                left = at
                for number in range(2):  # with the reservation of the other host, and with its own
                    await first.write(f"/a{number}", bytes([at]), False)
                assert list(keys_of(await first.disk.reservations()).values()) == [IDLE]
                found = await contents(second)
                assert found == {path: bytes([at]) for path in ("/a0", "/a1", "/b")}
                if left >= 0:
                    return at
        raise AssertionError("it never ends")

    assert run(main()) >= 5


def test_a_connection_that_is_lost_in_each_command() -> None:
    async def main() -> None:
        async with volumes(1) as (only,):
            await only.write("/0", b"1", False)
            tries = 0

            async def reserve(*args: Any) -> None:
                nonlocal tries
                tries += 1
                raise nvmeof.ConnectionLost("lost")

            only.disk.__dict__["_reserve"] = reserve
            with pytest.raises(nvmeof.ConnectionLost, match="lost: the change is not there"):
                await only.write("/a", b"1", False)
            assert tries < 50

    run(main())


def test_a_host_that_was_stopped_while_it_waited() -> None:
    """The time for which it was stopped is not time in which others changed files."""

    async def main() -> None:
        async with volumes(2) as (first, second):
            second.lock = WriteLock(second.disk, 0.5)
            async with first.lock:
                waiting = asyncio.ensure_future(second.write("/a", b"1", False))
                await asyncio.sleep(0.05)
                time.sleep(0.8)
                await asyncio.sleep(0.1)
                assert not waiting.done()
            await waiting
            async with first.lock:
                with pytest.raises(OSError, match=r"for 0\.5 seconds: wait for it") as caught:
                    await second.write("/a", b"2", False)
                assert caught.value.errno == errno.EBUSY

    run(main())


@pytest.mark.parametrize("others", [0, 1, 2, 5])
@pytest.mark.parametrize("arrived", [True, False], ids=["arrived", "lost"])
def test_a_connection_that_is_lost_in_the_last_write(arrived: bool, others: int) -> None:
    """The target was started again and has forgotten reservations; so many changes of another host
    come before this one goes on. It is made once, and none of the other's is lost."""

    async def main() -> None:
        async with volumes(2) as (only, other):
            await only.write("/a", b"1", False)
            disk, plain, is_first = only.disk, only.disk.write, True

            async def write(*args: Any, durable: bool = False, **options: Any) -> None:
                nonlocal is_first
                if not (durable and is_first):
                    await plain(*args, durable=durable, **options)
                    return
                is_first = False
                if arrived:
                    await plain(*args, durable=durable, **options)
                disk.controller.reconnects += 1
                await other.lock.break_lock()
                for number in range(others):
                    await other.write(f"/other {number}", b"o" * 9000, True)
                raise nvmeof.ConnectionLost("lost")

            disk.__dict__["write"] = write
            theirs = {f"/other {number}": b"o" * 9000 for number in range(others)}
            await only.write("/b", b"2" * 9000, True)  # exclusive: it is not made twice
            assert await contents(other) == {"/a": b"1", "/b": b"2" * 9000, **theirs}

    run(main())


def test_a_change_of_which_too_many_others_came_after_it() -> None:
    """The index has the last change of 64 writers."""
    ours, later = add_change({}, "ours", 7), {}
    assert is_made(ours, "ours", 7)
    assert is_made(ours, "ours", 8) is False
    assert is_made(ours, "never", 8) is False
    for number in range(63):
        later = add_change(later or ours, f"host {number}", 8 + number)
    assert is_made(later, "ours", 7)
    later = add_change(later, "host 63", 71)
    assert is_made(later, "ours", 7) is None
    assert is_made(later, "never", 72) is False  # it would have been the last one


def test_no_write_of_a_change_is_sent_on_a_later_connection() -> None:
    async def main() -> None:
        async with volumes(1) as (only,):
            disk = only.disk
            for tries in range(2):
                with pytest.raises(nvmeof.ConnectionLost, match="the connection that it was meant"):
                    await disk.write(
                        2 * PAGE, b"x" * PAGE, connection=disk.controller.reconnects + 1
                    )
                await disk.write(
                    2 * PAGE, bytes([tries]) * PAGE, connection=disk.controller.reconnects
                )
                assert await disk.read(2 * PAGE, PAGE) == bytes([tries]) * PAGE

    run(main())


@pytest.mark.parametrize("remembers", [True, False], ids=["remembers", "forgets"])
def test_two_hosts_while_the_target_is_killed_and_started(tmp_path: Path, remembers: bool) -> None:
    """Whether it has its file of reservations afterwards or not, each file is one that was written,
    and whole."""
    disk = image(tmp_path, 4 * MIB)
    with ChildTarget(disk) as target:
        format_disk(HOST, target.port)
        stop = threading.Event()

        def write(host: int) -> int:
            options = {"patience": 60, "skip_instance_cache": True}
            files = DiskFileSystem(HOST, target.port, **options)
            done = 0
            while not stop.is_set():
                files.pipe_file(f"/{host}-{done % 4}", bytes([host, done % 251]) * 9000)
                done += 1
            files.close()
            return done

        with ThreadPoolExecutor(2) as pool:
            writing = [pool.submit(write, host) for host in (1, 2)]
            for seconds in (0.4, 0.25, 0.3, 0.2):
                time.sleep(seconds)
                target.kill()
                if not remembers:
                    Path(f"{disk}.reservations").unlink(missing_ok=True)
                target.restart()
            time.sleep(0.5)
            stop.set()
            counts = [each.result(60) for each in writing]
        files = DiskFileSystem(HOST, target.port, skip_instance_cache=True)
        for host, count in zip((1, 2), counts, strict=True):
            assert count > 4
            for last in range(count - 4, count):
                expected = bytes([host, last % 251]) * 9000
                assert files.cat_file(f"/{host}-{last % 4}") == expected
        files.close()


def test_writes_while_the_target_is_killed_and_started(tmp_path: Path) -> None:
    with ChildTarget(image(tmp_path, 4 * MIB)) as target:
        format_disk(HOST, target.port)
        files = DiskFileSystem(HOST, target.port, skip_instance_cache=True)
        files.ls("/")  # the first connection is made once
        stop = threading.Event()

        def write() -> int:
            done = 0
            while not stop.is_set():
                files.pipe_file(f"/{done % 4}", bytes([done % 251]) * 9000)
                done += 1
            return done

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            for seconds in (0.2, 0.25, 0.3):
                time.sleep(seconds)
                target.kill()
                target.restart()
            stop.set()
            last = writing.result(30) - 1
        assert files.cat_file(f"/{last % 4}") == bytes([last % 251]) * 9000
        files.close()


@pytest.mark.parametrize("often", [1, 4, 100])
def test_a_target_that_is_started_again_in_a_change(often: int) -> None:
    """What it has not flushed may be lost, and the reservation: the change is made once more."""

    async def main() -> None:
        async with volumes(1) as (only,):
            await only.write("/a", b"1", False)
            disk, plain, left = only.disk, only.disk.flush, often
            flushed = await disk.read(2 * PAGE, disk.size - 2 * PAGE)

            async def flush() -> None:
                nonlocal left
                await plain()
                if left:
                    left -= 1
                    disk.controller.reconnects += 1
                    await disk.write(2 * PAGE, flushed)

            disk.__dict__["flush"] = flush
            before = await contents(only)
            if often < 100:
                await only.write("/b", b"2" * 9000, True)
                assert await contents(only) == {"/a": b"1", "/b": b"2" * 9000}
            else:
                with pytest.raises(
                    nvmeof.ConnectionLost, match="in a change: the change is not there"
                ):
                    await only.write("/b", b"2", True)
                assert await contents(only) == before

    run(main())


@pytest.mark.parametrize("is_durable", [False, True])
def test_whether_a_change_is_there_whose_connection_is_lost(is_durable: bool) -> None:
    """Only where the last of its writes was under way, that of the superblock, it may be there."""

    async def main() -> None:
        async with volumes(1) as (only,):
            plain = only.disk.write

            async def write(*args: Any, durable: bool = False, **options: Any) -> None:
                if durable == is_durable:
                    raise nvmeof.ConnectionLost("gone for good")
                await plain(*args, durable=durable, **options)

            only.disk.__dict__["write"] = write
            there = "may be there" if is_durable else "is not there"
            with pytest.raises(nvmeof.ConnectionLost, match=f"gone for good: the change {there}"):
                await only.write("/a", b"1", False)

    run(main())
