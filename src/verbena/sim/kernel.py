# SPDX-License-Identifier: Apache-2.0
"""What sockets cost the processor of a simulated host that has an inside: ``Kernel``.

``sockets.SocketNetwork`` makes one for each host with an inside; TCP connections and datagram
endpoints call it for what they write and for what arrives. The costs are those of
``verbena.host.tcp_path``, and all of them are on the host's first core: system calls, copies and
segments on the way out; interrupts, rounds of the adapter's poll function, frames, wake-ups, system
calls and copies on the way in. What is to happen next waits until the core has done it.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from verbena.host.tcp_path import PAGE, SEGMENT

from .callbacks import seconds_of
from .inside import Inside, InterruptSettings

if TYPE_CHECKING:
    from .loop import Loop

__all__ = ["PAGE", "SEGMENT", "Arrived", "Kernel", "datagram_in", "parts"]

POLL_MOST = 64  # frames that a round of the poll function takes: NAPI_POLL_WEIGHT of Linux
Costs = Sequence[tuple[str, int]]  # names, and how often
Call = Callable[[], None]


def parts(begin: int, end: int, each: int) -> int:
    """Return how many parts of ``each`` bytes a stream begins between two of its bytes."""
    return -(-end // each) - -(-begin // each)


@dataclass(frozen=True, eq=False)
class Arrived:
    """What the adapter has for the kernel: so many frames, with ``pages`` of data.

    ``stream``: the connection whose ``size`` bytes GRO joins; None: each is a packet of its own.
    ``acks``: acknowledgements that the kernel takes, or makes for frames that are not joined.
    ``then`` is called when the kernel has handled it: of a stream the last in a round.
    """

    then: Call
    stream: object = None
    frames: int = 1
    size: int = 0
    pages: int = 0
    acks: int = 0


def datagram_in(frames: int, size: int, then: Call) -> Arrived:
    """Return a datagram that has arrived in so many fragments."""
    return Arrived(then, frames=frames, pages=parts(0, size, PAGE))


class Kernel:
    """The socket layer and the interrupts of one host. ``segment``: bytes of a full frame's data.

    It works by the clock of the loop, whose thread calls it while the world is not running.
    """

    def __init__(self, loop: Loop, now: Callable[[], int], inside: Inside, segment: int) -> None:
        self._loop, self._now, self._inside, self._segment = loop, now, inside, segment
        self.settings = inside.settings.kernel
        self._moderation = inside.settings.interrupts or InterruptSettings()
        self._next: deque[Call] = deque()  # by the time at which the core has done it
        self._arrived: deque[Arrived] = deque()
        self._frames = 0  # of them
        self._polls = False  # from an interrupt until nothing is left
        self._timer: asyncio.TimerHandle | None = None  # of a moderated interrupt
        self._awake_until = -1  # ps: the program's process has work until then

    # ---- the core ----

    def then(self, costs: Costs, call: Call) -> int:
        """Let the core work, and call a function when it has. Returns the ps of the end."""
        took = 0
        for name, times in costs:
            took = self._inside.spend(name, times) if times else took
        end = self._now() + took
        self._next.append(call)
        self._at(end, self._call_next)
        return end

    def _at(self, ps: int, call: Call) -> asyncio.TimerHandle:
        context = contextvars.Context()  # in which no code is on a host
        return self._loop.call_at(seconds_of(ps), call, context=context)  # type: ignore[return-value]

    def _call_next(self) -> None:
        self._next.popleft()()

    def work(self, costs: Costs, call: Call, *, woken: bool = False) -> None:
        """The same for what the program's process does. ``woken``: it sleeps, unless it has other
        work."""
        if woken and self._awake_until < self._now():
            costs = [("wakeup", 1), *costs]
        self._awake_until = self.then(costs, call)

    # ---- out ----

    def send_packet(self, call: Call, *, calls: int = 0) -> None:
        """Send a packet without data, for so many system calls."""
        self.then([("syscall", calls), *self._sent(1)], call)

    def send_datagram(self, size: int, fragments: int, call: Call) -> None:
        """Send a datagram that the program gives."""
        self.work([("syscall", 1), ("copy_l3", size), *self._sent(fragments)], call)

    def write(self, size: int, give: Callable[[int], None], *, woken: bool) -> None:
        """Copy what the program writes to a stream, and give it on in segments of up to 64 KiB.

        ``give`` is called with the bytes of each, in whole frames but for the last.
        """
        given = 0
        for begin in range(0, size, SEGMENT):
            end = min(begin + SEGMENT, size)
            whole = end if end == size else end - end % self._segment
            segments = 1 if self.settings.tso else parts(begin, end, self._segment)
            costs = [("syscall", int(begin == 0)), ("copy_l3", end - begin), *self._sent(segments)]
            count, given = whole - given, whole
            self.work(costs, partial(give, count), woken=woken and not begin)

    @staticmethod
    def _sent(segments: int) -> Costs:
        return [("skb", segments), ("segment_out", segments), ("doorbell", segments)]

    # ---- in ----

    def receive(self, arrived: Arrived) -> None:
        """Something has arrived: raise an interrupt, now or moderated, unless the kernel polls."""
        self._arrived.append(arrived)
        self._frames += max(1, arrived.frames)
        if self._polls:
            return
        if not self._moderation.time or self._frames >= self._moderation.packets:
            self._raise()
        elif self._timer is None:
            self._timer = self._at(self._now() + self._moderation.time, self._raise)

    def _raise(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._polls = True
        self._at(self._now() + self._inside.settings.pcie.round_trip // 2, self._interrupted)

    def _interrupted(self) -> None:
        self._inside.spend("interrupt", 1)
        self._poll(raised=1)

    def _poll(self, raised: int) -> None:
        """Take a round of what has arrived, behind ``raised`` interrupts."""
        taken: list[Arrived] = []
        frames = 0
        while self._arrived and frames < POLL_MOST:
            taken.append(self._arrived.popleft())
            frames += max(1, taken[-1].frames)
        self._frames -= frames
        self._inside.merge(frames - raised)
        self.then(self._costs_of(taken), lambda: self._polled(taken))

    def _polled(self, taken: Sequence[Arrived]) -> None:
        for then in {one.stream or one: one.then for one in taken}.values():
            then()  # of a stream once, with all that has come
        if self._arrived:
            self._poll(raised=0)
        else:
            self._polls = False

    def _costs_of(self, taken: Sequence[Arrived]) -> Costs:
        gro = self.settings.gro
        joined: dict[object, int] = {}  # bytes, by the stream
        frames = sum(one.frames for one in taken)
        acks = segments = in_streams = 0
        for one in taken:
            if one.stream is None or not gro:
                segments += 1 if one.stream is None and one.frames else one.frames
                acks += one.acks
            else:
                in_streams += one.frames
                joined[one.stream] = joined.get(one.stream, 0) + one.size
        if joined:
            many = sum(max(1, -(-size // SEGMENT)) for size in joined.values())
            segments += many
            acks += many
        return [
            ("softirq_poll", 1),
            ("frame_in", frames),
            ("gro_frame", in_streams),
            ("softirq_packet", frames - in_streams),
            ("page", sum(one.pages for one in taken)),
            ("skb", segments),
            ("segment_in", segments),
            ("ack", acks),
        ]

    def read(self, begin: int, end: int, call: Call) -> None:
        """The program is woken and copies bytes of a stream or a datagram; none: its end."""
        missed = round(end * self.settings.miss) - round(begin * self.settings.miss)
        copies = [("copy_memory", missed), ("copy_l3", end - begin - missed)]
        self.work([("syscall", 1), *copies], call, woken=True)

    def call(self, call: Call) -> None:
        """The program is woken and makes a system call."""
        self.work([("syscall", 1)], call, woken=True)
