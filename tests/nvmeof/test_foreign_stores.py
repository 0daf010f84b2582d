# SPDX-License-Identifier: Apache-2.0
"""Stores of programs: one that lacks something, has a defect, or is closed while it is served."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.nvmeof.conftest import MIB, NQN, connected, image, run, serving
from verbena import nvmeof
from verbena.nvmeof.commands import IoOpcode
from verbena.nvmeof.disk import Words
from verbena.nvmeof.status import Status


class OwnStore(nvmeof.Store):
    """A class of a program's own, with what the page says and no more."""

    size = MIB

    def __init__(self) -> None:
        self.bytes = bytearray(MIB)
        self.error: Exception | None = None

    def _work(self) -> None:
        if self.error is not None:
            raise self.error

    def read(self, offset: int, into: memoryview) -> None:
        self._work()
        into[:] = self.bytes[offset : offset + len(into)]

    def write(self, offset: int, data: memoryview, is_durable: bool) -> None:
        self._work()
        self.bytes[offset : offset + len(data)] = data

    def flush(self) -> None:
        self._work()

    def zero(self, offset: int, length: int) -> None:
        self._work()
        self.bytes[offset : offset + length] = bytes(length)

    def discard(self, offset: int, length: int) -> None:
        self._work()

    def close(self) -> None:
        pass


class SlowStore(OwnStore):
    """Its calls are coroutines, so that an error comes later."""

    async def read(self, offset: int, into: memoryview) -> None:  # type: ignore[override]
        super().read(offset, into)

    async def write(self, offset: int, data: memoryview, is_durable: bool) -> None:  # type: ignore[override]
        super().write(offset, data, is_durable)

    async def flush(self) -> None:  # type: ignore[override]
        super().flush()


Work = Callable[[nvmeof.Disk], Coroutine[Any, Any, object]]
COMMANDS: dict[str, Work] = {
    "read": lambda disk: disk.read(0, 4096),
    "long read": lambda disk: disk.read(0, MIB // 2),
    "write": lambda disk: disk.write(0, b"w" * 4096),
    "long write": lambda disk: disk.write(0, b"w" * (MIB // 2)),
    "durable": lambda disk: disk.write(0, b"w" * 4096, durable=True),
    "compare": lambda disk: disk.compare(0, bytes(4096)),
    "flush": lambda disk: disk.flush(),
    "zeroes": lambda disk: disk.write_zeroes(0, 8192),
    "discard": lambda disk: disk.discard((0, 8192)),
}


@pytest.mark.parametrize("kind", [OwnStore, SlowStore])
def test_a_store_of_a_program(kind: type[OwnStore]) -> None:
    async def main() -> None:
        async with serving(kind()) as (target, _), await connected(target) as controller:
            for work in COMMANDS.values():
                await work(controller.disks[1]) if work is not COMMANDS["compare"] else None
            await controller.disks[1].write(4096, b"x" * 4096)
            assert await controller.disks[1].read(4096, 4096) == b"x" * 4096

    run(main())


@pytest.mark.parametrize("kind", [OwnStore, SlowStore])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_store_with_a_defect(
    name: str, kind: type[OwnStore], caplog: pytest.LogCaptureFixture
) -> None:
    """The command fails, the target says why, and the connection and other disks go on."""

    async def main() -> None:
        store = kind()
        async with (
            serving(store, nvmeof.MemoryStore(MIB)) as (target, _),
            await connected(target) as controller,
        ):
            store.error = RuntimeError("a defect of this store")
            for _ in range(3):
                with pytest.raises(nvmeof.CommandFailed) as caught:
                    await COMMANDS[name](controller.disks[1])
                assert caught.value.status == Status.INTERNAL_ERROR
                gc.collect()
                await COMMANDS[name](controller.disks[2])
            store.error = OSError(5, "an error of this store")
            with pytest.raises(nvmeof.CommandFailed):
                await COMMANDS[name](controller.disks[1])
            store.error = None
            await controller.disks[1].read(0, 4096)
            assert controller.reconnects == 0

    run(main())
    assert "namespace 1: a defect" in caplog.text
    assert "RuntimeError: a defect of this store" in caplog.text


class CountingStore(OwnStore):
    """Its calls return how many bytes they did, as those of Python's files do."""

    def read(self, offset: int, into: memoryview) -> int:  # type: ignore[override]
        return len(into)

    def write(self, offset: int, data: memoryview, is_durable: bool) -> int:  # type: ignore[override]
        return len(data)

    def flush(self) -> int:  # type: ignore[override]
        return MIB

    def zero(self, offset: int, length: int) -> int:  # type: ignore[override]
        return length

    def discard(self, offset: int, length: int) -> int:  # type: ignore[override]
        return length


METHODS = {"compare": "read", "durable": "write", "zeroes": "zero"}


@pytest.mark.parametrize("delayed", [False, True])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_store_whose_calls_return_a_number(
    name: str, delayed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The command fails, the target says what returned it, and the connection goes on."""

    async def main() -> None:
        store = CountingStore()
        served = nvmeof.DelayedStore(store, 0.001) if delayed else store
        async with (
            serving(served, nvmeof.MemoryStore(MIB)) as (target, _),
            await connected(target) as controller,
        ):
            for _ in range(2):
                with pytest.raises(nvmeof.CommandFailed) as caught:
                    await COMMANDS[name](controller.disks[1])
                assert caught.value.status == Status.INTERNAL_ERROR
                await COMMANDS[name](controller.disks[2])
            assert controller.reconnects == 0

    run(main())
    method = METHODS.get(name, name.removeprefix("long "))
    assert f"CountingStore.{method}" in caplog.text
    assert ": a method of a Store returns None" in caplog.text


def test_what_is_no_store_is_refused() -> None:
    class Half:
        size = MIB
        is_read_only = is_volatile = False
        memory = None

        def read(self, offset: int, into: memoryview) -> None:
            raise NotImplementedError

    subsystem = nvmeof.Subsystem(NQN)
    with pytest.raises(
        TypeError, match=r"is no nvmeof\.Store.* no write, flush, zero, discard, close"
    ):
        subsystem.add(Half())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"None is no nvmeof\.Store"):
        subsystem.add(None)  # type: ignore[arg-type]
    assert not subsystem.namespaces


def test_a_store_is_served_once() -> None:
    store, subsystem = nvmeof.MemoryStore(MIB), nvmeof.Subsystem(NQN)
    subsystem.add(store)
    with pytest.raises(ValueError, match="is namespace 1 already, and is served once"):
        subsystem.add(store)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_that_is_closed_while_it_is_served(tmp_path: Path, name: str) -> None:
    """Its descriptor may be that of another file then, which nothing touches."""

    async def main() -> None:
        store = nvmeof.FileStore(image(tmp_path, MIB))
        async with serving(store) as (target, _), await connected(target) as controller:
            await controller.disks[1].read(0, 4096)
            store.close()
            other = tmp_path / "other"
            other.write_bytes(b"o" * MIB)
            with other.open("r+b"), pytest.raises(nvmeof.CommandFailed):
                await COMMANDS[name](controller.disks[1])
            assert other.read_bytes() == b"o" * MIB
            assert controller.reconnects == 0

    run(main())


def test_writes_that_had_come_before_a_file_is_closed(tmp_path: Path) -> None:
    """They wait for the end of the loop's iteration, together; the closing does them."""

    async def main() -> None:
        store = nvmeof.FileStore(image(tmp_path, MIB))
        written = [store.write(at * 4096, memoryview(b"w" * 4096), False) for at in range(3)]
        store.close()
        for each in written:
            assert each is not None
            await each
        with pytest.raises(OSError, match="was closed while it is served"):
            store.write(0, memoryview(b"w" * 4096), False)
        assert store.path.read_bytes()[:12_288] == b"w" * 12_288

    run(main())


@pytest.mark.filterwarnings("error")
def test_a_flush_of_all_disks_of_which_one_has_a_defect() -> None:
    async def main() -> None:
        first, second = SlowStore(), OwnStore()
        async with serving(first, second) as (target, _), await connected(target) as controller:
            await controller.disks[1]._run(Words(IoOpcode.FLUSH, 0xFFFFFFFF))
            second.error = RuntimeError("a defect of this store")
            with pytest.raises(nvmeof.CommandFailed) as caught:
                await controller.disks[1]._run(Words(IoOpcode.FLUSH, 0xFFFFFFFF))
            assert caught.value.status == Status.INTERNAL_ERROR
            gc.collect()

    run(main())


class Ends(BaseException):
    """No Exception, as what other libraries end their tasks with."""


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), GeneratorExit(), Ends("here")], ids=repr
)
def test_a_method_that_raises_what_ends_coroutines(error: BaseException) -> None:
    """It fails the command alone, as where a coroutine raises it."""

    class Ending(OwnStore):
        def read(self, offset: int, into: memoryview) -> None:
            raise error

    async def main() -> None:
        async with (
            serving(Ending(), nvmeof.MemoryStore(MIB)) as (target, _),
            await connected(target) as controller,
        ):
            for _ in range(2):
                with pytest.raises(nvmeof.CommandFailed) as caught:
                    await controller.disks[1].read(0, 4096)
                assert caught.value.status == Status.INTERNAL_ERROR
            assert await controller.disks[2].read(0, 4096) == bytes(4096)

    run(main())
