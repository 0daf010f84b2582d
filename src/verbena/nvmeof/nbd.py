# SPDX-License-Identifier: Apache-2.0
"""``NbdExport``: a disk for programs of this host that speak NBD, by a Unix socket.

`verbena disk attach` makes it, for QEMU, libnbd, fio and others. The protocol is NBD's fixed
newstyle with simple replies; its specification is public. Data go through this process once, since
an NBD client sends them by a socket. A client that breaks the protocol loses its connection.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from collections import deque
from contextlib import suppress
from enum import IntEnum
from struct import Struct
from typing import Self

from .disk import Disk

__all__ = ["NbdExport"]

_MAGIC = b"NBDMAGIC"
_OPTION_MAGIC = b"IHAVEOPT"
_REPLY_MAGIC = 0x0003E889045565A9
_REQUEST_MAGIC, _SIMPLE_MAGIC = 0x25609513, 0x67446698
_GREETING = Struct(">8s8sH")
_OPTION = Struct(">8sII")
_OPTION_REPLY = Struct(">QIII")
_REQUEST = Struct(">IHHQQI")
_SIMPLE = Struct(">IIQ")
_FIXED, _NO_ZEROES = 1, 2
_MOST_OPTION, _MOST_DATA = 4096, 32 << 20
_AT_ONCE = 128
_READING = 64 << 20  # bytes of all clients' reads that are under way


class Option(IntEnum):
    """What a client asks before it uses the disk."""

    EXPORT_NAME = 1
    ABORT = 2
    LIST = 3
    INFO = 6
    GO = 7


class OptionReply(IntEnum):
    """What it is answered."""

    ACK = 1
    SERVER = 2
    INFO = 3
    UNSUPPORTED = 0x80000001
    INVALID = 0x80000003


class Operation(IntEnum):
    """What a client does with the disk."""

    READ = 0
    WRITE = 1
    DISCONNECT = 2
    FLUSH = 3
    TRIM = 4
    WRITE_ZEROES = 6


_HAS_FLAGS, _READ_ONLY, _FLUSH, _FUA, _TRIM, _ZEROES, _MULTI = 1, 2, 4, 8, 32, 64, 256
_COMMAND_FUA = 1
_INFO_EXPORT, _INFO_BLOCK_SIZE = 0, 3
_ERRORS = frozenset({errno.EPERM, errno.EIO, errno.ENOMEM, errno.EINVAL, errno.ENOSPC})


class ClientError(Exception):
    """A client breaks the protocol."""


def _make_way(path: str) -> None:
    """Remove a socket that nobody listens at. Raises FileExistsError for what must stay."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return  # nothing is there, or the server says why it cannot be
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(
            errno.EEXIST, f"{path} exists and is no socket: name a path that is free"
        )
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        refusal = probe.connect_ex(path)
    if refusal != errno.ECONNREFUSED:
        raise FileExistsError(
            errno.EADDRINUSE, f"somebody serves at {path} already: name another path"
        )
    os.unlink(path)


class Room:
    """Bytes that may be in use at a time; who wants more than are left waits in turn."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, count: int) -> None:
        """Wait for so many, which are no more than there were at first."""
        if not self._waiting and count <= self._left:
            self._left -= count
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((count, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it got them, and was cancelled before it knew
                self._left += count
            self._go_on()
            raise

    def give_back(self, count: int) -> None:
        """So many are not in use any more."""
        self._left += count
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting:
            count, turn = self._waiting[0]
            if not turn.cancelled():
                if count > self._left:
                    return
                self._left -= count
                turn.set_result(None)
            self._waiting.popleft()


class NbdExport:
    """Serves a disk at a Unix socket: ``async with NbdExport(disk, path)``.

    A socket at ``path`` at which nobody listens any more is replaced. OSError for anything else
    there, and for a folder that is missing.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk, self.path = disk, path
        self._inode = 0  # of the socket
        self._reading = Room(_READING)
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        _make_way(self.path)
        try:
            self._server = await asyncio.start_unix_server(self._accept, self.path)
        except OSError as error:
            why = error.strerror or str(error)  # of a path that is too long there is no errno
            raise OSError(
                error.errno or errno.ENAMETOOLONG, f"no socket at {self.path}: {why}"
            ) from None
        self._inode = os.stat(self.path).st_ino
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()
        for client in list(self._clients):
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        with suppress(FileNotFoundError):
            if os.stat(self.path).st_ino == self._inode:
                os.unlink(self.path)

    async def wait(self) -> None:
        """Serve until this is cancelled. ``serve_forever`` would wait for clients to go, from
        Python 3.12 on."""
        await asyncio.get_running_loop().create_future()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a client in a task of its own: asyncio reports a task that it has made itself as
        a defect where that is cancelled."""
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            client = NbdClient(self.disk, reader, writer, self._reading)
            if await client.negotiate():
                await client.transfer()
        except (ClientError, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


class NbdClient:
    """One connection of a client."""

    def __init__(
        self,
        disk: Disk,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        reading: Room,
    ) -> None:
        self.disk, self._reader, self._writer = disk, reader, writer
        self._reading = reading
        self._no_zeroes = False
        self._under_way: dict[asyncio.Task[None], int] = {}  # with their operations
        self._room = asyncio.Semaphore(_AT_ONCE)

    @property
    def _flags(self) -> int:
        flags = _HAS_FLAGS | _FLUSH | _FUA | _TRIM | _ZEROES | _MULTI
        return flags | (_READ_ONLY if self.disk.is_read_only else 0)

    # ---- before the transfers ----

    async def negotiate(self) -> bool:
        """Agree on the disk; False if the client goes."""
        self._writer.write(_GREETING.pack(_MAGIC, _OPTION_MAGIC, _FIXED | _NO_ZEROES))
        flags = int.from_bytes(await self._reader.readexactly(4), "big")
        self._no_zeroes = bool(flags & _NO_ZEROES)
        while True:
            magic, option, length = _OPTION.unpack(await self._reader.readexactly(_OPTION.size))
            if magic != _OPTION_MAGIC or length > _MOST_OPTION:
                raise ClientError
            await self._reader.readexactly(length)
            if option == Option.EXPORT_NAME:
                zeros = b"" if self._no_zeroes else bytes(124)
                self._writer.write(
                    self.disk.size.to_bytes(8, "big") + self._flags.to_bytes(2, "big") + zeros
                )
                return True
            if option == Option.ABORT:
                self._answer(option, OptionReply.ACK)
                return False
            if option == Option.LIST:
                self._answer(option, OptionReply.SERVER, bytes(4))
                self._answer(option, OptionReply.ACK)
            elif option in (Option.GO, Option.INFO):
                self._tell(option)
                if option == Option.GO:
                    return True
            else:
                self._answer(option, OptionReply.UNSUPPORTED)

    def _tell(self, option: int) -> None:
        """Say how large the disk is, and its blocks."""
        export = self.disk.size.to_bytes(8, "big") + self._flags.to_bytes(2, "big")
        self._answer(option, OptionReply.INFO, _INFO_EXPORT.to_bytes(2, "big") + export)
        least = self.disk.block_size.to_bytes(4, "big")
        sizes = least + max(4096, self.disk.block_size).to_bytes(4, "big")
        sizes += _MOST_DATA.to_bytes(4, "big")
        self._answer(option, OptionReply.INFO, _INFO_BLOCK_SIZE.to_bytes(2, "big") + sizes)
        self._answer(option, OptionReply.ACK)

    def _answer(self, option: int, reply: OptionReply, data: bytes = b"") -> None:
        self._writer.write(_OPTION_REPLY.pack(_REPLY_MAGIC, option, reply, len(data)) + data)

    # ---- transfers ----

    async def transfer(self) -> None:
        """Serve requests until the client goes; many at once."""
        try:
            while True:
                head = await self._reader.readexactly(_REQUEST.size)
                magic, flags, kind, handle, offset, length = _REQUEST.unpack(head)
                if magic != _REQUEST_MAGIC or (length > _MOST_DATA and kind < Operation.FLUSH):
                    raise ClientError
                if kind == Operation.DISCONNECT:
                    return
                data = b""
                if kind == Operation.WRITE:
                    data = await self._reader.readexactly(length)
                await self._room.acquire()
                task = asyncio.create_task(self._do(flags, kind, handle, offset, length, data))
                self._under_way[task] = kind
                task.add_done_callback(self._ended)
                await self._writer.drain()
        except asyncio.CancelledError:
            for task in self._under_way:
                task.cancel()
            raise
        finally:
            await self._finish()

    async def _finish(self) -> None:
        """Wait for what is under way. A client that only sends no more gets its answers; of one
        that has gone, which the first answer finds out, reads are dropped, and all else is done."""
        while self._under_way:
            if self._writer.is_closing():
                for task, kind in self._under_way.items():
                    if kind == Operation.READ:
                        task.cancel()
            await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.pop(task, None)
        self._room.release()

    async def _do(
        self, flags: int, kind: int, handle: int, offset: int, length: int, data: bytes
    ) -> None:
        if kind == Operation.READ:
            await self._reading.take(length)
            try:
                if not self._writer.is_closing():
                    await self._answer_request(flags, kind, handle, offset, length, data)
            finally:
                self._reading.give_back(length)
        else:
            await self._answer_request(flags, kind, handle, offset, length, data)

    async def _answer_request(
        self, flags: int, kind: int, handle: int, offset: int, length: int, data: bytes
    ) -> None:
        answer, code = b"", 0
        try:
            answer = await self._operate(flags, kind, offset, length, data)
        except OSError as error:
            code = error.errno if error.errno in _ERRORS and error.errno else errno.EIO
        except ValueError:
            code = errno.EINVAL
        if not self._writer.is_closing():
            self._writer.write(_SIMPLE.pack(_SIMPLE_MAGIC, code, handle) + answer)

    async def _operate(self, flags: int, kind: int, offset: int, length: int, data: bytes) -> bytes:
        disk, durable = self.disk, bool(flags & _COMMAND_FUA)
        if kind == Operation.READ:
            return await disk.read(offset, length)
        if kind == Operation.WRITE:
            await disk.write(offset, data, durable=durable)
        elif kind == Operation.FLUSH:
            await disk.flush()
        elif kind == Operation.TRIM:
            await disk.discard((offset, length))
        elif kind == Operation.WRITE_ZEROES:
            await disk.write_zeroes(offset, length)
            if durable:
                await disk.flush()
        else:
            raise ValueError(f"operation {kind}")
        return b""
