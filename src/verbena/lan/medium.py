# SPDX-License-Identifier: Apache-2.0
"""A shared medium with frames of bytes: a coaxial cable or a hub, with CSMA/CD.

``src/native/cable`` says which frames collide and when each is sent. This file keeps the queues of
frames, gives the core their lengths, and delivers what was sent on an agenda, at each receiver
when its last bit is there.
"""

from __future__ import annotations

from collections import defaultdict
from enum import IntEnum
from functools import partial

from verbena._arguments import checked_class
from verbena.host.clock import Agenda
from verbena.lan._cable import CableState
from verbena.lan.csma import Csma
from verbena.lan.errors import LanError, LanTypeError
from verbena.lan.frame import frame_bits, is_group
from verbena.lan.port import Port, PortCounters

PS_PER_M = 5_000
"""Propagation at 2e8 m/s."""


class Outcome(IntEnum):
    """What became of a frame; ``enum vb_cable_outcome``."""

    SENT = 0
    CROSSED = 1
    LATE = 2
    EXCESSIVE = 3
    COLLIDED = 4


class MediumPort(Port):
    """A port of a cable or hub, at ``place`` picoseconds from the cable's start or the hub."""

    def __init__(self, medium: SharedMedium, index: int, place: int) -> None:
        super().__init__(medium._offer, medium._time)
        self.medium = medium
        self.index = index
        self.place = place

    @property
    def counters(self) -> PortCounters:
        """What the port has done so far."""
        return self.medium._counted(self)


class SharedMedium:
    """What a cable and a hub have in common. ``stations`` are its ports in order of attachment."""

    is_star = False

    def __init__(self, agenda: Agenda, *, rate_mbps: float, seed: int, too_long: bool) -> None:
        self.agenda = agenda
        self.csma = Csma(rate_mbps=rate_mbps)
        self.too_long = too_long
        self.ports: list[MediumPort] = []
        self._seed = seed
        self._core: CableState | None = None
        self._first: list[MediumPort] = []  # those with frames, before the core is made
        self._armed: int | None = None

    def _attached(self, place: int) -> MediumPort:
        if self._core is not None:
            raise LanError("frames were sent already: attach all ports before the first frame")
        port = MediumPort(self, len(self.ports), place)
        self.ports.append(port)
        return port

    def distance_ps(self, a: MediumPort, b: MediumPort) -> int:
        """How long a signal takes from one port to another."""
        if self.is_star:
            return a.place + b.place if a is not b else 0
        return abs(a.place - b.place)

    @property
    def collisions(self) -> int:
        """On the medium; two stations that collide once are one."""
        return 0 if self._core is None else self._core.collisions

    def _time(self) -> int:
        return self.agenda.now

    @property
    def _made(self) -> CableState:
        assert self._core is not None
        return self._core

    def _offer(self, port: Port) -> None:
        """The port's first frame is the next that it transmits."""
        assert isinstance(port, MediumPort)
        if self._core is not None:
            self._give(port)
            return
        # At the end of this instant, since a switch speaks as soon as it is attached.
        if not self._first:
            self.agenda.add(self.agenda.now, self._begin)
        self._first.append(port)

    def _begin(self) -> None:
        first, self._first = self._first, []
        self._core = self.csma.core(
            [port.place for port in self.ports], seed=self._seed, star=self.is_star
        )
        for port in first:
            self._give(port)

    def _give(self, port: MediumPort) -> None:
        born, frame = port.queue[0]
        self._made.offer(port.index, self.agenda.now, born, frame_bits(frame), 0)
        self._arm()

    def _arm(self) -> None:
        at = self._made.next_at
        if at is not None and (self._armed is None or at < self._armed):
            self._armed = at
            self.agenda.add(max(at, self.agenda.now), partial(self._work_out, at))

    def _work_out(self, armed: int) -> None:
        if self._armed != armed:  # a frame was offered later that comes first
            return
        self._armed = None
        while results := self._made.run(self.agenda.now):
            for outcome, station, _, end, _, _ in results:
                self._ended(self.ports[station], Outcome(outcome), end)
        self._arm()

    def _ended(self, port: MediumPort, outcome: Outcome, end: int) -> None:
        _, frame = port.queue.popleft()
        if outcome is Outcome.SENT:
            port.counted.sent_bytes += len(frame)
            self._deliver(port, frame, end)
        if port.queue:
            self._offer(port)

    def _deliver(self, sender: MediumPort, frame: bytes, end: int) -> None:
        arrivals: dict[int, list[MediumPort]] = defaultdict(list)
        to = None if is_group(frame) else frame[:6]
        for port in self.ports:
            if port is not sender and (to is None or port.mac is None or port.mac == to):
                arrivals[end + self.distance_ps(sender, port)].append(port)
        for at, ports in arrivals.items():
            self.agenda.add(max(at, self.agenda.now), partial(_arrive, ports, frame))

    def _counted(self, port: MediumPort) -> PortCounters:
        if self._core is not None:
            counted = port.counted
            numbers = self._core.counters(port.index)
            counted.sent, _, counted.collisions, counted.deferred, counted.excessive = numbers[:5]
            counted.late, counted.crossed, counted.waited_ps = numbers[5:]
        return port.counted


def _arrive(ports: list[MediumPort], frame: bytes) -> None:
    for port in ports:
        port.arrive(frame)


@checked_class(LanTypeError)
class Cable(SharedMedium):
    """A coaxial cable. All ports hear each other, each after the signal's way.

    ``too_long=True`` permits a cable on which collisions may be noticed late or never.
    """

    def __init__(
        self,
        agenda: Agenda,
        length_m: float,
        *,
        rate_mbps: float = 10,
        seed: int = 1,
        too_long: bool = False,
    ) -> None:
        super().__init__(agenda, rate_mbps=rate_mbps, seed=seed, too_long=too_long)
        if not length_m >= 0:
            raise LanError(f"a cable cannot be {length_m} m long")
        if not too_long:
            self.csma.check_length(length_m, "a cable")
        self.length_m = length_m

    def attach(self, at_m: float) -> MediumPort:
        """A port at so many metres from the cable's start. Raises LanError."""
        if not 0 <= at_m <= self.length_m:
            raise LanError(f"the cable ends at {self.length_m:g} m: nothing is at {at_m:g} m")
        return self._attached(round(at_m * PS_PER_M))


@checked_class(LanTypeError)
class Hub(SharedMedium):
    """A repeater: what one port sends, all others hear. ``delay_ps``: through the repeater."""

    is_star = True

    def __init__(
        self,
        agenda: Agenda,
        *,
        rate_mbps: float = 10,
        delay_ps: int = 0,
        seed: int = 1,
        too_long: bool = False,
    ) -> None:
        super().__init__(agenda, rate_mbps=rate_mbps, seed=seed, too_long=too_long)
        if delay_ps < 0:
            raise LanError(f"a hub's delay cannot be {delay_ps} ps")
        self.delay_ps = delay_ps
        self._lengths: list[float] = []

    def attach(self, length_m: float = 10) -> MediumPort:
        """A port at the end of a leg of so many metres. Raises LanError."""
        if not length_m >= 0:
            raise LanError(f"a leg cannot be {length_m} m long")
        longest = sum(sorted([*self._lengths, length_m])[-2:])
        if not self.too_long:
            span = longest + self.delay_ps / PS_PER_M
            self.csma.check_length(span, "the way between two ports of a hub")
        self._lengths.append(length_m)
        return self._attached(round(length_m * PS_PER_M) + self.delay_ps // 2)
