# SPDX-License-Identifier: Apache-2.0
"""An asyncio event loop whose clock is that of a simulated world.

``sim.run`` makes one ``Loop`` for the programs of all hosts. One iteration of the loop runs the
callbacks that are ready, as in any loop, and takes no virtual time. If none is ready, the world
processes its events until an adapter has something for a program or the next timer is due, so that
``asyncio.sleep``, timeouts, tasks, queues and locks work unchanged. A program can only wait for the
descriptors of completion channels and adapters. What needs a real machine (sockets, pipes, threads,
processes, signals) raises NotSimulated.

The loop implements asyncio.AbstractEventLoop and uses nothing that asyncio does not document for
loops, so that a new version of Python cannot change the order in which it calls programs.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

from .callbacks import PS, Callback, Timer, Timers
from .errors import Deadlock, NotSimulated
from .hosts import Hosts
from .lacking import no_threads, refuse, refuse_options
from .loop_duties import Duties
from .network import address_pair, network_of, refuse_ipv6
from .waits import deadlock_text, endless_waits, timer_beyond

__all__ = ["PS", "Loop"]

ROUNDS = 10_000
"""After so many iterations at one virtual time the world runs on, although callbacks are ready."""

PATIENCE = 60 * PS
"""Virtual time without a timer or a completion after which the loop looks for endless retries."""


def _asks_a_cancelled_task(callback: Callback, error: BaseException) -> bool:
    """Whether a callback has asked a task that was cancelled for its exception, as asyncio's
    streams did before Python 3.12 when a server's connection was still open at the end."""
    return isinstance(error, asyncio.CancelledError) and any(
        isinstance(one, asyncio.Future) and one.cancelled() for one in callback.args
    )


class Loop(Duties):
    """The event loop of all programs on a world's hosts. Close it before other code uses the
    world."""

    def __init__(self, hosts: Hosts, control_delay: float = 10e-6) -> None:
        super().__init__()
        self.hosts = hosts
        self.network = network_of(self, hosts, control_delay)
        self._attachments = hosts.attachments
        self._ready: deque[Callback] = deque()
        self._timers = Timers()
        self._turns = 0
        self._since = -1  # the time of the last time that ROUNDS were over
        self._stopping = False
        hosts.attachments.set_looped(True)

    # ---- callbacks ----

    def time(self) -> float:
        """Return the virtual time in seconds since the world began."""
        return self._attachments.now / PS

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> Callback:
        made = Callback(callback, args, copy_context() if context is None else context)
        if self._debug or self._closed:
            self._check_open()
            self._check_call(made)
        self._ready.append(made)
        return made

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> Callback:
        if self._thread not in (None, threading.get_ident()):
            refuse("call_soon_threadsafe", "threads")
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Timer:
        if delay is None:
            raise TypeError("delay must not be None")
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Timer:
        if when is None:
            raise TypeError("when cannot be None")
        if when != when:
            raise ValueError("the time of a timer is NaN, and not a number of seconds")
        made = Timer(when, callback, args, copy_context() if context is None else context)
        if self._debug or self._closed:
            self._check_open()
            self._check_call(made)
        self._timers.add(made)
        return made

    # ---- running ----

    def run_forever(self) -> None:
        self._check_open()
        self._check_idle()
        with self._entered(), no_threads():
            try:
                self._turn()
                while not self._stopping:
                    self._turn()
            finally:
                self._stopping = False

    def run_until_complete(self, future: Any) -> Any:
        self._check_open()
        self._check_idle()
        task = asyncio.ensure_future(future, loop=self)
        task.add_done_callback(self._stop_after)
        try:
            self.run_forever()
        except BaseException:
            if task is not future and task.done() and not task.cancelled():
                task.exception()  # it is raised here, so nobody need be told that it was not
            raise
        finally:
            task.remove_done_callback(self._stop_after)
        if not task.done():
            raise RuntimeError("Event loop stopped before Future completed.")
        return task.result()

    def _stop_after(self, task: asyncio.Future[Any]) -> None:
        """Stop when a task ends, unless its error has left the loop already."""
        error = None if task.cancelled() else task.exception()
        if not isinstance(error, SystemExit | KeyboardInterrupt):
            self.stop()

    def stop(self) -> None:
        self._stopping = True

    def close(self) -> None:
        if self.is_running():
            raise RuntimeError("Cannot close a running event loop")
        if self._closed:
            return
        self._closed = True
        self._ready.clear()
        self._timers.clear()
        for fd in self._attachments.watched():
            self.remove_reader(fd)
        self._attachments.set_looped(False)

    def _turn(self) -> None:
        """Run one iteration: let time pass if nothing is ready, then call what is ready by then."""
        ready, timers = self._ready, self._timers
        self._turns += 1
        if self._turns >= ROUNDS:
            self._turns = 0
            self._pass_time()
        until = 0 if self._stopping else timers.first() if timers.heap else None
        attachments = self._attachments
        since = attachments.now
        why = attachments.gather(ready, until)
        if why != "readable" and why != "time":
            self._pass_further(since, why, until)
        if timers.heap:
            ready.extend(timers.take(attachments.now))
        for _ in range(len(ready)):
            callback = ready.popleft()
            if callback.function is not None:
                self._call(callback)

    def _call(self, callback: Callback) -> None:
        began = self._attachments.now if self._debug else None
        try:
            callback.context.run(callback.function, *callback.args)  # type: ignore[arg-type]
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            if not _asks_a_cancelled_task(callback, error):
                self._callback_error(callback, error)
        if began is not None:
            self._tell_slow(callback, (self._attachments.now - began) / PS)

    # ---- time ----

    def _pass_further(self, since: int, why: str, until: int | None) -> None:
        """Let the world run on until a callback is ready or until a time in ps, if it can.

        It has run from ``since``, and ended for the reason ``why``: "events" if it can run on.
        Raises Deadlock if it cannot, and if nothing comes of it.
        """
        while why == "events":
            if self._attachments.now - since >= PATIENCE and (endless := endless_waits(self.hosts)):
                raise Deadlock(deadlock_text(self, self.hosts, "endless") + endless)
            why = self._attachments.gather(self._ready, until)
        if why != "readable" and why != "time":
            beyond = timer_beyond(self._timers.beyond())
            raise Deadlock(deadlock_text(self, self.hosts, why) + beyond)

    def _pass_time(self) -> None:
        """Let the world run although callbacks are ready, if no time has passed since the last
        call.

        A program that polls without awaiting anything else would otherwise stop the clock, and so
        would a reader that leaves its descriptor readable.
        """
        if self._attachments.now == self._since:
            found: list[Callback] = []
            why = self._attachments.gather(found, self._timers.first())
            if why == "readable" and self._attachments.now == self._since:
                self._attachments.advance(self._timers.first())
            self._ready.extend(found)
        self._since = self._attachments.now

    # ---- descriptors of adapters ----

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> Callback:  # type: ignore[override]
        number = fd if isinstance(fd, int) else fd.fileno()
        made = Callback(callback, args, copy_context())
        self.remove_reader(number)
        try:
            self._attachments.watch(number, made)
        except KeyError:
            raise NotSimulated(
                f"descriptor {number} is none of a simulated adapter's: a program on a simulated"
                " host waits for completion channels and asynchronous events, not for sockets,"
                " pipes or files"
            ) from None
        return made

    def remove_reader(self, fd: Any) -> bool:
        number = fd if isinstance(fd, int) else fd.fileno()
        reader = self._attachments.unwatch(number)
        if reader is None:
            return False
        reader.cancel()
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
        refuse_ipv6(family=family)
        return self.network.look_up(host, port)

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        local = options.pop("local_addr", None)
        local = local and address_pair("local_addr", local)
        refuse_options("create_connection", options)
        refuse_ipv6(family=options.get("family", 0))
        return await self.network.connect(protocol_factory, host, port, local)

    async def create_datagram_endpoint(
        self,
        protocol_factory: Any,
        local_addr: Any = None,
        remote_addr: Any = None,
        **options: Any,
    ) -> Any:
        refuse_options("create_datagram_endpoint", options)
        refuse_ipv6(family=options.get("family", 0))
        local = local_addr and address_pair("local_addr", local_addr)
        remote = remote_addr and address_pair("remote_addr", remote_addr)
        return await self.network.open_datagrams(protocol_factory, local, remote)

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        refuse_options("create_server", options)
        refuse_ipv6(family=options.get("family", 0))
        server = self.network.listen(protocol_factory, host, port)
        if not options.get("start_serving", True):
            server.hold()
        return server
