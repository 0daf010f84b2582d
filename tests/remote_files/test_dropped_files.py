# SPDX-License-Identifier: Apache-2.0
"""Files that a program drops, or leaves open when it ends: on a server and on a disk."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
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
    """Leave two files in cycles, which only garbage collection finds."""
    for mode in ("rb", "wb"):
        file = files.open(f"{path}-{mode}", mode)
        if mode == "wb":
            file.write(b"written")
        cycle = [file]
        cycle.append(cycle)


def test_files_that_are_collected_in_the_thread_of_their_connection(
    options: dict[str, Any],
) -> None:
    files = fsspec.filesystem(**options)
    files.pipe_file("/dropped-rb", b"r" * 30)

    async def collect() -> int:
        return gc.collect()

    gc.disable()
    try:
        drop(files, "/dropped")
        assert run_in_loop(collect(), 10) > 0
    finally:
        gc.enable()
    deadline = time.monotonic() + 10
    while not files.exists("/dropped-wb") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert files.cat_file("/dropped-wb") == b"written"
