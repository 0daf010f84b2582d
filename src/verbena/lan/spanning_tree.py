# SPDX-License-Identifier: Apache-2.0
"""The spanning tree of one switch (IEEE 802.1D-1998 clause 8), without input, output or clock.

The switch gives it what its ports receive and the time, and sends what it says. The switch with the
lowest identifier becomes the root; every other one has a root port, the nearest to the root; on
each LAN one port is designated, and all others are blocked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from verbena._arguments import checked_class
from verbena.lan.bpdu import TICKS, Bpdu, Configuration, TopologyChange
from verbena.lan.errors import LanError, LanTypeError
from verbena.lan.tree_port import PortEvent, PortState, TreePort

MESSAGE_AGE_STEP = 1.0
"""Seconds that a switch adds to the age of what it passes on (8.10.2)."""

HOLD = 1.0
"""Seconds between two configurations of one port at least (8.10.2)."""


@checked_class(LanTypeError)
@dataclass(frozen=True)
class TreeTimes:
    """Seconds; the defaults of 802.1D-1998, table 8-3. A BPDU has 16 bits for each, in 1/256 s."""

    hello: float = 2.0
    max_age: float = 20.0
    forward_delay: float = 15.0

    def __post_init__(self) -> None:
        """Raises LanError."""
        times = self.hello, self.max_age, self.forward_delay
        if not all(1 / TICKS <= each <= 255 for each in times):
            raise LanError(f"the times of a spanning tree are 1/{TICKS} to 255 s, and not {times}")


def _check_own_times(times: TreeTimes) -> None:
    """Of 802.1D-1998, 8.10.2: what is old has gone before a port forwards, and a lost hello or two
    is no reason to elect anew. Those of another root are used as they come."""
    if not 2 * (times.hello + 1) <= times.max_age <= 2 * (times.forward_delay - 1):
        raise LanError(
            f"max_age is {times.max_age} s: with a hello of {times.hello} s and a forward delay of "
            f"{times.forward_delay} s it is {2 * (times.hello + 1):g} to "
            f"{2 * (times.forward_delay - 1):g} s, 2 * (hello + 1) to 2 * (forward_delay - 1)"
        )


class Timer(StrEnum):
    HELLO = "hello"
    NOTIFY = "topology change notification"
    CHANGE = "topology change"
    AGE = "message age"
    DELAY = "forward delay"
    HOLD = "hold"


@checked_class(LanTypeError, but=("receive",))
class SpanningTree:
    """``identifier``: 2 bytes of priority and 6 of MAC address. Times are seconds. Raises LanError
    for times with which a loop could open."""

    def __init__(
        self,
        identifier: bytes,
        send: Callable[[int, Bpdu], None],
        times: TreeTimes | None = None,
    ) -> None:
        self.identifier = identifier
        self.own_times = TreeTimes() if times is None else times
        _check_own_times(self.own_times)
        self.times = self.own_times
        self.root = identifier
        self.root_cost = 0
        self.root_port: TreePort | None = None
        self.ports: dict[int, TreePort] = {}
        self.changes = False
        """The topology changes: learnt addresses age in the forward delay."""
        self.change_counts = 0
        self._notifies = False
        self._send = send
        self._timers: dict[tuple[Timer, int], float] = {}
        self._now = 0.0
        self._due: dict[Timer, Callable[[int], None]] = {
            Timer.HELLO: lambda port: self._hello(),
            Timer.NOTIFY: lambda port: self._notify_root(),
            Timer.CHANGE: lambda port: self._change_is_over(),
            Timer.AGE: lambda port: self._too_old(self.ports[port]),
            Timer.DELAY: lambda port: self._delay_is_over(self.ports[port]),
            Timer.HOLD: lambda port: self._hold_is_over(self.ports[port]),
        }

    @property
    def is_root(self) -> bool:
        """Whether this switch believes that it is the root."""
        return self.root == self.identifier

    # ---- what the switch calls -----------------------------------------------------------

    @property
    def next_at(self) -> float | None:
        """When ``advance`` has something to do."""
        return min(self._timers.values(), default=None)

    def advance(self, now: float) -> None:
        """Runs the timers that are due."""
        while (at := self.next_at) is not None and at <= now:
            kind, port = min(self._timers, key=lambda each: (self._timers[each], each))
            self._now = max(self._now, self._timers.pop((kind, port)))
            self._due[kind](port)
        self._now = max(self._now, now)

    def enable(self, number: int, cost: int, now: float) -> None:
        """A port's link came (8.8.2)."""
        self.advance(now)
        port = TreePort(number, cost, (b"", 0, b"", 0))
        self.ports[number] = port
        self._designate(port)
        port.step(PortEvent.ENABLED)
        self._choose_states()
        if self.is_root and (Timer.HELLO, 0) not in self._timers:
            self._hello()

    def disable(self, number: int, now: float) -> None:
        """A port's link went (8.8.3)."""
        self.advance(now)
        port = self.ports[number]
        was_root = self.is_root
        port.step(PortEvent.GONE)
        self._designate(port)
        for kind in (Timer.AGE, Timer.DELAY, Timer.HOLD):
            self._stop(kind, number)
        self._update()
        self._choose_states()
        if self.is_root and not was_root:
            self._become_root()

    def receive(self, number: int, bpdu: Bpdu, now: float) -> None:
        """A port received a BPDU (8.7.1, 8.7.2)."""
        self.advance(now)
        port = self.ports[number]
        if port.state is PortState.DISABLED:
            return
        if isinstance(bpdu, Configuration):
            self._take_configuration(port, bpdu)
        elif self._is_designated(port):
            self._detect_change()
            port.owes_acknowledgement = True
            self._configure(port)

    # ---- election (8.6.1 to 8.6.8) -------------------------------------------------------

    def _take_configuration(self, port: TreePort, bpdu: Configuration) -> None:
        heard = (bpdu.root, bpdu.cost, bpdu.bridge, bpdu.port)
        better = heard[:3] < port.heard[:3]
        repeats = heard[:3] == port.heard[:3] and (
            bpdu.bridge != self.identifier or bpdu.port <= port.heard[3]
        )
        if not better and not repeats:
            if self._is_designated(port):
                self._configure(port)
            return
        was_root = self.is_root
        port.heard = heard
        self._start(Timer.AGE, max(0.0, bpdu.max_age - bpdu.message_age), port.number)
        self._update()
        self._choose_states()
        if was_root and not self.is_root:
            self._stop(Timer.HELLO)
            if self._notifies:
                self._stop(Timer.CHANGE)
                self._notify_root()
        if port is self.root_port:
            self._follow_root(bpdu)

    def _follow_root(self, bpdu: Configuration) -> None:
        self.times = TreeTimes(bpdu.hello, bpdu.max_age, bpdu.forward_delay)
        self.changes = bpdu.changes
        self._configure_all()
        if bpdu.acknowledges:
            self._notifies = False
            self._stop(Timer.NOTIFY)

    def _update(self) -> None:
        """Chooses the root port and the designated ports."""
        offers = [
            ((port.heard[0], port.heard[1] + port.cost, *port.heard[2:], port.identifier), port)
            for port in self.ports.values()
            if port.state is not PortState.DISABLED
            and not self._is_designated(port)
            and port.heard[0] < self.identifier
        ]
        self.root, self.root_cost, self.root_port = self.identifier, 0, None
        if offers:
            (self.root, self.root_cost, *_), self.root_port = min(offers, key=lambda each: each[0])
        for port in self.ports.values():
            own = (self.root_cost, self.identifier, port.identifier)
            if self._is_designated(port) or port.heard[0] != self.root or own <= port.heard[1:]:
                self._designate(port)

    def _is_designated(self, port: TreePort) -> bool:
        return port.heard[2:] == (self.identifier, port.identifier)

    def _designate(self, port: TreePort) -> None:
        port.heard = (self.root, self.root_cost, self.identifier, port.identifier)

    def _choose_states(self) -> None:
        for port in self.ports.values():
            if port.state is PortState.DISABLED:
                continue
            if port is self.root_port:
                port.holds_configuration = port.owes_acknowledgement = False
                self._chosen(port)
            elif self._is_designated(port):
                self._stop(Timer.AGE, port.number)
                self._chosen(port)
            else:
                port.holds_configuration = port.owes_acknowledgement = False
                self._rejected(port)

    def _chosen(self, port: TreePort) -> None:
        if port.state is PortState.BLOCKING:
            self._start(Timer.DELAY, self.times.forward_delay, port.number)
        port.step(PortEvent.CHOSEN)

    def _rejected(self, port: TreePort) -> None:
        learnt = port.state.learns
        port.step(PortEvent.REJECTED)
        self._stop(Timer.DELAY, port.number)
        if learnt:
            self._detect_change()

    def _become_root(self) -> None:
        self.times = self.own_times
        self._detect_change()
        self._stop(Timer.NOTIFY)
        self._hello()

    # ---- configurations (8.6.1, 8.6.4) ---------------------------------------------------

    def _configure_all(self) -> None:
        for port in self.ports.values():
            if port.state is not PortState.DISABLED and self._is_designated(port):
                self._configure(port)

    def _configure(self, port: TreePort) -> None:
        if (Timer.HOLD, port.number) in self._timers:
            port.holds_configuration = True
            return
        age = 0.0
        if self.root_port is not None:
            left = self._timers[Timer.AGE, self.root_port.number] - self._now
            age = self.times.max_age - left + MESSAGE_AGE_STEP
        if age >= self.times.max_age:
            return
        acknowledges, port.owes_acknowledgement = port.owes_acknowledgement, False
        port.holds_configuration = False
        self._start(Timer.HOLD, HOLD, port.number)
        times = (self.times.max_age, self.times.hello, self.times.forward_delay)
        who = (self.root, self.root_cost, self.identifier, port.identifier)
        self._send(port.number, Configuration(*who, age, *times, self.changes, acknowledges))

    def _hold_is_over(self, port: TreePort) -> None:
        if port.holds_configuration:
            self._configure(port)

    def _hello(self) -> None:
        self._configure_all()
        self._start(Timer.HELLO, self.times.hello)

    # ---- timers and topology changes (8.6.14 to 8.6.17, 8.7.4 to 8.7.8) ------------------

    def _too_old(self, port: TreePort) -> None:
        was_root = self.is_root
        self._designate(port)
        self._update()
        self._choose_states()
        if self.is_root and not was_root:
            self._become_root()

    def _delay_is_over(self, port: TreePort) -> None:
        port.step(PortEvent.DELAYED)
        if port.state is PortState.LEARNING:
            self._start(Timer.DELAY, self.times.forward_delay, port.number)
        elif any(self._is_designated(each) for each in self.ports.values()):
            self._detect_change()

    def _detect_change(self) -> None:
        self.change_counts += 1
        if self.is_root:
            self.changes = True
            self._start(Timer.CHANGE, self.times.max_age + self.times.forward_delay)
        elif not self._notifies:
            self._notify_root()
        self._notifies = True

    def _notify_root(self) -> None:
        if self.root_port is not None:
            self._send(self.root_port.number, TopologyChange())
            self._start(Timer.NOTIFY, self.own_times.hello)

    def _change_is_over(self) -> None:
        self.changes = self._notifies = False

    def _start(self, kind: Timer, seconds: float, port: int = 0) -> None:
        self._timers[kind, port] = self._now + seconds

    def _stop(self, kind: Timer, port: int = 0) -> None:
        self._timers.pop((kind, port), None)
