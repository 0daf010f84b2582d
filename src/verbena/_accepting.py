# SPDX-License-Identifier: Apache-2.0
"""Accepts the connections of a listening socket, and pauses while no descriptor is left for them.

The loops of the agent and of a live fabric use it. A socket with a waiting connection stays
readable, so a loop that looks at it while accept(2) fails with EMFILE would never sleep.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
import socket
import time
from collections.abc import Callable

__all__ = ["PAUSE", "Acceptor", "raise_descriptor_limit"]

PAUSE = 0.2
"""Seconds until accept(2) is tried again."""
_SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


def raise_descriptor_limit() -> None:
    """Raise this process's soft limit of file descriptors to the hard one.

    A process that serves every program inherits the limits of whichever program has started it.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # it goes on with what it has
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Acceptor:
    """The connections of ``listener``, which is not blocking and registered with ``poll``.

    It is a duty of its loop (``next_deadline``, ``tick``), and ``descriptor_freed`` ends a pause at
    once. While a pause lasts, programs that connect wait. The first pause is reported.
    """

    def __init__(
        self,
        listener: socket.socket,
        poll: select.epoll,
        clock: Callable[[], float] = time.monotonic,
        report: Callable[[str], None] = lambda _: None,
        pause: float = PAUSE,
    ) -> None:
        self._listener, self._poll, self._clock = listener, poll, clock
        self._report, self._pause = report, pause
        self._resumes_at: float | None = None
        self._was_reported = False

    def accept(self) -> socket.socket | None:
        """Return the next connection. None: there is none (any more), or a pause begins."""
        try:
            return self._listener.accept()[0]
        except OSError as error:
            if error.errno in _SHORTAGES:
                self._begin_pause(error.errno)
            return None

    def next_deadline(self) -> float | None:
        """Return when the pause ends, in seconds of the clock; None: there is no pause."""
        return self._resumes_at

    def tick(self, now: float) -> None:
        """End the pause if it is over."""
        if self._resumes_at is not None and now >= self._resumes_at:
            self.descriptor_freed()

    def descriptor_freed(self) -> None:
        """End the pause, if there is one: the process has closed a descriptor."""
        if self._resumes_at is not None and self._listener.fileno() >= 0:
            self._resumes_at = None
            self._poll.modify(self._listener.fileno(), select.EPOLLIN)

    def _begin_pause(self, error: int) -> None:
        self._resumes_at = self._clock() + self._pause
        self._poll.modify(self._listener.fileno(), 0)
        if not self._was_reported:
            self._was_reported = True
            self._report(_shortage(error))


def _shortage(error: int) -> str:
    """What hinders accept(2), and what to do."""
    waits = "programs that connect wait until there is room"
    if error == errno.EMFILE:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return (
            f"process {os.getpid()} has all {soft} file descriptors of its limit in use, and "
            f"{waits}: sudo prlimit --pid {os.getpid()} --nofile=65536:65536"
        )
    if error == errno.ENFILE:
        return f"all file descriptors of the system are in use, and {waits}: raise fs.file-max"
    return f"the system has no memory for another connection ({os.strerror(error)}), and {waits}"
