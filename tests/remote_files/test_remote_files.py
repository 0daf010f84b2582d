# SPDX-License-Identifier: Apache-2.0
"""fsspec's own abstract tests over verbena://, and what they do not look at."""

from __future__ import annotations

import asyncio
import errno
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fsspec", reason="no package fsspec; the extra fsspec has it")

import fsspec
from fsspec.tests import abstract

from tests.cancelling import at_every_await
from tests.carriers import live_carriers
from verbena.remote_files import RemoteMemoryFileSystem, serve

pytest_generate_tests = live_carriers
SERVER = """
import asyncio
import errno
from verbena.remote_files import serve
async def main():
    async with serve("127.0.0.1:0") as server:
        print(server.port, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


class RemoteFixtures(abstract.AbstractFixtures):
    @pytest.fixture(scope="class")
    def fs(self, port: int) -> RemoteMemoryFileSystem:
        return fsspec.filesystem("verbena", host="127.0.0.1", port=port)

    @pytest.fixture
    def fs_path(self) -> str:
        return "/folder"

    @pytest.fixture
    def fs_join(self) -> Any:
        return lambda *parts: "/".join(parts)


@pytest.mark.over_roce
class TestCopy(abstract.AbstractCopyTests, RemoteFixtures):
    pass


@pytest.mark.over_roce
class TestGet(abstract.AbstractGetTests, RemoteFixtures):
    pass


@pytest.mark.over_roce
class TestPut(abstract.AbstractPutTests, RemoteFixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, RemoteFixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, RemoteFixtures):
    pass


def test_by_url(port: int) -> None:
    url = f"verbena://127.0.0.1:{port}/some/numbers.txt"
    with fsspec.open(url, "w") as file:
        file.write("one\ntwo\n")
    with fsspec.open(url, "a") as file:
        file.write("three\n")
    with fsspec.open(url) as file:
        file.seek(4)
        assert file.readline() == b"two\n"
    with fsspec.open(url, "rt") as file:
        assert file.read().split() == ["one", "two", "three"]


@pytest.fixture
def files(port: int) -> Any:
    return fsspec.filesystem("verbena", host="127.0.0.1", port=port)


def test_a_large_file_and_its_parts(files: Any) -> None:
    data = os.urandom(20_000_000)
    files.pipe_file("/large", data)
    assert files.cat_file("/large") == data
    assert files.cat_file("/large", 5_000_000, -7) == data[5_000_000:-7]
    assert files.info("/large")["size"] == len(data)


def test_what_has_no_bytes_is_not_written(files: Any) -> None:
    for value in (None, 5, "text", [b"a"]):
        with pytest.raises(TypeError, match="neither the buffer protocol nor DLPack"):
            files.pipe_file("/none", value)
    assert not files.exists("/none")


def test_an_opened_file_stays_as_it_was(files: Any) -> None:
    files.pipe_file("/kept", b"before")
    with files.open("/kept") as file:
        files.pipe_file("/kept", b"after!")
        assert files.cat_file("/kept") == b"after!"
        files.rm("/kept")
        assert file.read() == b"before"


def test_errors(files: Any) -> None:
    with pytest.raises(FileNotFoundError):
        files.cat_file("/nothing")
    with pytest.raises(FileNotFoundError):
        files.ls("/nothing")
    files.makedirs("/d/e", exist_ok=True)
    with pytest.raises(FileExistsError):
        files.mkdir("/d/e")
    with pytest.raises(IsADirectoryError):
        files.cat_file("/d/e")
    with pytest.raises(OSError, match="not empty"):
        files.rmdir("/d")
    files.pipe_file("/d/f", b"1")
    with pytest.raises(FileExistsError):
        files.pipe_file("/d/f", b"2", mode="create")
    assert files.find("/d") == ["/d/f"]
    assert files.created("/d/f") <= files.modified("/d/f")


def test_a_transaction(files: Any) -> None:
    with files.transaction, files.open("/later", "wb") as file:
        file.write(b"x")
        file.close()
        assert not files.exists("/later")
    assert files.cat_file("/later") == b"x"


def test_it_can_be_pickled(files: Any, port: int) -> None:
    files.pipe_file("/p", b"1")
    assert pickle.loads(pickle.dumps(files)).cat_file("/p") == b"1"


def test_a_server_that_is_cancelled_leaves_its_port_free() -> None:
    """At every await of its start and its end."""

    async def main() -> int:
        async with serve("127.0.0.1:0") as found:
            address = f"127.0.0.1:{found.port}"

        async def attempt() -> None:
            async with serve(address):
                await asyncio.sleep(0)

        return await at_every_await(attempt, attempt)

    assert asyncio.run(main()) >= 1


@pytest.mark.parametrize("target", ["/moved/x", "/moved/", "/moved/x/y", "verbena://h/moved/x"])
def test_a_directory_is_not_moved_into_itself(files: Any, target: str) -> None:
    files.pipe_file("/moved/one", b"1")
    if target == "/moved/":
        files.mv("/moved", target, recursive=True)
    else:
        with pytest.raises(OSError, match="in itself") as caught:
            files.mv("/moved", target, recursive=True)
        assert caught.value.errno == errno.EINVAL
    assert files.cat_file("/moved/one") == b"1"


def test_a_file_that_is_moved_to_where_it_is(files: Any) -> None:
    files.pipe_file("/where/one", b"1")
    files.mv("/where/one", "/where/one")
    for target in ("/where", "/where/"):
        with pytest.raises(OSError, match="cannot be moved"):
            files.mv("/where/one", target)
    with pytest.raises(OSError, match="cannot be moved"):
        files.mv("/where", "/", recursive=True)
    assert files.cat_file("/where/one") == b"1"
    files.mv("/where/one", "/where/two")
    files.mv("/where", "/elsewhere", recursive=True)
    assert files.find("/elsewhere") == ["/elsewhere/two"]
    assert not files.exists("/where")


def test_the_root_is_emptied(files: Any) -> None:
    files.pipe_file("/a/b/c", b"1")
    files.rm("/", recursive=True)
    assert files.ls("/") == []


@pytest.mark.parametrize("path", ["/a/../b", "/..", "/a\0b", "/./c"])
def test_paths_that_cannot_be(files: Any, path: str) -> None:
    for call in (lambda: files.pipe_file(path, b"1"), lambda: files.mkdir(path)):
        with pytest.raises(OSError, match="is no path") as caught:
            call()
        assert caught.value.errno == errno.EINVAL


def test_an_unknown_option(port: int) -> None:
    with pytest.raises(TypeError, match="no option 'foo'; it has host, port, timeout"):
        fsspec.filesystem("verbena", host="127.0.0.1", port=port, foo=1)
