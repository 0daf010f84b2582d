# SPDX-License-Identifier: Apache-2.0
"""Takes completions for links: by polling for a while, and then by sleeping in the event loop.

A client has a ``Poller`` for its one CQ and polls it within its calls; a server has one for all its
clients, which also polls the rings. Between two wake-ups nothing runs: an idle poller costs no
processor time. On simulated hosts, where polling takes virtual time, ``spin`` is 0.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import Protocol

from verbena.verbs import CQ, WC, VerbsError
from verbena.verbs.forked import follow
from verbena.waiting import Reader

from .waiter import CallWaiter

__all__ = ["PollTarget", "Poller"]

_BATCH = 16
_AT_ONCE = 50e-6  # seconds of polling between two iterations of the loop
_LOOKS = 8  # polls between two looks at the clock, which takes as long as a poll
# A wake-up takes as long as to copy half a MiB, so both sides poll longer beside large payloads: 1
# MiB took 112 µs in place of 55 when one side slept meanwhile.
_PER_BYTE, _LONGEST = 1e-10, 500e-6
_TURN = 128  # completions between two iterations of the loop


class PollTarget(Protocol):
    """A link, for which completions come."""

    def completed(self, wc: WC) -> None:
        """Take a completion of its queue pair."""

    def must_hear(self) -> bool:
        """Return whether it waits for the peer though no task does."""


class Ending(Protocol):
    """What a task polls for."""

    done: bool


class Poller:
    """Polls a CQ. ``sleepers`` counts the tasks that wait for what a completion brings."""

    def __init__(self, cq: CQ, spin: float, serves: bool) -> None:
        assert cq.channel is not None
        self.spin = spin
        self.sleepers = 0
        self.tasks = 0  # of a server's methods: they run between polls
        self.targets: dict[int, PollTarget] = {}
        self.scans: list[Callable[[], int]] = []
        self.before_sleep: list[Callable[[], None]] = []
        self.stray: Callable[[WC], None] = _ignore
        self.on_failure: Callable[[], None] = _nothing
        self._cq = cq
        self._channel = cq.channel
        self._take = cq.poll
        self._serves = serves
        self._armed = False
        self._is_polling = False
        self._must_look = False
        self._gathers = False
        self._woken: list[CallWaiter] = []
        self._last = 0.0
        self._again: asyncio.Handle | None = None
        self._reader = Reader(cq.channel.fd, self._on_event)
        self._closed = False
        cq.call_when_closed(self.close)  # while the descriptor that the loop reads is still there
        follow(self)

    def stay_with_parent(self) -> None:
        """In a forked child nothing is for it: neither completions of the batch under way, nor
        calls in a ring."""
        self._closed = True
        self.targets.clear()
        self.scans.clear()
        self.stray = _ignore

    def poll(self) -> int:
        """Take what is there, and return how much that was.

        What is called for a completion may call this again: it then does nothing, since later
        completions must not be handled before the rest of those that were taken.
        """
        if self._is_polling:
            return 0
        wcs = self._taken()
        return self._handle(wcs) if wcs or self.scans else 0

    def _taken(self) -> list[WC]:
        try:
            return self._take(_BATCH)
        except VerbsError:
            if not self._closed:
                self.on_failure()
            return []

    def _handle(self, wcs: list[WC]) -> int:
        """Give completions to their links, and look at the rings; return how many there were."""
        self._is_polling = True
        try:
            targets = self.targets
            for wc in wcs:
                target = targets.get(wc.qp_num)
                if target is None:
                    self.stray(wc)
                else:
                    target.completed(wc)
            count = len(wcs)
            if self.scans:
                for scan in self.scans:
                    count += scan()
        finally:
            self._is_polling = False
        while self._must_look:  # the CQ was armed meanwhile: it must be empty after that
            self._must_look = False
            while taken := self.poll():
                count += taken
        return count

    def poll_for(self, awaited: Ending, seconds: float) -> None:
        """Poll until something is done, or nothing has come for so many seconds."""
        if self._is_polling:
            return
        take = self._take
        end = 0.0
        looks = _LOOKS
        while not awaited.done:
            try:
                wcs = take(_BATCH)
            except VerbsError:
                wcs = self._taken()
            if (wcs or self.scans) and self._handle(wcs):
                continue
            looks -= 1
            if not looks:
                looks = _LOOKS
                now = perf_counter()
                if not end:
                    end = now + seconds
                elif now > end:
                    return

    def poll_until(self, is_over: Callable[[], bool]) -> None:
        """Poll until a condition holds, for ``spin`` seconds at most."""
        end = perf_counter() + self.spin
        while not is_over():
            if not self.poll() and perf_counter() > end:
                return

    def arm(self) -> None:
        """Have the next completion wake the loop; take those that came before."""
        if self._closed or self._armed:
            return  # an event comes, or is there already
        self._attach()
        self._armed = True
        try:
            self._cq.req_notify()
        except VerbsError:  # the next poll says so
            self._armed = False
        if self._is_polling:
            self._must_look = True
            return
        while self.poll():
            pass

    def _attach(self) -> None:
        try:
            self._reader.attach()
        except VerbsError as error:
            if error.errno != errno.EBUSY:
                raise
            raise RuntimeError(
                "a client or server belongs to the event loop in which it was made, and this is"
                " another: connect in each loop"
            ) from None

    def hear(self) -> None:
        """Have the loop poll, though no task waits: a server does always."""
        if not self._serves:
            self.arm()

    async def sleep(self, waiter: asyncio.Future[None]) -> None:
        """Wait for a future that something which a completion brings will end."""
        self.sleepers += 1
        try:
            self.hear()
            await waiter
        finally:
            self.sleepers -= 1

    async def until(self, holds: Callable[[], bool], waiters: list[asyncio.Future[None]]) -> None:
        """Wait until a condition holds; ``wake_all(waiters)`` says that it may."""
        while not holds():
            if self.spin and not self._serves:
                self.poll_until(holds)
                if holds():
                    return
            waiter = asyncio.get_running_loop().create_future()
            waiters.append(waiter)
            try:
                await self.sleep(waiter)
            finally:
                waiters.remove(waiter)

    def wake(self, waiter: CallWaiter) -> None:
        """Have the task of a call go on: at the end of the event in whose completions it ended."""
        if waiter.finish():
            if self._gathers:
                self._woken.append(waiter)
            else:
                waiter.resume_soon()

    def wake_all(self, waiters: list[asyncio.Future[None]]) -> None:
        """Have the tasks that wait look again."""
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _on_event(self) -> None:
        # The event is taken when what it brought is on its way: that is a system call.
        self._armed = False
        try:
            if self._serves:
                self._last = perf_counter()
                self._turn()
            else:
                self._take_event()
        finally:
            with suppress(VerbsError):  # it is closed, or the next poll says so
                self._channel.drain(1)

    def _take_event(self) -> None:
        """Have the tasks go on whose calls an event has ended, and hear the next one if need be."""
        self._gathers = True
        try:
            while self.poll() >= _BATCH:
                pass
        finally:
            self._gathers = False
            self._resume()
        if self.sleepers or any(target.must_hear() for target in self.targets.values()):
            self.arm()

    def _resume(self) -> None:
        """Have the tasks go on whose calls have ended."""
        woken, self._woken = self._woken, []
        for number, waiter in enumerate(woken, 1):
            try:
                waiter.resume()
            except BaseException:  # the program ends: SystemExit or KeyboardInterrupt
                for other in woken[number:]:
                    other.resume_soon()
                raise

    def time_for(self, nbytes: int) -> float:
        """Return for how long a side polls that waits for so many bytes."""
        return self.spin + min(nbytes * _PER_BYTE, _LONGEST) if self.spin else 0.0

    def expect_more(self, nbytes: int) -> None:
        """So many bytes have come, and the next may be as many: poll for longer."""
        if self.spin:
            self._last = perf_counter() + min(nbytes * _PER_BYTE, _LONGEST)

    def start(self) -> None:
        """Begin to serve."""
        if self._again is None and not self._closed:
            self._again = asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Serve: take what comes, and go on in the next iteration or sleep."""
        self._again = None
        if self._closed:
            return
        if not self.spin:
            while self.poll() >= _BATCH:
                pass
            self._sleep()
            return
        now = perf_counter()
        end = now + _AT_ONCE
        taken = seen = 0
        take = self._take
        looks = _LOOKS
        while True:
            try:
                wcs = take(_BATCH)
            except VerbsError:
                wcs = self._taken()
            if wcs or self.scans:
                taken += self._handle(wcs)
            looks -= 1
            if not looks or self.tasks or taken >= _TURN:
                now = perf_counter()
                if taken != seen:
                    seen = taken
                    self._last = max(self._last, now)
                idle = now - self._last
                if self.tasks or taken >= _TURN or now > end or idle >= self.spin:
                    break
                looks = _LOOKS
        if now - self._last < self.spin:
            self.start()
        else:
            self._sleep()

    def _sleep(self) -> None:
        for prepare in self.before_sleep:
            prepare()
        self.arm()

    def close(self) -> None:
        """Poll no more."""
        self._closed = True
        self._reader.detach()
        if self._again is not None:
            self._again.cancel()


def _ignore(wc: WC) -> None:
    """A completion of a queue pair that was closed."""
    del wc


def _nothing() -> None:
    """Nobody has to know that the CQ has failed."""
