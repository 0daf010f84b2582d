# SPDX-License-Identifier: Apache-2.0
"""What asyncio expects of every event loop, whatever its clock: futures and tasks, the exception
handler, the debug mode, and the end of asynchronous generators.

``loop.Loop`` is a ``Duties`` and adds time and descriptors. Each method does what asyncio documents
under its name.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import sys
import threading
import traceback
import warnings
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from .callbacks import Callback
from .hosts import host_here
from .lacking import Lacking, running_loop

__all__ = ["Duties"]

_ORIGIN_DEPTH = 10  # frames that a coroutine's origin has in debug mode
_TRACEBACKS = ("source_traceback", "handle_traceback")  # of the context of an error
_log = logging.getLogger("asyncio")
Handler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]


class Duties(Lacking):
    """An event loop without a clock. ``_callback_error`` and ``_entered`` are for the loop that
    runs callbacks."""

    slow_callback_duration = 0.1
    _closed = True  # until it is made

    def __init__(self) -> None:
        super().__init__()
        self._closed = False
        self._thread: int | None = None  # the one in which the loop runs
        self._handler: Handler | None = None
        self._factory: Any = None
        self._task_numbers = count(1)
        self._generators: WeakSet[AsyncGenerator[Any, Any]] = WeakSet()
        self._generators_end = False
        self._origins: WeakKeyDictionary[Callback, list[traceback.FrameSummary]]
        self._origins = WeakKeyDictionary()
        flags = sys.flags
        environment = not flags.ignore_environment and os.environ.get("PYTHONASYNCIODEBUG")
        self._debug = flags.dev_mode or bool(environment)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} running={self.is_running()} closed={self._closed}"
            f" debug={self._debug}>"
        )

    def __del__(self) -> None:
        if not self._closed:
            warnings.warn(f"unclosed event loop {self!r}", ResourceWarning, 2, source=self)
            if not self.is_running():
                self.close()

    def is_running(self) -> bool:
        return self._thread is not None

    def is_closed(self) -> bool:
        return self._closed

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("Event loop is closed")

    def _check_idle(self) -> None:
        if self.is_running():
            raise RuntimeError("This event loop is already running")
        if running_loop() is not None:
            raise RuntimeError("Cannot run the event loop while another loop is running")

    @contextmanager
    def _entered(self) -> Iterator[None]:
        """Make this the running loop of the calling thread."""
        hooks, depth = sys.get_asyncgen_hooks(), sys.get_coroutine_origin_tracking_depth()
        self._thread = threading.get_ident()
        self._track_origins(depth)
        sys.set_asyncgen_hooks(self._generator_begins, self._generator_is_left)
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
            sys.set_coroutine_origin_tracking_depth(depth)
            self._thread = None

    # ---- futures and tasks ----

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, **options: Any) -> Any:
        """Create a task; one without a name is named after its host."""
        self._check_open()
        if name is None:
            host = host_here()
            name = f"{host.name if host else 'world'}/task-{next(self._task_numbers)}"
        if self._factory is None:
            return asyncio.Task(coro, loop=self, name=name, **options)
        given = {key: value for key, value in options.items() if value is not None}
        task = self._factory(self, coro, **given)
        if hasattr(task, "set_name"):
            task.set_name(name)
        return task

    def set_task_factory(self, factory: Any) -> None:
        if factory is not None and not callable(factory):
            raise TypeError("task factory must be a callable or None")
        self._factory = factory

    def get_task_factory(self) -> Any:
        return self._factory

    # ---- errors ----

    def set_exception_handler(self, handler: Handler | None) -> None:
        if handler is not None and not callable(handler):
            raise TypeError(f"A callable object or None is expected, got {handler!r}")
        self._handler = handler

    def get_exception_handler(self) -> Handler | None:
        return self._handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Log an error: its message, its other parts by name, and the traceback."""
        lines = [context.get("message") or "Unhandled exception in event loop"]
        for key in sorted(context.keys() - {"message", "exception"}):
            value = context[key]
            if key in _TRACEBACKS:
                value = "\n" + "".join(traceback.format_list(value)).rstrip()
                lines.append(f"{key} (most recent call last):{value}")
            else:
                lines.append(f"{key}: {value!r}")
        _log.error("\n".join(lines), exc_info=context.get("exception"))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Give an error to the handler. What that raises is logged, unless it ends the process."""
        try:
            if self._handler is None:
                self.default_exception_handler(context)
            else:
                _context_of(context, self._handler, self, context)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.default_exception_handler(
                {
                    "message": "Unhandled error in exception handler",
                    "exception": error,
                    "context": context,
                }
            )

    def _callback_error(self, callback: Callback, error: BaseException) -> None:
        context: dict[str, Any] = {
            "message": f"Exception in callback {callback!r}",
            "exception": error,
            "handle": callback,
        }
        if callback in self._origins:
            context["source_traceback"] = self._origins[callback]
        self.call_exception_handler(context)

    # ---- the debug mode ----

    def get_debug(self) -> bool:
        return self._debug

    def set_debug(self, enabled: bool) -> None:
        self._debug = enabled
        if self.is_running():
            self._track_origins(0)

    def _track_origins(self, otherwise: int) -> None:
        depth = _ORIGIN_DEPTH if self._debug else otherwise
        sys.set_coroutine_origin_tracking_depth(depth)

    def _check_call(self, callback: Callback) -> None:
        """Raise for a callback that the debug mode finds wrong, and remember where it was made."""
        if self._thread not in (None, threading.get_ident()):
            raise RuntimeError(
                "Non-thread-safe operation invoked on an event loop other than the current one"
            )
        function = callback.function
        if asyncio.iscoroutine(function) or inspect.iscoroutinefunction(function):
            raise TypeError(f"coroutines cannot be used as callbacks: {function!r}")
        if not callable(function):
            raise TypeError(f"a callable object was expected as a callback, got {function!r}")
        self._origins[callback] = traceback.extract_stack()[:-2]

    def _tell_slow(self, callback: Callback, seconds: float) -> None:
        if seconds >= self.slow_callback_duration:
            _log.warning("Executing %r took %.3f seconds", callback, seconds)

    # ---- asynchronous generators ----

    def _generator_begins(self, generator: AsyncGenerator[Any, Any]) -> None:
        if self._generators_end:
            warnings.warn(
                f"asynchronous generator {generator!r} was scheduled after"
                " loop.shutdown_asyncgens() call",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )
        self._generators.add(generator)

    def _generator_is_left(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Close a generator that was not iterated to its end, as it is destroyed."""
        self._generators.discard(generator)
        if not self._closed:
            self.call_soon_threadsafe(self.create_task, generator.aclose())

    async def shutdown_asyncgens(self) -> None:
        self._generators_end = True
        left = list(self._generators)
        self._generators.clear()
        ends = await asyncio.gather(*(one.aclose() for one in left), return_exceptions=True)
        for generator, end in zip(left, ends, strict=True):
            if isinstance(end, Exception):
                self.call_exception_handler(
                    {
                        "message": f"an error occurred during closing of {generator!r}",
                        "exception": end,
                        "asyncgen": generator,
                    }
                )


def _context_of(parts: dict[str, Any], handler: Handler, *args: Any) -> None:
    """Call an exception handler in the context of the task or the callback that failed."""
    for key in ("task", "future", "handle"):
        get_context = getattr(parts.get(key), "get_context", None)  # a Task's is new in 3.12
        context: Context | None = get_context() if get_context else None
        if context is not None:
            context.run(handler, *args)
            return
    handler(*args)
