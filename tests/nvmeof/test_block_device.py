# SPDX-License-Identifier: Apache-2.0
"""A block device as a disk: a loop device of the kernel, whose file shows what was written."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nvmeof.conftest import MIB, image, pair, run
from verbena import nvmeof


@pytest.fixture
def device(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A loop device over a file, and the file."""
    losetup = shutil.which("losetup", path=f"{os.environ['PATH']}:/usr/sbin")
    if losetup is None:
        pytest.skip("losetup is not installed; apt install mount brings it")
    path = image(tmp_path, 4 * MIB)
    made = subprocess.run(
        [losetup, "--find", "--show", path], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip("this process may make no loop devices; running as root brings them")
    loop = Path(made.stdout.strip())
    try:
        yield loop, path
    finally:
        subprocess.run([losetup, "--detach", loop], check=True)


@pytest.mark.parametrize("direct", [False, True], ids=["page cache", "direct"])
def test_what_is_written_is_on_the_device(
    device: tuple[Path, Path], direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where data have an address that O_DIRECT does not take, as those in a capsule have."""
    loop, path = device
    store = nvmeof.FileStore(loop, direct=direct)
    assert store.size == 4 * MIB
    data = os.urandom(MIB + 4096)
    monkeypatch.setattr(store, "_fallocate", lambda *_: False)  # zeros are written then

    async def main() -> None:
        async with pair(store) as (controller, _, _):
            disk = controller.disks[1]
            assert disk.size == 4 * MIB
            await disk.write(8192, data)
            await disk.write(3 * MIB, data[:4096], durable=True)
            await disk.write_zeroes(12_288, 8192)
            await disk.discard((2 * MIB, 65_536))
            assert await disk.read(8192, 4096) == data[:4096]
            assert await disk.read(12_288, 8192) == bytes(8192)
            await disk.flush()

    run(main())
    store.close()
    found = path.read_bytes()
    assert found[8192 : 8192 + len(data)] == data[:4096] + bytes(8192) + data[12_288:]
    assert found[3 * MIB : 3 * MIB + 4096] == data[:4096]


def test_a_device_that_is_read_only(device: tuple[Path, Path]) -> None:
    loop, path = device
    store = nvmeof.FileStore(loop, is_read_only=True)

    async def main() -> None:
        async with pair(store) as (controller, _, _):
            disk = controller.disks[1]
            assert disk.is_read_only
            assert await disk.read(0, 4096) == bytes(4096)
            with pytest.raises(nvmeof.CommandFailed):
                await disk.write(0, b"x" * 4096)

    run(main())
    store.close()
    assert path.read_bytes() == bytes(4 * MIB)


def test_a_device_has_one_target_that_may_write_it(device: tuple[Path, Path]) -> None:
    store = nvmeof.FileStore(device[0])
    with pytest.raises(OSError, match="another target serves"):
        nvmeof.FileStore(device[0])
    store.close()
    nvmeof.FileStore(device[0]).close()


def test_what_is_neither_a_file_nor_a_block_device(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/null", tmp_path / "pipe"):
        with pytest.raises(ValueError, match="neither a file nor a block device"):
            nvmeof.FileStore(path)
