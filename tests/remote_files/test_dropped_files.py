# SPDX-License-Identifier: Apache-2.0
"""Files that a program drops, or leaves open when it ends: on a server and on a disk."""

from __future__ import annotations

import bz2
import gc
import gzip
import io
import lzma
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fsspec", reason="no package fsspec; the extra fsspec has it")

import fsspec

from tests.nvmeof.conftest import HOST, MIB, ChildTarget
from tests.remote_files.test_remote_files import SERVER
from verbena.disk_files import format_disk
from verbena.peers.sync import run_in_loop

pytestmark = pytest.mark.over_roce


@pytest.fixture(scope="module", params=["verbena", "nvmeof"])
def options(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """A file system of a server, which the module's tests share."""
    if request.param == "nvmeof":
        with ChildTarget(16 * MIB) as target:
            format_disk(HOST, target.port)
            yield {"protocol": "nvmeof", "host": HOST, "port": target.port}
        return
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield {"protocol": "verbena", "host": HOST, "port": int(process.stdout.readline())}
        finally:
            process.kill()


ENDS = """
import fsspec
files = fsspec.filesystem(**{options})
files.pipe_file("/read", b"r" * 30)
reading = files.open("/read", "rb")
assert reading.read(10) == b"r" * 10
writing = files.open("/{name}", "wb")
writing.write(b"w" * 30)
{last}
"""


@pytest.mark.parametrize(("name", "last"), [("ends", ""), ("raises", "raise SystemExit(3)")])
def test_a_program_that_ends_with_open_files(options: dict[str, Any], name: str, last: str) -> None:
    program = ENDS.format(options=options, name=name, last=last)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stderr) == (3 if last else 0, "")
    assert fsspec.filesystem(**options).cat_file(f"/{name}") == b"w" * 30


def drop(files: Any, path: str) -> None:
    """Leave files in cycles, which only garbage collection finds."""
    for mode in ("rb", "r"):
        files.pipe_file(f"{path}-{mode}", b"r" * 30)
    for mode in ("rb", "wb", "r", "w"):
        file = files.open(f"{path}-{mode}", mode)
        if "w" in mode:
            file.write(b"written" if "b" in mode else "written")
        cycle = [file]
        cycle.append(cycle)


def test_files_that_are_collected_in_the_thread_of_their_connection(
    options: dict[str, Any],
) -> None:
    files = fsspec.filesystem(**options)

    async def collect() -> int:
        return gc.collect()

    gc.disable()
    try:
        drop(files, "/dropped")
        assert run_in_loop(collect(), 10) > 0
    finally:
        gc.enable()
    deadline = time.monotonic() + 10
    for path in ("/dropped-wb", "/dropped-w"):
        while not files.exists(path) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert files.cat_file(path) == b"written"
        files.rm(path)


def test_a_text_file_that_is_collected_in_a_request(options: dict[str, Any]) -> None:
    files = fsspec.filesystem(**{**options, "skip_instance_cache": True})
    gc.disable()
    try:
        drop(files, "/amid")
        if hasattr(files, "exchange"):
            with files.exchange():
                gc.collect()
        else:
            gc.collect()
    finally:
        gc.enable()
    deadline = time.monotonic() + 10
    while not files.exists("/amid-w") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert files.cat_file("/amid-w") == b"written"


LEFT_OPEN = """
import bz2, gzip, io, lzma, zipfile
import fsspec
files = fsspec.filesystem(**{options})
{opening}
"""
OPENINGS = {
    "plain": """file = files.open("/plain", "wb"); file.write(b"left open")""",
    "text": """file = files.open("/text", "w"); file.write("left open")""",
    "core": """file = fsspec.open("{url}/core", "w").open(); file.write("left open")""",
    "buffered": """f = io.BufferedWriter(files.open("/buffered", "wb")); f.write(b"left open")""",
    "gzip": """file = files.open("/gzip", "wt", compression="gzip"); file.write("left open")""",
    "bz2": """file = bz2.open(files.open("/bz2", "wb"), "wt"); file.write("left open")""",
    "lzma": """file = lzma.open(files.open("/lzma", "wb"), "wb"); file.write(b"left open")""",
    "zip": """file = files.open("/zip", "wb", compression="zip"); file.write(b"left open")""",
}
READERS: dict[str, Any] = {
    "gzip": gzip.decompress,
    "bz2": bz2.decompress,
    "lzma": lzma.decompress,
    "zip": lambda data: zipfile.ZipFile(io.BytesIO(data)).read("file"),
}


@pytest.mark.parametrize("kind", OPENINGS)
def test_a_file_left_open_of_a_host_by_name(options: dict[str, Any], kind: str) -> None:
    """The program's end looks up the host's name, connects, and stores what wrappers hold."""
    by_name = {**options, "host": "localhost"}
    url = "{protocol}://{host}:{port}".format_map(by_name)
    program = LEFT_OPEN.format(options=by_name, opening=OPENINGS[kind].format(url=url))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")
    data = fsspec.filesystem(**options).cat_file(f"/{kind}")
    assert READERS.get(kind, bytes)(data) == b"left open"
