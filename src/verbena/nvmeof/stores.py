# SPDX-License-Identifier: Apache-2.0
"""What namespaces keep their blocks in: memory, a file, a block device, a slow disk for studies.

Offsets and lengths are bytes. A call that is done returns None, and one that has to wait for the
disk returns an awaitable, so that a target never sleeps for one host's blocks. An OSError becomes
the status of the command. What ``write`` has returned is in the file after ``flush`` has, whatever
happens to the process or to the machine; ``is_durable`` asks for that at once (FUA).
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import fcntl
import inspect
import mmap
import os
import stat
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import index
from pathlib import Path
from typing import Protocol

from .numbers import byte_count

__all__ = ["DelayedStore", "FileStore", "MemoryStore", "Store", "call_store", "check_store"]

Waiting = Awaitable[None] | None
SmallWrite = tuple[int, memoryview, asyncio.Future[None]]
_THREADS = 4
_SMALL = 16_384
_PUNCH_HOLE, _KEEP_SIZE, _ZERO_RANGE = 2, 1, 16
_MADV_REMOVE = 9
_PAGE = mmap.PAGESIZE
_ZEROS = bytes(1 << 20)
_WITHOUT_LOCKS = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENOLCK)
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV)


class Store(Protocol):
    """Bytes that last, ``size`` of them. A class that inherits from it has the other attributes.

    Hosts do not write where it is ``is_read_only``. Where it is ``is_volatile`` they flush what has
    to last. ``memory`` is where the bytes are, if peers' requests may use them directly. A method
    returns None when it is done, or an awaitable that ends then, and raises OSError.
    """

    size: int
    is_read_only: bool = False
    is_volatile: bool = True
    memory: mmap.mmap | None = None

    def read(self, offset: int, into: memoryview) -> Waiting:
        """Read bytes."""

    def write(self, offset: int, data: memoryview, is_durable: bool) -> Waiting:
        """Write bytes."""

    def flush(self) -> Waiting:
        """Make durable what has been written."""

    def zero(self, offset: int, length: int) -> Waiting:
        """Write zeros."""

    def discard(self, offset: int, length: int) -> Waiting:
        """Give the room of bytes back; what is read there afterwards is not defined."""

    def close(self) -> None:
        """Close it."""


_ATTRIBUTES = (
    *("size", "is_read_only", "is_volatile", "memory"),
    *("read", "write", "flush", "zero", "discard", "close"),
)


def check_store(store: object) -> None:
    """Raise TypeError unless it has all that a Store has."""
    missing = [each for each in _ATTRIBUTES if not hasattr(store, each)]
    if missing:
        raise TypeError(
            f"{store!r} is no nvmeof.Store, from which a class of yours inherits: it has no"
            f" {', '.join(missing)}"
        )


def call_store(method: Callable[..., Waiting], *words: object) -> Waiting:
    """Call a method of a store, and return what it returns. Raises what it raises, and TypeError
    where it returns neither None nor an awaitable."""
    waiting = method(*words)
    if waiting is not None and not inspect.isawaitable(waiting):
        raise TypeError(
            f"{method!r} returned {waiting!r}: a method of a Store returns None when it is done, or"
            " an awaitable that ends then"
        )
    return waiting


class MemoryStore:
    """Memory of this process, which is gone when it ends."""

    is_volatile = False  # a flush would change nothing

    def __init__(self, size: int, is_read_only: bool = False) -> None:
        size = byte_count("size", size)
        if size <= 0:
            raise ValueError(f"a disk in memory needs a size, and {size} bytes are none")
        self.size = size
        self.is_read_only = is_read_only
        self.memory: mmap.mmap | None = mmap.mmap(-1, size)
        self._view = memoryview(self.memory)

    def read(self, offset: int, into: memoryview) -> Waiting:
        offset = index(offset)
        into[:] = self._view[offset : offset + len(into)]
        return None

    def write(self, offset: int, data: memoryview, is_durable: bool) -> Waiting:
        offset = index(offset)
        self._view[offset : offset + len(data)] = data
        return None

    def flush(self) -> Waiting:
        return None

    def zero(self, offset: int, length: int) -> Waiting:
        offset, length = index(offset), index(length)
        first = min(-(-offset // _PAGE) * _PAGE, offset + length)
        last = max((offset + length) // _PAGE * _PAGE, first)
        self._fill(offset, first)
        if last > first and not self._remove(first, last - first):
            self._fill(first, last)
        self._fill(last, offset + length)
        return None

    def _fill(self, begin: int, end: int) -> None:
        for at in range(begin, end, len(_ZEROS)):
            count = min(len(_ZEROS), end - at)
            self._view[at : at + count] = _ZEROS[:count]

    def _remove(self, offset: int, length: int) -> bool:
        """Have the kernel give whole pages back, which are zeros then."""
        assert self.memory is not None
        try:
            self.memory.madvise(_MADV_REMOVE, offset, length)
        except OSError:
            return False
        return True

    def discard(self, offset: int, length: int) -> Waiting:
        offset, length = index(offset), index(length)
        first, last = -(-offset // _PAGE) * _PAGE, (offset + length) // _PAGE * _PAGE
        if last > first:
            self._remove(first, last - first)
        return None

    def close(self) -> None:
        """Let the memory go; it lives as long as somebody has a view of it."""
        self.memory = None


class FileStore:
    """A file or a block device.

    What the page cache has is read at once (RWF_NOWAIT); a thread waits for all else. ``direct``
    goes around the page cache (O_DIRECT), for disks whose caching the hosts do.

    Two targets would not know of each other's reservations, so one at a time has a file or device
    that it may write; several may have one that all of them only read. Raises OSError, EBUSY where
    another one has it, and ValueError.
    """

    memory: mmap.mmap | None = None
    is_volatile = True

    def __init__(self, path: str | Path, is_read_only: bool = False, direct: bool = False) -> None:
        self.path = Path(path)
        self.is_read_only = is_read_only
        mode = self.path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
            raise ValueError(f"{path} is neither a file nor a block device")
        self._fd = _open_locked(self.path, is_read_only, os.O_DIRECT if direct else 0)
        try:
            self.size = os.lseek(self._fd, 0, os.SEEK_END)
        except BaseException:
            os.close(self._fd)
            raise
        self._threads = ThreadPoolExecutor(_THREADS, f"verbena-disk-{self.path.name}")
        self._reads_at_once = not direct
        self._is_direct = direct
        self._small: list[SmallWrite] = []  # writes of this iteration of the loop
        self._is_closed = False

    def _in_thread(self, call: Callable[..., object], *words: object) -> Awaitable[None]:
        def run() -> None:
            call(*words)

        self._check_open()
        return asyncio.get_running_loop().run_in_executor(self._threads, run)

    def _check_open(self) -> None:
        if self._is_closed:
            what = "it was closed while it is served: remove its namespace first"
            raise OSError(errno.EBADF, what, str(self.path))

    def read(self, offset: int, into: memoryview) -> Waiting:
        offset = index(offset)
        self._check_open()
        done = 0
        if self._reads_at_once:
            try:
                done = os.preadv(self._fd, [into], offset, os.RWF_NOWAIT)
            except BlockingIOError:
                pass
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
                self._reads_at_once = False
        if done == len(into):
            return None
        return self._in_thread(self._read_all, offset + done, into[done:])

    def _read_all(self, offset: int, into: memoryview) -> None:
        try:
            self._read_to(offset, into)
        except OSError as error:
            if not self._is_direct or error.errno != errno.EINVAL:
                raise
            aligned = _at_a_page(len(into))
            self._read_to(offset, aligned)
            into[:] = aligned

    def _read_to(self, offset: int, into: memoryview) -> None:
        while len(into):
            count = os.preadv(self._fd, [into], offset)
            if count == 0:
                raise OSError(errno.EIO, f"{self.path} has become shorter")
            offset, into = offset + count, into[count:]

    def write(self, offset: int, data: memoryview, is_durable: bool) -> Waiting:
        offset = index(offset)
        if is_durable or self._is_direct or len(data) > _SMALL:
            flags = os.RWF_DSYNC if is_durable else 0
            return self._in_thread(self._write_all, offset, data, flags)
        self._check_open()
        loop = asyncio.get_running_loop()
        written: asyncio.Future[None] = loop.create_future()
        self._small.append((offset, data, written))
        if len(self._small) == 1:
            loop.call_soon(self._write_small)
        return written

    def _write_small(self) -> None:
        """Have one thread do all small writes that have come together: a wake-up costs 50 us."""
        small, self._small = self._small, []
        if not small:
            return  # it was closed meanwhile
        loop = asyncio.get_running_loop()
        job = loop.run_in_executor(self._threads, self._write_each, small)
        job.add_done_callback(lambda done: _tell_each(small, done))

    def _write_each(self, small: list[SmallWrite]) -> list[OSError | None]:
        errors: list[OSError | None] = []
        for offset, data, _ in small:
            try:
                self._write_all(offset, data, 0)
                errors.append(None)
            except OSError as error:
                errors.append(error)
        return errors

    def _write_all(self, offset: int, data: memoryview, flags: int) -> None:
        try:
            self._write_from(offset, data, flags)
        except OSError as error:
            # O_DIRECT does not take every address, as that of data in a capsule.
            if not self._is_direct or error.errno != errno.EINVAL:
                raise
            aligned = _at_a_page(len(data))
            aligned[:] = data
            self._write_from(offset, aligned, flags)

    def _write_from(self, offset: int, data: memoryview, flags: int) -> None:
        while len(data):
            count = os.pwritev(self._fd, [data], offset, flags)
            offset, data = offset + count, data[count:]

    def flush(self) -> Waiting:
        return self._in_thread(os.fdatasync, self._fd)

    def zero(self, offset: int, length: int) -> Waiting:
        offset, length = index(offset), index(length)
        return self._in_thread(self._zero_all, offset, length)

    def _zero_all(self, offset: int, length: int) -> None:
        if self._fallocate(_ZERO_RANGE | _KEEP_SIZE, offset, length):
            return
        for at in range(0, length, len(_ZEROS)):
            self._write_all(offset + at, memoryview(_ZEROS)[: length - at], 0)

    def discard(self, offset: int, length: int) -> Waiting:
        offset, length = index(offset), index(length)
        return self._in_thread(self._fallocate, _PUNCH_HOLE | _KEEP_SIZE, offset, length)

    def _fallocate(self, mode: int, offset: int, length: int) -> bool:
        """Return False where the file system cannot. Raises OSError."""
        call = ctypes.CDLL(None, use_errno=True).fallocate64
        call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        if call(self._fd, mode, offset, length) == 0:
            return True
        code = ctypes.get_errno()
        if code in _UNSUPPORTED:
            return False
        raise OSError(code, os.strerror(code), str(self.path))

    def close(self) -> None:
        """Close the file after what was begun has ended; requests that come later fail."""
        if not self._is_closed:
            small, self._small = self._small, []
            self._is_closed = True
            self._threads.shutdown(wait=True)
            _set_results(small, self._write_each(small))
            os.close(self._fd)
            self._fd = -1


def _open_locked(path: Path, is_read_only: bool, flags: int) -> int:
    """Open a file that no other target may write meanwhile, or have at all if this one writes.

    The kernel releases the lock when the process ends, however it ends. File systems without locks
    go without. A block device that is written is not mounted meanwhile, either (O_EXCL).
    """
    flags |= os.O_CLOEXEC | (os.O_RDONLY if is_read_only else os.O_RDWR)
    if not is_read_only and path.is_block_device():
        flags |= os.O_EXCL
    busy = "another target serves this already, or this one serves it twice"
    try:
        fd = os.open(path, flags)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        raise OSError(errno.EBUSY, f"{busy}, or it is mounted", str(path)) from None
    try:
        fcntl.flock(fd, fcntl.LOCK_NB | (fcntl.LOCK_SH if is_read_only else fcntl.LOCK_EX))
    except OSError as error:
        if error.errno == errno.EWOULDBLOCK:
            os.close(fd)
            raise OSError(errno.EBUSY, busy, str(path)) from None
        if error.errno not in _WITHOUT_LOCKS:
            os.close(fd)
            raise
    return fd


def _tell_each(small: list[SmallWrite], done: asyncio.Future[list[OSError | None]]) -> None:
    """Give each write its result."""
    failed = done.exception() if not done.cancelled() else asyncio.CancelledError()
    _set_results(small, [failed] * len(small) if failed is not None else done.result())


def _set_results(small: list[SmallWrite], errors: Sequence[BaseException | None]) -> None:
    for (_, _, written), error in zip(small, errors, strict=True):
        if written.done():
            continue
        if error is None:
            written.set_result(None)
        else:
            written.set_exception(error)


def _at_a_page(length: int) -> memoryview:
    """Return memory that begins at a page, which is what O_DIRECT asks for at most."""
    return memoryview(mmap.mmap(-1, length))


class DelayedStore:
    """Another store behind a disk of ``channels`` requests at a time, of ``seconds`` each.

    The sleeps are the loop's, so that it works in virtual time. Bytes of a request add
    ``seconds_per_byte``.
    """

    memory: mmap.mmap | None = None

    def __init__(
        self, store: Store, seconds: float, channels: int = 1, seconds_per_byte: float = 0.0
    ) -> None:
        self._store = store
        self._seconds, self._per_byte = seconds, seconds_per_byte
        self._channels = asyncio.Semaphore(index(channels))
        self.size, self.is_read_only = store.size, store.is_read_only
        self.is_volatile = store.is_volatile
        self.busy_seconds = 0.0

    async def _after(self, length: int, call: Callable[..., Waiting], *words: object) -> None:
        async with self._channels:
            seconds = self._seconds + length * self._per_byte
            self.busy_seconds += seconds
            await asyncio.sleep(seconds)
        if (waiting := call_store(call, *words)) is not None:
            await waiting

    def read(self, offset: int, into: memoryview) -> Waiting:
        return self._after(len(into), self._store.read, offset, into)

    def write(self, offset: int, data: memoryview, is_durable: bool) -> Waiting:
        return self._after(len(data), self._store.write, offset, data, is_durable)

    def flush(self) -> Waiting:
        return self._after(0, self._store.flush)

    def zero(self, offset: int, length: int) -> Waiting:
        return self._after(0, self._store.zero, offset, length)

    def discard(self, offset: int, length: int) -> Waiting:
        return self._after(0, self._store.discard, offset, length)

    def close(self) -> None:
        """Close the store behind it."""
        self._store.close()
