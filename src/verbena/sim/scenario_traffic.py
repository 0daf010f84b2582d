# SPDX-License-Identifier: Apache-2.0
"""The [[traffic]] of a scenario."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verbena import fabrics
from verbena.fabrics import Fabric, FabricError, Workload
from verbena.fabrics.collectives import BROADCASTS, COLLECTIVES, PIPELINES, flow_count
from verbena.sim import kinds
from verbena.sim._world import CONTROLS, OPERATIONS, TRANSPORTS, World
from verbena.sim.document import Section
from verbena.sim.scenario_switch import Switching
from verbena.sim.units import bytes_of, time_text

__all__ = ["Traffic", "count_flows", "read_traffic"]

_COUNT = kinds.whole(1, 10**9)
_SIZE = kinds.size(1)
LONGEST_MESSAGE = 1 << 30
LATEST = 1 << 61  # ps


@dataclass(frozen=True)
class Traffic:
    """Flows of all tables: arrays of one length, and pairs of which the second waits.

    ``entry`` is the number of the table that a flow is of, ``names`` are the tables' names.
    """

    names: tuple[str, ...]
    work: Workload
    entry: NDArray[np.uint32]
    message: NDArray[np.int64]
    level: NDArray[np.uint8]
    depth: NDArray[np.uint8]
    operation: NDArray[np.str_]
    transport: NDArray[np.str_]
    group: NDArray[np.int64]  # number of the target, where it is a group; or -1
    reserve: NDArray[np.int64]
    reserve_buffer: NDArray[np.int64]
    control: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.work)


@dataclass(frozen=True)
class Group:
    """A multicast group: hosts by name, and the switch that its tree begins at."""

    name: str
    members: tuple[str, ...]
    root: str | None


def read_groups(sections: list[Section], fabric: Fabric) -> tuple[Group, ...]:
    """The [[group]] tables, in the order of their numbers. Raises ScenarioError."""
    hosts = set(fabric.hosts)

    def host(value: object) -> str:
        if not isinstance(value, str) or value not in hosts:
            raise ValueError(f"there is no host {value!r}")
        return value

    made: list[Group] = []
    for section in sections:
        name = section.take("name", kinds.text)
        members = section.take("members", kinds.list_of(host))
        root = section.take("root", kinds.text, None)
        section.close()
        if name in {group.name for group in made}:
            raise section.error("name", f"= {name!r}: another group has this name")
        if len(set(members)) != len(members):
            raise section.error("members", "has a host twice")
        try:
            fabrics.multicast_tree(fabric, members, root)
        except FabricError as error:
            key = "members" if root is None else "root"
            raise section.error(key, f"is wrong: {error}") from None
        made.append(Group(name, tuple(members), root))
    return tuple(made)


@dataclass(frozen=True)
class _Place:
    """What a pattern may ask for."""

    section: Section
    fabric: Fabric
    numbers: dict[str, int]
    folder: Path
    seed: int
    group: int  # of the table's flows; -1: they go to hosts

    def host(self, value: object) -> int:
        """By name or number."""
        if isinstance(value, str) and value in self.numbers:
            return self.numbers[value]
        hosts = len(self.numbers)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < hosts:
            return value
        raise ValueError(f"there is no such host: there are h0 to h{hosts - 1}, or numbers from 0"
                         if "h0" in self.numbers else "there is no such host")  # fmt: skip

    def hosts(self) -> int:
        """How many take part: all, or the first of them."""
        most = len(self.numbers)
        return self.section.take("hosts", kinds.whole(2, max(2, most)), most)


def _flows(place: _Place) -> Workload:
    """From here to there; again and again with ``repeat`` and ``every``."""
    section, hosts = place.section, kinds.list_of(place.host)
    source = section.take("from", hosts)
    # To a group: whichever other host, until the world is told.
    other = [(host + 1) % len(place.numbers) for host in source]
    target = other if place.group >= 0 else section.take("to", hosts)
    size = section.take("size", kinds.list_of(_SIZE))
    repeat = section.take("repeat", _COUNT, 1)
    every = section.take("every", kinds.time, 0)
    if repeat * every > LATEST:
        raise section.error("every", f"= {time_text(every)}: the last of {repeat} is too late")
    many = {len(source), len(target), len(size)} - {1}
    if len(many) > 1:
        raise section.error("to", f"has {len(target)} hosts, 'from' {len(source)}, and there are "
                            f"{len(size)} sizes")  # fmt: skip
    count = max(many, default=1)
    columns = [np.broadcast_to(np.array(part), count) for part in (source, target, size)]
    start = np.repeat(np.arange(repeat) * every, count)
    here, there, sizes = (np.tile(column, repeat) for column in columns)
    return Workload("flows", fabrics.flows(here, there, sizes, start))


def _incast(place: _Place) -> Workload:
    section, most = place.section, len(place.numbers)
    senders = section.take("senders", kinds.whole(1, max(1, most - 1)), most - 1)
    size = section.take("size", _SIZE)
    receiver = section.take("receiver", place.host, None)
    within = section.take("within", kinds.time, 0)
    return fabrics.incast(senders, size, receiver=receiver, within_ps=within, seed=place.seed)


def _permutation(place: _Place) -> Workload:
    size = place.section.take("size", _SIZE)
    return fabrics.permutation(place.hosts(), size, seed=place.seed)


def _shift(place: _Place) -> Workload:
    by = place.section.take("by", kinds.whole(1, 1 << 20))
    return fabrics.shift(place.hosts(), by, place.section.take("size", _SIZE))


def _all_to_all(place: _Place) -> Workload:
    in_turn = place.section.take("in_turn", kinds.flag, True)
    return fabrics.all_to_all(place.hosts(), place.section.take("size", _SIZE), in_turn=in_turn)


def _collective(name: str) -> Callable[[_Place], Workload]:
    """The function of verbena.fabrics of that name, with ``chunk`` and ``root`` if it has them."""

    def made(place: _Place) -> Workload:
        hosts, size = place.hosts(), place.section.take("size", _SIZE)
        options: dict[str, Any] = {}
        if name in PIPELINES:
            options["chunk"] = place.section.take("chunk", _SIZE, None)
        if name in BROADCASTS:
            options["root"] = place.section.take("root", place.host, 0)
        work: Workload = getattr(fabrics, name)(hosts, size, **options)
        return work

    return made


def _poisson(place: _Place) -> Workload:
    section, link = place.section, place.fabric.cable(place.fabric.hosts[0], 1)
    load = section.take("load", kinds.number(0, 1, above=True))
    sizes = section.take("sizes", kinds.text)
    lasts = section.take("lasts", kinds.time)
    rate = section.take("link", kinds.rate, link.rate if link else "100GbE")
    drawn: Any = sizes
    if sizes not in fabrics.PUBLISHED:
        path = place.folder / sizes
        if not path.is_file():
            known = ", ".join(fabrics.PUBLISHED)
            raise section.error("sizes", f"is no file, and none of {known}")
        drawn = fabrics.read_distribution(path)
    return fabrics.poisson(
        place.hosts(), load, drawn, link=rate, duration_ps=lasts, seed=place.seed
    )


def _trace(place: _Place) -> Workload:
    path = place.folder / place.section.take("file", kinds.text)
    try:
        return fabrics.read_csv(path, place.numbers)
    except FabricError as error:
        raise place.section.error("file", f"is wrong: {error}") from None
    except (OSError, ValueError) as error:
        raise place.section.error("file", f"cannot be read: {error}") from None


PATTERNS: dict[str, Callable[[_Place], Workload]] = {
    "flows": _flows,
    "incast": _incast,
    "permutation": _permutation,
    "shift": _shift,
    "all_to_all": _all_to_all,
    **{name: _collective(name) for name in COLLECTIVES},
    "poisson": _poisson,
    "trace": _trace,
}


def count_flows(sections: list[Section], hosts: int) -> float:
    """About how many flows the tables make, before one of them is made."""
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
    """What is wrong with its sizes is found when it is made."""
    try:
        chunk = bytes_of(table["chunk"]) if "chunk" in table else None
        return flow_count(name, hosts, bytes_of(table["size"]), chunk)
    except (KeyError, ValueError):
        return 0.0


def _expected(section: Section, hosts: int) -> float:
    """Of a Poisson process; what is wrong with its keys is found when it is made."""
    try:
        load = float(section.table["load"])
        lasts = kinds.time(section.table["lasts"])
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
    adapter: dict[str, Any],
    folder: Path,
    seed: int,
    groups: tuple[Group, ...] = (),
) -> Traffic:
    """Raises ScenarioError for traffic that the fabric cannot carry."""
    numbers = fabric.tables().number
    hosts = {name: numbers[name] for name in fabric.hosts}
    made = [
        _read(section, fabric, hosts, switching, adapter, folder, seed + number, groups)
        for number, section in enumerate(sections)
    ]
    names = tuple(name for name, _, _ in made)
    work = sum((work for _, work, _ in made[1:]), made[0][1])
    lengths = [len(work) for _, work, _ in made]

    def column(place: int, kind: Any) -> NDArray[Any]:
        return np.repeat(np.array([options[place] for _, _, options in made], kind), lengths)

    return Traffic(
        names,
        work,
        np.repeat(np.arange(len(made), dtype=np.uint32), lengths),
        column(0, np.int64),
        column(1, np.uint8),
        column(2, np.uint8),
        column(3, np.str_),
        column(4, np.str_),
        column(5, np.int64),
        column(6, np.int64),
        column(7, np.int64),
        column(8, np.str_),
    )


# message, class, depth, operation, transport, group, reserve, reserve_buffer, control
Options = tuple[int, int, int, str, str, int, int, int, str]


def _read(
    section: Section,
    fabric: Fabric,
    hosts: dict[str, int],
    switching: Switching,
    adapter: dict[str, Any],
    folder: Path,
    seed: int,
    groups: tuple[Group, ...],
) -> tuple[str, Workload, Options]:
    pattern = section.take("pattern", kinds.one_of(PATTERNS))
    name = section.take("name", kinds.text, pattern)
    start = section.take("start", kinds.time, 0)
    transport = section.take("transport", kinds.one_of(TRANSPORTS), "rc")
    usual = "send" if transport == "ud" else "write"
    operation = section.take("operation", kinds.one_of(OPERATIONS), usual)
    options = (
        section.take("message", kinds.size(0, LONGEST_MESSAGE), 0),
        section.take("class", switching.level, 0),
        section.take("depth", kinds.whole(1, 64), 1),
        operation,
        transport,
        _group(section, pattern, transport, groups),
        section.take("reserve", _bits_per_second, 0),
        section.take("reserve_buffer", kinds.size(1), 0),
        _control(section, transport),
    )
    _try(section, options, adapter)
    own = section.take("seed", kinds.whole(0, 1 << 62), seed)
    try:
        work = PATTERNS[pattern](_Place(section, fabric, hosts, folder, own, options[5]))
        section.close()
        work.check(len(hosts))
    except FabricError as error:
        raise section.error(None, f"is wrong: {error}") from None
    if len(work) and work.flows["start"].max() > LATEST:
        raise section.error(None, f"has a flow that starts after {time_text(LATEST)}, too late")
    if start:
        first = np.ones(len(work), bool)
        first[work.after[:, 1]] = False
        work.flows["start"][first] += start
    if not len(work):
        raise section.error(None, "makes no flow")
    return name, work, options


def _control(section: Section, transport: str) -> str:
    if "control" in section and transport != "tcp":
        raise section.error("control", 'is only for transport = "tcp"')
    return section.take("control", kinds.one_of(CONTROLS), "cubic")


def _bits_per_second(value: object) -> int:
    return int(kinds.rate(value).bits_per_second)


def _group(section: Section, pattern: str, transport: str, groups: tuple[Group, ...]) -> int:
    """The number of the group that the flows go to, or -1."""

    def named(value: object) -> int:
        names = [group.name for group in groups]
        if value not in names:
            raise ValueError(f"there is no such group: there is {', '.join(names) or 'none'}")
        return names.index(str(value))

    number = section.take("group", named, -1)
    if number < 0:
        return number
    if pattern != "flows":
        raise section.error("group", 'is for pattern = "flows"')
    if transport != "ud":
        raise section.error("group", 'is for transport = "ud"')
    if "to" in section:
        raise section.error("to", "is given, and a group: flows go to one of them")
    return number


def _try(section: Section, options: Options, adapter: dict[str, Any]) -> None:
    """What World says of such a flow: not every transport has every operation."""
    world = World(**adapter)
    world.connect(world.add_host(), 0, world.add_host(), 0, rate=10**9, delay=0)
    message, _, depth, operation, transport, group, reserve, buffer, control = options
    if group >= 0 and reserve:
        raise section.error("reserve", "is for one way, and a group has several")
    try:
        world.add_flows(
            0,
            1,
            1,
            message=message,
            depth=depth,
            operation=operation,
            transport=transport,
            reserve=reserve,
            reserve_buffer=buffer,
            control=control,
        )
    except ValueError as error:
        raise section.blame(error) from None
