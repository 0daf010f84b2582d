# SPDX-License-Identifier: Apache-2.0
"""How a processor receives packets under load: by interrupts, or by interrupts and polling (NAPI).

Lessons and the validation call it. One core takes packets from the ring of an Ethernet adapter and
passes each on. By ``receive_by_interrupts`` each packet interrupts the core, whatever it does, and
its handling waits in a queue for the rest of the time, as in 4.2BSD: at a high rate no time is left
(Mogul and Ramakrishnan, "Eliminating Receive Livelock in an Interrupt-driven Kernel", USENIX 1996).
By ``receive_by_polling`` the first packet interrupts, and then the ring is polled, at most a quota
of packets a round, with interrupts off until it is empty (Linux' NAPI). Times are in microseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

from verbena._arguments import checked_arguments, checked_class
from verbena.host.errors import HostError, HostTypeError


@checked_class(HostTypeError)
@dataclass(frozen=True)
class Work:
    """Times of one core, in us. ``interrupt`` is an interrupt's, and by interrupts alone also that
    of the driver's work for its packet; ``packet`` is the handling of a packet, on the average,
    ``spread`` its coefficient of variation (gamma distribution; 0: always the same); ``round_`` a
    call of the poll function. ``ring`` and ``queue`` are packets that the adapter's ring and the
    queue behind the interrupt handler hold."""

    interrupt: float
    packet: float
    round_: float = 0.0
    spread: float = 0.0
    ring: int = 256
    queue: int = 50

    def __post_init__(self) -> None:
        if min(self.interrupt, self.packet, self.round_, self.spread) < 0 or self.packet == 0:
            raise HostError("times and their spread are not negative, and a packet takes some")
        if 0 < self.spread < 1e-3 or self.spread > 100:
            raise HostError(f"a spread is 0, or 0.001 to 100, not {self.spread}")
        if min(self.ring, self.queue) < 1:
            raise HostError("a ring and a queue hold at least one packet")

    def times(self, random: Random) -> Iterator[float]:
        """The handling times of one packet after the other."""
        shape = 1 / self.spread**2 if self.spread else 0.0
        while True:
            yield random.gammavariate(shape, self.packet / shape) if shape else self.packet


@dataclass
class Received:
    """What became of the packets, and the time of the last event in us."""

    offered: int = 0
    out: int = 0
    interrupts: int = 0
    rounds: int = 0
    dropped_by_adapter: int = 0  # the ring was full: no work was spent on them
    dropped_by_host: int = 0  # behind the interrupt: its work was in vain
    ended: float = 0.0
    user: float = 0.0  # time for programs, while packets came

    @property
    def out_per_second(self) -> float:
        """Packets passed on in a second."""
        return self.out / self.ended * 1e6 if self.ended else 0.0


@checked_arguments(HostTypeError)
def steady(rate: float, packets: int) -> Iterator[float]:
    """Arrival times, in us, of packets at equal distances; ``rate`` in packets a second."""
    if rate <= 0:
        raise HostError(f"a rate of packets is above 0 a second, not {rate}")
    return (number * 1e6 / rate for number in range(packets))


@checked_arguments(HostTypeError)
def poisson(rate: float, packets: int, random: Random) -> Iterator[float]:
    """Arrival times, in us, of a Poisson process."""
    if rate <= 0:
        raise HostError(f"a rate of packets is above 0 a second, not {rate}")
    at = 0.0
    for _ in range(packets):
        at += random.expovariate(rate) * 1e6
        yield at


def _in_order(arrivals: Iterable[float]) -> Iterator[float]:
    """The times of packets; HostError for one before the last, or before 0."""
    last = 0.0
    for at in arrivals:
        if not at >= last:
            raise HostError(f"arrivals are times in order, from 0 on: {at:g} comes after {last:g}")
        last = at
        yield at


@checked_arguments(HostTypeError)
def receive_by_interrupts(arrivals: Iterable[float], work: Work, random: Random) -> Received:
    """Each packet costs an interrupt at once, and its handling when no interrupt is there.

    The count ends with the last arrival: what is queued then has not been passed on.
    """
    found, times = Received(), work.times(random)
    free = 0.0  # when all interrupts so far are handled
    waiting: deque[float] = deque()  # work left of each packet in the queue
    for at in _in_order(arrivals):
        found.offered += 1
        found.ended = at
        while waiting and free < at:
            done = min(waiting[0], at - free)
            free += done
            waiting[0] -= done
            if waiting[0] <= 1e-9:
                waiting.popleft()
                found.out += 1
        if free < at:
            found.user += at - free
            free = at
        if work.interrupt and free - at > work.ring * work.interrupt:
            found.dropped_by_adapter += 1
            continue
        found.interrupts += 1
        free += work.interrupt
        if len(waiting) < work.queue:
            waiting.append(next(times))
        else:
            found.dropped_by_host += 1
    return found


@checked_arguments(HostTypeError)
def receive_by_polling(
    arrivals: Iterable[float], work: Work, random: Random, *, quota: int = 64, share: float = 1.0
) -> Received:
    """An interrupt turns interrupts off; rounds of at most ``quota`` packets empty the ring.

    ``share`` is the part of the time that polling may have while packets wait: behind a round that
    its quota ended, programs get the rest. The count ends with the last arrival.
    """
    if quota < 1 or not 0 < share <= 1:
        raise HostError("a quota is at least one packet, and a share above 0 and at most 1")
    found, times, source = Received(), work.times(random), _in_order(arrivals)
    ring = 0
    coming = next(source, None)
    free = 0.0

    def admit(until: float) -> None:
        nonlocal coming, ring
        while coming is not None and coming <= until:
            found.offered += 1
            found.ended = coming
            if ring < work.ring:
                ring += 1
            else:
                found.dropped_by_adapter += 1
            coming = next(source, None)

    while coming is not None:
        found.user += max(0.0, coming - free)
        free = max(free, coming)
        found.interrupts += 1
        free += work.interrupt
        admit(free)
        while ring and coming is not None:
            began, left = free, quota
            free += work.round_
            found.rounds += 1
            while ring and left and coming is not None:
                left -= 1
                free += next(times)
                ring -= 1
                found.out += 1
                admit(free)
            if not left:
                pause = (free - began) * (1 / share - 1)
                found.user += pause
                free += pause
                admit(free)
    return found
