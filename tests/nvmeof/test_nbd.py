# SPDX-License-Identifier: Apache-2.0
"""Clients of an NBD export that leave, or send no more, while requests are under way."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.nvmeof.conftest import MIB, pair, run
from verbena import nvmeof
from verbena.nvmeof.nbd import NbdExport, Operation, Room
from verbena.nvmeof.stores import Waiting

PAGE = 4096
COUNT = 100
REQUEST = struct.Struct(">IHHQQI")


class Slow(nvmeof.DelayedStore):
    """A disk of one request at a time, which counts those that it has begun."""

    def __init__(self) -> None:
        super().__init__(nvmeof.MemoryStore(4 * MIB), 2e-3)
        self.reads = self.writes = 0

    def read(self, offset: int, into: memoryview) -> Waiting:
        self.reads += 1
        return super().read(offset, into)

    def write(self, offset: int, data: memoryview, is_durable: bool) -> Waiting:
        self.writes += 1
        return super().write(offset, data, is_durable)


@asynccontextmanager
async def client(
    store: nvmeof.Store, path: Path
) -> AsyncIterator[tuple[NbdExport, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client that has agreed on the disk."""
    async with (
        pair(store, entries=4) as (controller, _, _),
        NbdExport(controller.disks[1], str(path)) as export,
    ):
        reader, writer = await asyncio.open_unix_connection(str(path))
        await reader.readexactly(18)
        writer.write(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, 0))
        await reader.readexactly(10)
        yield export, reader, writer
        writer.close()


def requests(kind: Operation, data: bytes = b"") -> bytes:
    heads = (REQUEST.pack(0x25609513, 0, kind, at, at * PAGE, PAGE) for at in range(COUNT))
    return b"".join(head + data for head in heads)


async def gone(export: NbdExport) -> None:
    async with asyncio.timeout(10):
        while export._clients:
            await asyncio.sleep(1e-3)


def test_reads_of_a_client_that_has_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are dropped, and asyncio has nothing to say of answers that nobody takes."""

    async def main() -> None:
        store = Slow()
        async with client(store, tmp_path / "s") as (export, _, writer):
            writer.write(requests(Operation.READ))
            await writer.drain()
            while store.reads < 2:
                await asyncio.sleep(1e-3)
            writer.transport.abort()
            await gone(export)
            assert store.reads < COUNT // 2
            assert len(await export.disk.read(0, PAGE)) == PAGE

    run(main())
    assert caplog.text == ""


def test_writes_of_a_client_that_has_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        store = Slow()
        async with client(store, tmp_path / "s") as (export, _, writer):
            writer.write(requests(Operation.WRITE, b"w" * PAGE))
            await writer.drain()
            writer.close()
            await writer.wait_closed()
            await gone(export)
            assert store.writes == COUNT
            assert await export.disk.read(0, COUNT * PAGE) == b"w" * (COUNT * PAGE)

    run(main())
    assert caplog.text == ""


def test_a_client_that_sends_no_more_gets_its_answers(tmp_path: Path) -> None:
    async def main() -> None:
        store = Slow()
        async with client(store, tmp_path / "s") as (export, reader, writer):
            writer.write(requests(Operation.READ))
            writer.write_eof()
            answers = await reader.read(-1)
            assert len(answers) == COUNT * (16 + PAGE)
            await gone(export)

    run(main())


def test_reads_of_all_clients_have_a_limit_in_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the memory of clients that ask for much and go is limited, too."""
    most = 4 * PAGE
    monkeypatch.setattr("verbena.nvmeof.nbd._READING", most)

    at_once = [0]
    read = nvmeof.Disk.read

    async def counted(disk: nvmeof.Disk, offset: int, length: int) -> bytes:
        at_once.append(at_once[-1] + 1)
        data = await read(disk, offset, length)
        at_once.append(at_once[-1] - 1)
        return data

    monkeypatch.setattr(nvmeof.Disk, "read", counted)

    async def main() -> None:
        async with client(Slow(), tmp_path / "s") as (_, reader, writer):
            writer.write(requests(Operation.READ))
            await reader.readexactly(COUNT * (16 + PAGE))
        assert max(at_once) == most // PAGE

    run(main())


def test_room_is_given_in_turn() -> None:
    async def main() -> None:
        room = Room(10)
        await room.take(8)
        large, gone, small = (asyncio.ensure_future(room.take(each)) for each in (9, 9, 1))
        await asyncio.sleep(0)
        assert not small.done()  # though there are 2 left
        gone.cancel()
        room.give_back(8)
        await asyncio.sleep(0)
        assert large.done()
        assert small.done()
        late = asyncio.ensure_future(room.take(10))
        await asyncio.sleep(0)
        room.give_back(10)
        late.cancel()  # it has them already
        await asyncio.wait([late])
        await asyncio.wait_for(room.take(10), 1)

    run(main())
