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
import json
import os
import pickle
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verbena import peers
from verbena.peers import PeerConnection, PeerListener, RemoteArray, sync
from verbena.whole_files import FileTree, FileVersion, WholeFileSystem

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

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return len(self.data)


class FileServer:
    """The files and directories of a server; ``port`` is where it listens."""

    def __init__(self, listener: PeerListener) -> None:
        self.port = listener.port
        self.tree: FileTree[StoredFile] = FileTree()
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
        path, tree = asked["path"], self.tree
        match asked["do"]:
            case "info":
                return tree.info(path)
            case "list":
                return tree.list(path)
            case "open":
                found = tree.file(path).data
                array = conn.array(len(found), np.uint8)
                array[:] = np.frombuffer(found, np.uint8)
                opened[asked["handle"]] = array
                return pickle.dumps(conn.share(array))
            case "write":
                tree.put(path, StoredFile(data), asked["exclusive"])
            case "mkdir":
                tree.make_directory(path, asked["parents"])
            case "remove":
                tree.remove(path)
            case "rmdir":
                tree.remove_directory(path)
        return {}


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


class RemoteMemoryFileSystem(WholeFileSystem):
    """The files of a server: ``fsspec.filesystem("verbena", host="server", port=7175)``."""

    protocol = "verbena"
    default_port = PORT

    def __init__(self, host: str = "localhost", port: int = PORT, **options: Any) -> None:
        super().__init__(host=host, port=port, **options)
        self.host, self.port = host, port
        self._conn: sync.SyncPeerConnection | None = None
        self._pid = 0
        self._handles = 0

    def connection(self) -> sync.SyncPeerConnection:
        """Return a connection to the server, a new one where the last was lost."""
        lost = self._conn is None or self._conn.closed is not None or self._pid != os.getpid()
        if lost:
            host = f"[{self.host}]" if ":" in self.host else self.host
            self._conn = sync.connect(f"{host}:{self.port}", timeout=30)
            self._pid = os.getpid()
        assert self._conn is not None
        return self._conn

    def _tell(self, do: str, path: str, **more: Any) -> sync.SyncPeerConnection:
        conn = self.connection()
        conn.send(json.dumps({"do": do, "path": path, **more}).encode())
        return conn

    def ask(self, do: str, path: str, data: Any = None, **more: Any) -> Any:
        """Send a request, and what is to be written, and return the answer. Raises OSError."""
        conn = self._tell(do, path, **more)
        if data is not None:
            conn.send(data)
        return checked(json.loads(conn.recv()))

    def open_version(self, path: str) -> FileVersion:
        """Open a file to read it. Raises OSError."""
        self._handles += 1
        answer = self._tell("open", path, handle=self._handles).recv()
        if answer.startswith(b"{"):
            checked(json.loads(answer))
        return RemoteVersion(self, self._handles, pickle.loads(answer))

    def release(self, handle: int) -> None:
        """A file that was opened is not read any more."""
        self._tell("release", "", handle=handle)


class RemoteVersion:
    """A version of a file in the server's memory, which is read by READs."""

    def __init__(self, fs: RemoteMemoryFileSystem, handle: int, remote: RemoteArray) -> None:
        self._fs, self._handle, self._remote = fs, handle, remote
        self.size = remote.size

    def read(self, start: int, end: int) -> bytes:
        """Return a range of its bytes. Raises OSError."""
        part = self._remote[start:end]
        return self._fs.connection().get(part, np.empty(part.shape, np.uint8)).tobytes()

    def close(self) -> None:
        """Let the server forget this version of the file."""
        self._fs.release(self._handle)


def checked(answer: Any) -> Any:
    """Return an answer of the server. Raises the OSError that it has."""
    if isinstance(answer, dict) and "errno" in answer:
        raise OSError(answer["errno"], answer["text"])
    return answer
