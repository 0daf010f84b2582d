# SPDX-License-Identifier: Apache-2.0
"""A network of an internet over a ``verbena.lan``: its cables, hubs and learning switches.

``Internet.lan_network`` makes a ``LanSegment`` with one ``StationLink`` for each member. Frames are
those of the LAN: they collide, wait, are flooded and learnt. Both simulations have one agenda.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from verbena.internet.errors import InternetError
from verbena.internet.links import LineSettings, Link
from verbena.lan import Lan, Station


class StationLink:
    """A ``LinkEnd``: an interface's way to its station. ``up`` is whether the station's cable has
    a signal, which a cable or hub always has and a wire while it is not cut."""

    def __init__(self, segment: LanSegment, station: Station) -> None:
        self.station = station
        self.mtu = min(station.mtu, segment.mtu)
        self.on_frame: Callable[[bytes], None] | None = None
        self.on_carrier: Callable[[], None] | None = None
        self.on_drop: Callable[[], None] | None = None
        self._segment = segment
        station.on_frame = self._receive
        station.port.on_link = self._link_changed

    @property
    def up(self) -> bool:
        return self.station.port.is_up

    def send(self, frame: bytes) -> None:
        for tap in self._segment.taps:
            tap(frame)
        before = self.station.port.counted.dropped
        self.station.send(frame)
        if self.station.port.counted.dropped > before and self.on_drop is not None:
            self.on_drop()

    def _receive(self, frame: bytes) -> None:
        if self.on_frame is not None:
            self.on_frame(frame)

    def _link_changed(self, is_up: bool) -> None:
        if self.on_carrier is not None:
            self.on_carrier()


class LanSegment(Link):
    """What the stations of a network share. A tap sees a frame when its sender hands it to the
    station, before it waits and collides."""

    is_ethernet = True

    def __init__(self, name: str, lan: Lan) -> None:
        super().__init__(name, lan.agenda, LineSettings())
        self.lan = lan
        self.members: list[StationLink] = []

    def add(self, names: Sequence[str]) -> list[StationLink]:
        """The links of members, by the names of their stations.

        Raises InternetError for a station that does not exist or has an owner.
        """
        for at, name in enumerate(names):
            if name not in self.lan.stations:
                known = ", ".join(self.lan.stations) or "none"
                raise InternetError(f"the LAN has no station {name!r}: there are {known}")
            if self.lan.stations[name].on_frame is not None or name in names[:at]:
                raise InternetError(f"somebody else receives the frames of station {name!r}")
        made = [StationLink(self, self.lan.stations[name]) for name in names]
        self.members += made
        return made

    @property
    def mtu(self) -> int:
        """That of its stations, which is Ethernet's. Setting it raises InternetError."""
        return self.settings.mtu

    @mtu.setter
    def mtu(self, mtu: int) -> None:
        raise InternetError(
            f"{self.name} is a LAN, whose stations all have Ethernet's MTU of {self.mtu} bytes: "
            f"for {mtu}, make the network of another link (Internet.network)"
        )

    @property
    def dropped(self) -> int:
        return sum(one.station.counters.dropped for one in self.members)

    @property
    def lost(self) -> int:
        """Frames of members that were given up after collisions, or cut on their way."""
        counters = [one.station.counters for one in self.members]
        return sum(one.excessive + one.late + one.crossed + one.cut for one in counters)

    def cut(self, silent: bool = False) -> NoReturn:
        """Raises InternetError."""
        raise InternetError(f"{self.name} is a LAN: cut a wire of it, as lan.wires[0].cut()")

    def restore(self) -> NoReturn:
        """Raises InternetError."""
        raise InternetError(f"{self.name} is a LAN: mend its wire, as lan.wires[0].mend()")
