# SPDX-License-Identifier: Apache-2.0
"""A full-duplex wire between two ports: no collisions, each direction sends by itself.

Switches are connected by wires, and stations to switches. ``cut`` and ``mend`` take the link away
and bring it back; both ends are told.
"""

from __future__ import annotations

from functools import partial

from verbena._arguments import checked_class
from verbena.host.clock import Agenda
from verbena.lan.csma import Csma
from verbena.lan.errors import LanError, LanTypeError
from verbena.lan.frame import PREAMBLE, frame_bits
from verbena.lan.medium import PS_PER_M
from verbena.lan.port import Port


@checked_class(LanTypeError)
class Wire:
    """Two ports, ``ends``; a frame takes its bits, the gap behind it, and the way."""

    def __init__(self, agenda: Agenda, *, length_m: float = 10, rate_mbps: float = 100) -> None:
        if not length_m >= 0:
            raise LanError(f"a wire cannot be {length_m} m long")
        self.agenda = agenda
        self.csma = Csma(rate_mbps=rate_mbps)
        self.way_ps = round(length_m * PS_PER_M)
        self._free = [0, 0]
        self._cuts = 0
        self.ends = (self._end(0), self._end(1))

    def _end(self, which: int) -> Port:
        return Port(lambda port: self._start(port, which), lambda: self.agenda.now)

    @property
    def is_up(self) -> bool:
        """Whether frames pass."""
        return self.ends[0].is_up

    def cut(self) -> None:
        """Takes the link away: frames that wait or are on their way are lost."""
        self._cuts += 1
        for end in self.ends:
            end.set_link(False)

    def mend(self) -> None:
        """Brings the link back."""
        for end in self.ends:
            end.set_link(True)

    def _start(self, port: Port, which: int) -> None:
        born, frame = port.queue[0]
        bit = self.csma.bit_ps
        start = max(self.agenda.now, self._free[which])
        end = start + (8 * PREAMBLE + frame_bits(frame)) * bit
        self._free[which] = end + self.csma.gap * bit
        port.counted.waited_ps += start - born
        self.agenda.add(end, partial(self._sent, port, which, self._cuts))

    def _sent(self, port: Port, which: int, cuts: int) -> None:
        if cuts != self._cuts:  # the frame was dropped with the queue
            return
        _, frame = port.queue.popleft()
        port.counted.sent += 1
        port.counted.sent_bytes += len(frame)
        at = self.agenda.now + self.way_ps
        self.agenda.add(at, partial(self._over, port, which, cuts, frame))
        if port.queue:
            self._start(port, which)

    def _over(self, port: Port, which: int, cuts: int, frame: bytes) -> None:
        if cuts == self._cuts:
            self.ends[1 - which].arrive(frame)
        else:
            port.counted.cut += 1
