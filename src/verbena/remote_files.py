# SPDX-License-Identifier: Apache-2.0
"""Files in the memory of a server, and the file system ``verbena://`` of fsspec for its clients.

    async with verbena.remote_files.serve("0.0.0.0:7175"): ...

    fsspec.open("verbena://server:7175/name", "wb")

Clients ask for names by messages, and read contents by RDMA READs of the server's memory, which the
server notices nothing of. A file that is opened stays readable as it was, also when it is replaced
or removed. Writing replaces the whole file when it is closed. The server holds all in memory and
trusts its clients.
"""

from __future__ import annotations

import asyncio
import errno
import io
import json
import os
import pickle
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem
from numpy.typing import NDArray

from verbena import peers
from verbena.peers import PeerConnection, PeerListener, RemoteArray, sync

__all__ = ["FileServer", "RemoteMemoryFileSystem", "serve"]

PORT = 7175
Record = dict[str, Any]


# ---- the server ----------------------------------------------------------------------------------


@dataclass
class StoredFile:
    """A file's contents, which are replaced and never changed."""

    data: bytes
    created: float = field(default_factory=time.time)
    modified: float = field(default_factory=time.time)


class FileServer:
    """The files and directories of a server; ``port`` is where it listens."""

    def __init__(self, listener: PeerListener) -> None:
        self.port = listener.port
        self.files: dict[str, StoredFile] = {}
        self.directories = {"/"}
        self._listener = listener
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until it is cancelled."""
        try:
            async for conn in self._listener:
                task = asyncio.get_running_loop().create_task(self._serve(conn))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        finally:
            for task in self._tasks:
                task.cancel()

    async def _serve(self, conn: PeerConnection) -> None:
        opened: dict[int, NDArray[np.uint8]] = {}
        async with conn:
            try:
                async for message in conn:
                    asked = json.loads(message)
                    data = await conn.recv() if asked["do"] == "write" else b""
                    if asked["do"] == "release":
                        opened.pop(asked["handle"], None)
                        continue
                    try:
                        answer = self._answer(conn, opened, asked, data)
                    except OSError as error:
                        answer = {"errno": error.errno, "text": error.strerror}
                    if isinstance(answer, bytes):
                        await conn.send(answer)
                    else:
                        await conn.send(json.dumps(answer).encode())
            except OSError:
                pass  # the client is gone

    def _answer(
        self,
        conn: PeerConnection,
        opened: dict[int, NDArray[np.uint8]],
        asked: Record,
        data: bytes,
    ) -> bytes | Record | list[Record]:
        path = asked["path"]
        match asked["do"]:
            case "info":
                return self._info(path)
            case "list":
                return self._list(path)
            case "open":
                array = conn.array(len(self._file(path).data), np.uint8)
                array[:] = np.frombuffer(self._file(path).data, np.uint8)
                opened[asked["handle"]] = array
                return pickle.dumps(conn.share(array))
            case "write":
                self._write(path, data, asked["exclusive"])
            case "mkdir":
                self._make_directory(path, asked["parents"])
            case "remove":
                self._file(path)
                del self.files[path]
            case "rmdir":
                if any(parent_of(each) == path for each in [*self.files, *self.directories]):
                    raise OSError(errno.ENOTEMPTY, f"{path} is not empty")
                if path not in self.directories or path == "/":
                    raise FileNotFoundError(errno.ENOENT, f"there is no directory {path}")
                self.directories.remove(path)
        return {}

    def _file(self, path: str) -> StoredFile:
        if path in self.directories:
            raise IsADirectoryError(errno.EISDIR, f"{path} is a directory")
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, f"there is no file {path}")
        return self.files[path]

    def _info(self, path: str) -> Record:
        if path in self.directories:
            return {"name": path, "size": 0, "type": "directory"}
        found = self._file(path)
        return {
            "name": path,
            "size": len(found.data),
            "type": "file",
            "created": found.created,
            "modified": found.modified,
        }

    def _list(self, path: str) -> list[Record]:
        if path not in self.directories:
            return [self._info(path)]
        names = sorted({*self.files, *self.directories} - {"/"})
        return [self._info(each) for each in names if parent_of(each) == path]

    def _write(self, path: str, data: bytes, exclusive: bool) -> None:
        if path in self.directories:
            raise IsADirectoryError(errno.EISDIR, f"{path} is a directory")
        if exclusive and path in self.files:
            raise FileExistsError(errno.EEXIST, f"{path} exists")
        self._make_directory(parent_of(path), parents=True)
        old = self.files.get(path)
        self.files[path] = StoredFile(data)
        if old is not None:
            self.files[path].created = old.created

    def _make_directory(self, path: str, parents: bool) -> None:
        if path in self.files:
            raise FileExistsError(errno.EEXIST, f"{path} is a file")
        if path in self.directories:
            if parents:
                return
            raise FileExistsError(errno.EEXIST, f"{path} exists")
        self._make_directory(parent_of(path), parents=True)
        self.directories.add(path)


def parent_of(path: str) -> str:
    """Return the directory that a path is in."""
    return path.rpartition("/")[0] or "/"


@asynccontextmanager
async def serve(address: str | int = PORT) -> AsyncIterator[FileServer]:
    """Serve files from memory at an address, during the block. Raises OSError."""
    async with peers.listen(address) as listener:
        server = FileServer(listener)
        running = asyncio.create_task(server.run())
        try:
            yield server
        finally:
            running.cancel()


# ---- the client ----------------------------------------------------------------------------------


class RemoteMemoryFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The files of a server: ``fsspec.filesystem("verbena", host="server", port=7175)``."""

    protocol = "verbena"
    root_marker = "/"

    def __init__(self, host: str = "localhost", port: int = PORT, **options: Any) -> None:
        super().__init__(host=host, port=port, **options)
        self.host, self.port = host, port
        self._conn: sync.SyncPeerConnection | None = None
        self._pid = 0
        self._handles = 0

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        path = os.fspath(path)
        if path.startswith("verbena://"):
            path = "/" + path.removeprefix("verbena://").partition("/")[2]
        return "/" + path.strip("/") if path.strip("/") else cls.root_marker

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        if not path.startswith("verbena://"):
            return {}
        place = path.removeprefix("verbena://").partition("/")[0]
        if not place:
            return {}
        host, port = peers.connection.parse_address(place if ":" in place else f"{place}:{PORT}")
        return {"host": host, "port": port}

    # ---- requests ----

    def _connection(self) -> sync.SyncPeerConnection:
        lost = self._conn is None or self._conn.closed is not None or self._pid != os.getpid()
        if lost:
            host = f"[{self.host}]" if ":" in self.host else self.host
            self._conn = sync.connect(f"{host}:{self.port}", timeout=30)
            self._pid = os.getpid()
        assert self._conn is not None
        return self._conn

    def _tell(self, do: str, path: str, **more: Any) -> sync.SyncPeerConnection:
        conn = self._connection()
        conn.send(json.dumps({"do": do, "path": path, **more}).encode())
        return conn

    def _ask(self, do: str, path: str, data: Any = None, **more: Any) -> Any:
        conn = self._tell(do, path, **more)
        if data is not None:
            conn.send(data)
        return checked(json.loads(conn.recv()))

    def opened(self, path: str) -> tuple[int, RemoteArray]:
        """Open a file to read it; return its number and its memory. Raises OSError."""
        self._handles += 1
        answer = self._tell("open", path, handle=self._handles).recv()
        if answer.startswith(b"{"):
            checked(json.loads(answer))
        return self._handles, pickle.loads(answer)

    def release(self, handle: int) -> None:
        """A file that was opened is not read any more."""
        self._tell("release", "", handle=handle)

    def read(self, remote: RemoteArray, start: int, end: int) -> bytes:
        """Read a range of an opened file."""
        part = remote[start:end]
        return self._connection().get(part, np.empty(part.shape, np.uint8)).tobytes()

    # ---- what fsspec calls ----

    def info(self, path: str, **kwargs: Any) -> Any:
        """Return name, size and type."""
        return self._ask("info", self._strip_protocol(path))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        """Return what is in a directory."""
        found = self._ask("list", self._strip_protocol(path))
        return found if detail else sorted(each["name"] for each in found)

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Make a directory."""
        self._ask("mkdir", self._strip_protocol(path), parents=False)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a directory and those above it."""
        self._ask("mkdir", self._strip_protocol(path), parents=exist_ok)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        self._ask("rmdir", self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        """Remove a file."""
        self._ask("remove", self._strip_protocol(path))

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove files and, with ``recursive``, directories."""
        for each in reversed(self.expand_path(path, recursive=recursive, maxdepth=maxdepth)):
            self._rm(each)

    def _rm(self, path: str) -> None:
        if self.isdir(path):
            self.rmdir(path)
        else:
            self.rm_file(path)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copy a file, or make the directory that ``path1`` is."""
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
        else:
            self.pipe_file(path2, self.cat_file(path1))

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        """Return a file's bytes, or a range of them."""
        handle, remote = self.opened(self._strip_protocol(path))
        try:
            return self.read(remote, *slice(start, end).indices(remote.size)[:2])
        finally:
            self.release(handle)

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        """Write a file."""
        exclusive = mode == "create"
        self._ask("write", self._strip_protocol(path), value, exclusive=exclusive)

    def created(self, path: str) -> Any:
        """Return when a file was made."""
        return self.info(path)["created"]

    def modified(self, path: str) -> Any:
        """Return when a file was written."""
        return self.info(path)["modified"]

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **kwargs: Any,
    ) -> Any:
        if mode == "rb":
            return OpenedFile(self, path, block_size or "default", cache_options)
        if "x" in mode and self.exists(path):
            raise FileExistsError(errno.EEXIST, f"{path} exists")
        old = self.cat_file(path) if mode in ("ab", "r+b") and self.exists(path) else b""
        return WrittenFile(self, path, mode, old, autocommit)


def checked(answer: Any) -> Any:
    """Return an answer of the server. Raises the OSError that it has."""
    if isinstance(answer, dict) and "errno" in answer:
        raise OSError(answer["errno"], answer["text"])
    return answer


class OpenedFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file that is read by READs."""

    def __init__(
        self, fs: RemoteMemoryFileSystem, path: str, block_size: Any, cache_options: Any
    ) -> None:
        self._handle, self._remote = fs.opened(path)
        super().__init__(
            fs, path, "rb", block_size, cache_options=cache_options, size=self._remote.size
        )

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self.fs.read(self._remote, start, end)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Let the server forget this version of the file."""
        if not self.closed:
            self.fs.release(self._handle)
        super().close()


class WrittenFile(io.BytesIO):
    """A file that is written, and sent when it is closed."""

    def __init__(
        self, fs: RemoteMemoryFileSystem, path: str, mode: str, old: bytes, autocommit: bool
    ) -> None:
        super().__init__(old)
        self.fs, self.path = fs, path
        self._is_exclusive = "x" in mode
        self._autocommit = autocommit
        self._kept: bytes | None = None
        if mode == "ab":
            self.seek(0, io.SEEK_END)

    def close(self) -> None:
        """Send it, or keep it until ``commit``."""
        if self.closed:
            return
        self._kept = self.getvalue()
        super().close()
        if self._autocommit:
            self.commit()

    def commit(self) -> None:
        """Send what was written."""
        mode = "create" if self._is_exclusive else "overwrite"
        self.fs.pipe_file(self.path, self._kept, mode)

    def discard(self) -> None:
        """Forget what was written."""
        self._kept = None
