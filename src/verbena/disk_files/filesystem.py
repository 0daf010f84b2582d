# SPDX-License-Identifier: Apache-2.0
"""``DiskFileSystem``: the files of a disk as fsspec has them, and ``format_disk``.

fsspec calls it from any thread; the work is done in the loop of verbena.peers.sync. A forked child
connects by itself.
"""

from __future__ import annotations

import asyncio
import atexit
import errno
import operator
import os
import weakref
from contextlib import suppress
from typing import Any

from verbena import nvmeof
from verbena.cm.arguments import check_host, check_seconds, check_text, check_whole
from verbena.nvmeof.fabrics import is_nqn
from verbena.nvmeof.logs import SubsystemKind
from verbena.peers.sync import is_in_loop, run_in_loop
from verbena.verbs.here import place
from verbena.whole_files import FileVersion, WholeFileSystem

from .layout import DiskFile
from .volume import Volume, make_volume

__all__ = ["DiskFileSystem", "format_disk"]

_PATIENCE = 10.0  # seconds that a change waits for those of other hosts
_LOSS_TIMEOUT = 30.0  # seconds for which a connection that is lost is made again
_LARGEST_NSID = (1 << 32) - 2  # 0xFFFFFFFF means all (NVM Express base specification)


def check_place(host: str, port: int, nqn: str, nsid: int) -> None:
    """Raise TypeError or ValueError unless they can name a disk; without a name, ``nqn`` is ""."""
    check_host(host)
    check_whole("port", port, 1, 65535)
    check_text("nqn", nqn)
    if nqn and not is_nqn(nqn):
        raise ValueError(f"nqn is the name of a subsystem, as nqn.2026-01.org.example:a: {nqn!r}")
    check_whole("nsid", nsid, 1, _LARGEST_NSID)


async def _disk_of(
    host: str, port: int, nqn: str, nsid: int, loss_timeout: float = _LOSS_TIMEOUT
) -> nvmeof.Disk:
    """Connect to a disk; without a name to that of the only subsystem. Raises OSError."""
    if not nqn:
        offered = await nvmeof.discover(host, port)
        names = [each.nqn for each in offered if each.kind == SubsystemKind.NVM]
        if len(names) != 1:
            raise OSError(
                errno.ENODEV,
                f"{host}:{port} offers this host {', '.join(names) or 'no subsystem'}: give nqn=",
            )
        nqn = names[0]
    controller = await nvmeof.connect(
        host, nqn, port, nvmeof.HostOptions(loss_timeout=loss_timeout)
    )
    if nsid in controller.disks:
        return controller.disks[nsid]
    await controller.close()
    numbers = ", ".join(map(str, sorted(controller.disks))) or "none"
    raise OSError(errno.ENODEV, f"{nqn} has no disk {nsid}; its disks are {numbers}: give nsid=")


def format_disk(
    host: str,
    port: int = nvmeof.PORT,
    *,
    nqn: str = "",
    nsid: int = 1,
    overwrite: bool = False,
) -> None:
    """Make an empty file system on a disk; what was there is lost.

    ``nqn`` is the subsystem, by default the only one that the target offers; ``nsid`` the number of
    the disk. Raises TypeError, ValueError, and OSError: EEXIST where the first 8 KiB are not zeros,
    unless ``overwrite``.
    """
    check_place(host, port, nqn, nsid)
    port, nsid = operator.index(port), operator.index(nsid)

    async def work() -> None:
        disk = await _disk_of(host, port, nqn, nsid)
        try:
            await make_volume(disk, overwrite, _PATIENCE)
        finally:
            await disk.controller.close()

    run_in_loop(work())


class DiskFileSystem(WholeFileSystem):
    """The files of a disk: ``fsspec.filesystem("nvmeof", host="server")``.

    ``nqn`` and ``nsid`` name the disk, as in ``format_disk``. ``patience``: the seconds for which
    a change waits for those of other hosts. ``loss_timeout``: the seconds for which a connection
    that is lost is made again, while calls wait; then they fail with ConnectionLost (ECONNRESET).
    """

    protocol = "nvmeof"
    default_port = nvmeof.PORT

    def __init__(
        self,
        host: str = "localhost",
        port: int = nvmeof.PORT,
        nqn: str = "",
        nsid: int = 1,
        patience: float = _PATIENCE,
        loss_timeout: float = _LOSS_TIMEOUT,
        **options: Any,
    ) -> None:
        check_place(host, port, nqn, nsid)
        port, nsid = operator.index(port), operator.index(nsid)  # they may be of NumPy
        check_seconds("patience", patience)
        check_seconds("loss_timeout", loss_timeout)
        super().__init__(
            host=host,
            port=port,
            nqn=nqn,
            nsid=nsid,
            patience=patience,
            loss_timeout=loss_timeout,
            **options,
        )
        self.host, self.port, self.nqn, self.nsid = host, port, nqn, nsid
        self.patience, self.loss_timeout = patience, loss_timeout
        self._volume: Volume | None = None
        self._connecting = asyncio.Lock()
        self._pid = 0

    async def volume(self) -> Volume:
        """Return the files of the disk, in the loop. Raises OSError."""
        if self._pid != os.getpid():  # a connection of the parent is not this process's
            self._pid, self._volume, self._connecting = os.getpid(), None, asyncio.Lock()
            if place.get() is None:  # a simulated host's loop ends before the process does
                atexit.register(_settle_at_exit, weakref.ref(self), os.getpid())
        async with self._connecting:
            known = self._volume
            if known is not None and _has_ended(known):
                await known.disk.controller.close()
                known = None
            if known is None:
                disk = await _disk_of(self.host, self.port, self.nqn, self.nsid, self.loss_timeout)
                self._volume = known = Volume(disk, self.patience)
            return known

    def ask(self, do: str, path: str, data: Any = None, **more: Any) -> Any:
        """Answer a request about names, or write a file. Raises OSError."""

        async def work() -> Any:
            volume = await self.volume()
            match do:
                case "write":
                    await volume.write(path, data, **more)
                case "mkdir":
                    await volume.change(lambda tree: tree.make_directory(path, **more))
                case "touch":
                    await volume.change(lambda tree: tree.touch(path))
                case "remove":
                    await volume.change(lambda tree: tree.remove(path), frees=True)
                case "rmdir":
                    await volume.change(lambda tree: tree.remove_directory(path), frees=True)
                case _:
                    await volume.load()
                    return volume.tree.info(path) if do == "info" else volume.tree.list(path)
            return None

        return run_in_loop(work())

    def may_wait(self) -> bool:
        """Whether the calling thread may wait for the disk: that of the loop may not."""
        return not is_in_loop()

    def open_version(self, path: str) -> FileVersion:
        """Open a file to read it. Raises OSError."""

        async def work() -> DiskVersion:
            volume = await self.volume()
            return DiskVersion(volume, path, await volume.open(path))

        return run_in_loop(work())

    def break_lock(self) -> bool:
        """Take the reservation of a host that has died in a change; return whether there was one.

        Its change is not there then, or all of it is. A host that goes on nevertheless is refused,
        and its change fails with ESTALE. Raises OSError.
        """

        async def work() -> bool:
            return await (await self.volume()).lock.break_lock()

        return run_in_loop(work())

    def close(self) -> None:
        """Disconnect after the changes that are under way; the next call connects again."""

        async def work() -> None:
            volume, self._volume = self._volume, None
            if volume is not None and self._pid == os.getpid():
                await volume.settle()
                await volume.disk.controller.close()

        run_in_loop(work())


def _settle_at_exit(files: weakref.ref[DiskFileSystem], pid: int) -> None:
    """Wait for changes, which go on where their callers are interrupted: a process that ends in
    one would leave the disk reserved."""
    found = files()
    volume = found and found._volume
    if found is not None and volume is not None and pid == os.getpid():
        with suppress(TimeoutError):
            run_in_loop(volume.settle(), found.patience + found.loss_timeout)


def _has_ended(volume: Volume) -> bool:
    states = nvmeof.HostState.DEAD, nvmeof.HostState.CLOSED
    return volume.disk.is_gone or volume.disk.controller.state in states


class DiskVersion:
    """A file on a disk as it was when it was opened."""

    def __init__(self, volume: Volume, path: str, file: DiskFile) -> None:
        self._volume, self._path, self._file = volume, path, file
        self.size = file.size

    def read(self, start: int, end: int) -> bytes:
        """Return a range of its bytes. Raises OSError: ESTALE where it was replaced or removed."""
        return run_in_loop(self._volume.read(self._path, self._file, start, end))

    def close(self) -> None:
        """Nothing is kept for it."""
