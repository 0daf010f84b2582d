# SPDX-License-Identifier: Apache-2.0
"""The tables [[connect]] of a scenario: connections that are set up by the connection manager.

``Scenario`` reads them, and has a ``ConnectStorm`` for each. Its messages are packets of QP 1 that
share the wires with the scenario's traffic; queue pairs are not made, and no data follows.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from msgspec import Meta, field
from numpy.typing import NDArray

from verbena.manage.cm import (
    CmAddress,
    CmError,
    CmRefusal,
    CmSettings,
    RdmaConnectionParameters,
    RdmaEvent,
    RdmaEventKind,
)
from verbena.manage.ip_cm import PortSpace
from verbena.sim.connections import SECOND, SimulatedHostManager
from verbena.sim.document import Section, toml_text
from verbena.sim.hosts import Hosts
from verbena.sim.settings import MANY, TIME, Settings
from verbena.sim.units import time_text

if TYPE_CHECKING:
    from verbena.fabrics import Fabric
    from verbena.sim._world import World
    from verbena.sim.managed import ManagedWorld

__all__ = [
    "Connect",
    "ConnectReport",
    "ConnectStorm",
    "finish_storms",
    "read_connects",
    "start_storms",
]

PORT = 7174
FIRST_QPN = 0x100
REST = 10**9
Count = Annotated[int, Meta(ge=1, le=1 << 20)]
Time = Annotated[int, TIME]
ERRORS = (
    RdmaEventKind.ADDR_ERROR,
    RdmaEventKind.ROUTE_ERROR,
    RdmaEventKind.CONNECT_ERROR,
    RdmaEventKind.UNREACHABLE,
    RdmaEventKind.REJECTED,
)


class _Table(Settings):
    to: str
    name: str = "connections"
    source: Annotated[list[str] | None, MANY] = field(name="from", default=None)
    each: Count = 1
    at: Time = 0
    within: Time = 0
    backlog: Annotated[int, Meta(ge=1, le=1024)] = 1024
    accept: Time = 100_000_000
    processing: Time = 5_000_000
    resend: Time = SECOND // 4


@dataclass(frozen=True)
class Connect:
    """Connections of hosts to a server. Times are in ps.

    ``each`` host of ``source`` opens so many, each at a time between ``at`` and ``within`` later.
    The server takes ``accept`` for a request, one after the other, and has room for ``backlog``
    that wait. ``processing`` is the time of a connection manager for a message, and ``resend`` the
    time after which one that is not answered is first sent again; 0: 4.1 s, as Linux has it.
    """

    name: str
    target: str
    source: tuple[str, ...]
    each: int
    at: int
    within: int
    backlog: int
    accept: int
    processing: int
    resend: int


def read_connects(sections: list[Section], fabric: Fabric) -> tuple[Connect, ...]:
    """Return the tables. Raises ScenarioError."""
    found: list[Connect] = []
    for number, section in enumerate(sections):
        of = section.read(_Table)
        others = [name for name in fabric.hosts if name != of.to]
        source = others if of.source is None else of.source
        for key, names in (("to", [of.to]), ("from", source)):
            for name in names:
                if name not in fabric.hosts:
                    raise section.error(key, f"= {toml_text(name)}: there is no such host")
        if of.to in source:
            raise section.error("from", f"has {of.to}, which is the server")
        if number and (of.processing, of.resend) != (found[0].processing, found[0].resend):
            raise section.error(None, "has another processing or resend than the first [[connect]]")
        found.append(
            Connect(
                of.name if of.name != "connections" or not number else f"connections-{number + 1}",
                of.to,
                tuple(source),
                of.each,
                of.at,
                of.within,
                of.backlog,
                of.accept,
                of.processing,
                of.resend,
            )
        )
    return tuple(found)


@dataclass(frozen=True)
class ConnectReport:
    """What became of the connections of a [[connect]].

    ``begin`` and ``end`` are in ps, in the order of the requests; an ``end`` of -1 is a connection
    that was not established, and ``failed`` counts those that were refused or gave up. ``messages``
    were sent by all connection managers of the table's hosts, ``resent`` of them for the second
    time or later; ``turned_away`` requests found the backlog full.
    """

    name: str
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    failed: int
    messages: int
    resent: int
    turned_away: int

    @property
    def times(self) -> NDArray[np.int64]:
        """How long each established connection took, in ps."""
        done = self.end >= 0
        taken: NDArray[np.int64] = self.end[done] - self.begin[done]
        return taken

    def line(self) -> str:
        """Return a sentence about them."""
        times = self.times
        words = [f"{len(times)} of {len(self.end)} connections"]
        if len(times):
            middle, high = np.percentile(times, (50, 99))
            words += [f"median {time_text(middle)}", f"p99 {time_text(high)}"]
            words += [f"the last at {time_text(int(self.end.max()))}"]
        words.append(f"{self.messages:,} messages")
        words += [f"{self.resent:,} of them again"] * bool(self.resent)
        words += [f"{self.turned_away:,} requests turned away"] * bool(self.turned_away)
        words += [f"{self.failed:,} failed"] * bool(self.failed)
        return f"{self.name}: {', '.join(words)}"


class _Channel:
    """An event channel of a host's connection manager; ``woken`` is called when it has events."""

    _inodes = 1 << 40

    def __init__(self, manager: SimulatedHostManager, woken: Callable[[_Channel], None]) -> None:
        self.manager, self._woken = manager, woken
        self.hello = SimpleNamespace(inode=id(self) + self._inodes, ports=())
        self.pid = 0
        self._planned = False
        self.channel = -1
        manager.devices.opened(self)  # type: ignore[arg-type]

    def signal(self, has_events: bool) -> None:
        """See RdmaCmDevices: read the events once the manager is done."""
        if has_events and not self._planned:
            self._planned = True
            self.manager.world.call_at(self.manager.world.now, self._read)

    def _read(self, world: World) -> None:
        self._planned = False
        self._woken(self)
        self.manager.devices.settle()

    def next_event(self) -> RdmaEvent | None:
        """Return the next event, or None."""
        return self.manager.cm.read_event(self.channel)


class ConnectStorm:
    """A [[connect]] in a world, which begins at ``base`` in ps."""

    def __init__(
        self,
        hosts: Hosts,
        of: Connect,
        base: int,
        port: int,
        random: Random,
        qpns: Iterator[int],
    ) -> None:
        managers = hosts.connection_managers()
        self.world, self._of, self._port = hosts.world, of, port
        self._server = managers.of(hosts[of.target])
        self._clients = [managers.of(hosts[name]) for name in of.source]
        total = len(of.source) * of.each
        self._begin = np.full(total, -1, np.int64)
        self._end = np.full(total, -1, np.int64)
        self._failed = 0
        self._is_busy = False
        self._qpns = qpns  # a connection manager refuses the queue pair of a connection that it has
        self.on_end: Callable[[], None] = lambda: None
        self._address = CmAddress.ip(hosts[of.target].address, port)
        self._listen()
        for number, client in enumerate(self._clients):
            channel = _Channel(client, self._happened)
            for turn in range(of.each):
                at = base + of.at + (random.randrange(of.within + 1) if of.within else 0)
                one = number * of.each + turn
                self.world.call_at(at, self._connector(channel, one))

    def _listen(self) -> None:
        cm = self._server.cm
        channel = _Channel(self._server, self._serve)
        listener = cm.create_id(channel.channel, PortSpace.TCP)
        cm.bind(listener, CmAddress.wildcard().with_port(self._port))
        cm.listen(listener, self._of.backlog)

    # ---- clients ----

    def _connector(self, channel: _Channel, one: int) -> Callable[[World], None]:
        def begin(world: World) -> None:
            manager = channel.manager
            manager.refresh()
            manager.cm.tick(manager.now)
            self._begin[one] = world.now
            made = manager.cm.create_id(channel.channel, PortSpace.TCP, context=one + 1)
            manager.cm.resolve_address(made, self._address)
            manager.devices.settle()

        return begin

    def _happened(self, channel: _Channel) -> None:
        while (event := channel.next_event()) is not None:
            self._take(channel.manager, event)
        if not self.left:
            self.on_end()

    def _take(self, client: SimulatedHostManager, event: RdmaEvent) -> None:
        cm, kind = client.cm, event.kind
        if kind is RdmaEventKind.ADDR_RESOLVED:
            cm.resolve_route(event.id)
        elif kind is RdmaEventKind.ROUTE_RESOLVED:
            cm.connect(event.id, RdmaConnectionParameters(next(self._qpns)))
        elif kind is RdmaEventKind.CONNECT_RESPONSE:
            self._end[event.context - 1] = self.world.now
            cm.accept(event.id)
        elif kind in ERRORS:
            self._failed += 1
            cm.destroy_id(event.id)

    @property
    def left(self) -> int:
        """How many connections have neither been established nor failed."""
        return int((self._end < 0).sum()) - self._failed

    # ---- the server ----

    def _serve(self, channel: _Channel) -> None:
        """Read the next request when the one before is accepted: the others fill the backlog."""
        while not self._is_busy and (event := channel.next_event()) is not None:
            if event.kind is RdmaEventKind.CONNECT_REQUEST:
                self._is_busy = True
                at = self.world.now + self._of.accept
                self.world.call_at(at, partial(self._accept, channel, event.id))

    def _accept(self, channel: _Channel, number: int, world: World) -> None:
        manager = self._server
        manager.cm.tick(manager.now)
        try:
            manager.cm.accept(number, RdmaConnectionParameters(next(self._qpns)))
        except CmError as error:  # the peer has given up
            if error.errno not in (errno.EINVAL, errno.ENOENT):
                raise
        self._is_busy = False
        self._serve(channel)
        manager.devices.settle()

    # ---- the result ----

    def report(self) -> ConnectReport:
        """Return what has become of the connections until now."""
        counters = [each.cm.counters for each in (self._server, *self._clients)]
        return ConnectReport(
            self._of.name,
            self._begin.copy(),
            self._end.copy(),
            self._failed,
            sum(sum(each.sent.values()) for each in counters),
            sum(sum(each.retries.values()) for each in counters),
            self._server.cm.counters.refused[CmRefusal.BACKLOG_FULL],
        )


class _EndedError(Exception):
    """Ends a run."""


def finish_storms(world: World, storms: tuple[ConnectStorm, ...], limit: int) -> None:
    """Run a world on, whose flows have ended, until its connections are set up or have failed."""

    def stop(world: World) -> None:
        raise _EndedError

    def ended() -> None:
        if not any(each.left for each in storms):
            world.call_at(world.now, stop)

    for each in storms:
        each.on_end = ended
    if any(each.left for each in storms):
        with suppress(_EndedError):
            world.run(limit)
        world.run(world.now + REST)  # the last RTU


def start_storms(
    world: World,
    names: Iterable[str],
    of: tuple[Connect, ...],
    base: int,
    seed: int,
    managed: ManagedWorld | None,
) -> tuple[ConnectStorm, ...]:
    """Start the connections of a scenario in its world, whose hosts have these names."""
    if not of:
        return ()
    hosts = Hosts(world, list(names), seed)
    hosts.managed = managed
    settings: dict[str, Any] = {"first_resend": of[0].resend / SECOND}
    hosts.connection_managers(CmSettings(**settings), of[0].processing)
    qpns = count(FIRST_QPN)
    return tuple(
        ConnectStorm(hosts, each, base, PORT + number, Random(f"{seed}/{number}"), qpns)
        for number, each in enumerate(of)
    )
