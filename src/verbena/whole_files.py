# SPDX-License-Identifier: Apache-2.0
"""Files that are replaced as a whole: a tree of names, and the part of fsspec's interface for it.

verbena.remote_files (files in a server's memory) and verbena.disk_files (files on a disk) use both.
``FileTree`` has the names and their rules, and no contents. A class below ``WholeFileSystem`` says
how a version of a file is opened, and how a request about names is answered.
"""

from __future__ import annotations

import errno
import inspect
import io
import operator
import os
import re
import time
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from .dropped_files import DroppedFiles
from .peers.memory import dense_array
from .verbs.here import place

__all__ = ["FileTree", "FileVersion", "TreeFile", "WholeFileSystem", "parent_of"]

_LOOKS = 20  # at a file that others replace while it is read

Record = dict[str, Any]


class TreeFile(Protocol):
    """What a tree knows of a file: its bytes, and when it was made and written."""

    created: float
    modified: float

    @property
    def size(self) -> int:
        """Its length in bytes."""
        ...


F = TypeVar("F", bound=TreeFile)


class FileTree(Generic[F]):
    """Files and directories by path; paths begin with a slash. Each method raises OSError."""

    def __init__(self) -> None:
        self.files: dict[str, F] = {}
        self.directories = {"/"}

    def copy(self) -> FileTree[F]:
        """Return a tree with the same files, which changes by itself."""
        made: FileTree[F] = FileTree()
        made.files, made.directories = dict(self.files), set(self.directories)
        return made

    def file(self, path: str) -> F:
        """Return a file."""
        if path in self.directories:
            raise IsADirectoryError(errno.EISDIR, f"{path} is a directory")
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, f"there is no file {path}")
        return self.files[path]

    def info(self, path: str) -> Record:
        """Return name, size and type, as fsspec wants them."""
        if path in self.directories:
            return {"name": path, "size": 0, "type": "directory"}
        found = self.file(path)
        return {
            "name": path,
            "size": found.size,
            "type": "file",
            "created": found.created,
            "modified": found.modified,
        }

    def list(self, path: str) -> list[Record]:
        """Return what is in a directory, or the one file."""
        if path not in self.directories:
            return [self.info(path)]
        names = sorted({*self.files, *self.directories} - {"/"})
        return [self.info(each) for each in names if parent_of(each) == path]

    def put(
        self, path: str, file: F, exclusive: bool = False, replaces: float | None = None
    ) -> None:
        """Have a file at a path in place of what was there; directories above it are made.

        ``replaces``: when that was written, 0 for no file; another one is left (ESTALE).
        """
        check_path(path)
        if path in self.directories:
            raise IsADirectoryError(errno.EISDIR, f"{path} is a directory")
        if exclusive and path in self.files:
            raise FileExistsError(errno.EEXIST, f"{path} exists")
        old = self.files.get(path)
        if replaces is not None and replaces != (old.modified if old is not None else 0):
            raise OSError(
                errno.ESTALE,
                f"another writer replaced or removed {path} while it was open to be changed, and"
                " what was written here is not stored: open it again",
            )
        self.make_directory(parent_of(path), parents=True)
        self.files[path] = file
        if old is not None:
            file.created = old.created

    def make_directory(self, path: str, parents: bool) -> None:
        """Make a directory and those above it; with ``parents`` it may exist."""
        check_path(path)
        if path in self.files:
            raise FileExistsError(errno.EEXIST, f"{path} is a file")
        if path in self.directories:
            if parents:
                return
            raise FileExistsError(errno.EEXIST, f"{path} exists")
        self.make_directory(parent_of(path), parents=True)
        self.directories.add(path)

    def touch(self, path: str) -> None:
        """Have a file's time be now. One that was opened has its time still."""
        file = copy(self.file(path))
        file.modified = time.time()
        self.files[path] = file

    def remove(self, path: str) -> None:
        """Remove a file."""
        self.file(path)
        del self.files[path]

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        if any(parent_of(each) == path for each in [*self.files, *self.directories]):
            raise OSError(errno.ENOTEMPTY, f"{path} is not empty")
        if path not in self.directories or path == "/":
            raise FileNotFoundError(errno.ENOENT, f"there is no directory {path}")
        self.directories.remove(path)


def check_path(path: str) -> None:
    """Raise OSError (EINVAL) for a path that no file and no directory can have."""
    names = [] if path == "/" else path.split("/")[1:]
    if not path.startswith("/") or "\0" in path or {"", ".", ".."} & set(names):
        raise OSError(
            errno.EINVAL,
            f"{path!r} is no path: it begins with a slash, and has no NUL and no name . or .. or"
            " none between two slashes",
        )


def parent_of(path: str) -> str:
    """Return the directory that a path is in."""
    return path.rpartition("/")[0] or "/"


# ---- fsspec --------------------------------------------------------------------------------------


class FileVersion(Protocol):
    """A file as it was when it was opened."""

    @property
    def size(self) -> int:
        """Its length in bytes."""
        ...

    def read(self, start: int, end: int) -> bytes:
        """Return a range of its bytes."""
        ...

    def close(self) -> None:
        """It is not read any more."""
        ...


_dropped = DroppedFiles()

_MODE_LETTERS = "rwaxbt+"


def plain_mode(mode: str) -> str:
    """Return a mode of ``open`` as fsspec writes it: r, w, a or x, then +, then b unless it is
    text. Raises ValueError for what Python's ``open`` refuses, too."""
    letters = set(mode)
    ways = letters & set("rwax")
    is_wrong = len(ways) != 1 or len(letters) != len(mode) or letters - set(_MODE_LETTERS)
    if is_wrong or {"b", "t"} <= letters:
        raise ValueError(
            f"{mode!r} is no mode: it has one of r, w, a and x, and besides it at most one + and"
            " one b or t, as 'rb', 'w' or 'r+b'"
        )
    return ways.pop() + "+" * ("+" in letters) + "b" * ("b" in letters)


_FSSPEC_OPTIONS = {
    "add_aliases",
    "add_docs",
    "asynchronous",
    "batch_size",
    "listings_expiry_time",
    "loop",
    "max_paths",
    "skip_instance_cache",
    "use_listings_cache",
}


class WholeFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """What fsspec calls. A class below it has ``ask``, ``open_version``, and ``default_port``."""

    root_marker = "/"
    default_port = 0

    def __init__(self, **options: Any) -> None:
        known = set(inspect.signature(type(self).__init__).parameters) - {"self", "options"}
        if unknown := set(options) - known - _FSSPEC_OPTIONS:
            raise TypeError(
                f"{self.protocol}:// has no option {min(unknown)!r}; it has"
                f" {', '.join(sorted(known))}, and fsspec's own"
            )
        super().__init__(**options)

    def ask(self, do: str, path: str, data: Any = None, **more: Any) -> Any:
        """Answer a request about names: info, list, write, touch, mkdir, remove, rmdir."""
        raise NotImplementedError

    def open_version(self, path: str) -> FileVersion:
        """Open a file to read it."""
        raise NotImplementedError

    def may_wait(self) -> bool:
        """Whether the calling thread may wait for an answer: garbage collection calls from any."""
        return True

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        path = os.fspath(path)
        if path.startswith(f"{cls.protocol}://"):
            path = "/" + path.removeprefix(f"{cls.protocol}://").partition("/")[2]
        return re.sub("/+", "/", "/" + path.strip("/"))

    @classmethod
    def _get_kwargs_from_urls(cls, path: str) -> dict[str, Any]:
        from verbena.peers.connection import parse_address

        if not path.startswith(f"{cls.protocol}://"):
            return {}
        place = path.removeprefix(f"{cls.protocol}://").partition("/")[0]
        if not place:
            return {}
        host, port = parse_address(place if ":" in place else f"{place}:{cls.default_port}")
        return {"host": host, "port": port}

    def info(self, path: str, **kwargs: Any) -> Any:
        """Return name, size and type."""
        return self.ask("info", self._strip_protocol(path))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        """Return what is in a directory."""
        found = self.ask("list", self._strip_protocol(path))
        return found if detail else sorted(each["name"] for each in found)

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Make a directory."""
        self.ask("mkdir", self._strip_protocol(path), parents=False)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a directory and those above it."""
        self.ask("mkdir", self._strip_protocol(path), parents=exist_ok)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        self.ask("rmdir", self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        """Remove a file."""
        self.ask("remove", self._strip_protocol(path))

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove files and, with ``recursive``, directories."""
        for each in reversed(self.expand_path(path, recursive=recursive, maxdepth=maxdepth)):
            if not (recursive and each == self.root_marker):  # the root is emptied, and stays
                self._rm(each)

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Move files and, with ``recursive``, directories; a path to itself stays as it is.

        Raises OSError (EINVAL), before anything is moved, for a directory that would be moved into
        itself, and for one of several files that would be moved to where it is.
        """
        if self._strip_protocol(path1) == self._strip_protocol(path2):
            return
        if isinstance(path2, list):
            pairs = list(zip(self._strip_protocol(path1), self._strip_protocol(path2), strict=True))
        else:
            pairs = self._moves(path1, path2)
        for source, target in pairs:
            if f"{target}/".startswith(f"{source.rstrip('/')}/"):
                raise OSError(errno.EINVAL, f"{source} cannot be moved to {target}, in itself")
        super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)

    def _moves(self, path1: Any, path2: str) -> list[tuple[str, str]]:
        """Return where each file or directory is moved to."""
        target = self._strip_protocol(path2)
        is_folder = str(path2).endswith("/") or self.isdir(target)
        sources = self.expand_path(path1)
        if not is_folder:
            return [(each, target) for each in sources]
        folder = target.rstrip("/")
        return [(each, f"{folder}/{each.rpartition('/')[2]}") for each in sources]

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
        """Return a file's bytes, or a range of them, also while others replace it."""
        for _ in range(_LOOKS - 1):
            try:
                return self._read_once(path, start, end)
            except OSError as error:
                if error.errno != errno.ESTALE:
                    raise
        return self._read_once(path, start, end)

    def _read_once(self, path: str, start: int | None, end: int | None) -> bytes:
        version = self.open_version(self._strip_protocol(path))
        try:
            return version.read(*slice(start, end).indices(version.size)[:2])
        finally:
            version.close()

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        """Write a file. Raises TypeError for what has neither the buffer protocol nor DLPack."""
        dense_array(value)
        exclusive = mode == "create"
        self.ask("write", self._strip_protocol(path), value, exclusive=exclusive)

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        """Make an empty file; without ``truncate`` one that is there keeps its contents."""
        if truncate:
            super().touch(path, True, **kwargs)
            return
        try:
            self.ask("touch", self._strip_protocol(path))
        except FileNotFoundError:
            with suppress(FileExistsError):  # somebody else has made it since
                self.pipe_file(path, b"", "create")

    def created(self, path: str) -> Any:
        """Return when a file was made."""
        return self.info(path)["created"]

    def modified(self, path: str) -> Any:
        """Return when a file was written."""
        return self.info(path)["modified"]

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: Any = None,
        compression: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Open a file, as Python's ``open``. Raises OSError, and ValueError for what is no mode."""
        return super().open(
            path, plain_mode(mode), block_size, cache_options, compression, **kwargs
        )

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **kwargs: Any,
    ) -> Any:
        mode = plain_mode(mode)
        if mode == "rb":
            size = operator.index(block_size) if block_size else "default"
            return OpenedFile(self, path, size, cache_options)
        if "x" in mode and self.exists(path):
            raise FileExistsError(errno.EEXIST, f"{path} exists")
        if "w" in mode:
            self._refuse_directory(path)
        kind = WrittenFile if "+" in mode else WriteOnlyFile
        return kind(self, path, mode, *self._to_change(path, mode), autocommit)

    def _refuse_directory(self, path: str) -> None:
        """Raise IsADirectoryError for a directory, and OSError where that cannot be known."""
        with suppress(FileNotFoundError):
            if self.info(path)["type"] == "directory":
                raise IsADirectoryError(errno.EISDIR, f"{path} is a directory")

    def _to_change(self, path: str, mode: str) -> tuple[bytes, float | None]:
        """Return what a file begins with that is opened to be written, and when that was written:
        0 for no file, and None where it does not matter. Raises OSError."""
        if not {"r", "a"} & set(mode):
            return b"", None
        try:
            written = self.info(path).get("modified")  # first: what is read is not older
            return self.cat_file(path), written
        except FileNotFoundError:
            if "r" in mode:
                raise
            return b"", 0.0


class ClosesWhenDropped:
    """A file that is closed also where the program drops it, or ends without closing it.

    On a simulated host, which has no threads, it is not.
    """

    closed: bool
    path: str
    fs: Any
    _is_watched = False

    if TYPE_CHECKING:

        def close(self) -> None:
            """Of the class beside this one."""

    def watch(self, is_written: bool) -> None:
        """Begin with that, as soon as ``close`` works."""
        if place.get() is None:
            _dropped.opened(self, is_written)
            self._is_watched = True

    def closes_later(self) -> bool:
        """Return whether the thread for dropped files closes it, since this one may not wait:
        garbage collection has found a text file here that has this file."""
        if not self._is_watched or self.fs.may_wait():
            return False
        _dropped.dropped(self)
        return True

    def __del__(self) -> None:
        """The program has dropped it."""
        if self._is_watched and not self.closed:
            _dropped.dropped(self)


class OpenedFile(ClosesWhenDropped, AbstractBufferedFile):  # type: ignore[misc]
    """A file that is read, in blocks that fsspec caches."""

    def __init__(self, fs: WholeFileSystem, path: str, block_size: Any, cache_options: Any) -> None:
        self._version = fs.open_version(path)
        super().__init__(
            fs, path, "rb", block_size, cache_options=cache_options, size=self._version.size
        )
        self.watch(is_written=False)

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self._version.read(start, end)

    def write(self, data: Any) -> int:
        """Raise UnsupportedOperation, as Python's files do."""
        raise io.UnsupportedOperation("not writable")

    def close(self) -> None:
        """Let this version of the file go."""
        if not self.closed:
            if self.closes_later():
                return
            self._version.close()
        super().close()


class WrittenFile(ClosesWhenDropped, io.BytesIO):
    """A file that is written and read, and stored when it is closed."""

    def __init__(
        self,
        fs: WholeFileSystem,
        path: str,
        mode: str,
        old: bytes,
        replaces: float | None,
        autocommit: bool,
    ) -> None:
        super().__init__(old)
        self.fs, self.path, self._mode = fs, path, mode
        self._is_exclusive = "x" in mode
        self._replaces = replaces
        self._autocommit = autocommit
        self._kept: bytes | None = None
        self.watch(is_written=True)
        if "a" in mode:
            self.seek(0, io.SEEK_END)

    def write(self, data: Any) -> int:
        """Write where the file is; one that is appended to, at its end."""
        if "a" in self._mode:
            self.seek(0, io.SEEK_END)
        return super().write(data)

    @property
    def mode(self) -> str:
        """The mode in which it was opened, as "r+b"."""
        return self._mode

    def close(self) -> None:
        """Store it, or keep it until ``commit``."""
        if self.closed or self.closes_later():
            return
        self._kept = self.getvalue()
        super().close()
        if self._autocommit:
            self.commit()

    def commit(self) -> None:
        """Store what was written. Raises OSError: ESTALE where another writer has replaced or
        removed the file since it was opened to be changed or appended to."""
        more = {"exclusive": self._is_exclusive, "replaces": self._replaces}
        self.fs.ask("write", self.path, self._kept, **more)

    def discard(self) -> None:
        """Forget what was written."""
        self._kept = None


class WriteOnlyFile(WrittenFile):
    """A file that is written and not read: reading raises UnsupportedOperation."""

    def readable(self) -> bool:
        """It is not."""
        return False

    def _refuse(self, *wanted: Any) -> Any:
        raise io.UnsupportedOperation("not readable")

    read = read1 = readinto = readinto1 = readline = readlines = __next__ = _refuse
