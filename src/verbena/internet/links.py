# SPDX-License-Identifier: Apache-2.0
"""Links between nodes: a point-to-point line, and a switched Ethernet segment.

Interfaces send by a ``LinkEnd``. Anything with ``send``, ``on_frame`` and ``mtu`` is one, so other
link layers can be attached too. A frame arrives after it has waited in the sender's queue, was
serialised at the line's rate and has crossed the line; a full queue drops the newest frame.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol

from verbena._arguments import checked_class
from verbena.host.clock import Agenda
from verbena.internet.errors import InternetError, InternetTypeError
from verbena.internet.ipv4 import MAX_DATAGRAM, MIN_MTU
from verbena.internet.timer import MICROSECOND
from verbena.lan.frame import HEADER, is_group

# Preamble, start of frame, check sequence and gap: on the wire, but in no frame here.
ETHERNET_OVERHEAD = 24

Tap = Callable[[bytes], None]


class LinkEnd(Protocol):
    """What an interface needs: ``mtu`` is in bytes of IPv4; ``on_frame`` gets what arrives."""

    @property
    def mtu(self) -> int: ...

    on_frame: Callable[[bytes], None] | None

    def send(self, frame: bytes) -> None: ...


@checked_class(InternetTypeError, but=("serialization",))
@dataclass(frozen=True)
class LineSettings:
    """``mbps`` and ``delay_us`` are of each direction, ``queue`` is in frames, ``loss`` is the
    probability that a frame does not arrive. Raises InternetError for values without meaning."""

    mbps: float = 1000.0
    delay_us: float = 10.0
    mtu: int = 1500
    queue: int = 100
    loss: float = 0.0

    def __post_init__(self) -> None:
        if not MIN_MTU <= self.mtu <= MAX_DATAGRAM:
            raise InternetError(
                f"an MTU of {self.mtu} bytes: IPv4 needs {MIN_MTU} to {MAX_DATAGRAM} on every link"
            )
        if not self.mbps > 0 or not self.delay_us >= 0 or self.queue < 1:
            raise InternetError(
                f"{self.mbps} Mb/s, {self.delay_us} us, a queue of {self.queue} frames: a link "
                "needs a rate above 0, a delay of 0 or more, and room for a frame"
            )
        if not 0 <= self.loss <= 1:
            raise InternetError(f"a loss of {self.loss}: it is a probability, 0 to 1")

    def serialization(self, size: int) -> int:
        """ps that so many bytes take."""
        return round(size * 8 * 10**6 / self.mbps)


class Line:
    """One direction. ``arrive`` gets each frame at the far end."""

    def __init__(
        self,
        agenda: Agenda,
        settings: LineSettings,
        random: Random,
        arrive: Callable[[bytes], None],
        overhead: int = 0,
    ) -> None:
        self._agenda = agenda
        self._settings = settings
        self._random = random
        self._arrive = arrive
        self._overhead = overhead
        self._ends: deque[int] = deque()
        self._cuts = 0
        self.sent = 0
        self.dropped = 0
        self.lost = 0

    def send(self, frame: bytes) -> bool:
        """Send a frame. Returns False if the queue had no room for it."""
        now = self._agenda.now
        while self._ends and self._ends[0] <= now:
            self._ends.popleft()
        # The frame that is on the wire is not in the queue.
        if len(self._ends) > self._settings.queue:
            self.dropped += 1
            return False
        begin = self._ends[-1] if self._ends else now
        end = begin + self._settings.serialization(len(frame) + self._overhead)
        self._ends.append(end)
        self.sent += 1
        if self._settings.loss and self._random.random() < self._settings.loss:
            self.lost += 1
            return True
        cuts = self._cuts
        self._agenda.add(
            end + round(self._settings.delay_us * MICROSECOND), lambda: self._end(frame, cuts)
        )
        return True

    def cut(self) -> None:
        """Lose all frames that are queued or on the way."""
        self._cuts += 1
        self._ends.clear()

    def _end(self, frame: bytes, cuts: int) -> None:
        if cuts == self._cuts:
            self._arrive(frame)
        else:
            self.lost += 1


class Port:
    """An end of a link of this file: a ``LinkEnd`` that also knows whether its link is up.

    ``line`` leads away from it; ``on_carrier`` is called when the link is seen to go up or down,
    and ``on_drop`` when the line's queue has no room for a frame.
    """

    def __init__(self, link: Link, mtu: int, mac: bytes | None = None) -> None:
        self.link = link
        self.mtu = mtu
        self.mac = mac
        self.line: Line
        self.on_frame: Callable[[bytes], None] | None = None
        self.on_carrier: Callable[[], None] | None = None
        self.on_drop: Callable[[], None] | None = None

    @property
    def up(self) -> bool:
        """Whether the link has a signal; a silent cut leaves it."""
        return self.link.signal

    def send(self, frame: bytes) -> None:
        if not self.link.up:
            self.link.sent_while_down += 1
        elif not self.line.send(frame) and self.on_drop is not None:
            self.on_drop()

    def arrive(self, frame: bytes) -> None:
        for tap in self.link.taps:
            tap(frame)
        self.hand(frame)

    def hand(self, frame: bytes) -> None:
        if self.on_frame is not None:
            self.on_frame(frame)


@checked_class(InternetTypeError)
class Link:
    """What lines and segments share: a name, ends, taps, and that they can be cut.

    A tap sees each frame once, when it arrives at the far end of its line.
    """

    is_ethernet = False

    def __init__(self, name: str, agenda: Agenda, settings: LineSettings) -> None:
        self.name = name
        self.agenda = agenda
        self.settings = settings
        self.ports: list[Port] = []
        self.taps: list[Tap] = []
        self.up = True
        self.signal = True
        self.sent_while_down = 0

    def __repr__(self) -> str:
        return f"<link {self.name}: {'up' if self.up else 'cut'}, MTU {self.mtu}>"

    @property
    def mtu(self) -> int:
        """Bytes of the largest datagram that crosses the link whole. It may be set at any time, for
        what is sent from then on: path MTU discovery finds a smaller one by the next error, and a
        larger one when its entries are 10 minutes old (RFC 1191, 6.3). Raises InternetError."""
        return self.settings.mtu

    @mtu.setter
    def mtu(self, mtu: int) -> None:
        self.settings = replace(self.settings, mtu=mtu)
        for port in self.ports:
            port.mtu = mtu

    @property
    def lines(self) -> list[Line]:
        return [port.line for port in self.ports]

    @property
    def dropped(self) -> int:
        """Frames for which a queue had no room."""
        return sum(line.dropped for line in self.lines)

    @property
    def lost(self) -> int:
        """Frames that random loss or a cut has lost, or that were sent while the link was cut."""
        return sum(line.lost for line in self.lines) + self.sent_while_down

    def cut(self, silent: bool = False) -> None:
        """Cut the link. With ``silent`` its ends still have a signal, and protocols find out only
        by what does not arrive."""
        self.up = False
        for line in self.lines:
            line.cut()
        self._set_signal(silent)

    def restore(self) -> None:
        self.up = True
        self._set_signal(True)

    def _set_signal(self, signal: bool) -> None:
        if signal == self.signal:
            return
        self.signal = signal
        for port in self.ports:
            if port.on_carrier is not None:
                port.on_carrier()


@checked_class(InternetTypeError)
class PointToPoint(Link):
    """A line between two ports, each of which sends datagrams without a frame around them."""

    def __init__(self, name: str, agenda: Agenda, settings: LineSettings, random: Random) -> None:
        super().__init__(name, agenda, settings)
        left, right = Port(self, settings.mtu), Port(self, settings.mtu)
        left.line = Line(agenda, settings, random, right.arrive)
        right.line = Line(agenda, settings, random, left.arrive)
        self.ports = [left, right]


@checked_class(InternetTypeError)
class Segment(Link):
    """An Ethernet around one switch that knows every station's port. It takes any number of them.

    A frame crosses two lines: to the switch, and from it to the station or, for a group, to all
    others. Each line has the rate, the delay and the queue of ``settings``.
    """

    is_ethernet = True

    def __init__(self, name: str, agenda: Agenda, settings: LineSettings, random: Random) -> None:
        super().__init__(name, agenda, settings)
        self._random = random
        self._down: dict[bytes, Line] = {}

    @property
    def lines(self) -> list[Line]:
        return super().lines + list(self._down.values())

    def port(self, mac: bytes) -> Port:
        """A port for one more station. Raises InternetError for a MAC address that is taken."""
        if mac in self._down:
            raise InternetError(f"{self.name} already has a station {mac.hex(':')}")
        port = Port(self, self.settings.mtu, mac)
        port.line = self._line(lambda frame: self._switch(frame, mac))
        self._down[mac] = self._line(port.hand)
        self.ports.append(port)
        return port

    def _line(self, arrive: Callable[[bytes], None]) -> Line:
        return Line(self.agenda, self.settings, self._random, arrive, ETHERNET_OVERHEAD)

    def _switch(self, frame: bytes, source: bytes) -> None:
        for tap in self.taps:
            tap(frame)
        if len(frame) < HEADER:
            return
        destination = frame[:6]
        if is_group(destination):
            for mac, line in self._down.items():
                if mac != source:
                    line.send(frame)
        elif destination in self._down:
            self._down[destination].send(frame)


class Links(dict[str, Link]):
    """Links by name. ``links["b-a"]`` is the link "a-b", too, unless another has that name."""

    def __missing__(self, name: str) -> Link:
        """Raises InternetError, which says what links there are."""
        for place, letter in enumerate(name if isinstance(name, str) else ""):
            turned = f"{name[place + 1 :]}-{name[:place]}"
            if letter == "-" and turned in self:
                return self[turned]
        known = ", ".join(self) or "none"
        raise InternetError(f"no link is called {name!r}: there are {known}")
