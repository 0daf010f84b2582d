# SPDX-License-Identifier: Apache-2.0
"""A scenario: a network, its traffic and what is measured, read from a TOML file.

``verbena sim``, ``sweep`` and programs use ``Scenario``. It reads the tables one after the other
with the modules ``scenario_*``, since most of them depend on earlier ones (a class of the switches,
a host of the fabric), and refuses what cannot work before anything runs. Settings that are allowed
but probably not meant become ``notes``. ``world`` makes the World, and ``run`` runs it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, field, structs
from numpy.typing import NDArray

from verbena import fabrics
from verbena.sim import limits, work
from verbena.sim import result as results
from verbena.sim._world import CAPTURE_LEAST, CAPTURE_MOST, World
from verbena.sim.arguments import require, whole_number
from verbena.sim.build import add_group, build, build_bare, levels
from verbena.sim.document import Document, ScenarioError, Section
from verbena.sim.inside import Inside
from verbena.sim.lockout import lockout_note
from verbena.sim.recovery import RecoveryWatch
from verbena.sim.result import ScenarioResult, structured
from verbena.sim.scenario_connect import ConnectStorm, finish_storms, read_connects, start_storms
from verbena.sim.scenario_fabric import (
    Cables,
    error_rates,
    read_events,
    read_fabric,
    read_routing,
)
from verbena.sim.scenario_hpcc import hpcc_note
from verbena.sim.scenario_idle import idle_notes
from verbena.sim.scenario_inside import InsideReport, read_inside
from verbena.sim.scenario_loads import load_note, timer_note
from verbena.sim.scenario_management import ManagedRun, Management, read_management
from verbena.sim.scenario_overtaken import overtaken_note
from verbena.sim.scenario_partitions import flow_keys, read_host_partitions
from verbena.sim.scenario_promises import promises_note, slow_link
from verbena.sim.scenario_reroute import read_reroutes, reroute_notes
from verbena.sim.scenario_storms import read_storms
from verbena.sim.scenario_switch import is_too_small, overflows, read_adapter, read_switch, world_of
from verbena.sim.scenario_traffic import Traffic, count_flows, read_groups, read_traffic
from verbena.sim.settings import MANY, SIZE, TIME, Settings, given, unit
from verbena.sim.throughput import Recorder, rows_for
from verbena.sim.trips import timeout_note, window_note
from verbena.sim.units import time_text
from verbena.sim.world_settings import Cct, Dcqcn, Hpcc, Switch
from verbena.version import full_version

__all__ = ["Scenario"]

CONNECT_MOST = 100 * 10**12  # ps that connections are waited for after the last flow
LOOPS_MOST = 4096  # hosts, up to which the routes are searched for credit loops
_Table = dict[str, Any]


class _Root(Settings):
    """The keys of a scenario itself. Its tables are read one after the other, since each depends on
    what earlier ones made."""

    name: str | None = None
    teaches: str = ""
    see: str = ""
    expect: Literal["done", "time", "deadlock", "stalled"] = "done"
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    duration: Annotated[int, TIME] | None = None
    allow: Annotated[list[Literal["loss", "failures"]], MANY] = field(default_factory=list)
    memory: Annotated[int, SIZE, Meta(ge=1)] | None = None
    variants: dict[str, _Table] = field(default_factory=dict)
    fabric: _Table = field(default_factory=dict)
    routing: _Table = field(default_factory=dict)
    switch: _Table = field(default_factory=dict)
    adapter: _Table = field(default_factory=dict)
    congestion: _Table = field(default_factory=dict)
    tcp: _Table = field(default_factory=dict)
    samples: _Table = field(default_factory=dict)
    management: _Table = field(default_factory=dict)
    inside: _Table = field(default_factory=dict)
    link: list[_Table] = field(default_factory=list)
    event: list[_Table] = field(default_factory=list)
    storm: list[_Table] = field(default_factory=list)
    partition: list[_Table] = field(default_factory=list)
    group: list[_Table] = field(default_factory=list)
    traffic: list[_Table] = field(default_factory=list)
    connect: list[_Table] = field(default_factory=list)


class _Samples(Settings):
    every: Annotated[int, TIME] | None = None
    links: Annotated[list[Annotated[int, unit("link")]] | None, MANY] = None


@dataclass(frozen=True)
class Prepared:
    """A world with what runs in it. ``base``: when its traffic begins, in ps."""

    world: World
    management: ManagedRun | None
    base: int
    storms: tuple[ConnectStorm, ...]
    insides: tuple[Inside, ...] = ()


class Scenario:
    """A scenario whose settings have been checked. It can be run many times; runs with one seed are
    equal.

    ``name``, ``teaches``, ``see``: its texts. ``expect``: how its author expects a run to end.
    ``allow``: what its author does not regard as a failure, "loss" and "failures". ``seed``.
    ``duration``: in ps, or None. ``fabric``, ``routes``, ``traffic``: what was made of the tables.
    ``notes``: remarks that are no errors. ``variants``: the names of the file's variants.
    ``memory``: about how many bytes a run needs.
    """

    def __init__(self, document: Document, folder: str | Path = ".") -> None:
        self.document = document
        self.folder = Path(folder)
        self._read(document.root())

    @classmethod
    def load(cls, path: str | Path) -> Scenario:
        """Read a scenario from a file, or by the name of one that comes with Verbena.

        Raises TypeError, OSError, and ScenarioError with the key and line that are wrong.
        """
        from verbena.sim import ready

        require("path", path, (str, PathLike), "a file or the name of a ready scenario")
        found = ready.find(path) if isinstance(path, str) else None
        path = found or Path(path)
        ready.check(path)
        return cls.parse(_decoded(path), name=path.name, folder=path.parent)

    @classmethod
    def parse(cls, text: str, *, name: str = "scenario", folder: str | Path = ".") -> Scenario:
        """Read a scenario from the text of a TOML file.

        Files that it names are relative to ``folder``. Raises TypeError and ScenarioError.
        """
        require("text", text, str, "the text of a TOML file")
        require("name", name, str, "the name of the scenario")
        require("folder", folder, (str, PathLike), "a folder")
        return cls(Document.parse(text, name), folder)

    @classmethod
    def make(cls, settings: Mapping[str, Any], *, name: str = "scenario") -> Scenario:
        """Make a scenario of a dictionary, as tomllib would return it. Raises TypeError and
        ScenarioError."""
        require("settings", settings, Mapping, "a dictionary, as tomllib.load returns it")
        require("name", name, str, "the name of the scenario")
        return cls(Document(name, settings))

    def changed(self, changes: Mapping[str, Any], whose: str = "changed") -> Scenario:
        """Return the scenario with other settings: {"switch.buffer": "64 KiB",
        "traffic.victim.start": "1 ms"}.

        ``whose`` says in errors where the changes come from. Raises TypeError and ScenarioError.
        """
        _require_changes(changes)
        return Scenario(self.document.changed(changes, whose), self.folder)

    def variant(
        self, name: str, changes: Mapping[str, Any] | None = None, whose: str = "changed"
    ) -> Scenario:
        """Return the scenario with the settings of [variants.NAME], and then with ``changes``.

        Raises TypeError and ScenarioError.
        """
        _require_changes({} if changes is None else changes)
        document = self.document.varied(name)
        return Scenario(document.changed(changes or {}, whose), self.folder)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Scenario, (self.document, self.folder))

    # ---- reading ---------------------------------------------------------------------------------

    def _read(self, root: Section) -> None:
        of = root.read(_Root)
        self.name = Path(self.document.name).stem if of.name is None else of.name
        if self.document.variant:
            self.name = f"{self.name}, {self.document.variant}"
        self.teaches, self.see, self.expect = of.teaches, of.see, of.expect
        self.seed, self.duration, self.allow = of.seed, of.duration, tuple(of.allow)
        memory = of.memory
        self._read_variants(root.section("variants"))
        parts = {name: root.section(name) for name in PARTS}
        names = ("link", "event", "storm", "partition", "group", "traffic", "connect")
        lists = {name: root.sections(name) for name in names}
        if not lists["traffic"]:
            raise root.error(None, "a scenario needs a [[traffic]]")
        if self.duration == 0:
            raise root.error("duration", "is 0: nothing would happen")
        self.fabric, errors, extenders = read_fabric(parts["fabric"], lists["link"], self.folder)
        self._errors = error_rates(self.fabric, errors)
        self._extenders = np.array([extenders.get(each, 0) for each in self.fabric.cables()])
        self.events, asked = read_events(lists["event"], self.fabric, self.duration)
        self.adapter = read_adapter(parts["adapter"], parts["congestion"], parts["tcp"])
        needed = count_flows(lists["traffic"], len(self.fabric.hosts))
        self._refuse_flows(root, needed, memory)
        routing = read_routing(parts["routing"], self.fabric, self.folder)
        self.routes = routing.routes
        self.reroutes = read_reroutes(parts["routing"], asked, self.events, self.fabric, routing)
        self._check_ports(parts["fabric"])
        self.switching = read_switch(
            parts["switch"],
            self.routes,
            self.adapter,
            routing.balance,
            "loss" in self.allow,
            np.repeat(self._extenders, 2),
        )
        if self.switching.by_route and "notice_level" not in parts["adapter"]:
            self.adapter = structs.replace(self.adapter, notice_level=None)
        self._check_extenders(lists["link"])
        self.management = read_management(parts["management"], self.fabric, routing, self.adapter)
        self.inside = read_inside(
            parts["inside"], self.routes.tables.names[: self.routes.tables.host_count]
        )
        self.partitions = read_host_partitions(
            lists["partition"],
            self.fabric,
            is_bare=self.management is not None and self.management.is_bare,
        )
        self.groups = read_groups(lists["group"], self.fabric)
        self.connects = read_connects(lists["connect"], self.fabric)
        self.storms = read_storms(lists["storm"], self.routes.tables, self.switching)
        self.traffic = read_traffic(
            lists["traffic"],
            self.fabric,
            self.switching,
            self.adapter,
            self.folder,
            self.seed,
            self.groups,
            self.partitions,
        )
        self._check_level(parts["adapter"])
        self._refuse_all(root, memory)
        self._try_promises(lists["traffic"])
        self._read_samples(parts["samples"])
        self.notes = (
            self.switching.notes
            + self.routes.notes
            + self._loop_notes()
            + self._timeout_notes()
            + self._order_notes()
            + self._window_notes()
            + self._mark_notes()
            + self._promise_notes()
            + self._load_notes()
            + self._idle_notes(routing.engine)
        )

    def _read_variants(self, section: Section) -> None:
        for name in section.table:
            if name in ("", ".", "..") or "/" in name:
                raise section.error(name, "is no name of a variant: files are called after it")
        self.variants = tuple(section.table)

    def _refuse_flows(self, root: Section, flows: float, memory: int | None) -> None:
        """Raise ScenarioError before a list of flows is made that does not fit into memory."""
        allowed = limits.available_memory() if memory is None else memory
        text = limits.refusal(int(flows * limits.FLOW_BYTES), allowed, flows)
        if text:
            raise root.document.error(("traffic",), text)

    def _refuse_all(self, root: Section, memory: int | None) -> None:
        allowed = limits.available_memory() if memory is None else memory
        tables, flows = self.routes.tables, self.traffic
        mtu = self.adapter.mtu
        needed = limits.memory_needed(
            tables.host_count,
            tables.switch_count,
            tables.out_link.shape[1],
            len(self.switching.settings.lanes),
            len(flows),
            self._active(),
            min(self.adapter.window / mtu, float(flows.work.flows["bytes"].max()) / mtu + 1),
        )
        self.memory = needed
        text = limits.refusal(needed, allowed, len(flows))
        if text:
            raise root.document.error(("fabric",), f"with its traffic {text}")

    def _active(self) -> int:
        """Return about how many flows run at once, if each takes ten times as long as alone, and 1
        ms."""
        flows = self.traffic.work.flows
        first = np.ones(len(flows), bool)
        first[self.traffic.work.after[:, 1]] = False  # waiting flows run one after the other
        rate = float(self.routes.tables.links["rate"].min())
        begin = flows["start"][first].astype(float)
        end = begin + 10 * flows["bytes"][first] * 8e12 / rate + 1e9
        order = np.argsort(np.concatenate([begin, end]), kind="stable")
        step = np.concatenate([np.ones(len(begin)), -np.ones(len(end))])[order]
        return int(step.cumsum().max(initial=1))

    def _check_ports(self, section: Section) -> None:
        tables = self.routes.tables
        if not np.array_equal(tables.end_node, np.arange(tables.host_count)):
            twice = np.bincount(tables.end_node, minlength=tables.host_count) != 1
            name = tables.names[int(np.argmax(twice))]
            raise section.error(None, f"has a host of several ports, {name}: here a host has one")

    def _check_extenders(self, links: list[Section]) -> None:
        gates = {lane.flow for lane in self.switching.lanes} or {"lossy"}
        for link in links:
            if "extender" in link and gates != {"credits"}:
                raise link.error("extender", "is for credits, and there are lanes without")

    def _try_promises(self, traffic: list[Section]) -> None:
        """Refuse reservations that cannot be made. Only the world knows whether a flow has a single
        path with buffers that can be reserved."""
        if not (self.traffic.reserve.any() or self.traffic.reserve_buffer.any()):
            return
        if not self.reroutes and (found := slow_link(self.routes, self.traffic)):
            flow, text = found
            raise traffic[int(self.traffic.entry[flow])].error("reserve", text)
        try:
            self.world()
        except ValueError as error:
            said = re.match(r"flow (\d+): ", str(error))
            if said is None:
                raise
            section = traffic[int(self.traffic.entry[int(said[1])])]
            key = "reserve_buffer" if "reserve_buffer" in section else "reserve"
            raise section.error(key, f"cannot be: {str(error)[said.end() :]}") from None

    def _check_level(self, section: Section) -> None:
        level, lanes = self.adapter.notice_level or 0, len(self.switching.settings.lanes)
        if self.switching.classes and level >= lanes:
            raise section.error("notice_level", "is the number of no class")

    def _read_samples(self, section: Section) -> None:
        of = section.read(_Samples, {"link": Cables(self.fabric).link})
        self.every = of.every
        if section.table and not self.every:
            raise section.error("every" if "every" in section else None, "needs a time above 0")
        if of.links == []:
            raise section.error("links", "is empty: without it all are sampled")
        self.sampled = None if of.links is None else tuple(of.links)

    def _loop_notes(self) -> tuple[str, ...]:
        """Note that a lossless network whose routes have a credit loop may deadlock."""
        lossless = any(lane.flow != "lossy" for lane in self.switching.lanes)
        small = self.routes.tables.end_count <= LOOPS_MOST  # the search takes long beyond
        loop = fabrics.credit_loop(self.routes) if lossless and small else None
        now = (f"packets can wait for each other for ever: {loop}",) if loop else ()
        return now + reroute_notes(self.reroutes, lossless and small)

    def _timeout_notes(self) -> tuple[str, ...]:
        """Note RC without a timeout where packets may be lost or overtaken, as ``World.advice``
        does."""
        reliable = self.traffic.transport == "rc"
        if not reliable.any():
            return ()
        if self.adapter.timeout != 0:
            return self._trip_notes(reliable)
        switches = self.switching.kinds
        levels = set(np.unique(self.traffic.level[reliable]).tolist())
        detours, groups = self.routes.detours, self.routes.groups
        found = {
            "switches balance by packet, so that packets are overtaken": groups is not None
            and any(one.balance == "packet" for one in switches),
            "packets make detours each by itself, and are overtaken": detours is not None
            and detours.per == "packet",
            "switches drop what does not fit into their buffer": any(
                overflows(one, levels) for one in switches
            ),
            "switches drop what has waited for its lifetime": any(one.lifetime for one in switches),
            "watchdogs drop what waits": any(
                one.watchdog and one.watchdog.action == "drop" for one in switches
            ),
            "links have bit errors": bool(np.any(np.asarray(self._errors) > 0)),
            "a link goes down": any(not event.up for event in self.events),
        }
        why = [reason for reason, holds in found.items() if holds]
        note = (
            "RC has no timeout (adapter.timeout = 0), and flows may never end, since they notice a "
            f"loss only by what comes after it: {'; '.join(why)}"
        )
        return (note,) if why else ()

    def _trip_notes(self, reliable: NDArray[np.bool_]) -> tuple[str, ...]:
        """Note a timeout that is shorter than the round trip."""
        note = timeout_note(
            self.routes,
            self._pairs(reliable),
            min(self.adapter.mtu, int(self.traffic.work.flows["bytes"][reliable].min())),
            self.adapter.timeout,
            self.adapter.retry_count,
            self._cuts_through(),
        )
        return (note,) if note else ()

    def _order_notes(self) -> tuple[str, ...]:
        """Note that packets may overtake each other over a transport that needs their order."""
        note = overtaken_note(self.routes, self.switching, self.traffic, self.adapter.mtu)
        return (note,) if note else ()

    def _promise_notes(self) -> tuple[str, ...]:
        """Note that more is reserved on a link than its rate. After new routes, paths are
        others."""
        if self.reroutes:
            return ()
        note = promises_note(self.routes, self.traffic, self.adapter.mtu, self.duration)
        return (note,) if note else ()

    def _load_notes(self) -> tuple[str, ...]:
        """Note loads that add up to more than a link's rate, and timers that are longer than the
        run."""
        tcp = bool((self.traffic.transport == "tcp").any())
        found = (
            load_note(self.routes, self.traffic),
            timer_note(self.adapter.tcp, tcp, self.duration),
        )
        return tuple(note for note in found if note)

    def _idle_notes(self, engine: str | None) -> tuple[str, ...]:
        """Note keys that have no effect with these settings."""
        return idle_notes(
            self.document.settings,
            engine,
            self.routes,
            self.switching,
            self.traffic,
            [change.at for change in self.reroutes],
        )

    def _mark_notes(self) -> tuple[str, ...]:
        """Note congestion control without its signal: DCQCN, CCT and DCTCP react to marks only.
        Also note an additive increase of HPCC that is small beside a packet."""
        switches = self.switching.kinds
        ecn = any(one.mark or any(lane.mark for lane in one.lanes) for one in switches)
        marks, found = ecn or any(one.fecn for one in switches), []
        if isinstance(self.adapter.congestion, Dcqcn | Cct) and not marks:
            kind = type(self.adapter.congestion).__name__.lower()
            found.append(f"{kind}, but no switch marks: no flow slows down")
        if "dctcp" in self.traffic.control[self.traffic.transport == "tcp"] and not ecn:
            found.append("dctcp, but no switch marks: it is like reno")
        found.append(hpcc_note(self.adapter, self.traffic))
        return tuple(note for note in found if note)

    def _pairs(self, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return [n, 2]: the pairs of hosts between which there are some of these flows."""
        flows = self.traffic.work.flows[chosen]
        ends = np.stack([flows["src"], flows["dst"]], axis=1).astype(np.int64)
        return np.unique(ends, axis=0)

    def _cuts_through(self) -> bool:
        """Return whether any switch forwards by cut-through."""
        return any(one.cut_through for one in self.switching.kinds)

    def _window_notes(self) -> tuple[str, ...]:
        """Note windows that a flow can fill before the first acknowledgement arrives."""
        traffic, size = self.traffic, self.traffic.work.flows["bytes"]
        adapter, tcp = self.adapter, self.adapter.tcp
        hpcc = isinstance(adapter.congestion, Hpcc)  # HPCC has a window of its own
        notes = []
        for transport, key, window, packet in (
            ("rc", "adapter.window", adapter.window, adapter.mtu),
            ("tcp", "tcp.window", tcp.window, tcp.segment(adapter.mtu)),
        ):
            long = (traffic.transport == transport) & (size > window)
            if long.any() and not (hpcc and transport == "rc"):
                pairs, cut = self._pairs(long), self._cuts_through()
                notes.append(window_note(self.routes, pairs, packet, window, key, cut))
        return tuple(note for note in notes if note)

    # ---- running ---------------------------------------------------------------------------------

    def hops(self) -> float:
        """Return about how many times a run forwards a packet over a link, if few packets are
        lost."""
        return work.packet_hops(self.routes, self.traffic.work, self.adapter.mtu, self.duration)

    def world(self) -> World:
        """Return a new World with the scenario's flows, at time 0.

        If [management] begins with a bare fabric, it is the time at which the subnet is up.
        """
        return self._made().world

    def _made(self) -> Prepared:
        """Return a new World with its management and its connections."""
        made, management = self.network(), self.management
        insides = () if self.inside is None else tuple(self.inside.add(made))
        run = None if management is None else self.manage(made, management)
        promised = None if run is None else run.reserve(self.traffic)
        base = 0 if run is None else run.base
        storms = self.fill(made, run, base, promised)
        return Prepared(made, run, base, storms, insides)

    def manage(self, made: World, of: Management, *, paced: bool = False) -> ManagedRun:
        """Give the fabric of a world its management, with the partitions of the scenario."""
        return ManagedRun(made, self.fabric, of, paced=paced, partitions=self.partitions)

    def network(self) -> World:
        """Return a new World with the nodes and links, and without traffic."""
        made, management = world_of(self.seed, self.adapter), self.management
        switch = _keywords(self.switching.settings)
        own = {number: _keywords(one) for number, one in self.switching.own.items()}
        if management is not None:
            switch = management.switch(switch)
            own = {number: management.switch(one) for number, one in own.items()}
        if management is not None and management.is_bare:
            build_bare(made, self.fabric, switch, self._errors, own)
        else:
            build(made, self.routes, switch, self._errors, self._extenders, own)
        return made

    def fill(
        self,
        made: World,
        run: ManagedRun | None,
        base: int,
        promised: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    ) -> tuple[ConnectStorm, ...]:
        """Add the traffic and the events, whose time 0 is ``base`` in ps. Returns connections.

        ``promised``: what flows reserve, and how much later they start (``ManagedRun.reserve``).
        """
        for number, group in enumerate(self.groups):
            sources = self.traffic.work.flows["src"][self.traffic.group == number]
            senders = [self.routes.tables.names[source] for source in np.unique(sources)]
            add_group(made, self.fabric, group.members, group.root, senders)
        for event in self.events:
            node, port = self._end(event.cable.a, event.cable.a_port)
            made.set_link(node, port, event.up, base + event.at)
        for change in self.reroutes:
            made.call_at(change.at, change.ways.set)
        for storm in self.storms:
            until = None if storm.until is None else base + storm.until
            made.pause_storm(storm.host, base + storm.at, until, lane=storm.lane)
        try:
            self._add_flows(made, base, promised)
        except ValueError as error:
            why = None if run is None else run.not_up()
            raise why or error from None  # a fabric that is not up has no ways for flows
        if run is not None:
            run.tell(self.events, base)
            run.managed.stops = self.duration is None
        names = self.routes.tables.names[: self.routes.tables.host_count]
        managed = None if run is None else run.managed
        return start_storms(made, names, self.connects, base, self.seed, managed)

    def watch_recovery(self, world: World, base: int) -> RecoveryWatch | None:
        """Return what watches the flows after the first event that takes a link down."""
        down = [event.at for event in self.events if not event.up]
        if not down or (self.management is None and not self.reroutes):
            return None
        return RecoveryWatch(world, len(self.traffic), base + min(down))

    def _end(self, name: str, port: int) -> tuple[int, int]:
        """Return the node and port of the world for those of the fabric. A host's only port is
        0."""
        node = self.routes.tables.number[name]
        return node, 0 if node < self.routes.tables.host_count else port

    def link_end(self, link: str) -> tuple[int, int]:
        """Return the node and port of the world at which a link begins, by the link's name.

        Raises ValueError if there is no such link.
        """
        return self._port_of(Cables(self.fabric).link(link))

    def _port_of(self, link: int) -> tuple[int, int]:
        at = self.routes.tables.links[link]
        return self._end(self.routes.tables.names[at["src"]], int(at["src_port"]))

    def _add_flows(
        self,
        made: World,
        base: int,
        promised: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
    ) -> None:
        traffic, flows = self.traffic, self.traffic.work.flows
        reserve, later = (traffic.reserve, 0) if promised is None else promised
        level = back_level = traffic.level
        if self.switching.by_route:
            source, target = flows["src"].astype(int), flows["dst"].astype(int)
            level = levels(self.routes, source, target)
            back_level = levels(self.routes, target, source)
        to_group = traffic.group >= 0
        made.add_flows(
            flows["src"],
            np.where(to_group, traffic.group, flows["dst"]),
            flows["bytes"],
            flows["start"] + np.where(self._waits(), 0, base + later).astype(flows["start"].dtype),
            message=traffic.message,
            level=level,
            back_level=back_level,
            depth=traffic.depth,
            operation=traffic.operation,
            transport=traffic.transport,
            control=traffic.control,
            after=traffic.work.after,
            multicast=to_group,
            reserve=reserve,
            reserve_buffer=traffic.reserve_buffer,
            pkey=flow_keys(traffic.pkey, flows["src"], self.routes.tables.names, self.partitions),
        )

    def _waits(self) -> NDArray[np.bool_]:
        """Return which flows wait for others: their start is a delay."""
        waits = np.zeros(len(self.traffic), bool)
        waits[self.traffic.work.after[:, 1]] = True
        return waits

    def run(
        self,
        *,
        seed: int | None = None,
        progress: Callable[[World], object] | None = None,
        captures: Mapping[str, str | Path] | None = None,
        capture_bytes: int | None = None,
    ) -> ScenarioResult:
        """Run the scenario and return what was measured.

        Ctrl-C, or KeyboardInterrupt from ``progress(world)``, ends the run, and the result then has
        what was measured until then. ``seed`` replaces the scenario's, as ``changed({"seed":
        seed})`` does: it affects the traffic that is random and the run.

        ``captures``: by the name of a link, the pcapng file for its packets. ``capture_bytes``: how
        many bytes of each packet are kept, 64 to 4352, which is the default and all of a packet.

        Raises TypeError for arguments of other types; ValueError for a link that does not exist, a
        link or file that is given twice, and another number of bytes; OSError for a file that
        cannot be written.
        """
        _require_files(captures)
        if capture_bytes is not None:
            whole_number("capture_bytes", capture_bytes, CAPTURE_LEAST, CAPTURE_MOST)
        if progress is not None and not callable(progress):
            raise TypeError(f"progress is {progress!r}, and not a function of the World")
        if seed is not None and seed != self.seed:
            return self.changed({"seed": seed}, "run").run(
                progress=progress, captures=captures, capture_bytes=capture_bytes
            )
        prepared = self._made()
        world, base = prepared.world, prepared.base
        watch = self.watch_recovery(world, base)
        self._capture(world, captures or {}, capture_bytes)
        samples = self._sample(world)
        recorder = self.recorder(world)
        begin = time.perf_counter()
        try:
            end = world.run(None if self.duration is None else base + self.duration, progress)
            if self.duration is None:
                finish_storms(world, prepared.storms, world.now + CONNECT_MOST)
        except KeyboardInterrupt:
            end = "interrupted"
        wall = time.perf_counter() - begin
        made = self.measured(prepared, recorder, watch, end, wall)
        if lost := world.captures_lost:
            note = f"{lost} packets could not be written to the captures: is there room?"
            made = replace(made, notes=(*made.notes, note), captures_lost=lost)
        if samples is None:
            return made
        full = samples.stopped and end != "interrupted"
        notes = (f"samples end at {time_text(samples.times[-1])}: there was no more room",) * full
        numbers = np.zeros(len(world.links()), int)
        numbers[self._rows(world)] = np.arange(len(self.routes.tables.links))
        return replace(made, notes=made.notes + notes, **_sampled(samples, numbers))

    def measured(
        self,
        run: Prepared,
        recorder: Recorder,
        watch: RecoveryWatch | None,
        end: str,
        wall: float,
    ) -> ScenarioResult:
        """Return what was measured until now; ``wall`` are the seconds that it took."""
        at, delivered = recorder.rows(run.world)
        made = self._result(run.world, end, wall)
        return replace(
            made,
            delivered_at=at,
            delivered=delivered,
            management=None if run.management is None else run.management.report(),
            connects=tuple(each.report() for each in run.storms),
            insides=tuple(InsideReport.of(each) for each in run.insides),
            recovery=None if watch is None else watch.result(run.world),
            link_events=tuple((link, up, run.base + at) for link, up, at in made.link_events),
        )

    def recorder(self, world: World) -> Recorder:
        """Return the recorder of throughput. Its first interval fits a run that is as short as
        possible."""
        rows, traffic = rows_for(len(self.traffic)), self.traffic
        interval = (self.duration or work.ideal_time(self.routes, traffic.work)) // rows
        return Recorder(world, traffic.entry, len(traffic.names), interval, rows)

    def _capture(self, world: World, captures: Mapping[str, str | Path], size: int | None) -> None:
        cables: dict[int, str] = {}
        files: dict[Path, str] = {}
        for link, path in captures.items():
            try:
                cable = Cables(self.fabric).link(link) // 2
            except ValueError as error:
                raise ValueError(f"a capture of {link}: {error}") from None
            file = Path(path).resolve()
            other = cables.setdefault(cable, link)
            if other != link:
                raise ValueError(f"{link} is captured already: {other} has both directions of it")
            other = files.setdefault(file, link)
            if other != link:
                raise ValueError(f"{path} is the file of {other} already, and cannot be {link}'s")
        for link, path in captures.items():
            kept = {} if size is None else {"size": size}
            world.capture(*self.link_end(link), path, **kept)

    def _sample(self, world: World) -> Any:
        if not self.every:
            return None
        links = range(len(self.routes.tables.links)) if self.sampled is None else self.sampled
        chosen = [self._port_of(link) for link in links]
        return world.sample(self.every, chosen)

    def _result(self, world: World, end: str, wall: float) -> ScenarioResult:
        tables, flows = self.routes.tables, world.flows()
        unfinished = bool((flows["state"] < results.DONE).any())
        if end == "time" and not unfinished:
            end = "done"
        count = world.packets
        under_way = count["sent"] - count["delivered"] - count["dropped"]
        blocked = world.blocked() if end == "deadlock" else []
        seen, links = _flows(flows, self.traffic, len(tables.names)), self._links(world)
        ends = {self._port_of(link): link for link in range(len(tables.links))} if blocked else {}
        cables = {cable: 2 * number for number, cable in enumerate(self.fabric.cables())}
        return ScenarioResult(
            self.name,
            self.seed,
            end,
            world.now,
            wall,
            world.events,
            seen,
            links,
            tables.names,
            self.traffic.names,
            tuple(group.name for group in self.groups),
            self.switching.classes,
            packets={**count, "under_way": under_way},
            wrong=world.check(at_rest=end == "done" and self.duration is None),
            blocked=tuple(ends[place] for place in blocked if place in ends),
            notes=self.notes + self._late_notes(world.now, end) + self._lockout_notes(seen, links),
            link_events=tuple((cables[e.cable], e.up, e.at) for e in self.events),
            route_changes=tuple(each.at for each in self.reroutes if each.at <= world.now),
            fabric=self.fabric,
            settings={**self.document.resolved(), "name": self.name},
            variant=self.document.variant,
            changes=self.document.changed_values(),
            version=full_version(),
        )

    def _late_notes(self, now: int, end: str) -> tuple[str, ...]:
        """Note events for which a run without a duration ended too early."""
        late = [event.at for event in self.events if event.at > now]
        if not late or end == "interrupted":
            return ()
        return (f"the run ended at {time_text(now)}, before the event at {time_text(min(late))}",)

    def _lockout_notes(self, flows: NDArray[np.void], links: NDArray[np.void]) -> tuple[str, ...]:
        """Note queues at which flows locked each other out. After new routes, paths are others."""
        kinds = self.switching.kinds
        if self.reroutes or any(is_too_small(one, self.adapter) for one in kinds):
            return ()
        known = np.unique(self.traffic.level).tolist()
        lossy = [level for level in known if any(overflows(one, {level}) for one in kinds)]
        reacts = isinstance(self.adapter.congestion, Hpcc)
        dropped = links["dropped_full"]
        note = lockout_note(self.routes, self.traffic, flows, dropped, lossy, reacts)
        return (note,) if note else ()

    def _rows(self, world: World) -> NDArray[np.int64]:
        """Return the rows of ``World.links`` in the order of Tables.links."""
        count = len(self.routes.tables.links)
        if not self._extenders.any():
            return np.arange(count)  # build connects the links in this order
        seen = world.links()
        row = {
            (int(node), int(port)): number
            for number, (node, port) in enumerate(zip(seen["node"], seen["port"], strict=True))
        }
        return np.array([row[self._port_of(link)] for link in range(count)])

    def _links(self, world: World) -> NDArray[np.void]:
        """Return LINKS in the order of Tables.links. Of a link with range extenders it is the part
        up to the first of them."""
        seen, links = world.links()[self._rows(world)], self.routes.tables.links
        same = ("packets", "bytes", "stalled", "pauses", "storms", "rate", "node")
        columns: dict[str, Any] = {name: seen[name] for name in same}
        columns |= {
            name: seen[name] for name in seen.dtype.names or () if name.startswith("dropped_")
        }
        columns["utilisation"] = seen["busy"] / max(1, world.now)
        columns["queue_max"], columns["marks"] = seen["queued_max"], seen["marked"]
        columns["port"], columns["to_port"] = links["src_port"], links["dst_port"]
        columns["to_node"], columns["delay"] = links["dst"], links["delay_ps"]
        return structured(results.LINKS, columns, len(seen))


def _require_changes(changes: object) -> None:
    """Raise TypeError for what is no dictionary of settings."""
    require("changes", changes, Mapping, "a dictionary, as {'switch.buffer': '64 KiB'}")
    assert isinstance(changes, Mapping)
    for key in changes:
        require("a key of changes", key, str, "the name of a setting, as 'switch.buffer'")


def _require_files(captures: object) -> None:
    """Raise TypeError for what is no dictionary of files by link."""
    wanted = "a dictionary, as {'h0-s0': 'h0.pcapng'}"
    require("captures", {} if captures is None else captures, Mapping, wanted)
    assert isinstance(captures, Mapping | None)
    for link, path in (captures or {}).items():
        require(f"the capture of {link}", path, (str, PathLike), "the name of a file")


def _decoded(path: Path) -> str:
    """Return the text of a UTF-8 file. Raises ScenarioError, OSError."""
    whole = path.read_bytes()
    try:
        return whole.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = whole.count(b"\n", 0, error.start) + 1
        what = f"byte 0x{whole[error.start]:02x} is not UTF-8"
        raise ScenarioError(f"{path.name}, line {line}: {what}", line=line) from None


def _keywords(switch: Switch) -> dict[str, Any]:
    """Return the keywords of ``World.add_switch`` but for the ports, which ``build`` adds."""
    return {name: value for name, value in given(switch).items() if name != "ports"}


PARTS = (
    *("fabric", "routing", "switch", "adapter", "congestion", "tcp", "samples", "management"),
    "inside",
)


def _flows(seen: NDArray[np.void], traffic: Traffic, nodes: int) -> NDArray[np.void]:
    """Return FLOWS. The numbers of groups follow those of the nodes."""
    same = ("source", "target", "bytes", "start", "finish", "done", "lost", "notices", "timeouts",
            "state", "status")  # fmt: skip
    columns: dict[str, Any] = {name: seen[name] for name in same}
    columns["target"] = seen["target"] + np.where(traffic.group >= 0, nodes, 0)
    columns["traffic"] = traffic.entry
    columns["retransmissions"], columns["marks"] = seen["resent"], seen["marked"]
    columns["class"] = traffic.level
    return structured(results.FLOWS, columns, len(seen))


def _sampled(samples: Any, numbers: NDArray[Any]) -> dict[str, Any]:
    """Return copies of the samples, whose own memory is freed with the world.

    ``numbers``: the number of the link in each row of ``World.links``.
    """
    columns = {"link": numbers[samples.queues["link"]], "class": samples.queues["lane"]}
    return {
        "queues": structured(results.QUEUES, columns, len(samples.queues)),
        "times": samples.times.copy(),
        "queued": samples.data["bytes"].copy(),
        "paused": samples.data["paused"].copy(),
    }
