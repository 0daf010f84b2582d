# SPDX-License-Identifier: Apache-2.0
"""An asyncio event loop whose clock is that of a simulated world.

``sim.run`` makes one ``Loop`` for the programs of all hosts. One iteration of the loop runs the
callbacks that are ready, as in any loop, and takes no virtual time. If none is ready, the world
processes its events until an adapter has something for a program or the next timer is due, so that
``asyncio.sleep``, timeouts, tasks, queues and locks work unchanged. A program can only wait for the
descriptors of completion channels and adapters. What needs a real machine (sockets, pipes, threads,
processes, signals) raises NotSimulated.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from heapq import heappop
from itertools import count
from math import ulp
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NoReturn

from .errors import Deadlock, NotSimulated
from .hosts import Hosts, host_here
from .network import Network

__all__ = ["PS", "Loop"]

PS = 1_000_000_000_000
"""Picoseconds in a second."""
ROUNDS = 10_000
"""After so many iterations at one virtual time the world runs on, although callbacks are ready."""

NEVER = 2.0**63 / PS
"""Seconds: a timer from here on is beyond the world's clock, and is never due."""

PATIENCE = 60 * PS
"""Virtual time without a timer or a completion after which the loop looks for endless retries."""

_MANY_TIMERS = 100  # with more, BaseEventLoop removes the cancelled ones from the heap


class _Handle(asyncio.Handle):
    """An asyncio.Handle of a loop that is not in debug mode. It is made faster than asyncio's
    own."""

    __slots__ = ()

    def __init__(self, callback: Any, args: Any, loop: Any, context: Context | None) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = self._source_traceback = None


class Loop(asyncio.BaseEventLoop):
    """The event loop of all programs on a world's hosts. Close it before other code uses the
    world."""

    _ready: deque[asyncio.Handle]  # these are BaseEventLoop's, which its stubs leave out
    _scheduled: list[asyncio.TimerHandle]
    _stopping: bool
    _debug: bool
    _closed: bool
    _thread_id: int | None

    def __init__(self, hosts: Hosts, control_delay: float = 10e-6) -> None:
        super().__init__()
        _refuse_from_now_on()
        self.hosts = hosts
        self.network = Network(self, hosts, control_delay)
        self._attachments = hosts.attachments
        self._selector = _World(self)
        self._task_numbers = count(1)
        self._turns = 0
        hosts.attachments.set_looped(True)

    def time(self) -> float:
        """Return the virtual time in seconds since the world began."""
        return self._attachments.now / PS

    def _run_once(self) -> None:
        """Run one iteration. BaseEventLoop's own, which does more, is called only when that is
        needed."""
        ready, timers = self._ready, self._scheduled
        self._turns += 1
        if self._turns >= ROUNDS:
            self._turns = 0
            self._selector.pass_time(ready)
        if self._debug or (timers and (timers[0]._cancelled or len(timers) > _MANY_TIMERS)):
            super()._run_once()  # type: ignore[misc]
            return
        until = 0 if self._stopping else self._selector.next_timer() if timers else None
        self._selector.pass_until(ready, until)
        if timers:
            self._take_due()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _take_due(self) -> None:
        now = self._attachments.now
        while (due := self._selector.next_timer()) is not None and due <= now:
            handle = heappop(self._scheduled)
            handle._scheduled = False  # type: ignore[attr-defined]
            self._ready.append(handle)

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self._debug or self._closed:
            return super().call_soon(callback, *args, context=context)
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if when != when:
            raise ValueError("the time of a timer is NaN, and not a number of seconds")
        return super().call_at(when, callback, *args, context=context)

    @property
    def _clock_resolution(self) -> float:
        """What BaseEventLoop adds to the time before it compares timers with it.

        It has to change the sum, so it is at least the distance to the next float.
        """
        return max(1 / PS, ulp(self.time()))

    @_clock_resolution.setter
    def _clock_resolution(self, machine: float) -> None:
        pass

    def run_forever(self) -> None:
        with _no_threads():
            super().run_forever()

    def close(self) -> None:
        if self.is_closed():
            return
        super().close()
        for fd in self._attachments.watched():
            self.remove_reader(fd)
        self._attachments.set_looped(False)

    def create_task(self, coro: Any, *, name: Any = None, **options: Any) -> Any:
        """Create a task as BaseEventLoop does; a task without a name is named after its host."""
        if name is None:
            host = host_here()
            name = f"{host.name if host else 'world'}/task-{next(self._task_numbers)}"
        return super().create_task(coro, name=name, **options)

    # ---- descriptors of adapters ----

    def _process_events(self, event_list: Iterable[asyncio.Handle]) -> None:
        self._ready.extend(event_list)

    def _write_to_self(self) -> None:
        pass  # no other thread can call the loop

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> asyncio.Handle:  # type: ignore[override]
        number = fd if isinstance(fd, int) else fd.fileno()
        handle = asyncio.Handle(callback, args, self, None)
        self.remove_reader(number)
        try:
            self._attachments.watch(number, handle)
        except KeyError:
            raise NotSimulated(
                f"descriptor {number} is none of a simulated adapter's: a program on a simulated"
                " host waits for completion channels and asynchronous events, not for sockets,"
                " pipes or files"
            ) from None
        return handle

    def remove_reader(self, fd: Any) -> bool:
        number = fd if isinstance(fd, int) else fd.fileno()
        handle = self._attachments.unwatch(number)
        if handle is None:
            return False
        handle.cancel()
        return True

    # ---- the network beside the fabric: network.py ----

    async def getaddrinfo(
        self,
        host: Any,
        port: Any,
        *,
        family: int = 0,
        type: int = 0,
        proto: int = 0,
        flags: int = 0,
    ) -> Any:
        return self.network.look_up(host, port)

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        _refuse_options("create_connection", options)
        return await self.network.connect(protocol_factory, host, port)

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        _refuse_options("create_server", options)
        return self.network.listen(protocol_factory, host, port)

    # ---- not on a simulated host ----

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> NoReturn:  # type: ignore[override]
        _refuse("run_in_executor", "threads")

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self._thread_id not in (None, threading.get_ident()):
            _refuse("call_soon_threadsafe", "threads")
        return self.call_soon(callback, *args, context=context)


def _refuse(what: str, lacking: str) -> NoReturn:
    raise NotSimulated(f"{what}: a simulated host has no {lacking}")


def _refuse_options(call: str, options: dict[str, Any]) -> None:
    """Raise NotSimulated for ``sock``, ``ssl``, ``local_addr`` and the like, unless they are
    None."""
    harmless = {"family", "proto", "flags", "backlog", "reuse_address", "reuse_port"}
    harmless |= {"start_serving", "happy_eyeballs_delay", "interleave", "limit"}
    for name, value in options.items():
        if name not in harmless and value is not None:
            _refuse(f"{call} with {name}", "such thing")


def _refusing(name: str, lacking: str) -> Callable[..., NoReturn]:
    def refuse(self: Loop, *args: object, **options: object) -> NoReturn:
        _refuse(name, lacking)

    refuse.__name__ = name
    return refuse


_LACKING = {
    "sockets": (
        *("add_writer", "remove_writer", "sock_accept", "sock_connect", "sock_recv"),
        *("sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall", "sock_sendto"),
        *("sock_sendfile", "sendfile", "start_tls", "connect_accepted_socket"),
        *("create_datagram_endpoint", "create_unix_connection", "create_unix_server"),
        "getnameinfo",
    ),
    "pipes": ("connect_read_pipe", "connect_write_pipe"),
    "processes": ("subprocess_exec", "subprocess_shell"),
    "signals": ("add_signal_handler", "remove_signal_handler"),
    "threads": ("set_default_executor",),
}
for _lacking, _names in _LACKING.items():
    for _name in _names:
        setattr(Loop, _name, _refusing(_name, _lacking))


# ---- time --------------------------------------------------------------------------------------


class _World:
    """Stands in for the selector of BaseEventLoop: to wait is to let the world's time pass."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._attachments = loop.hosts.attachments
        self._when: float = 0.0
        self._when_ps: int | None = 0  # `_when` in ps, cached for the timer that is due next
        self._since = -1

    def select(self, timeout: float | None) -> list[asyncio.Handle]:
        """Return the handles that became ready. Of ``timeout``, which is rounded, only 0
        matters."""
        readable: list[asyncio.Handle] = []
        self.pass_until(readable, 0 if timeout == 0 else self.next_timer())
        return readable

    def pass_until(self, readable: Any, until: int | None) -> None:
        """Let the world run until a handle is ready or until a time in ps. None: no timer is set.

        Appends the handles to ``readable``. Raises Deadlock if neither can happen.
        """
        since = self._attachments.now
        while (why := self._attachments.gather(readable, until)) == "events":
            if self._attachments.now - since >= PATIENCE and (endless := _endless(self._loop)):
                raise Deadlock(_deadlock(self._loop, "endless") + endless)
        if why != "readable" and why != "time":
            raise Deadlock(_deadlock(self._loop, why))

    def pass_time(self, ready: Any) -> None:
        """Let the world run although callbacks are ready, if no time has passed since the last
        call.

        A program that polls without awaiting anything else would otherwise stop the clock.
        """
        if self._attachments.now == self._since:
            found: list[asyncio.Handle] = []
            self._attachments.gather(found, self.next_timer())
            ready.extend(found)
        self._since = self._attachments.now

    def next_timer(self) -> int | None:
        """Return when the loop's next timer is due, in ps, or None if no timer is due within the
        clock.

        It is rounded up exactly, so that ``time`` is then never less than the timer, however late
        it is.
        """
        if not self._loop._scheduled:
            return None
        when = self._loop._scheduled[0].when()
        if when != self._when:
            self._when, self._when_ps = when, _ps_of(when)
        return self._when_ps

    def close(self) -> None:
        pass


def _ps_of(when: float) -> int | None:
    """Return seconds in ps, rounded up exactly. None is a time beyond the clock, which never
    comes."""
    if when >= NEVER:
        return None
    seconds, parts = when.as_integer_ratio()
    return -(-seconds * PS // parts)


# ---- who waits ---------------------------------------------------------------------------------


def _deadlock(loop: Loop, why: str) -> str:
    lines = [f"nothing is left to happen at {loop.time():.9f} s, and these tasks wait:"]
    if why == "deadlock":
        ports = ", ".join(
            f"port {port} of node {node}" for node, port in loop.hosts.world.blocked()
        )
        lines[0] = f"at {loop.time():.9f} s packets wait for each other for ever ({ports}); tasks:"
    elif why == "endless":
        lines[0] = f"at {loop.time():.9f} s no request has completed for a minute; tasks:"
    waiting = [task for task in asyncio.all_tasks(loop) if not _is_own(task)]
    waiting.sort(key=asyncio.Task.get_name)
    lines += [f"  {task.get_name()}: {_where(task)}" for task in waiting]
    return "\n".join(lines)


def _endless(loop: Loop) -> str:
    """Return what the requests wait for, if every request in flight is retried for ever; or ""."""
    if loop.hosts.world.flows_left:
        return ""
    waits = [
        wait for one in loop.hosts.contexts() for wait in (one.describe() or {}).get("waiting", ())
    ]
    if not waits or not all(wait["endless"] for wait in waits):
        return ""
    return "".join(f"\n  {wait['why']}" for wait in waits)


def _is_own(task: asyncio.Task[Any]) -> bool:
    """Return whether a task is one of ``sim.run`` itself, which runs the programs and waits for
    them."""
    return task.done() or task.get_name().startswith("world/")


_LIBRARIES = (str(Path(asyncio.__file__).parent), str(Path(__file__).parent.parent))


def _where(task: asyncio.Task[Any]) -> str:
    """Return where in the program a task waits: the innermost frame that is not a library's."""
    awaited: Any = task.get_coro()
    found: FrameType | None = None
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None and (found is None or not _is_library(frame.f_code)):
            found = frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    if found is None:
        return "it has not begun"
    return f"{found.f_code.co_filename}:{found.f_lineno}, in {found.f_code.co_name}"


def _is_library(code: CodeType) -> bool:
    return code.co_filename.startswith(_LIBRARIES)


# ---- what programs open without asking the loop --------------------------------------------------

_AUDITED = {
    "socket.__new__": "sockets: asyncio.open_connection and start_server reach simulated hosts",
    "_thread.start_new_thread": "threads",
    "_thread.start_joinable_thread": "threads",
    "subprocess.Popen": "processes",
    "os.fork": "processes",
    "os.forkpty": "processes",
    "os.posix_spawn": "processes",
    "os.system": "processes",
}
_hooked = False


def _refuse_from_now_on() -> None:
    """Install the audit hook once. A hook cannot be removed, so it decides by the caller."""
    global _hooked
    if not _hooked:
        sys.addaudithook(_audit)
        _hooked = True


@contextmanager
def _no_threads() -> Iterator[None]:
    """Audit the start of threads in Python before 3.12, which has no audit event for it."""
    if sys.version_info >= (3, 12):
        yield
        return
    start = threading.Thread.start

    def audited(self: threading.Thread) -> None:
        _audit("_thread.start_new_thread", ())
        start(self)

    threading.Thread.start = audited  # type: ignore[method-assign]
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]


def _audit(event: str, args: tuple[object, ...]) -> None:
    lacking = _AUDITED.get(event)
    if lacking is None or not isinstance(asyncio._get_running_loop(), Loop):
        return
    host = host_here()
    if host is not None:
        raise NotSimulated(f"{event}: {host.name} is a simulated host, without {lacking}")
