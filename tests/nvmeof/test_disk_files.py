# SPDX-License-Identifier: Apache-2.0
"""Files on disks: fsspec's own abstract tests, hosts that share a disk, and hosts that stop.

Of the abstract tests those for copy, get and put are left to tests/remote_files, which runs the
same code of verbena.whole_files.
"""

from __future__ import annotations

import asyncio
import errno
import os
import pickle
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec", reason="no package fsspec; the extra fsspec has it")

import fsspec
from fsspec.tests import abstract
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.nvmeof.conftest import HOST, MIB, NQN, ChildTarget, connected, image, pair, run, serving
from verbena import fabrics, nvmeof, sim
from verbena.disk_files import DiskFileSystem, format_disk
from verbena.disk_files.layout import DATA_BEGIN, allocate, newest, slot_of
from verbena.disk_files.volume import Volume, make_volume

PAGE = 4096
Change = Callable[[Volume], Any]

# ---- by fsspec -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with ChildTarget(64 * MIB, 2 * MIB) as target:
        format_disk(HOST, target.port)
        yield target.port


@pytest.fixture(scope="module")
def files(port: int) -> Iterator[Any]:
    made = fsspec.filesystem("nvmeof", host=HOST, port=port)
    yield made
    made.close()


class DiskFixtures(abstract.AbstractFixtures):  # type: ignore[misc]
    @pytest.fixture(scope="class")
    def fs(self, files: DiskFileSystem) -> DiskFileSystem:
        return files

    @pytest.fixture
    def fs_path(self) -> str:
        return "/folder"

    @pytest.fixture
    def fs_join(self) -> Any:
        return lambda *parts: "/".join(parts)


class TestOpen(abstract.AbstractOpenTests, DiskFixtures):  # type: ignore[misc]
    pass


class TestPipe(abstract.AbstractPipeTests, DiskFixtures):  # type: ignore[misc]
    pass


def test_by_url(port: int) -> None:
    url = f"nvmeof://{HOST}:{port}/some/numbers.txt"
    with fsspec.open(url, "w") as file:
        file.write("one\ntwo\n")
    with fsspec.open(url, "a") as file:
        file.write("three\n")
    with fsspec.open(url) as file:
        file.seek(4)
        assert file.readline() == b"two\n"
    again = pickle.loads(pickle.dumps(fsspec.filesystem("nvmeof", host=HOST, port=port)))
    assert again.cat_file("/some/numbers.txt").split() == [b"one", b"two", b"three"]


def test_parts_of_a_file_in_several_pieces(files: Any) -> None:
    data = os.urandom(5 * MIB + 77)
    files.pipe_file("/large", data)
    assert files.cat_file("/large") == data
    for start, end in ((0, 1), (4095, 4097), (4 * MIB - 3, 4 * MIB + 3), (5 * MIB, None), (7, 7)):
        assert files.cat_file("/large", start, end) == data[start:end]
    files.pipe_file("/large", memoryview(bytearray(data))[1:])
    assert files.cat_file("/large") == data[1:]
    files.rm("/large")


def test_a_file_that_is_replaced_while_it_is_read(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cat_file looks again, up to a number of times; an open file is refused."""
    files.pipe_file("/often", b"0")
    open_version = files.open_version
    left = [3]

    def replaced(path: str) -> Any:
        version = open_version(path)
        if left[0]:
            left[0] -= 1
            files.pipe_file("/often", str(left[0]).encode())
        return version

    monkeypatch.setattr(files, "open_version", replaced)
    assert files.cat_file("/often") == b"0"
    assert left == [0]
    left[0] = 1000
    with pytest.raises(OSError, match="replaced or removed"):
        files.cat_file("/often")


def test_what_has_no_bytes_is_not_written(files: Any) -> None:
    for value in (None, 5, "text", [b"a"]):
        with pytest.raises(TypeError, match="neither the buffer protocol nor DLPack"):
            files.pipe_file("/none", value)
    assert not files.exists("/none")


def test_errors(files: Any, port: int) -> None:
    with pytest.raises(FileNotFoundError):
        files.cat_file("/nothing")
    files.makedirs("/d/e", exist_ok=True)
    with pytest.raises(IsADirectoryError):
        files.cat_file("/d/e")
    with pytest.raises(OSError, match="not empty"):
        files.rmdir("/d")
    files.pipe_file("/d/f", b"1")
    with pytest.raises(FileExistsError):
        files.pipe_file("/d/f", b"2", mode="create")
    with files.open("/d/f") as file:
        files.pipe_file("/d/f", b"22")
        with pytest.raises(OSError, match="open it again") as caught:
            file.read()
    assert caught.value.errno == errno.ESTALE
    with files.open("/d/f") as file:
        assert file.read(1) == b"2"
        files.pipe_file("/d/f", b"33")
        assert file.read() == b"2"  # which fsspec has read ahead
    with pytest.raises(FileExistsError, match="overwrite=True"):
        format_disk(HOST, port)
    with pytest.raises(OSError, match="format_disk makes an empty"):
        fsspec.filesystem("nvmeof", host=HOST, port=port, nsid=2).ls("/")
    with pytest.raises(OSError, match="its disks are 1, 2: give nsid="):
        fsspec.filesystem("nvmeof", host=HOST, port=port, nsid=7).ls("/")
    with pytest.raises(ValueError, match="patience is a number of seconds, 0 or more, and not -1"):
        fsspec.filesystem("nvmeof", host=HOST, port=port, patience=-1)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"patience": None}, "patience is a number of seconds, 0 or more, and not None"),
        ({"patience": float("nan")}, "patience is a number of seconds"),
        ({"loss_timeout": "x"}, "loss_timeout is a number of seconds, 0 or more, and not 'x'"),
        ({"loss_timeout": True}, "loss_timeout is a number of seconds"),
        ({"nsid": "1"}, "nsid is a whole number from 1 to 4294967294, and not '1'"),
        ({"nsid": 1.5}, "nsid is a whole number"),
        ({"nsid": 0}, "nsid is a whole number"),
        ({"nqn": 3}, "nqn must be a str, not int"),
        ({"nqn": "foo"}, "nqn is the name of a subsystem"),
        ({"port": -1}, "port is a whole number from 1 to 65535, and not -1"),
        ({"port": "x"}, "port is a whole number from 1 to 65535, and not 'x'"),
        ({"port": 70000}, "port is a whole number"),
        ({"host": None}, "host must be a str, not NoneType"),
        ({"host": ""}, "host is the name or the address of a host, and not ''"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        fsspec.filesystem("nvmeof", **options)
    if not options.keys() & {"patience", "loss_timeout"}:
        with pytest.raises((TypeError, ValueError), match=text):
            format_disk(**{"host": HOST, **options})


def test_a_full_disk(port: int) -> None:
    """It keeps its files, and room to remove some."""
    format_disk(HOST, port, nsid=2, overwrite=True)
    files = fsspec.filesystem("nvmeof", host=HOST, port=port, nsid=2)
    written: list[int] = []

    def fill() -> None:
        while True:
            files.pipe_file(f"/{len(written)}", bytes([len(written) % 256]) * 10_000)
            written.append(len(written))

    with pytest.raises(OSError, match="no room for") as caught:
        fill()
    assert caught.value.errno == errno.ENOSPC
    assert len(written) > 150
    assert all(files.cat_file(f"/{n}") == bytes([n % 256]) * 10_000 for n in written[::20])
    for number in written:
        files.rm(f"/{number}")
    files.pipe_file("/large", bytes(MIB))
    files.close()


# ---- volumes -------------------------------------------------------------------------------------


@asynccontextmanager
async def volumes(count: int, size: int = MIB) -> AsyncIterator[list[Volume]]:
    """The same disk in memory, formatted, as so many hosts have it."""
    async with serving(nvmeof.MemoryStore(size)) as (target, _):
        controllers = [await connected(target) for _ in range(count)]
        try:
            await make_volume(controllers[0].disks[1], False, 5.0)
            yield [Volume(each.disks[1], 5.0) for each in controllers]
        finally:
            for each in controllers:
                await each.close()


async def contents(volume: Volume) -> dict[str, bytes]:
    """All files, as somebody reads them who has just connected."""
    fresh = Volume(volume.disk, 5.0)
    await fresh.load()
    return {
        path: await fresh.read(path, file, 0, file.size) for path, file in fresh.tree.files.items()
    }


def removing(volume: Volume, path: str) -> Coroutine[Any, Any, None]:
    return volume.change(lambda tree: tree.remove(path), frees=True)


BEFORE = {"/old": b"a" * 5000, "/other": b"b" * 20_000}
CHANGES: dict[str, tuple[Change, dict[str, bytes]]] = {
    "write": (lambda each: each.write("/new", b"n" * 9000, False), {**BEFORE, "/new": b"n" * 9000}),
    "replace": (lambda each: each.write("/old", b"o", False), {**BEFORE, "/old": b"o"}),
    "remove": (lambda each: removing(each, "/old"), {"/other": BEFORE["/other"]}),
}


class Cut(Exception):
    """A host writes no more."""


@pytest.mark.parametrize("part", [0.0, 0.01, 0.5], ids=["none", "fields", "half"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_host_that_stops_in_a_change(name: str, part: float) -> None:
    """At each of its writes, of which a part arrives: another host finds all files as before, or
    as after the change, and can change them."""
    change, after = CHANGES[name]

    async def stopped(volume: Volume, at: int) -> bool:
        """Make the change, whose write number ``at`` fails; return whether there was one."""
        disk, count = volume.disk, 0

        async def write(offset: int, data: Any, **options: Any) -> None:
            nonlocal count
            count += 1
            if count <= at:
                await plain(offset, data, **options)
                return
            whole = bytearray(await disk.read(offset, len(data)))
            length = int(len(data) * part)
            whole[:length] = bytes(data)[:length]
            await plain(offset, whole)
            raise Cut

        plain = disk.write
        disk.__dict__["write"] = write
        try:
            await change(volume)
        except Cut:
            return True
        finally:
            del disk.__dict__["write"]
        return False

    async def main() -> list[dict[str, bytes]]:
        found: list[dict[str, bytes]] = []
        async with volumes(2) as (first, second):
            while True:
                await make_volume(first.disk, True, 5.0)
                for path, data in BEFORE.items():
                    await first.write(path, data, False)
                if not await stopped(first, len(found)):
                    assert await contents(second) == after
                    return found
                found.append(await contents(second))
                assert found[-1] in (BEFORE, after)
                await second.write("/then", b"1", False)
                assert await contents(second) == {**found[-1], "/then": b"1"}

    found = run(main())
    assert len(found) >= 2  # index and superblock
    assert found.count(after) == (part == 0.5)  # half a superblock has all fields


def test_a_disk_that_is_too_small() -> None:
    async def main() -> None:
        for size in (4096, 2 * 4096, 3 * 4096):
            said = f"has {size} bytes, and .* takes 16384"
            async with (
                serving(nvmeof.MemoryStore(size)) as (target, _),
                await connected(target) as controller,
            ):
                with pytest.raises(OSError, match=said) as caught:
                    await make_volume(controller.disks[1], False, 5.0)
                assert caught.value.errno == errno.ENOSPC
        async with volumes(1, 4 * 4096) as (volume,):
            await volume.load()

    run(main())


@asynccontextmanager
async def served_volume(path: Path) -> AsyncIterator[Volume]:
    """The disk that a file is, as a host has it that has just connected."""
    with closing(nvmeof.FileStore(path)) as store:
        async with serving(store) as (target, _), await connected(target) as controller:
            yield Volume(controller.disks[1], 5.0)


def test_a_disk_that_was_made_smaller_than_its_files(tmp_path: Path) -> None:
    """What lies behind its end cannot be read; it can be removed, and all else goes on."""
    path = image(tmp_path, MIB)

    async def main() -> None:
        async with served_volume(path) as volume:
            await make_volume(volume.disk, False, 5.0)
            await volume.write("/first", b"1" * 10_000, False)
            await volume.write("/large", b"2" * 500_000, False)
            await removing(volume, "/first")
            await volume.write("/small", b"3" * 8192, False)  # its list of files is in front, too
            assert volume.index is not None
            assert volume.index.offset < 300_000
        os.truncate(path, 300_000)
        async with served_volume(path) as volume:
            large = await volume.open("/large")
            assert await volume.read("/large", large, 0, 100) == b"2" * 100
            with pytest.raises(OSError, match="has 299008 bytes, and /large lies") as caught:
                await volume.read("/large", large, 0, large.size)
            assert caught.value.errno == errno.EIO
            small = await volume.open("/small")
            assert await volume.read("/small", small, 0, 8192) == b"3" * 8192
            with pytest.raises(OSError, match="no room for") as caught:
                await volume.write("/more", bytes(400_000), False)
            assert caught.value.errno == errno.ENOSPC
            await removing(volume, "/large")
            await volume.write("/more", bytes(100_000), False)
            assert set(await contents(volume)) == {"/small", "/more"}

    run(main())


@pytest.mark.parametrize(
    ("size", "number", "text"),
    [
        (299_520, errno.EIO, "has 299008 bytes, and the list of its files lies beyond"),
        (4096, errno.EMEDIUMTYPE, "has 4096 bytes, and no file system is of so few"),
    ],
)
def test_a_disk_that_was_made_smaller_than_its_list_of_files(
    tmp_path: Path, size: int, number: int, text: str
) -> None:
    path = image(tmp_path, MIB)

    async def main() -> None:
        async with served_volume(path) as volume:
            await make_volume(volume.disk, False, 5.0)
            await volume.write("/large", b"2" * 500_000, False)
            await volume.write("/large", b"2" * 400_000, False)
            for count in range(40):  # so that the list of files lies behind the large file
                await volume.write(f"/small/{count}", b"3" * 5000, False)
            assert volume.index is not None
            assert volume.index.offset > 299_520
        os.truncate(path, size)
        async with served_volume(path) as volume:
            works: list[Coroutine[Any, Any, object]] = [
                volume.load(),
                volume.open("/large"),
                volume.write("/new", b"4", False),
                removing(volume, "/large"),
            ]
            for work in works:
                with pytest.raises(OSError, match=text) as caught:
                    await work
                assert caught.value.errno == number
                assert "was made smaller; restore it" in str(caught.value)

    run(main())


def test_a_superblock_that_is_half_written_is_none() -> None:
    async def main() -> None:
        async with volumes(1) as (volume,):
            await volume.write("/a", b"1", False)
            blocks = bytearray(await volume.disk.read(0, DATA_BEGIN))
            found = newest(bytes(blocks))
            assert found is not None
            blocks[slot_of(found.generation) + 9] ^= 1
            older = newest(bytes(blocks))
            assert older is not None
            assert older.generation == found.generation - 1

    run(main())


def test_on_simulated_hosts() -> None:
    """In virtual time; two hosts change files in turn."""

    async def target() -> None:
        subsystem = nvmeof.Subsystem(NQN)
        subsystem.add(nvmeof.MemoryStore(4 * MIB), PAGE)
        model = nvmeof.TargetModel()
        model.add(subsystem)
        async with nvmeof.Target(model) as made:
            await made.serve()

    async def host(number: int) -> dict[str, bytes]:
        async with await nvmeof.connect("h0", NQN) as controller:
            disk = controller.disks[1]
            if number == 1:
                await make_volume(disk, False, 5.0)
            else:
                await asyncio.sleep(1e-3)
            volume = Volume(disk, 5.0)
            for each in range(5):
                await volume.write(f"/{number}/{each}", bytes([number]) * 50_000, False)
            await asyncio.sleep(1e-2)
            return await contents(volume)

    programs: Any = {"h0": target, "h1": partial(host, 1), "h2": partial(host, 2)}
    ran = sim.run(programs, fabrics.ring(4, rate="100GbE"), background={"h0"})
    expected = {f"/{n}/{each}": bytes([n]) * 50_000 for n in (1, 2) for each in range(5)}
    assert ran.returned["h1"] == ran.returned["h2"] == expected
    assert ran.now < 1.0


NAME = st.sampled_from(["/a", "/b", "/c/d", "/c/e"])
STEP = st.one_of(
    st.tuples(st.just("write"), NAME, st.sampled_from([0, 1, 4096, 5000, 30_000, 200_000])),
    st.tuples(st.just("remove"), NAME, st.just(0)),
    st.tuples(st.just("read"), NAME, st.integers(0, 40_000)),
)


@settings(max_examples=12)
@given(steps=st.lists(st.tuples(st.integers(0, 1), STEP), max_size=30))
def test_two_hosts_and_a_dictionary(steps: list[Any]) -> None:
    async def main() -> None:
        async with volumes(2) as hosts:
            model: dict[str, bytes] = {}
            for at, (who, (kind, name, number)) in enumerate(steps):
                volume = hosts[who]
                if kind == "write":
                    data = bytes([at]) * number
                    await volume.write(name, data, False)
                    model[name] = data
                elif name not in model:
                    with pytest.raises(FileNotFoundError):
                        await (volume.open(name) if kind == "read" else removing(volume, name))
                elif kind == "read":
                    found = await volume.open(name)
                    got = await volume.read(name, found, number, found.size)
                    assert got == model[name][number:]
                else:
                    await removing(volume, name)
                    del model[name]
            assert await contents(hosts[0]) == model

    run(main())


def test_changes_of_two_hosts_at_once() -> None:
    async def main() -> None:
        async with volumes(2, 4 * MIB) as hosts:
            await asyncio.gather(
                *(
                    hosts[number % 2].write(f"/{number}", bytes([number]) * 7000, False)
                    for number in range(20)
                )
            )
            assert await contents(hosts[0]) == {f"/{n}": bytes([n]) * 7000 for n in range(20)}

    run(main())


def test_a_cancelled_change_is_made_or_not() -> None:
    """What is written later never meets its writes."""

    async def main() -> None:
        async with volumes(1) as (volume,):
            for steps in range(30):
                task = asyncio.ensure_future(volume.write("/a", bytes([steps]) * 20_000, False))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                await volume.write("/b", bytes([steps]) * 20_000, False)
                found = await contents(volume)
                assert found["/b"] == bytes([steps]) * 20_000
                assert len(set(found.get("/a", b""))) <= 1

    run(main())


def test_a_host_that_dies_in_a_change_keeps_the_disk_until_another_breaks_its_lock() -> None:
    async def main() -> None:
        async with volumes(2) as (first, second):
            second.lock._patience = 0.05
            await first.lock.__aenter__()
            with pytest.raises(OSError, match="break_lock") as caught:
                await second.write("/a", b"1", False)
            assert caught.value.errno == errno.EBUSY
            assert not await first.lock.break_lock()  # it is its own
            assert await second.lock.break_lock()
            assert not await second.lock.break_lock()
            await second.write("/a", b"1", False)
            async with second.lock:
                with pytest.raises(nvmeof.CommandFailed, match="reserv"):
                    await first.disk.write(0, bytes(PAGE))

    run(main())


def test_a_disk_that_has_something_else() -> None:
    async def main() -> None:
        async with pair(nvmeof.MemoryStore(MIB)) as (controller, _, _):
            disk = controller.disks[1]
            await disk.write(0, bytes(1080) + b"\x53\xef" + bytes(3014))
            with pytest.raises(FileExistsError, match="something in its first blocks"):
                await make_volume(disk, False, 5.0)
            volume = await make_volume(disk, True, 5.0)
            await volume.write("/a", b"1", False)
            assert await contents(volume) == {"/a": b"1"}

    run(main())


def test_threads_share_one_connection() -> None:
    """Those that come first at once, too."""
    with ChildTarget(4 * MIB) as target:
        format_disk(HOST, target.port)
        deadline = time.monotonic() + 10
        while target.tell("queues"):  # until that connection has ended
            assert time.monotonic() < deadline
            time.sleep(0.01)
        files = DiskFileSystem(HOST, target.port, skip_instance_cache=True)
        with ThreadPoolExecutor(4) as threads:
            for number in threads.map(lambda n: files.pipe_file(f"/{n}", b"x") or n, range(8)):
                assert files.cat_file(f"/{number}") == b"x"
        assert target.tell("queues") == 2
        files.close()


def test_a_disk_that_is_formatted_again_while_others_use_it() -> None:
    async def main() -> None:
        async with volumes(2) as (first, second):
            await first.write("/a", b"1", False)
            await first.write("/b", b"1", False)
            await make_volume(second.disk, True, 5.0)
            await first.load()
            assert not first.tree.files
            await first.write("/c", b"1", False)
            assert await contents(second) == {"/c": b"1"}

    run(main())


@given(
    used=st.sets(st.integers(2, 30), max_size=25), blocks=st.integers(1, 40), in_one=st.booleans()
)
def test_free_blocks(used: set[int], blocks: int, in_one: bool) -> None:
    """Whatever is used: the blocks are free, distinct, and as many as were asked for; or ENOSPC."""
    free = [each for each in range(2, 31) if each not in used]
    taken = [(each * PAGE, PAGE) for each in used]
    runs = "".join("." if each in free else "#" for each in range(2, 31)).split("#")
    if (max(map(len, runs)) if in_one else len(free)) < blocks:
        with pytest.raises(OSError, match="no room"):
            allocate(taken, blocks * PAGE - 5, PAGE, 31 * PAGE, in_one)
        return
    found = allocate(taken, blocks * PAGE - 5, PAGE, 31 * PAGE, in_one)
    got = [at // PAGE + n for at, length in found for n in range(length // PAGE)]
    assert len(set(got)) == len(got) == blocks
    assert set(got) <= set(free)
    assert len(found) == 1 or not in_one
