# SPDX-License-Identifier: Apache-2.0
"""A learning switch (IEEE 802.1D bridge): it stores a frame and forwards it where its receiver is.

Addresses are learnt from the frames that arrive, and forgotten after 300 s. The spanning tree
blocks ports, so that a LAN with loops has one way between any two stations.
"""

from __future__ import annotations

from verbena._arguments import checked_class
from verbena.host.clock import Agenda
from verbena.lan.bpdu import GROUP, Bpdu, is_link_local, pack, parse
from verbena.lan.errors import LanError, LanTypeError
from verbena.lan.frame import is_group
from verbena.lan.mac_table import MacTable
from verbena.lan.port import Port
from verbena.lan.spanning_tree import SpanningTree, TreeTimes
from verbena.lan.tree_port import PortState, path_cost

PS_PER_S = 10**12
MOST_PORTS = 255


@checked_class(LanTypeError)
class LearningSwitch:
    """A switch; ``ports`` are numbered from 1 in order of connection.

    ``flooded`` and ``forwarded`` count frames that went to all other ports and to one.
    """

    def __init__(
        self,
        agenda: Agenda,
        name: str,
        mac: bytes,
        *,
        priority: int = 32768,
        spanning_tree: bool = True,
        times: TreeTimes | None = None,
    ) -> None:
        if not 0 <= priority <= 0xFFFF:
            raise LanError(f"a switch's priority has 16 bits: {priority} is not 0 to 65535")
        self.agenda = agenda
        self.name = name
        self.mac = mac
        self.ports: list[Port] = []
        self.rates: list[float] = []
        self.table = MacTable()
        self.flooded = self.forwarded = 0
        self.tree: SpanningTree | None = None
        if spanning_tree:
            self.tree = SpanningTree(priority.to_bytes(2, "big") + mac, self._say, times)
        self._armed: int | None = None

    def __repr__(self) -> str:
        return f"LearningSwitch({self.name!r}, {len(self.ports)} ports)"

    def add_port(self, port: Port, rate_mbps: float) -> int:
        """Takes a port of a wire or medium; its number. Raises LanError."""
        if len(self.ports) == MOST_PORTS:
            raise LanError(f"{self.name} has {MOST_PORTS} ports already")
        self.ports.append(port)
        self.rates.append(rate_mbps)
        number = len(self.ports)
        port.on_frame = lambda frame: self._arrived(number, frame)
        port.on_link = lambda is_up: self._link_changed(number, is_up)
        if port.is_up:
            self._link_changed(number, True)
        return number

    def state(self, number: int) -> PortState:
        """The state of a port."""
        if not 1 <= number <= len(self.ports):
            raise LanError(f"{self.name} has ports 1 to {len(self.ports)}, and no {number}")
        if self.tree is None:
            return PortState.FORWARDING if self.ports[number - 1].is_up else PortState.DISABLED
        return self.tree.ports[number].state if number in self.tree.ports else PortState.DISABLED

    # ---- frames --------------------------------------------------------------------------

    def _arrived(self, number: int, frame: bytes) -> None:
        destination, source = frame[:6], frame[6:12]
        if self.tree is not None and destination == GROUP:
            self._hear(number, frame)
            return
        state = self.state(number)
        if not state.learns or is_link_local(destination):
            return
        if not is_group(source):
            self.table.learn(source, number, self.agenda.now)
        if state is PortState.FORWARDING:
            self._forward(number, frame)

    def _forward(self, came: int, frame: bytes) -> None:
        to = None if is_group(frame) else self.table.find(frame[:6], self.agenda.now)
        if to == came:
            return
        if to is not None and self.state(to) is PortState.FORWARDING:
            self.forwarded += 1
            self.ports[to - 1].send(frame)
            return
        self.flooded += 1
        for number, port in enumerate(self.ports, 1):
            if number != came and self.state(number) is PortState.FORWARDING:
                port.send(frame)

    # ---- spanning tree -------------------------------------------------------------------

    def _seconds(self) -> float:
        return self.agenda.now / PS_PER_S

    def _say(self, number: int, message: Bpdu) -> None:
        self.ports[number - 1].send(pack(message, self.mac))

    def _hear(self, number: int, frame: bytes) -> None:
        assert self.tree is not None
        try:
            message = parse(frame)
        except LanError:
            return
        self.tree.receive(number, message, self._seconds())
        self._follow_tree()

    def _link_changed(self, number: int, is_up: bool) -> None:
        if not is_up:
            self.table.forget(number)
        if self.tree is None:
            return
        if is_up:
            self.tree.enable(number, path_cost(self.rates[number - 1]), self._seconds())
        else:
            self.tree.disable(number, self._seconds())
        self._follow_tree()

    def _follow_tree(self) -> None:
        """Ages addresses as the tree says, and wakes for its next timer."""
        assert self.tree is not None
        delay = self.tree.times.forward_delay if self.tree.changes else None
        self.table.hurry(None if delay is None else round(delay * PS_PER_S), self.agenda.now)
        if self.tree.next_at is None:
            return
        at = max(self.agenda.now, round(self.tree.next_at * PS_PER_S))
        if self._armed is None or at < self._armed:
            self._armed = at
            self.agenda.add(at, lambda: self._wake(at))

    def _wake(self, armed: int) -> None:
        assert self.tree is not None
        if self._armed != armed:
            return
        self._armed = None
        # A float of seconds may be a little after the picosecond: half a nanosecond is enough.
        self.tree.advance(self._seconds() + 5e-10)
        self._follow_tree()
