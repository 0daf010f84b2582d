# SPDX-License-Identifier: Apache-2.0
"""What the task of a call waits for: like an asyncio Future, for one task, and without its detour.

``ClientCalls`` awaits one, and the poller ends it. A Future's task goes on in the next iteration of
the loop, which asks the kernel for events once more; ``resume`` has it go on at once. So it is
called only where no task runs: by the poller, at the end of the loop's callback. asyncio documents
such objects: ``asyncio.isfuture``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any

__all__ = ["CallWaiter"]


class CallWaiter:
    """Ends once, by ``finish`` or by ``cancel``. One task awaits it."""

    __slots__ = (
        *("_asyncio_future_blocking", "_callback", "_context"),
        *("_is_cancelled", "_is_done", "_loop", "_message"),
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        self._loop = loop
        self._is_done = False
        self._is_cancelled = False
        self._message: Any = None
        self._callback: Callable[[Any], object] | None = None
        self._context: Context | None = None

    # ---- for its task, which takes it for a Future ----

    def __await__(self) -> Generator[Any, None, None]:
        if not self._is_done:
            self._asyncio_future_blocking = True
            yield self
        self.result()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of its task."""
        return self._loop

    def add_done_callback(
        self, callback: Callable[[Any], object], *, context: Context | None = None
    ) -> None:
        """Have ``callback`` called when it ends: how its task goes on."""
        self._callback, self._context = callback, context
        if self._is_done:
            self.resume_soon()

    def done(self) -> bool:
        """Return whether it has ended."""
        return self._is_done

    def result(self) -> None:
        """Raise CancelledError if it was cancelled."""
        if self._is_cancelled:
            raise asyncio.CancelledError(*([] if self._message is None else [self._message]))

    def cancel(self, msg: Any = None) -> bool:
        """End it, since its task is cancelled; False if it has ended."""
        if self._is_done:
            return False
        self._is_done = self._is_cancelled = True
        self._message = msg
        self.resume_soon()
        return True

    # ---- for the poller ----

    def finish(self) -> bool:
        """End it, and return True; False if it has ended. Its task goes on when it is resumed."""
        if self._is_done:
            return False
        self._is_done = True
        return True

    def resume_soon(self) -> None:
        """Have its task go on in the next iteration of the loop."""
        if self._callback is not None:
            callback, self._callback = self._callback, None
            self._loop.call_soon(callback, self, context=self._context)

    def resume(self) -> None:
        """Have its task go on now."""
        if self._callback is None:
            return
        callback, self._callback = self._callback, None
        if self._context is None:
            callback(self)
        else:
            self._context.run(callback, self)
