# SPDX-License-Identifier: Apache-2.0
"""A descriptor with events, which a loop watches or threads wait for, and any thread may close.

The devices of the connection manager are made of it. A thread that waits has the descriptor until
it returns: only then is it closed, since its number could become another one's.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress

__all__ = ["WatchedDescriptor"]

_MOST_MILLISECONDS = 0x7FFFFFFF  # that poll() takes


class WatchedDescriptor:
    """A descriptor that is readable when there may be events, in a loop or in threads."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gate = threading.Lock()
        self._waiting = 0  # threads
        self._bell = -1  # an eventfd that wakes them, from the first wait on

    def watch(self, ready: Callable[[], None]) -> None:
        """Have the running loop call this whenever the descriptor is readable."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self.descriptor, ready)

    def unwatch(self) -> None:
        """Call it no more."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self.descriptor)
        self._loop = None

    def wait(self, seconds: float | None, is_over: Callable[[], bool] = lambda: False) -> None:
        """Block until it is readable, another thread closes it or calls ``wake``, or the seconds or
        24 days are over.

        It does not block when ``is_over()``, which is asked so that no ``wake`` comes in between.
        Raises OSError where no descriptor is left for what wakes this thread.
        """
        with self._gate:
            if self.is_closed or is_over():
                return
            if self._bell < 0:
                self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._waiting += 1
        try:
            poll = select.poll()
            poll.register(self.descriptor, select.POLLIN)
            poll.register(self._bell, select.POLLIN)
            longest = None if seconds is None else max(seconds, 0.0) * 1000
            poll.poll(None if longest is None else min(longest, _MOST_MILLISECONDS))
        finally:
            self._leave()

    def wake(self) -> None:
        """Have the threads that wait return."""
        with self._gate:
            if self._waiting:
                os.eventfd_write(self._bell, 1)

    def _leave(self) -> None:
        """One thread less waits: the last one closes what another has ended, or ends the ringing,
        which all have heard then."""
        with self._gate:
            self._waiting -= 1
            if self._waiting:
                return
            must_release = self.is_closed
            if not must_release:
                with suppress(BlockingIOError):
                    os.eventfd_read(self._bell)
        if must_release:
            self._release()

    def close(self) -> None:
        """Close it. Threads that wait for it return at once."""
        with self._gate:
            if self.is_closed:
                return
            self.is_closed = True
            has_waiters = self._waiting > 0
            if has_waiters:
                os.eventfd_write(self._bell, 1)
        self.unwatch()
        if not has_waiters:
            self._release()

    def close_copy(self) -> None:
        """Close the copy of a forked child, whose loop watches by the parent's epoll, and to which
        none of the threads that wait has come along."""
        self._loop = None
        self._gate, self._waiting = threading.Lock(), 0
        self.close()

    def _release(self) -> None:
        if self._bell >= 0:
            os.close(self._bell)
        self.close_descriptor()

    def close_descriptor(self) -> None:
        """Close what this class was given."""
        raise NotImplementedError
