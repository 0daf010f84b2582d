# SPDX-License-Identifier: Apache-2.0
"""How connections end to which a program has no reference any more.

``__del__`` of what the program had a reference to calls ``Forgetting.end``, in whatever thread the
last reference has gone; the loop of the connection does the rest.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from functools import cache, partial
from typing import Any

from verbena.verbs.here import place

__all__ = ["Collections", "Forgetting"]

Finish = Callable[[], Coroutine[Any, Any, object]]


class Collections:
    """Follows the collections of cycles of this process.

    An object whose last reference goes ends at that moment, which is the same in each run of a
    program. One in a cycle ends when Python collects, on which no simulation may depend.
    """

    def __init__(self) -> None:
        self._collector: int | None = None  # the thread that collects
        gc.callbacks.append(self._on_phase)

    @property
    def are_running(self) -> bool:
        """Whether the calling thread collects."""
        return self._collector == threading.get_ident()

    def _on_phase(self, phase: str, info: dict[str, int]) -> None:
        del info
        self._collector = threading.get_ident() if phase == "start" else None


@cache
def followed_collections() -> Collections:
    """Return those of this process, which are followed from the first call on.

    Only programs of simulated hosts call it: Python drops an exception that a signal handler
    raises while a callback of its collector runs, so Ctrl-C might do nothing.
    """
    return Collections()


class Forgetting:
    """Has the loop in which it was made, and its host, end something."""

    def __init__(self) -> None:
        here = place.get()
        self._loop = asyncio.get_running_loop()
        self._collections = None if here is None else followed_collections()
        self._context = Context()  # of this host, and without what the program keeps in its own
        self._context.run(place.set, here)

    def end(self, finish: Finish, release: Callable[[], object]) -> None:
        """Have the loop run ``finish``, and call ``release`` when that has ended or was cancelled.

        A loop that is closed calls nothing, and ``release`` is called here. Nothing is done for
        what a collection of cycles has found on a simulated host.
        """
        loop = self._loop
        if self._collections is not None and self._collections.are_running:
            return
        if loop.is_closed():
            with suppress(OSError, RuntimeError):
                release()
        elif asyncio._get_running_loop() is loop:  # when it ends, it cancels what is a task now
            self._begin(finish, release)
        else:
            with suppress(RuntimeError):  # it was closed since
                loop.call_soon_threadsafe(self._begin, finish, release)

    def _begin(self, finish: Finish, release: Callable[[], object]) -> None:
        task = self._loop.create_task(finish(), context=self._context)
        task.add_done_callback(partial(_has_ended, release))


def _has_ended(release: Callable[[], object], task: asyncio.Task[object]) -> None:
    if not task.cancelled():
        task.exception()  # nobody else asks for it
    release()
