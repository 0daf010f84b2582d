# SPDX-License-Identifier: Apache-2.0
"""``DroppedFiles``: closes files that a program has dropped without closing them.

verbena.whole_files tells it of them. Garbage collection may find such a file in any thread, also in
one for which closing it would wait, and amid a request whose lock closing would take. So a thread
of its own closes them; and a file that is written, and still there when the program ends, is stored
before the threads end. Python's text, buffered and compressed files that write to it are closed
before it, since they hold what it does not have yet.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
import threading
import weakref
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Protocol

__all__ = ["DroppedFiles"]


class Closable(Protocol):
    """A file. ``close`` may wait, and raise."""

    path: str

    def close(self) -> None:
        """Let it go; what was written is stored."""


class DroppedFiles:
    """Those of a process. A forked child has a thread of its own."""

    def __init__(self) -> None:
        self._pid = 0
        self._starting = threading.Lock()
        self._dropped: SimpleQueue[Closable] = SimpleQueue()
        self._written: weakref.WeakSet[Closable] = weakref.WeakSet()

    def opened(self, file: Closable, is_written: bool) -> None:
        """A file is there, which the program may drop, or not close before it ends."""
        with self._starting:
            if self._pid != os.getpid():
                if not self._pid:
                    atexit.register(self._close_written)
                self._pid, self._dropped = os.getpid(), SimpleQueue()
                self._written = weakref.WeakSet()
                threading.Thread(target=self._run, name="verbena.files", daemon=True).start()
        if is_written:
            self._written.add(file)

    def dropped(self, file: Closable) -> None:
        """Garbage collection has found a file: it is closed soon. This takes no lock."""
        if self._pid == os.getpid() and not sys.is_finalizing():
            self._dropped.put(file)

    def _run(self) -> None:
        while True:
            _close(self._dropped.get())

    def _close_written(self) -> None:
        if self._pid == os.getpid():
            left_open = list(self._written)
            for wrapper, file in wrappers_of(left_open):
                _close(file, wrapper)
            for file in left_open:
                _close(file)


_INNER = ("buffer", "raw", "fileobj", "_fp", "fp", "_zipfile")
"""Where files of io, gzip, bz2, lzma and zipfile have the file that they write to."""


def wrappers_of(files: list[Closable]) -> list[tuple[Any, Closable]]:
    """Return the objects of Python that write to files, each with its file, outermost first."""
    kinds: tuple[type, ...] = (io.IOBase,)
    if (loaded := sys.modules.get("zipfile")) is not None:
        kinds += (loaded.ZipFile,)
    there = [each for each in gc.get_objects() if issubclass(type(each), kinds)] if files else []
    inner = [(file, file) for file in files]
    found: list[tuple[Any, Closable]] = []
    while inner:
        by_id = {id(each): file for each, file in inner}
        inner = [(each, by_id[own]) for each in there if (own := _written_by(each)) in by_id]
        known = {id(each) for each, _ in found}
        inner = [pair for pair in inner if id(pair[0]) not in known]
        found = inner + found
    return found


def _written_by(wrapper: Any) -> int:
    """Return the id of the object that another one writes to; 0: it has none."""
    for name in _INNER:
        with suppress(Exception):  # as of a text file that was detached
            if (inner := getattr(wrapper, name, None)) is not None:
                return id(inner)
    return 0


def _close(file: Closable, wrapper: Any = None) -> None:
    try:
        (wrapper or file).close()
    except Exception as error:
        print(
            f"verbena: {file.path} was not closed by the program, and cannot be now: {error!r}",
            file=sys.stderr,
        )
