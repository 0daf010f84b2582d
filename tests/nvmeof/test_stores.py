# SPDX-License-Identifier: Apache-2.0
"""Stores: memory, files, slow disks; that a flush reaches the file, and errors are told."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import mmap
import os
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from tests.nvmeof.conftest import MIB, image, run
from verbena import nvmeof


async def wait(what: Awaitable[None] | None) -> None:
    if what is not None:
        await what


@pytest.fixture(params=["memory", "file", "direct"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "memory":
        return nvmeof.MemoryStore(MIB)
    try:
        return nvmeof.FileStore(image(tmp_path, MIB), direct=request.param == "direct")
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        pytest.skip("this file system has no O_DIRECT; a TMPDIR on ext4 brings it")


def aligned(length: int) -> memoryview:
    return memoryview(mmap.mmap(-1, length))


def test_reads_and_writes(store: nvmeof.Store) -> None:
    async def main() -> None:
        data = os.urandom(65_536)
        source, target = aligned(65_536), aligned(65_536)
        source[:] = data
        await wait(store.write(4096, source, False))
        await wait(store.write(131_072, source[:4096], True))
        await asyncio.gather(
            *(
                wait(store.write(262_144 + n * 4096, source[n * 4096 :][:4096], False))
                for n in range(16)
            )
        )
        for offset in (4096, 262_144):
            await wait(store.read(offset, target))
            assert target == data
        await wait(store.flush())
        await wait(store.zero(8192, 12_288))
        await wait(store.read(4096, target))
        assert target == data[:4096] + bytes(12_288) + data[16_384:]
        await wait(store.discard(0, MIB))
        await wait(store.read(0, target))

    run(main())
    store.close()


def test_zeros_that_begin_within_a_page() -> None:
    store = nvmeof.MemoryStore(MIB)
    store.write(0, memoryview(b"\xff" * MIB), False)
    store.zero(512, 3 * 4096)
    found = memoryview(bytearray(MIB))
    store.read(0, found)
    assert found == b"\xff" * 512 + bytes(3 * 4096) + b"\xff" * (MIB - 512 - 3 * 4096)


def test_a_flush_is_an_fdatasync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a crash of the machine leaves cannot be tested; that the kernel was asked can."""
    asked: list[str] = []
    sync, write = os.fdatasync, os.pwritev

    def fdatasync(fd: int) -> None:
        asked.append("fdatasync")
        sync(fd)

    def pwritev(fd: int, buffers: Any, offset: int, flags: int = 0) -> int:
        asked.append("durable" if flags == os.RWF_DSYNC else "write")
        return write(fd, buffers, offset, flags)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    monkeypatch.setattr(os, "pwritev", pwritev)

    async def main() -> None:
        store = nvmeof.FileStore(image(tmp_path, MIB))
        await wait(store.write(0, memoryview(bytes(4096)), False))
        await wait(store.flush())
        await wait(store.write(0, memoryview(bytes(4096)), True))
        store.close()

    run(main())
    assert asked == ["write", "fdatasync", "durable"]


def test_a_file_that_has_become_shorter(tmp_path: Path) -> None:
    async def main() -> None:
        path = image(tmp_path, MIB)
        store = nvmeof.FileStore(path)
        os.truncate(path, 4096)
        with pytest.raises(OSError, match="has become shorter"):
            await wait(store.read(65_536, aligned(4096)))
        store.close()

    run(main())


def test_writes_that_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of writes that one thread does, one may fail."""
    write = os.pwritev

    def pwritev(fd: int, buffers: Any, offset: int, flags: int = 0) -> int:
        if offset == 4096:
            raise OSError(errno.ENOSPC, "full")
        return write(fd, buffers, offset, flags)

    monkeypatch.setattr(os, "pwritev", pwritev)

    async def main() -> None:
        store = nvmeof.FileStore(image(tmp_path, MIB))
        data = memoryview(b"x" * 4096)
        results = await asyncio.gather(
            *(wait(store.write(at * 4096, data, False)) for at in range(3)),
            return_exceptions=True,
        )
        assert results[0] is None
        assert results[2] is None
        assert isinstance(results[1], OSError)
        assert results[1].errno == errno.ENOSPC
        store.close()

    run(main())


@pytest.mark.parametrize("size", [0, -1])
def test_memory_without_a_size(size: int) -> None:
    with pytest.raises(ValueError, match="needs a size"):
        nvmeof.MemoryStore(size)


def test_a_slow_disk() -> None:
    async def main() -> None:
        store = nvmeof.DelayedStore(nvmeof.MemoryStore(MIB), 0.05, channels=2)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await asyncio.gather(*(wait(store.read(0, aligned(4096))) for _ in range(6)))
        assert 0.14 < loop.time() - begun < 1.0
        assert store.busy_seconds == pytest.approx(0.3)

    run(main())


def test_namespaces_and_subsystems_that_are_refused() -> None:
    subsystem = nvmeof.Subsystem("nqn.2026-01.org.example:disk0")
    with pytest.raises(ValueError, match="512 or 4096"):
        subsystem.add(nvmeof.MemoryStore(MIB), 1024)
    with pytest.raises(ValueError, match="less than a block"):
        subsystem.add(nvmeof.MemoryStore(100))
    subsystem.add(nvmeof.MemoryStore(MIB), nsid=5)
    with pytest.raises(ValueError, match="no free number"):
        subsystem.add(nvmeof.MemoryStore(MIB), nsid=5)
    for name in ("disk", nvmeof.DISCOVERY_NQN, "nqn." + "x" * 230):
        with pytest.raises(nvmeof.FormatError, match="no name of a subsystem"):
            nvmeof.Subsystem(name)
    model = nvmeof.TargetModel()
    model.add(subsystem)
    with pytest.raises(ValueError, match="already"):
        model.add(subsystem)


def test_a_file_has_one_target_that_may_write_it(tmp_path: Path) -> None:
    """Targets with reservations of their own would give one disk to several hosts."""
    path = image(tmp_path, MIB)
    store = nvmeof.FileStore(path)
    for is_read_only in (False, True):
        with pytest.raises(OSError, match=f"another target serves .*{path}") as caught:
            nvmeof.FileStore(path, is_read_only)
        assert caught.value.errno == errno.EBUSY
    store.close()
    readers = [nvmeof.FileStore(path, is_read_only=True) for _ in range(2)]
    with pytest.raises(OSError, match="another target serves"):
        nvmeof.FileStore(path)
    for each in readers:
        each.close()
    nvmeof.FileStore(path).close()


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(fd: int, operation: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "no locks")

    monkeypatch.setattr(fcntl, "flock", flock)
    nvmeof.FileStore(image(tmp_path, MIB)).close()
