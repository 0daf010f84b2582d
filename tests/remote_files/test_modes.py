# SPDX-License-Identifier: Apache-2.0
"""Modes and paths of verbena:// and nvmeof://, as Python's files and fsspec's memory have them."""

from __future__ import annotations

import errno
import gzip
import io
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fsspec", reason="no package fsspec; the extra fsspec has it")

import fsspec

from tests.carriers import live_carriers
from tests.remote_files import test_dropped_files
from verbena.whole_files import plain_mode

pytest_generate_tests = live_carriers
options = test_dropped_files.options


@pytest.fixture
def files(options: dict[str, Any]) -> Any:
    return fsspec.filesystem(**options)


@pytest.mark.parametrize(
    "mode", ["q", "qb", "rwb", "wab", "rr", "b", "", "+", "rbt", "r++b", "rbb", "U", "wbq"]
)
def test_what_is_no_mode(files: Any, mode: str) -> None:
    files.pipe_file("/kept", b"kept")
    with pytest.raises(ValueError, match="is no mode: it has one of r, w, a and x"):
        files.open("/kept", mode)
    with pytest.raises(ValueError, match="is no mode"):
        files._open("/kept", mode)
    assert files.cat_file("/kept") == b"kept"


@pytest.mark.parametrize(
    ("mode", "plain"),
    [("br", "rb"), ("rb+", "r+b"), ("+br", "r+b"), ("rt", "r"), ("w+t", "w+"), ("bx", "xb")],
)
def test_other_orders_of_a_mode(mode: str, plain: str) -> None:
    assert plain_mode(mode) == plain


def test_a_file_that_is_read_in_another_order_of_its_mode(files: Any) -> None:
    files.pipe_file("/order", b"1234")
    with files.open("/order", "br") as file:
        assert file.read() == b"1234"
    with files.open("/order", "rb+") as file:
        file.write(b"55")
        assert file.read() == b"34"
    assert files.cat_file("/order") == b"5534"
    files.pipe_file("/order.gz", gzip.compress(b"1234"))
    assert files.open("/order.gz", "br", compression="gzip").read() == b"1234"


@pytest.mark.parametrize("mode", ["r", "rb", "r+", "r+b"])
def test_a_file_that_is_not_there(files: Any, mode: str) -> None:
    with pytest.raises(FileNotFoundError):
        files.open("/nothing", mode)
    assert not files.exists("/nothing")


@pytest.mark.parametrize("mode", ["r", "rb", "r+b", "w", "wb", "w+b", "a", "ab", "a+b", "x", "xb"])
@pytest.mark.parametrize("path", ["/folder", "/"])
def test_a_directory_is_not_opened(files: Any, path: str, mode: str) -> None:
    """As of local files, at once; one that has to be new exists already."""
    files.makedirs("/folder", exist_ok=True)
    with pytest.raises(FileExistsError if "x" in mode else IsADirectoryError):
        files.open(path, mode)
    assert files.isdir(path)


@pytest.mark.parametrize("mode", ["wb", "ab", "xb"])
def test_a_file_that_is_written_is_not_read(files: Any, mode: str) -> None:
    if files.exists("/written"):
        files.rm("/written")
    with files.open("/written", mode) as file:
        file.write(b"1234")
        file.seek(0)
        assert (file.readable(), file.writable(), file.mode) == (False, True, mode)
        for read in (file.read, file.read1, file.readline, file.readlines, lambda: next(file)):
            with pytest.raises(io.UnsupportedOperation, match="not readable"):
                read()
        with pytest.raises(io.UnsupportedOperation, match="not readable"):
            file.readinto(bytearray(1))
    assert files.cat_file("/written") == b"1234"
    with (
        files.open("/written", mode.replace("b", "").replace("x", "w")) as file,
        pytest.raises(io.UnsupportedOperation, match="not readable"),
    ):
        file.read()


def test_a_file_that_is_read_is_not_written(files: Any) -> None:
    files.pipe_file("/read", b"1234")
    with files.open("/read") as file:
        for write in (file.write, file.writelines):
            with pytest.raises(io.UnsupportedOperation, match="not writable"):
                write([b"5"] if write == file.writelines else b"5")
    assert files.cat_file("/read") == b"1234"


def test_files_that_are_read_and_written(files: Any) -> None:
    with files.open("/both", "w+b") as file:
        file.write(b"1234")
        file.seek(1)
        assert (file.readable(), file.read()) == (True, b"234")
    with files.open("/both", "a+") as file:
        file.seek(0)
        assert file.read() == "1234"
        file.seek(0)
        file.write("56")  # to the end, as Python's files do
    assert files.cat_file("/both") == b"123456"


@pytest.mark.parametrize(
    ("start", "end"), [(-100, None), (-2, None), (-100, -1), (3, 1), (1, 100), (9, 20), (None, -9)]
)
def test_ranges_beyond_a_file(files: Any, start: int | None, end: int | None) -> None:
    files.pipe_file("/four", b"1234")
    assert files.cat_file("/four", start, end) == b"1234"[start:end]


def test_a_path_with_slashes_one_after_another(files: Any) -> None:
    files.pipe_file("//dd///x", b"1")
    assert files.find("/dd") == ["/dd/x"]
    assert files.ls("//dd/", detail=False) == ["/dd/x"]
    assert files.cat_file(f"{files.protocol}://{files.host}:{files.port}//dd//x") == b"1"
    files.rm("/dd//", recursive=True)
    assert not files.exists("/dd")
    for path in ("//dd", "/dd//x", "/dd/"):
        with pytest.raises(OSError, match="is no path"):
            files.ask("write", path, b"1", exclusive=False)


@pytest.mark.parametrize("mode", ["ab", "r+b", "a"])
def test_a_file_that_another_writer_replaced_while_it_was_changed(files: Any, mode: str) -> None:
    other = b"other"
    for change in (lambda: files.pipe_file("/log", other), lambda: files.rm("/log")):
        files.pipe_file("/log", b"first")
        file = files.open("/log", mode)
        file.write(b"more" if "b" in mode else "more")
        change()
        with pytest.raises(OSError, match="what was written here is not stored") as caught:
            file.close()
        assert caught.value.errno == errno.ESTALE
        assert not files.exists("/log") or files.cat_file("/log") == other


def test_a_new_file_that_another_writer_made_meanwhile(files: Any) -> None:
    file = files.open("/made", "ab")
    files.pipe_file("/made", b"other")
    with pytest.raises(OSError, match="what was written here is not stored"):
        file.close()
    with files.open("/made", "ab") as file:
        file.write(b"+")
    assert files.cat_file("/made") == b"other+"


def test_a_file_whose_time_is_set(files: Any) -> None:
    files.touch("/touched", truncate=False)
    assert files.cat_file("/touched") == b""
    files.pipe_file("/touched", b"1")
    before = files.info("/touched")
    with files.open("/touched") as file:
        files.touch("/touched", truncate=False)
        assert file.read() == b"1"
    after = files.info("/touched")
    assert (after["created"], after["size"]) == (before["created"], 1)
    assert after["modified"] > before["modified"]
    with pytest.raises(IsADirectoryError):
        files.touch("/", truncate=False)
    files.touch("/touched")
    assert files.cat_file("/touched") == b""


@pytest.mark.parametrize(("kind", "size"), [(np.uint8, 255), (np.uint16, 65_535), (np.int32, 4096)])
def test_numbers_of_few_bits(files: Any, kind: Any, size: int) -> None:
    """Ranges, positions and sizes of blocks may be of NumPy, and near the limit of their type."""
    data = bytes(at % 251 for at in range(200_000))
    files.pipe_file("/numbers", data)
    at = size - 100
    assert files.cat_file("/numbers", kind(at), kind(size)) == data[at:size]
    assert files.cat_file("/numbers", np.int8(-9), np.int8(-1)) == data[-9:-1]
    with files.open("/numbers", "rb", block_size=kind(size)) as file:
        file.seek(kind(at))
        assert file.read(kind(100)) == data[at:size]
        file.seek(kind(100), 1)
        assert file.read(kind(100)) == data[size + 100 : size + 200]
    with files.open("/numbers", "r+b") as file:
        file.seek(kind(at))
        file.write(b"new")
        file.truncate(kind(size))
    assert files.cat_file("/numbers") == data[:at] + b"new" + data[at + 3 : size]


def test_a_port_of_numpy(options: dict[str, Any]) -> None:
    files = fsspec.filesystem(**{**options, "port": np.uint16(options["port"])})
    files.pipe_file("/port", b"data")
    assert files.cat_file("/port") == b"data"
    assert type(files.port) is int
