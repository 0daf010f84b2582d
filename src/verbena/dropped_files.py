# SPDX-License-Identifier: Apache-2.0
"""``DroppedFiles``: closes files that a program has dropped without closing them.

verbena.whole_files tells it of them. Garbage collection may find such a file in any thread, also in
one for which closing it would wait, and amid a request whose lock closing would take. So a thread
of its own closes them; and a file that is written, and still there when the program ends, is stored
before the threads end.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from queue import SimpleQueue
from typing import Protocol

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
            for file in list(self._written):
                _close(file)


def _close(file: Closable) -> None:
    try:
        file.close()
    except Exception as error:
        print(
            f"verbena: {file.path} was not closed by the program, and cannot be now: {error!r}",
            file=sys.stderr,
        )
