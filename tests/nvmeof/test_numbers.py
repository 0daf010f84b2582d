# SPDX-License-Identifier: Apache-2.0
"""What callers give: numbers of NumPy, which have few bits and must not wrap, and no names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.nvmeof.conftest import HOST, MIB, NQN, image, pair, run, serving
from verbena import nvmeof
from verbena.nvmeof.load import Load
from verbena.nvmeof.logs import LogPage

SMALL = 65_536
LIMITS = [(np.int32, 2**31), (np.uint32, 2**32)]
KINDS = [np.int64, np.uint64, np.int32, np.uint16]
KEPT = b"K" * MIB


@asynccontextmanager
async def large_disk(tmp_path: Path) -> AsyncIterator[nvmeof.Disk]:
    """A disk of more than 2**32 bytes, whose first megabyte is to stay."""
    store = nvmeof.FileStore(image(tmp_path, 5 << 30))
    try:
        async with pair(store) as (controller, _, _):
            disk = controller.disks[1]
            await disk.write(0, KEPT)
            yield disk
    finally:
        store.close()


@pytest.mark.parametrize(("kind", "limit"), LIMITS)
def test_an_offset_near_the_limit_of_its_type(kind: Any, limit: int, tmp_path: Path) -> None:
    """A transfer of several commands goes where the offset says, and not to the disk's begin."""
    at, length = limit - SMALL, 4 * MIB
    data = b"a" * SMALL + b"b" * (length - SMALL)

    async def main() -> None:
        async with large_disk(tmp_path) as disk:
            await disk.write(kind(at), data)
            assert await disk.read(at, length) == data
            assert await disk.read(kind(at), length) == data
            await disk.compare(kind(at), data[: SMALL + 4096])
            memory = bytearray(length)
            await disk.read_into(kind(at), memory)
            assert memory == data
            buffer = disk.buffer(kind(length))
            await disk.read_into(kind(at), buffer, kind(length))
            assert bytes(buffer) == data
            await disk.write_zeroes(kind(at), kind(length))
            assert await disk.read(at, length) == bytes(length)
            await disk.discard((kind(at), kind(length)))
            assert await disk.read(0, MIB) == KEPT

    run(main())


def test_an_end_beyond_the_type_is_compared_with_the_size() -> None:
    async def main() -> None:
        async with pair(nvmeof.MemoryStore(SMALL)) as (controller, _, _):
            disk = controller.disks[1]
            for work in (disk.write_zeroes, disk.read):
                with pytest.raises(ValueError, match="69632 is beyond the end of the disk"):
                    await work(np.uint16(SMALL - 4096), np.uint16(8192))

    run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_all_calls_of_a_disk(kind: Any) -> None:
    block = kind(4096)

    async def main() -> None:
        async with pair(nvmeof.MemoryStore(MIB)) as (controller, _, _):
            disk = controller.disks[kind(1)]
            await disk.write(block, bytes(4096), block, connection=kind(0))
            await disk.read(block, block)
            await disk.read_into(block, bytearray(8192), block)
            await disk.compare(block, bytes(4096))
            await disk.write_zeroes(block, block)
            await disk.discard((block, block), (kind(8192), block))
            await disk.write(block, disk.buffer(block), block)
            await disk.register(kind(5), kind(0), action=kind(0))
            await disk.acquire(kind(5), kind(1))
            await disk.acquire(kind(5), kind(1), preempt=kind(5))
            assert len(await disk.reservations(kind(4096))) == 4096
            await disk.release(kind(5), kind(1))
            await disk.register(kind(0), kind(5), action=kind(1))
            page = await controller.get_log(kind(LogPage.SMART), kind(512), kind(0), kind(0))
            assert len(page) == 512

    run(main())


def test_a_log_page_from_an_offset_of_few_bits() -> None:
    """Offsets have 64 bits, and only the target says which it has."""

    async def main() -> None:
        async with pair(nvmeof.MemoryStore(MIB)) as (controller, _, _):
            whole = await controller.get_log(LogPage.SMART, 512)
            part = await controller.get_log(np.uint8(LogPage.SMART), np.uint16(256), np.uint8(128))
            assert len(part) == 256
            assert len(whole) == 512

    run(main())


def test_what_is_no_number() -> None:
    async def main() -> None:
        async with pair(nvmeof.MemoryStore(MIB)) as (controller, _, _):
            disk: Any = controller.disks[1]
            with pytest.raises(TypeError, match=r"length is a number of bytes, and not 1\.5"):
                disk.buffer(1.5)
            with pytest.raises(TypeError, match="offset is a number of bytes, and not True"):
                await disk.read(True, 4096)
            with pytest.raises(ValueError, match="length is a whole number from 4"):
                await disk.reservations(3)
            with pytest.raises(TypeError, match="length is a whole number from 4"):
                await controller.get_log(LogPage.SMART, "512")

    run(main())


def test_options_of_hosts_and_targets() -> None:
    """A host sends 40 s as 40,000 ms, which an int16 does not have."""
    options = nvmeof.HostOptions(queues=np.uint8(3), entries=np.uint8(16), keep_alive=np.int16(40))
    assert [type(each) for each in (options.queues, options.entries)] == [int, int]
    assert options.keep_alive * 1000 == 40_000
    limits = nvmeof.Limits(np.uint8(64), np.uint16(4096), np.uint16(8))

    async def main() -> None:
        async with serving(nvmeof.MemoryStore(4 * MIB), limits=limits) as (target, _):
            assert target.limits.transfer == MIB
            port = np.uint16(target.port)
            controller = await nvmeof.connect(HOST, NQN, port, options)
            async with controller:
                assert len(controller.queues) == 3
                await controller.disks[1].write(0, bytes(2 * MIB))
            assert len(await nvmeof.discover(HOST, port)) == 2

    run(main())


def test_stores_and_namespaces() -> None:
    subsystem = nvmeof.Subsystem(NQN)
    store = nvmeof.MemoryStore(np.uint32(2 * MIB))
    assert type(store.size) is int
    namespace = subsystem.add(store, np.uint16(4096), np.uint8(200))
    assert (namespace.nsid, namespace.blocks) == (200, 512)
    assert type(namespace.nsid) is int
    subsystem.resized(np.uint8(200))
    data = memoryview(b"a" * 4096)
    store.write(np.uint16(SMALL - 2048), data, False)
    found = memoryview(bytearray(4096))
    store.read(np.uint16(SMALL - 2048), found)
    assert found == data
    store.zero(np.uint16(SMALL - 2048), np.uint16(4096))
    store.read(SMALL - 2048, found)
    assert found == bytes(4096)
    store.discard(np.uint16(SMALL - 8192), np.uint16(16_384))
    assert subsystem.remove(np.uint8(200)) is namespace


def test_a_load() -> None:
    load = Load(size=np.uint16(4096), depth=np.uint8(32), commands=np.uint8(5))
    assert load.size * load.depth == 131_072
    with pytest.raises(ValueError, match="depth is a whole number from 1"):
        Load(depth=0)


@pytest.mark.parametrize("what", [None, 5, b"nqn.2026-01.org.example:disk0"])
def test_what_is_no_name(what: Any) -> None:
    with pytest.raises(TypeError, match="the NQN of a subsystem is its name, a str as nqn"):
        run(nvmeof.connect(HOST, what))
    with pytest.raises(TypeError, match="the NQN of a subsystem is its name"):
        nvmeof.Subsystem(what)
    with pytest.raises(TypeError, match="the NQN of a host is its name"):
        nvmeof.Subsystem(NQN, [what])
    with pytest.raises(TypeError, match="the NQN of a host is its name"):
        nvmeof.Subsystem(NQN).allow(what)
