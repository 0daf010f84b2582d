# SPDX-License-Identifier: Apache-2.0
"""``Volume``: the files of one disk, for one event loop. ``DiskFileSystem`` has one and calls it.

A change writes data and an index to free blocks, flushes, and then writes a superblock. It holds a
reservation of the disk, so hosts make changes one after the other. Nobody knows which files other
hosts have opened, so blocks of a file that was replaced are written again; a read looks at the
superblock afterwards, and fails with ESTALE where the file is not there any more, as over NFS.
"""

from __future__ import annotations

import asyncio
import errno
import time
import zlib
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import numpy as np

from verbena.nvmeof import ConnectionLost, Disk
from verbena.peers.memory import byte_view, dense_array
from verbena.whole_files import FileTree

from .layout import (
    DATA_BEGIN,
    Changes,
    DiskFile,
    Extent,
    Superblock,
    add_change,
    allocate,
    is_made,
    newest,
    pack_index,
    parse_index,
    slot_of,
)
from .locking import WriteLock

__all__ = ["Volume", "make_volume"]

_PIECE = 4 << 20  # bytes of one write: what is copied for it at a time
_TRIES = 5
_MOST_BLOCK = 4096


class LostInChange(ConnectionLost):
    """The connection was lost in a change, that may be made once more: the block that names it was
    not written, or it is looked for first."""


class Volume:
    """The files of a disk. ``tree`` has those of the generation that was read or written last."""

    def __init__(self, disk: Disk, patience: float) -> None:
        if disk.block_size > _MOST_BLOCK:
            raise ValueError(f"blocks of {disk.block_size} bytes are more than {_MOST_BLOCK}")
        self.disk = disk
        self.lock = WriteLock(disk, patience)
        self.tree: FileTree[DiskFile] = FileTree()
        self.index: Superblock | None = None
        self._made: Changes = {}  # by the index
        self._connections = disk.controller.reconnects  # when the change began
        self._doubtful: Superblock | None = None  # of a change; it may be there, or may not
        self._writing = 0  # the generation whose superblock this process is writing
        self._turn = asyncio.Lock()
        self._changes: set[asyncio.Task[Any]] = set()

    # ---- reading ----

    async def load(self) -> None:
        """Read the index again if another host has changed it. Raises OSError."""
        generation = 0
        if self.disk.size < DATA_BEGIN:
            raise OSError(
                errno.EMEDIUMTYPE,
                f"{self._about} has {self.disk.size} bytes, and no file system is of so few: if it"
                " had one, the disk was made smaller; restore it",
            )
        for _ in range(_TRIES):
            found = newest(await self.disk.read(0, DATA_BEGIN))
            if found is None:
                raise OSError(
                    errno.EMEDIUMTYPE,
                    f"{self._about} has no files of Verbena: disk_files.format_disk makes an empty"
                    " file system, and what is on the disk is lost",
                )
            generation = found.generation
            if self.index is not None and generation == self.index.generation:
                return
            if generation == self._writing:
                return  # its tree will be there in a moment
            place = self._whole_blocks(found)
            data = await self._read_range("the list of its files", (place,), 0, found.length)
            if zlib.crc32(data) == found.crc:
                if self.index is None or generation > self.index.generation:
                    self.index = found
                    self.tree, self._made = parse_index(data)
                return  # otherwise a change of this process was quicker
            # Another host has written it again since the superblock was read.
        raise OSError(
            errno.EIO,
            f"{self._about}: the index of generation {generation} is damaged, or other hosts"
            " change files without reservations",
        )

    async def open(self, path: str) -> DiskFile:
        """Return a file as it is now. Raises OSError."""
        await self.load()
        return self.tree.file(path)

    async def read(self, path: str, file: DiskFile, start: int, end: int) -> bytes:
        """Return a range of the bytes of a file that was opened.

        Raises OSError: ESTALE where the file was replaced or removed meanwhile, and EIO where it
        is beyond the end of a disk that was made smaller.
        """
        start, end = max(0, start), min(end, file.size)
        data = await self._read_range(path, file.extents, start, end) if start < end else b""
        await self.load()
        found = self.tree.files.get(path)
        if found is None or not found.has_bytes_of(file):
            raise OSError(
                errno.ESTALE,
                f"{path} was replaced or removed while it was open: open it again",
            )
        return data

    async def _read_range(
        self, what: str, extents: tuple[Extent, ...], start: int, end: int
    ) -> bytes:
        """Return bytes from start to end of what lies in extents. Raises OSError."""
        block = self.disk.block_size
        first, last = start // block * block, -(-end // block) * block
        memory = np.empty(last - first, np.uint8)
        parts: list[tuple[int, Any]] = []  # where on the disk, and into which memory
        at = 0  # where the extent begins in the file
        for offset, length in extents:
            begin, stop = max(first, at), min(last, at + length)
            if begin < stop:
                parts.append((offset + begin - at, memory[begin - first : stop - first]))
            at += length
        size = self.disk.size
        if any(where + len(part) > size for where, part in parts):
            raise OSError(
                errno.EIO,
                f"{self._about} has {size} bytes, and {what} lies beyond them: the disk was made"
                " smaller; restore it",
            )
        await asyncio.gather(*(self.disk.read_into(where, part) for where, part in parts))
        return memory[start - first : end - first].tobytes()

    # ---- changing ----

    async def change(self, what: Callable[[FileTree[DiskFile]], None], frees: bool = False) -> None:
        """Change names; ``what`` does so in a copy of the tree. Raises OSError.

        ``frees`` says that blocks become free, so that it may use what is kept for that.
        """

        async def work() -> None:
            tree = self.tree.copy()
            what(tree)
            await self._commit(tree, frees)

        await self._alone(work)

    async def write(
        self, path: str, data: Any, exclusive: bool, replaces: float | None = None
    ) -> None:
        """Replace a file, or make it; ``replaces`` as in FileTree.put.

        Raises OSError, and TypeError for what is no memory.
        """
        view = byte_view(dense_array(data))
        now = time.time()

        async def work() -> None:
            tree = self.tree.copy()
            file = DiskFile(len(view), now, now, self._next, ())
            tree.put(path, file, exclusive, replaces)
            file.extents = self._allocate(self._used(self.tree), len(view))
            await self._write_data(file.extents, view)
            await self._commit(tree)

        await self._alone(work)

    async def _alone(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a change, to its end also where its caller is cancelled: no later change of this
        process or another host may meet its writes."""

        async def run() -> None:
            async with self._turn:
                self._doubtful = None
                try:
                    for _ in range(_TRIES - 1):
                        with suppress(LostInChange):
                            await once()
                            return
                    await once()
                except ConnectionLost as error:
                    there = "may be there" if self._doubtful else "is not there"
                    raise ConnectionLost(f"{error.strerror}: the change {there}") from error

        async def once() -> None:
            self._connections = self.disk.controller.reconnects
            try:
                async with self.lock:
                    self._connections = self.disk.controller.reconnects
                    await self.load()
                    if not self._is_there():
                        await work()
            except OSError as error:
                if error.errno == errno.ESTALE and self._was_lost:
                    raise LostInChange(str(error.strerror)) from error
                raise

        task = asyncio.ensure_future(run())
        self._changes.add(task)
        task.add_done_callback(self._ended)
        await asyncio.shield(task)

    def _is_there(self) -> bool:
        """Return whether the change is there in whose last write the connection was lost.

        Raises ConnectionLost where that cannot be known.
        """
        if self._doubtful is None:
            return False
        found = is_made(self._made, self.lock.writer, self._doubtful.generation)
        if found is None:
            raise ConnectionLost(f"{self._about}: the connection was lost in a change")
        self._doubtful = None
        return found

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._changes.discard(task)
        if not task.cancelled():
            task.exception()  # its caller has it, or was cancelled

    async def settle(self) -> None:
        """Wait for changes that are under way."""
        if self._changes:
            await asyncio.wait(self._changes)

    @property
    def _next(self) -> int:
        """The generation of a change that is made now."""
        return self.index.generation + 1 if self.index else 1

    def _used(self, tree: FileTree[DiskFile]) -> set[Extent]:
        """Return the extents of a tree's files, and that of the index."""
        used = {extent for each in tree.files.values() for extent in each.extents}
        return used | ({self._whole_blocks(self.index)} if self.index else set())

    def _allocate(self, used: set[Extent], length: int, in_one: bool = False) -> tuple[Extent, ...]:
        return allocate(used, length, self.disk.block_size, self.disk.size, in_one)

    def _whole_blocks(self, found: Superblock) -> Extent:
        block = self.disk.block_size
        return found.offset, -(-found.length // block) * block

    async def _write_data(self, extents: tuple[Extent, ...], view: memoryview) -> None:
        """Write bytes to extents; the rest of the last block becomes zeros."""
        block, at = self.disk.block_size, 0
        for offset, length in extents:
            for begin in range(0, length, _PIECE):
                piece = view[at : at + min(_PIECE, length - begin)]
                whole = len(piece) // block * block
                if whole:
                    await self._write(offset + begin, piece[:whole])
                if rest := bytes(piece[whole:]):
                    await self._write(offset + begin + whole, rest.ljust(block, b"\0"))
                at += len(piece)

    async def _commit(self, tree: FileTree[DiskFile], frees: bool = False) -> None:
        """Write an index, and the superblock that names it.

        Raises LostInChange where the connection was made again since the change began: a target
        that was started again may have lost what it had not flushed, and the reservation.
        """
        changes = add_change(self._made, self.lock.writer, self._next)
        data = pack_index(tree, changes)
        used = self._used(self.tree) | self._used(tree)
        (place,) = self._allocate(used, len(data), in_one=True)
        if not frees and (self.index is None or self._whole_blocks(self.index)[1] < place[1]):
            # Removing a file takes an index, too: there has to be room for one then.
            self._allocate(used | {place}, len(data), in_one=True)
        made = Superblock(self._next, place[0], len(data), zlib.crc32(data))
        await self._write_data((place,), memoryview(data))
        await self.disk.flush()
        if self._was_lost:
            raise LostInChange(f"{self._about}: the connection was lost in a change")
        self._writing, self._doubtful = made.generation, made
        try:
            await self._write(slot_of(made.generation), made.pack(), durable=True)
            self.index, self.tree, self._made, self._doubtful = made, tree, changes, None
        finally:
            self._writing = 0

    async def _write(self, offset: int, data: Any, durable: bool = False) -> None:
        """Write on the connection of the change alone. Raises LostInChange where it is lost: what
        is here may be another host's on a later one."""
        try:
            await self.disk.write(offset, data, durable=durable, connection=self._connections)
        except ConnectionLost as error:
            raise LostInChange(str(error.strerror)) from error

    @property
    def _was_lost(self) -> bool:
        """Whether the connection was made again since the change began. A target that was started
        again may have let another host have the reservation."""
        return self.disk.controller.reconnects != self._connections

    @property
    def _about(self) -> str:
        return f"disk {self.disk.nsid} of {self.disk.controller.nqn}"


async def make_volume(disk: Disk, overwrite: bool, patience: float) -> Volume:
    """Make an empty file system on a disk. Raises OSError."""
    volume = Volume(disk, patience)
    least = DATA_BEGIN + 2 * disk.block_size  # two indexes, of which one counts
    if disk.size < least:
        raise OSError(
            errno.ENOSPC,
            f"{volume._about} has {disk.size} bytes, and a file system takes {least} at least",
        )
    async with volume.lock:
        blocks = await disk.read(0, DATA_BEGIN)
        found = newest(blocks)
        if any(blocks) and not overwrite:
            what = "a file system already" if found else "something in its first blocks"
            raise FileExistsError(
                errno.EEXIST,
                f"{volume._about} has {what}: overwrite=True makes an empty file system, and what"
                " is there is lost",
            )
        if found is None:
            await disk.write(0, bytes(DATA_BEGIN))
        volume.index = found  # hosts that use it now see that there is a later generation
        for _ in range(2):  # so both superblocks are of this file system
            await volume._commit(FileTree())
    return volume
