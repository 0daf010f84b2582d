# SPDX-License-Identifier: Apache-2.0
"""A whole LAN on one agenda: stations, cables, hubs, switches and wires by name.

It makes the parts, connects them, and refuses what cannot be. Time passes only in ``run``.
"""

from __future__ import annotations

from random import Random

from verbena._arguments import checked_class
from verbena.host.clock import NEVER, Agenda
from verbena.lan.errors import LanError, LanTypeError
from verbena.lan.frame import is_group, mac_address, mac_text
from verbena.lan.medium import Cable, Hub
from verbena.lan.port import QUEUE, Port
from verbena.lan.station import Station
from verbena.lan.switch import LearningSwitch
from verbena.lan.wire import Wire

PS_PER_S = 10**12
LENGTH_M, WIRE_MBPS = 10, 100


@checked_class(LanTypeError)
class Lan:
    """``seed`` decides all that is random: the backoff of each cable and hub."""

    def __init__(self, seed: int = 1, agenda: Agenda | None = None) -> None:
        self.agenda = Agenda() if agenda is None else agenda
        self.stations: dict[str, Station] = {}
        self.switches: dict[str, LearningSwitch] = {}
        self.wires: list[Wire] = []
        self._media: list[Cable | Hub] = []
        self._macs: dict[bytes, str] = {}
        self._random = Random(seed)

    @property
    def now(self) -> int:
        """Picoseconds."""
        return self.agenda.now

    def run(self, seconds: float) -> None:
        """Lets so much time pass. LanError if it is below 0, or if time would reach 2^63 ps."""
        if seconds < 0:
            raise LanError(f"time goes on: {seconds} s are below 0")
        until = self.agenda.now + round(seconds * PS_PER_S)
        if until >= NEVER:
            raise LanError(
                f"time ends at 2^63 ps, {NEVER // PS_PER_S} s: {seconds:g} s more are too long"
            )
        self.agenda.run_due(until)

    def cable(self, length_m: float, *, rate_mbps: float = 10, too_long: bool = False) -> Cable:
        """A coaxial cable. Raises LanError if it is too long for its rate."""
        seed = self._random.getrandbits(64)
        made = Cable(self.agenda, length_m, rate_mbps=rate_mbps, seed=seed, too_long=too_long)
        self._media.append(made)
        return made

    def hub(self, *, rate_mbps: float = 10, delay_ps: int = 0, too_long: bool = False) -> Hub:
        """A hub; its legs come with what is connected to it."""
        seed = self._random.getrandbits(64)
        made = Hub(
            self.agenda, rate_mbps=rate_mbps, delay_ps=delay_ps, seed=seed, too_long=too_long
        )
        self._media.append(made)
        return made

    def switch(
        self, name: str, *, priority: int = 32768, spanning_tree: bool = True
    ) -> LearningSwitch:
        """A switch without ports; they come with what is connected to it."""
        self._free_name(name)
        mac = self._next_mac(0x0A)
        self._take_mac(mac, name)
        made = LearningSwitch(
            self.agenda, name, mac, priority=priority, spanning_tree=spanning_tree
        )
        self.switches[name] = made
        return made

    def station(
        self,
        name: str,
        on: Cable | Hub | LearningSwitch,
        *,
        mac: str | bytes | None = None,
        at_m: float | None = None,
        length_m: float | None = None,
        rate_mbps: float | None = None,
        queue: int = QUEUE,
    ) -> Station:
        """A station: at ``at_m`` metres of a cable, or by ``length_m`` metres (10) to a hub or
        switch, to a switch with ``rate_mbps`` (100). So many frames of ``queue`` wait to be sent;
        more are dropped, and counted as ``dropped``.

        Raises LanError when the name or the MAC address is taken, and for what another LAN made.
        """
        self._free_name(name)
        address = self._next_mac(0x02) if mac is None else mac_address(mac)
        if not any(address):
            raise LanError(f"{mac_text(address)} is the address of nobody, and not of a station")
        if is_group(address):
            raise LanError(f"{mac_text(address)} is the address of a group, and not of a station")
        if address in self._macs:
            raise LanError(f"{self._macs[address]} has the MAC address {mac_text(address)} already")
        _check_queue(queue)
        port = self._port_of(on, at_m, length_m, rate_mbps)
        port.capacity = queue
        self._take_mac(address, name)
        self.stations[name] = Station(name, address, port)
        return self.stations[name]

    def connect(
        self,
        switch: LearningSwitch | Hub | Cable,
        other: LearningSwitch | Hub | Cable,
        *,
        at_m: float | None = None,
        length_m: float | None = None,
        rate_mbps: float | None = None,
        queue: int = QUEUE,
    ) -> Wire | None:
        """Connects a switch to another switch by a wire, which is returned, or to a medium; the
        medium may come first.

        The places are those of ``station``; so many frames of ``queue`` wait in each port that is
        made. Raises LanError.
        """
        _check_queue(queue)
        if not isinstance(switch, LearningSwitch):
            if not isinstance(other, LearningSwitch):
                raise LanError(
                    "cables and hubs are connected to switches only: put a switch between the two"
                )
            switch, other = other, switch
        self._check_own(switch)
        if isinstance(other, LearningSwitch):
            if other is switch:
                raise LanError(f"{switch.name} cannot be connected to itself")
            self._check_own(other)
            if at_m is not None:
                raise LanError("at_m is a place on a cable; a wire between switches has length_m")
            wire = self._wire(length_m, rate_mbps)
            for end, one in zip(wire.ends, (switch, other), strict=True):
                end.capacity = queue
                one.add_port(end, wire.csma.rate_mbps)
            return wire
        port = self._port_of(other, at_m, length_m, rate_mbps)
        port.capacity = queue
        switch.add_port(port, other.csma.rate_mbps)
        return None

    def _check_own(self, part: LearningSwitch | Cable | Hub) -> None:
        """Frames of two LANs would be on two clocks, or have the same addresses."""
        if isinstance(part, LearningSwitch):
            if self.switches.get(part.name) is not part:
                raise LanError(f"{part.name} is no switch of this LAN: make it with lan.switch")
        elif not any(part is one for one in self._media):
            kind = type(part).__name__.lower()
            raise LanError(f"the {kind} is none of this LAN: make it with lan.{kind}")

    def _wire(self, length_m: float | None, rate_mbps: float | None) -> Wire:
        wire = Wire(
            self.agenda,
            length_m=LENGTH_M if length_m is None else length_m,
            rate_mbps=WIRE_MBPS if rate_mbps is None else rate_mbps,
        )
        self.wires.append(wire)
        return wire

    def _port_of(
        self,
        on: Cable | Hub | LearningSwitch,
        at_m: float | None,
        length_m: float | None,
        rate_mbps: float | None,
    ) -> Port:
        self._check_own(on)
        if rate_mbps is not None and not isinstance(on, LearningSwitch):
            kind = type(on).__name__.lower()
            rate = f"{on.csma.rate_mbps:g} Mb/s"
            raise LanError(f"rate_mbps is of a wire; a {kind} has one rate, {rate}")
        if isinstance(on, Cable):
            if length_m is not None:
                raise LanError("length_m is of a wire or a hub's leg; on a cable say at_m")
            if at_m is None:
                raise LanError("say where on the cable: at_m, in metres from its start")
            return on.attach(at_m)
        if at_m is not None:
            raise LanError("at_m is a place on a cable; a hub or a switch has length_m")
        if isinstance(on, Hub):
            return on.attach(LENGTH_M if length_m is None else length_m)
        wire = self._wire(length_m, rate_mbps)
        on.add_port(wire.ends[1], wire.csma.rate_mbps)
        return wire.ends[0]

    def _free_name(self, name: str) -> None:
        if name in self.stations or name in self.switches:
            raise LanError(f"there is a {name} already: give each station and switch its own name")

    def _next_mac(self, first: int) -> bytes:
        """A locally administered address that is not taken."""
        number = len(self._macs) + 1
        while (address := bytes([first]) + number.to_bytes(5, "big")) in self._macs:
            number += 1
        return address

    def _take_mac(self, address: bytes, name: str) -> None:
        self._macs[address] = name


def _check_queue(queue: int) -> None:
    if queue < 1:
        raise LanError(f"a queue of {queue} frames: it has room for one or more")
