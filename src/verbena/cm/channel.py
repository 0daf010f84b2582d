# SPDX-License-Identifier: Apache-2.0
"""Event channels: they give each event to its identifier, and let a caller wait for the next one.

Identifiers and connections are written once, as coroutines that wait only by their channel's
``wait`` and ``look_up``. ``LoopChannel`` suspends the task; ``ThreadChannel`` blocks the
thread, so that a coroutine over it never suspends, and ``run_now`` runs it to its end.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import socket
import threading
import time
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar, runtime_checkable

from verbena.verbs.forked import follow
from verbena.verbs.here import place

from .device import ConnectionManagerDevice
from .errors import NoSuchAddress, ParentsConnection
from .program_abi import IdEvent, parse_event
from .watched_descriptor import WatchedDescriptor

__all__ = ["Channel", "LoopChannel", "Receiver", "ThreadChannel", "run_now", "time_here"]

T = TypeVar("T")
Found = list[tuple[Any, ...]]


@runtime_checkable
class HasOwnTime(Protocol):
    """A place whose time is not this machine's: a simulated host whose program may block."""

    def time(self) -> float:
        """Return its time in seconds."""
        ...

    def look_up(self, host: str, port: int) -> Found:
        """Return what getaddrinfo knows there. Raises socket.gaierror."""
        ...


class Receiver(Protocol):
    """What events are for."""

    waiters: list[asyncio.Future[None]]

    def take(self, event: IdEvent) -> None:
        """An event has come."""

    def end(self, error: OSError) -> None:
        """No event comes any more."""


class Channel:
    """An event channel; ``receivers`` has an identifier for each ``uid``.

    A lazy one takes an event only while somebody waits for it. A listener has one, so that the
    device counts the requests that wait, and drops those that exceed the backlog.
    """

    is_async = False

    def __init__(self, device: ConnectionManagerDevice, is_lazy: bool = False) -> None:
        self.device = device
        self.is_lazy = is_lazy
        self.receivers: dict[int, Receiver] = {}
        self.ended: OSError | None = None
        """Why it gives no events any more."""
        self._uids = itertools.count(1)
        follow(self)

    def new_uid(self, receiver: Receiver) -> int:
        """Register a receiver and return its number, which its events have."""
        uid = next(self._uids)
        self.receivers[uid] = receiver
        return uid

    def pump(self) -> None:
        """Give out the events that are there; of a lazy channel, the first one."""
        while self.ended is None:
            try:
                answer = self.device.next_event()
            except OSError as error:
                self._end(error)
                return
            if answer is None:
                return
            event = parse_event(answer)
            receiver = self.receivers.get(event.uid)
            if receiver is not None:
                receiver.take(event)
                self._wake(receiver)
            if self.is_lazy:
                return

    def _end(self, error: OSError) -> None:
        self.ended = error
        self.device.unwatch()
        for receiver in list(self.receivers.values()):
            receiver.end(error)
            self._wake(receiver)

    def _wake(self, receiver: Receiver) -> None:
        """Have those look again who wait for what the receiver has got."""
        wake_waiters(receiver)

    def stay_with_parent(self) -> None:
        """In a forked child the identifiers are the parent's."""
        if isinstance(self.device, WatchedDescriptor):
            self.device.close_copy()
        self.ended = ParentsConnection()
        for receiver in self.receivers.values():
            receiver.end(self.ended)

    def close(self) -> None:
        """Close the device, which destroys what is left; not that of the process that forked."""
        if not isinstance(self.ended, ParentsConnection):
            self.device.close()

    # ---- time ----

    def time(self) -> float:
        """Return the time of the channel's clock in seconds."""
        raise NotImplementedError

    async def wait(self, receiver: Receiver, deadline: float | None) -> None:
        """Wait until the receiver has got something, or until the deadline."""
        raise NotImplementedError

    async def look_up(self, host: str, port: int, deadline: float | None) -> Found:
        """Return what getaddrinfo knows of a host name. Raises NoSuchAddress, TimeoutError."""
        raise NotImplementedError


def wake_waiters(receiver: Receiver) -> None:
    """Wake the tasks that wait for it; each looks again at what it waits for."""
    for waiter in receiver.waiters:
        _wake(waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def place_with_own_time() -> HasOwnTime | None:
    """Return the place whose time a ``ThreadChannel`` opened now would have; None: the machine."""
    here: object = place.get()
    return here if isinstance(here, HasOwnTime) else None


def time_here(is_async: bool) -> float:
    """Return the time, in seconds, of the clock that a channel opened now would have."""
    if is_async:
        return asyncio.get_running_loop().time()
    here = place_with_own_time()
    return time.monotonic() if here is None else here.time()


class LoopChannel(Channel):
    """A channel whose events the running loop takes, at any time."""

    is_async = True

    def __init__(self, device: ConnectionManagerDevice, is_lazy: bool = False) -> None:
        super().__init__(device, is_lazy)
        self.loop = asyncio.get_running_loop()
        self._sleeping = 0
        if not is_lazy:
            device.watch(self.pump)

    def time(self) -> float:
        return self.loop.time()

    async def wait(self, receiver: Receiver, deadline: float | None) -> None:
        if asyncio.get_running_loop() is not self.loop:
            raise RuntimeError(
                "this connection belongs to another event loop: use it there, as by"
                " asyncio.run_coroutine_threadsafe"
            )
        waiter = self.loop.create_future()
        timer = None if deadline is None else self.loop.call_at(deadline, _wake, waiter)
        receiver.waiters.append(waiter)
        self._fall_asleep()
        try:
            await waiter
        finally:
            self._wake_up()
            receiver.waiters.remove(waiter)
            if timer is not None:
                timer.cancel()

    def _fall_asleep(self) -> None:
        self._sleeping += 1
        if self.is_lazy and self._sleeping == 1 and self.ended is None:
            self.device.watch(self.pump)

    def _wake_up(self) -> None:
        self._sleeping -= 1
        if self.is_lazy and not self._sleeping:
            self.device.unwatch()

    async def look_up(self, host: str, port: int, deadline: float | None) -> Found:
        async with asyncio.timeout_at(deadline):
            return await looked_up(host, self.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))


class ThreadChannel(Channel):
    """A channel whose events are taken while a thread waits for one.

    Of several threads any takes the next event, and wakes the others, since it may be theirs.
    """

    def __init__(self, device: ConnectionManagerDevice, is_lazy: bool = False) -> None:
        super().__init__(device, is_lazy)
        self._place = place_with_own_time()
        self._counting = threading.Lock()
        self._taken = 0  # events
        self._seen = threading.local()  # ``events``: those taken before this thread looked

    def pump(self) -> None:
        self._seen.events = self._taken
        super().pump()

    def _wake(self, receiver: Receiver) -> None:
        super()._wake(receiver)
        with self._counting:
            self._taken += 1
        if isinstance(self.device, WatchedDescriptor):
            self.device.wake()

    def time(self) -> float:
        return time.monotonic() if self._place is None else self._place.time()

    async def wait(self, receiver: Receiver, deadline: float | None) -> None:
        seconds = None if deadline is None else deadline - self.time()
        if isinstance(self.device, WatchedDescriptor):
            seen = getattr(self._seen, "events", -1)
            self.device.wait(seconds, lambda: self._taken != seen)
        else:
            self.device.wait(seconds)
        self.pump()

    async def look_up(self, host: str, port: int, deadline: float | None) -> Found:
        async def ask() -> Found:
            if self._place is not None:
                return list(self._place.look_up(host, port))
            return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))

        return await looked_up(host, ask())


async def looked_up(host: str, asking: Coroutine[Any, Any, Found]) -> Found:
    """Return the addresses, with the errors of this package."""
    try:
        return await asking
    except (socket.gaierror, UnicodeError) as error:
        raise NoSuchAddress(errno.EADDRNOTAVAIL, f"{host}: {error}") from None


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that does not suspend, since its channel blocks, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    coroutine.close()
    raise AssertionError("a coroutine over a ThreadChannel suspends nowhere")


async def block(seconds: float) -> None:
    """Wait as ``asyncio.sleep`` does, and block the thread."""
    time.sleep(seconds)
