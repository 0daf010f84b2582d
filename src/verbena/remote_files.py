# SPDX-License-Identifier: Apache-2.0
"""Files in the memory of a server, and the file system ``verbena://`` of fsspec for its clients.

    async with verbena.remote_files.serve("0.0.0.0:7175"): ...

    fsspec.open("verbena://server:7175/name", "wb")

Clients ask for names by messages, and read contents by RDMA READs of the server's memory, which the
server notices nothing of. A file that is opened stays readable as it was, also when it is replaced
or removed. Writing replaces the whole file when it is closed. The server holds all in memory and
trusts its clients. Threads of a client may share its file system, which has one connection: a lock
keeps each request together with its data and its answer.
"""

from __future__ import annotations

import asyncio
import errno
import json
import operator
import os
import pickle
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from verbena import peers
from verbena.cm.arguments import check_host, check_seconds, check_whole
from verbena.cm.errors import ManagerEnded
from verbena.peers import (
    Ended,
    PeerConnection,
    PeerConnectionEnded,
    PeerListener,
    RemoteArray,
    sync,
)
from verbena.peers.connection import parse_address
from verbena.peers.memory import byte_view, dense_array
from verbena.peers.transport import host_and_port
from verbena.whole_files import FileTree, FileVersion, WholeFileSystem

__all__ = ["FileServer", "RemoteMemoryFileSystem", "serve"]

PORT = 7175
_LONGEST = 1e9  # seconds
SLOWEST = 10e6
"""Bytes per second: what a client allows for data, besides its timeout."""
Record = dict[str, Any]
FIELDS: dict[str, dict[str, type]] = {
    "info": {},
    "list": {},
    "open": {"handle": int},
    "release": {"handle": int},
    "write": {"exclusive": bool},
    "touch": {},
    "mkdir": {"parents": bool},
    "remove": {},
    "rmdir": {},
}
"""Requests, and what each has besides its path. A write may have "replaces", a number, too."""


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
    """The files and directories of a server; ``port`` is where it listens.

    If the agent ends by which it listens, it listens by the next one, which starts by itself.
    """

    def __init__(self, listener: PeerListener, host: str = "") -> None:
        self.port = listener.port
        self._host = host
        self.tree: FileTree[StoredFile] = FileTree()
        self._listener = listener
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until it is cancelled."""
        try:
            while await self._take_clients():
                pass
        finally:
            self._listener.close()
            for task in self._tasks:
                task.cancel()

    async def _take_clients(self) -> bool:
        """Serve clients while the listener lasts; return whether there is another one then."""
        try:
            async for conn in self._listener:
                task = asyncio.get_running_loop().create_task(self._serve(conn))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            return False
        except OSError as error:
            address = host_and_port(self._host, self.port)
            self._listener.close()
            try:
                if not isinstance(error, ManagerEnded):
                    raise
                self._listener = await peers.listen(address)
            except OSError as refused:
                _report(f"{address} takes no more clients: {refused.strerror or refused}")
                return False
            _report(f"listening again: {error.strerror}")
            return True

    async def _serve(self, conn: PeerConnection) -> None:
        opened: dict[int, NDArray[np.uint8]] = {}
        async with conn:
            try:
                async for message in conn:
                    try:
                        asked = parse_request(message)
                    except ValueError as error:
                        text = f"{error}: the server ends this connection"
                        refusal = {"errno": errno.EBADMSG, "text": text}
                        await conn.send(json.dumps(refusal).encode())
                        return
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
                tree.put(path, StoredFile(data), asked["exclusive"], asked.get("replaces"))
            case "touch":
                tree.touch(path)
            case "mkdir":
                tree.make_directory(path, asked["parents"])
            case "remove":
                tree.remove(path)
            case "rmdir":
                tree.remove_directory(path)
        return {}


def _report(line: str) -> None:
    print(f"verbena: remote_files.serve: {line}", file=sys.stderr, flush=True)


def parse_request(message: bytes) -> Record:
    """Return a request. Raises ValueError for what is none."""
    try:
        asked = json.loads(message)
    except (ValueError, RecursionError):
        raise ValueError("a request is JSON") from None
    if not isinstance(asked, dict) or not isinstance(asked.get("path"), str):
        raise ValueError('a request is an object with a "path"')
    do = asked.get("do")
    if not isinstance(do, str) or do not in FIELDS:
        raise ValueError(f"no request is {do!r}; there are {', '.join(FIELDS)}")
    for name, kind in FIELDS[do].items():
        if type(asked.get(name)) is not kind:
            raise ValueError(f"{do} has {name!r}, a value of the type {kind.__name__}")
    if not isinstance(asked.get("replaces", 0), int | float | None):
        raise ValueError("what a write replaces is named by a number")
    return asked


@asynccontextmanager
async def serve(address: str | int = PORT) -> AsyncIterator[FileServer]:
    """Serve files from memory at an address, during the block. Raises OSError.

    Where the agent ends, and it listens again or cannot, it says so on stderr.
    """
    async with peers.listen(address) as listener:
        server = FileServer(listener, parse_address(address)[0] or "")
        running = asyncio.create_task(server.run())
        try:
            yield server
        finally:
            running.cancel()
            await asyncio.wait([running])


# ---- the client ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Exchange:
    """The connection, while one thread has it, and ``until`` when its request has time."""

    conn: sync.SyncPeerConnection
    until: float | None

    @property
    def left(self) -> float | None:
        """The seconds that are left; None: there is no limit."""
        return self.seconds_to(self.until)

    @staticmethod
    def seconds_to(until: float | None) -> float | None:
        """Return the seconds until then, 0 or more."""
        return None if until is None else max(0.0, until - time.monotonic())


class RemoteMemoryFileSystem(WholeFileSystem):
    """The files of a server: ``fsspec.filesystem("verbena", host="server", port=7175)``.

    ``timeout``: seconds for which a request waits for the server, and a second more for each 10 MB
    of data; None: no limit. Any thread may use it: a request's time begins with the call, or with
    the server's last answer to another thread.
    """

    protocol = "verbena"
    default_port = PORT

    def __init__(
        self,
        host: str = "localhost",
        port: int = PORT,
        timeout: float | None = 30,
        **options: Any,
    ) -> None:
        check_host(host)
        check_whole("port", port, 1, 65535)
        port = operator.index(port)
        check_seconds("timeout", timeout, _LONGEST, may_be_0=False, may_be_none=True)
        super().__init__(host=host, port=port, timeout=timeout, **options)
        self.host, self.port, self.timeout = host, port, timeout
        self._handles = 0
        self._released: deque[tuple[sync.SyncPeerConnection, int]] = deque()
        # Of connections that this side has ended: why, for the files that were opened on them.
        self._given_up: WeakKeyDictionary[sync.SyncPeerConnection, str] = WeakKeyDictionary()
        self._start_afresh()
        own = weakref.WeakMethod(self._start_afresh)
        os.register_at_fork(after_in_child=lambda: _call(own()))

    def _start_afresh(self) -> None:
        """Have no connection, and no thread that uses it; so does a forked child."""
        self._lock = threading.Lock()
        self._owner = 0  # the thread that has the lock
        self._answered = 0.0  # when the server has answered last
        self._under_way = 0  # bytes of the request that is under way
        self._conn: sync.SyncPeerConnection | None = None
        self._released.clear()

    @contextmanager
    def exchange(self, nbytes: int = 0) -> Iterator[Exchange]:
        """Give the connection to one thread, for a request with its data and its answer.

        It is a new one where the last was lost. An exchange that is not finished ends the
        connection, whose next message would be the answer to it. Raises OSError: TimeoutError also
        where the server answers the requests of other threads no more.
        """
        lock = self._lock
        until = self._wait_turn(lock, self.limit(nbytes))
        try:
            self._owner, self._under_way = threading.get_ident(), nbytes
            if self._conn is not None and self._conn.closed is not None:
                self._conn = None
            try:
                if self._conn is None:
                    host = f"[{self.host}]" if ":" in self.host else self.host
                    left = Exchange.seconds_to(until)
                    if left == 0:  # the turn came as late as that
                        raise TimeoutError
                    self._conn = sync.connect(f"{host}:{self.port}", timeout=left)
                made = Exchange(self._conn, until)
                self._tell_released(made.conn, made.left)
                yield made
            except BaseException as error:
                conn, self._conn = self._conn, None
                if conn is not None:
                    self._given_up[conn] = self._why(error)
                    with suppress(OSError):
                        conn.__exit__(type(error))  # at once, without a goodbye
                if isinstance(error, TimeoutError):
                    raise self.too_late() from None
                raise
            self._answered = time.monotonic()
        finally:
            self._owner, self._under_way = 0, 0
            lock.release()
        self._flush()

    def _wait_turn(self, lock: threading.Lock, limit: float | None) -> float | None:
        """Wait for the connection, and return when the request's time is over. TimeoutError."""
        if limit is None:
            lock.acquire()
            return None
        begun = time.monotonic()

        def left() -> float:
            """Until when the thread that has the connection has to have an answer."""
            begin = max(begun, self._answered) + self._under_way / SLOWEST
            return begin + limit - time.monotonic()

        while not lock.acquire(timeout=max(0.0, left())):
            if left() <= 0:
                raise self.too_late()
        return max(begun, self._answered) + limit

    def _why(self, error: BaseException) -> str:
        """Say why a connection is given up in whose exchange an error was raised."""
        if isinstance(error, TimeoutError):
            return str(self.too_late().strerror)
        said = error.strerror if isinstance(error, OSError) else None
        return said or f"a request was interrupted ({type(error).__name__})"

    def why_ended(self, conn: sync.SyncPeerConnection, ended: PeerConnectionEnded) -> OSError:
        """Return the error of a file that was opened on a connection that has ended: that this
        side has given it up says little."""
        why = self._given_up.get(conn)
        if ended.reason is not Ended.HERE or why is None:
            return ended
        return ConnectionResetError(
            errno.ECONNRESET,
            f"the connection to {self.host}:{self.port} on which the file was opened has ended:"
            f" {why}. Open the file again",
        )

    def too_late(self) -> TimeoutError:
        """Return the error of a server that does not answer."""
        return TimeoutError(
            errno.ETIMEDOUT,
            f"{self.host}:{self.port} did not answer within {self.timeout:g} s: see whether the"
            " server still runs; the option timeout is for how long a request waits",
        )

    def limit(self, nbytes: int = 0) -> float | None:
        """Return for how many seconds to wait while so many bytes travel."""
        return None if self.timeout is None else self.timeout + nbytes / SLOWEST

    def ask(self, do: str, path: str, data: Any = None, **more: Any) -> Any:
        """Send a request, and what is to be written, and return the answer. Raises OSError."""
        request = json.dumps({"do": do, "path": path, **more}).encode()
        if data is not None:
            data = byte_view(dense_array(data))
        with self.exchange(0 if data is None else data.nbytes) as made:
            made.conn.send(request, made.left)
            if data is not None:
                made.conn.send(data, made.left)
            answer = made.conn.recv(made.left)
        return checked(json.loads(answer))

    def may_wait(self) -> bool:
        """Whether the calling thread may wait for the server: not in the loop, nor in a request."""
        return not sync.is_in_loop() and self._owner != threading.get_ident()

    def open_version(self, path: str) -> FileVersion:
        """Open a file to read it. Raises OSError."""
        with self.exchange() as made:
            self._handles += 1
            handle, conn = self._handles, made.conn
            request = {"do": "open", "path": path, "handle": handle}
            conn.send(json.dumps(request).encode(), made.left)
            answer = conn.recv(made.left)
        if answer.startswith(b"{"):
            checked(json.loads(answer))
        return RemoteVersion(self, conn, handle, pickle.loads(answer))

    def release(self, conn: sync.SyncPeerConnection, handle: int) -> None:
        """A file that was opened is not read any more.

        Garbage collection may call it within a request: then the server is told behind that.
        """
        self._released.append((conn, handle))
        self._flush()

    def _flush(self) -> None:
        while self._released and self._lock.acquire(blocking=False):
            self._owner = threading.get_ident()
            try:
                if self._conn is None:
                    self._released.clear()
                else:
                    self._tell_released(self._conn, self.limit())
            except OSError:
                pass  # the connection has ended, and with it all that was opened
            finally:
                self._owner = 0
                self._lock.release()

    def _tell_released(self, conn: sync.SyncPeerConnection, limit: float | None) -> None:
        while self._released:
            where, handle = self._released.popleft()
            if where is conn and conn.closed is None:
                request = {"do": "release", "path": "", "handle": handle}
                conn.send(json.dumps(request).encode(), limit)


def _call(function: Any) -> None:
    if function is not None:
        function()


class RemoteVersion:
    """A version of a file in the server's memory, which is read by READs."""

    def __init__(
        self,
        fs: RemoteMemoryFileSystem,
        conn: sync.SyncPeerConnection,
        handle: int,
        remote: RemoteArray,
    ) -> None:
        self._fs, self._conn, self._handle, self._remote = fs, conn, handle, remote
        self.size = remote.size

    def read(self, start: int, end: int) -> bytes:
        """Return a range of its bytes. Raises OSError: ConnectionError where the connection has
        ended, with the same reason each time."""
        part = self._remote[start:end]
        into = np.empty(part.shape, np.uint8)
        try:
            return self._conn.get(part, into, self._fs.limit(into.nbytes)).tobytes()
        except TimeoutError:
            raise self._fs.too_late() from None
        except PeerConnectionEnded as ended:
            raise self._fs.why_ended(self._conn, ended) from None

    def close(self) -> None:
        """Let the server forget this version of the file."""
        self._fs.release(self._conn, self._handle)


def checked(answer: Any) -> Any:
    """Return an answer of the server. Raises the OSError that it has."""
    if isinstance(answer, dict) and "errno" in answer:
        raise OSError(answer["errno"], answer["text"])
    return answer
