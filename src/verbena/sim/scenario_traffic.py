# SPDX-License-Identifier: Apache-2.0
"""The tables [[traffic]] and [[group]] of a scenario.

``Scenario`` calls ``count_flows`` before anything large is made, then ``read_groups`` and
``read_traffic``. The flows come from the patterns of ``scenario_patterns``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from verbena import fabrics
from verbena.fabrics import Fabric, FabricError, Workload
from verbena.fabrics.collectives import COLLECTIVES, flow_count
from verbena.sim._world import World
from verbena.sim.document import UNITS, Section, names_of, toml_text
from verbena.sim.scenario_partitions import HostPartition, p_key_of
from verbena.sim.scenario_patterns import ANY, LATEST, Flows, Pattern, Place
from verbena.sim.scenario_switch import Switching, world_of
from verbena.sim.settings import MANY, Settings, unit
from verbena.sim.units import bytes_of, time_text
from verbena.sim.world_settings import WorldSettings

__all__ = ["Traffic", "count_flows", "read_traffic"]


@dataclass(frozen=True)
class Traffic:
    """The flows of all tables: arrays of one length.

    ``work`` has their ends, sizes, starts and dependencies. ``entry`` is the number of the table
    that a flow comes from, and ``names`` are the tables' names.
    """

    names: tuple[str, ...]
    tables: tuple[Pattern, ...]
    work: Workload
    entry: NDArray[np.uint32]
    message: NDArray[np.int64]
    level: NDArray[np.uint8]
    depth: NDArray[np.uint8]
    operation: NDArray[np.str_]
    transport: NDArray[np.str_]
    group: NDArray[np.int64]  # the number of the group that is the target, or -1
    reserve: NDArray[np.int64]
    reserve_buffer: NDArray[np.int64]
    control: NDArray[np.str_]
    pkey: NDArray[np.int64]  # as scenario_partitions.p_key_of gives it

    def __len__(self) -> int:
        return len(self.work)


class _GroupTable(Settings):
    name: str
    members: Annotated[list[Annotated[str, unit("host")]], MANY]
    root: str | None = None


@dataclass(frozen=True)
class Group:
    """A multicast group: the names of its hosts, and of the switch at which its tree begins."""

    name: str
    members: tuple[str, ...]
    root: str | None


def read_groups(sections: list[Section], fabric: Fabric) -> tuple[Group, ...]:
    """Return the [[group]] tables in the order of their numbers. Raises ScenarioError."""
    hosts = set(fabric.hosts)

    def host(value: object) -> str:
        if not isinstance(value, str) or value not in hosts:
            raise ValueError(f"there is no host {toml_text(value)}")
        return value

    made: list[Group] = []
    for section in sections:
        of = section.read(_GroupTable, {"host": host})
        name, members, root = of.name, of.members, of.root
        if name in {group.name for group in made}:
            raise section.error("name", f"= {toml_text(name)}: another group has this name")
        if len(set(members)) != len(members):
            raise section.error("members", "has a host twice")
        try:
            fabrics.multicast_tree(fabric, members, root)
        except FabricError as error:
            key = "members" if root is None else "root"
            raise section.error(key, f"is wrong: {error}") from None
        made.append(Group(name, tuple(members), root))
    return tuple(made)


def count_flows(sections: list[Section], hosts: int) -> float:
    """Return about how many flows the tables make, before one of them is made."""
    total = 0.0
    for section in sections:
        table: dict[str, Any] = section.table
        some = table.get("hosts", hosts)
        some = some if isinstance(some, int) else hosts
        match table.get("pattern"):
            case "all_to_all":
                total += some * (some - 1)
            case str(name) if name in COLLECTIVES:
                total += _collective_flows(table, name, some)
            case "flows":
                repeat = table.get("repeat", 1)
                lists = [table.get(key) for key in ("from", "to", "size")]
                many = max(len(item) if isinstance(item, list) else 1 for item in lists)
                total += many * (repeat if isinstance(repeat, int) else 1)
            case "poisson":
                total += _expected(section, some)
            case _:
                total += some
    return total


def _collective_flows(table: dict[str, Any], name: str, hosts: int) -> float:
    """Return the number of flows; 0 if the sizes are wrong, which is reported when it is made."""
    try:
        chunk = bytes_of(table["chunk"]) if "chunk" in table else None
        return flow_count(name, hosts, bytes_of(table["size"]), chunk)
    except (KeyError, ValueError):
        return 0.0


def _expected(section: Section, hosts: int) -> float:
    """Return the mean number of flows of a Poisson process; 0 if its keys are wrong, likewise."""
    try:
        load = float(section.table["load"])
        lasts = UNITS["time"](section.table["lasts"])
        mean = fabrics.distribution(section.table["sizes"]).mean
        rate = fabrics.rate(section.table.get("link", "100GbE"))
    except (KeyError, TypeError, ValueError):
        return 0.0
    expected = load * float(rate.bits_per_second) / (8 * mean) * hosts * lasts / 1e12
    return expected if math.isfinite(expected) else 0.0


def read_traffic(
    sections: list[Section],
    fabric: Fabric,
    switching: Switching,
    adapter: WorldSettings,
    folder: Path,
    seed: int,
    groups: tuple[Group, ...] = (),
    partitions: tuple[HostPartition, ...] = (),
) -> Traffic:
    """Return the flows of all tables. Raises ScenarioError for traffic that the fabric cannot
    carry."""
    numbers = fabric.tables().number
    hosts = {name: numbers[name] for name in fabric.hosts}
    world = world_of(0, adapter)
    world.connect(world.add_host(), 0, world.add_host(), 0, rate=10**9, delay=0)
    made = []
    for number, section in enumerate(sections):
        place = Place(section, fabric, hosts, folder, seed + number)
        made.append(_read(place, switching, world, groups, partitions))
    names = tuple(name or "" for name in names_of([section.table for section in sections]))
    for number, section in enumerate(sections):
        if "name" in section and names[number] in names[:number]:
            raise section.error("name", f'= "{names[number]}": another traffic has this name')
    tables = tuple(table for table, _ in made)
    lengths = [len(work) for _, work in made]

    def column(name: str, kind: Any) -> NDArray[Any]:
        return np.repeat(np.array([getattr(table, name) for table in tables], kind), lengths)

    return Traffic(
        names,
        tables,
        sum((work for _, work in made[1:]), made[0][1]),
        np.repeat(np.arange(len(made), dtype=np.uint32), lengths),
        column("message", np.int64),
        column("level", np.uint8),
        column("depth", np.uint8),
        column("operation", np.str_),
        column("transport", np.str_),
        np.repeat([-1 if table.group is None else table.group for table in tables], lengths),
        column("reserve", np.int64),
        column("reserve_buffer", np.int64),
        column("control", np.str_),
        column("pkey", np.int64),
    )


def _read(
    place: Place,
    switching: Switching,
    world: World,
    groups: tuple[Group, ...],
    partitions: tuple[HostPartition, ...],
) -> tuple[Pattern, Workload]:
    """Return a table with its operation, and its flows."""
    section = place.section
    names = [group.name for group in groups]

    def group(value: object) -> int:
        if value not in names:
            raise ValueError(f"there is no such group: there is {', '.join(names) or 'none'}")
        return names.index(str(value))

    table: Pattern = section.read(
        ANY,
        {
            **place.units(),
            "class": switching.level,
            "group": group,
            "pkey": lambda value: p_key_of(value, partitions),
            "whole bits": lambda value: int(UNITS["rate"](value).bits_per_second),
        },
    )
    if table.operation is None:
        usual = "send" if table.transport == "ud" else "write"
        table = structs.replace(table, operation=usual)
    _check(section, table, world)
    if table.seed is not None:
        place = replace(place, seed=table.seed)
    try:
        work = table.workload(place)
        work.check(len(place.numbers), place.fabric.tables().names)
    except FabricError as error:
        raise section.error(None, f"is wrong: {error}") from None
    _check_reserve(section, place.fabric, work, table.reserve)
    if len(work) and work.flows["start"].max() > LATEST:
        raise section.error(None, f"has a flow that starts after {time_text(LATEST)}, too late")
    if table.start:
        first = np.ones(len(work), bool)
        first[work.after[:, 1]] = False
        work.flows["start"][first] += table.start
    if not len(work):
        raise section.error(None, "makes no flow")
    return table, work


def _check_reserve(section: Section, fabric: Fabric, work: Workload, reserve: int) -> None:
    """Refuse a reservation above the rate of a link of a source or target."""
    links = fabric.tables().links
    ends = np.unique(np.concatenate([work.flows["src"], work.flows["dst"]]))
    own = links[np.isin(links["src"], ends)]
    if len(own) and reserve > (slowest := int(own["rate"].min())):
        raise section.error(
            "reserve",
            f"is {reserve / 1e9:g} Gb/s, more than a link of these hosts has: "
            f"{slowest / 1e9:g} Gb/s",
        )


def _check(section: Section, table: Pattern, world: World) -> None:
    """Refuse keys that exclude each other."""
    if "control" in section and table.transport != "tcp":
        raise section.error("control", 'is only for transport = "tcp"')
    if table.group is not None:
        if not isinstance(table, Flows):
            raise section.error("group", 'is for pattern = "flows"')
        if table.transport != "ud":
            raise section.error("group", 'is for transport = "ud"')
        if table.to is not None:
            raise section.error("to", "is given, and a group: flows go to one of them")
        if table.pkey != 0xFFFF:
            raise section.error("pkey", "is given, and a group: its packets have the P_Key 0xffff")
        if table.reserve:
            raise section.error("reserve", "is for one way, and a group has several")
    try:  # World knows which operations a transport has
        world.add_flows(
            0,
            1,
            1,
            message=table.message,
            depth=table.depth,
            operation=table.operation,
            transport=table.transport,
            reserve=table.reserve,
            reserve_buffer=table.reserve_buffer,
            control=table.control,
        )
    except ValueError as error:
        raise section.blame(error) from None
