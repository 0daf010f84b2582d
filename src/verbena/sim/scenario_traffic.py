# SPDX-License-Identifier: Apache-2.0
"""The [[traffic]] of a scenario."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verbena import fabrics
from verbena.fabrics import Fabric, FabricError, Workload
from verbena.fabrics.collectives import COLLECTIVES, flow_count
from verbena.sim import kinds
from verbena.sim._world import CONTROLS, OPERATIONS, TRANSPORTS, World
from verbena.sim.document import Section, names_of
from verbena.sim.scenario_patterns import LATEST, PATTERNS, Key, Place
from verbena.sim.scenario_switch import Switching
from verbena.sim.units import bytes_of, time_text

__all__ = ["Traffic", "count_flows", "read_traffic"]

LONGEST_MESSAGE = 1 << 30
# Keys of each [[traffic]], beside those of its pattern. What their values may be depends on other
# keys: _read has it, in this order.
COMMON = {
    "pattern": Key("name", "a pattern of the next table"),
    "name": Key("text", "what results and settings call it", default="the pattern's name",
                without="the pattern's name; `shift-2` where that is taken"),
    "start": Key("time", "is added to the flows' own starts", default=0),
    "transport": Key("`rc`, `uc`, `ud`, `tcp`", "what carries it", default="rc"),
    "operation": Key("`write`, `send`, `read`", "of RC and UC; `read` is for RC, UD only sends",
                     default="write", without="`write`, of UD `send`"),
    "message": Key("size", "of each request; of datagrams, the MTU at most", default=0,
                   without="the whole flow"),
    "class": Key("name or number", "a class of the switches, or a service level", default=0),
    "depth": Key("1 to 64", "messages that are posted at once", default=1),
    "group": Key("name", "the flows go to a [[group]]; `flows` over UD", default=None,
                 without="none"),
    "reserve": Key("rate", "is promised by each link of the way", default=0, without="nothing"),
    "reserve_buffer": Key("size", "is kept by each switch of the way", default=0,
                          without="nothing"),
    "control": Key("`reno`, `cubic`, `dctcp`", "of TCP", default="cubic"),
    "seed": Key("whole number", "of what the pattern draws by chance", default=None,
                without="the scenario's, and the table's number"),
}  # fmt: skip


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
    names = tuple(name or "" for name in names_of([section.table for section in sections]))
    for number, section in enumerate(sections):
        if "name" in section and names[number] in names[:number]:
            raise section.error("name", f'= "{names[number]}": another traffic has this name')
    work = sum((work for work, _ in made[1:]), made[0][0])
    lengths = [len(work) for work, _ in made]

    def column(place: int, kind: Any) -> NDArray[Any]:
        return np.repeat(np.array([options[place] for _, options in made], kind), lengths)

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
) -> tuple[Workload, Options]:
    pattern = section.take("pattern", kinds.one_of(PATTERNS))
    section.take("name", kinds.text, pattern)
    start = section.take("start", kinds.time, 0)
    transport = section.take("transport", kinds.one_of(TRANSPORTS), "rc")
    usual = "send" if transport == "ud" else "write"
    operation = section.take("operation", kinds.one_of(OPERATIONS), usual)
    options = (
        section.take("message", kinds.size(1, LONGEST_MESSAGE), 0),
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
        work = PATTERNS[pattern].workload(Place(section, fabric, hosts, folder, own, options[5]))
        section.close()
        work.check(len(hosts), fabric.tables().names)
    except FabricError as error:
        raise section.error(None, f"is wrong: {error}") from None
    _check_reserve(section, fabric, work, options[6])
    if len(work) and work.flows["start"].max() > LATEST:
        raise section.error(None, f"has a flow that starts after {time_text(LATEST)}, too late")
    if start:
        first = np.ones(len(work), bool)
        first[work.after[:, 1]] = False
        work.flows["start"][first] += start
    if not len(work):
        raise section.error(None, "makes no flow")
    return work, options


def _check_reserve(section: Section, fabric: Fabric, work: Workload, reserve: int) -> None:
    """No link of a source or target may be slower than what is to be promised on it."""
    links = fabric.tables().links
    ends = np.unique(np.concatenate([work.flows["src"], work.flows["dst"]]))
    own = links[np.isin(links["src"], ends)]
    if len(own) and reserve > (slowest := int(own["rate"].min())):
        raise section.error(
            "reserve",
            f"is {reserve / 1e9:g} Gb/s, more than a link of these hosts has: "
            f"{slowest / 1e9:g} Gb/s",
        )


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
