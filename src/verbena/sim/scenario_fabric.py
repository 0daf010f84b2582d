# SPDX-License-Identifier: Apache-2.0
"""The tables [fabric], [[link]], [[event]] and [routing] of a scenario.

``Scenario`` calls the ``read_*`` functions in this order. The network is made by
``verbena.fabrics``, from a topology's name and parameters or from a file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from verbena import fabrics
from verbena.fabrics import Cable, Fabric, FabricError, Rate, Routes
from verbena.fabrics.links import LinkNames
from verbena.sim.document import Section, toml_text
from verbena.sim.settings import MANY, SIZE, TIME, Bytes, Settings, unit

__all__ = [
    "Cables",
    "LinkEvent",
    "Routing",
    "error_rates",
    "read_events",
    "read_fabric",
    "read_routing",
]

MAX_HOSTS = (1 << 24) - 2  # a limit of the simulator: the addresses of 10.0.0.0/8
MAX_NODES = 1 << 18
Count = Annotated[int, Meta(ge=1, le=1 << 20)]
NoneOrMore = Annotated[int, Meta(ge=0, le=1 << 20)]
Sizes = Annotated[list[Count], MANY]
Ratio = Annotated[float, Meta(gt=0, le=1000)]
Metres = Annotated[float, Meta(ge=0, le=2e8)]
Time = Annotated[int, TIME, Meta(ge=0)]
Per = Literal["flow", "packet"]
ACable = Annotated[Cable, unit("cable")]
LinkRate = Annotated[Rate, unit("rate")]


class Wiring(Settings):
    """The properties of a cable; None stands for the topology's own value."""

    rate: LinkRate | None = None
    delay: Time | None = None
    length_m: Metres | None = None
    bit_error_rate: Annotated[float, Meta(ge=0, le=0.01)] | None = None


class Cabling(Wiring):
    """The keys that every [fabric] has; those with ``switch_`` are for cables between switches."""

    switch_rate: LinkRate | None = None
    switch_delay: Time | None = None
    switch_length_m: Metres | None = None


class FromFile(Cabling, kw_only=True):
    file: str
    format: Literal["ibnetdiscover", "dot"] | None = None


class Link(Wiring, kw_only=True):
    """A [[link]]: a cable with other properties."""

    between: ACable
    extender: Annotated[int, SIZE, Meta(ge=1, le=(1 << 32) - 1)] | None = None


class Happening(Settings):
    """An [[event]]: a link goes down or comes back."""

    link: ACable
    up: bool
    at: Time
    reroute: bool = False


class NodeHappening(Settings):
    """An [[event]]: all links of a node go down or come back."""

    node: str
    up: bool
    at: Time
    reroute: bool = False


class Reroute(Settings):
    """An [[event]] with reroute = true: routes are computed again."""

    at: Time
    reroute: bool


class Balanced(Settings):
    """The keys that every [routing] has."""

    balance: Per = "flow"
    reroute: Time | None = None


class Tables(Balanced, kw_only=True):
    file: str


Keys = dict[str, Any]  # the types of values by key
TOPOLOGIES: dict[str, tuple[Callable[..., Fabric], Keys]] = {
    "pair": (fabrics.pair, {}),
    "one_switch": (fabrics.one_switch, {"hosts": Count}),
    "diamond": (fabrics.diamond, {"hosts": Count, "paths": Count}),
    "dumbbell": (fabrics.dumbbell, {"left": Count, "right": Count}),
    "chain": (fabrics.chain, {"switches": Count, "hosts": Count}),
    "parking_lot": (fabrics.parking_lot, {"senders": Count}),
    "ring": (fabrics.ring, {"switches": Count, "hosts": Count}),
    "torus": (fabrics.torus, {"shape": Sizes, "hosts": NoneOrMore, "wrap": bool}),
    "fat_tree": (fabrics.fat_tree, {"k": Count}),
    "clos2": (
        fabrics.clos2,
        {"radix": Count, "oversubscription": Ratio, "leaves": Count, "parallel": Count},
    ),
    "clos3": (
        fabrics.clos3,
        {
            "radix": Count,
            "oversubscription": Ratio,
            "pods": Count,
            "pod_leaves": Count,
            "core_oversubscription": Ratio,
        },
    ),
    "xgft": (fabrics.xgft, {"children": Sizes, "parents": Sizes, "parallel": Sizes}),
    "dragonfly": (fabrics.dragonfly, {"p": Count, "a": Count, "h": Count, "groups": Count}),
}
ENGINES: dict[str, Keys] = {
    **{name: {} for name in fabrics.ENGINES},
    "updn": {"roots": Annotated[list[str], MANY]},
    "dor": {"dateline": bool},
    "dfsssp": {"lanes": Annotated[int, Meta(ge=1, le=15)]},
    "valiant": {"per": Per},
    "ugal": {"per": Per, "threshold": Bytes, "gap": Time},
}


def _one_of(tag_field: str, kinds: Mapping[str, Keys], base: type[Settings]) -> Any:
    """Return a union of structures, each with its own keys and those of the base.

    ``tag_field`` is the key whose value says which of them a table is.
    """
    found = [
        msgspec.defstruct(
            name,
            [(key, kind | None, None) for key, kind in keys.items()],
            bases=(base,),
            tag=name,
            tag_field=tag_field,
        )
        for name, keys in kinds.items()
    ]
    return reduce(or_, found)


_TOPOLOGY = _one_of("topology", {name: keys for name, (_, keys) in TOPOLOGIES.items()}, Cabling)
_ENGINE = _one_of("engine", ENGINES, Balanced)
# About how many nodes a topology has with these parameters, to refuse it before it is made.
NODES: dict[str, Callable[[dict[str, Any]], float]] = {
    "chain": lambda given: given.get("switches", 0) * (1 + given.get("hosts", 1)),
    "parking_lot": lambda given: 2 * given.get("senders", 0),
    "ring": lambda given: given.get("switches", 0) * (1 + given.get("hosts", 1)),
    "torus": lambda given: math.prod(given.get("shape", [])) * (1 + given.get("hosts", 1)),
    "fat_tree": lambda given: given.get("k", 0) ** 3 / 4,
    "clos2": lambda given: (
        given.get("leaves", given.get("radix", 0) // max(given.get("parallel", 1), 1))
        * _down(given, "oversubscription")
    ),
    "clos3": lambda given: (
        given.get("pods", given.get("radix", 0))
        * given.get("pod_leaves", _down(given, "core_oversubscription"))
        * _down(given, "oversubscription")
    ),
    "xgft": lambda given: math.prod(given.get("children", [])),
    "dragonfly": lambda given: (
        given.get("groups", given.get("a", 1) * given.get("h", 1) + 1)
        * given.get("a", 1)
        * (1 + given.get("p", 1))
    ),
}


def _down(given: dict[str, Any], ratio: str) -> float:
    """Return the number of a switch's ports that lead towards the hosts."""
    return float(given.get("radix", 0) * (1 - 1 / (1 + given.get(ratio, 1))))


class Cables:
    """Finds cables by the names of their links (``fabrics.links``)."""

    def __init__(self, fabric: Fabric) -> None:
        self._names = LinkNames.of(fabric)
        self._cables = list(fabric.cables())

    def find(self, value: object) -> Cable:
        """Return the cable. Raises ValueError if there is none, or more than one."""
        return self._cables[self.link(value) // 2]

    def link(self, value: object) -> int:
        """Return the number of a directed link in Tables.links. Raises ValueError as ``find``
        does."""
        return self._names.find(value)


@dataclass(frozen=True)
class LinkEvent:
    """A link goes up or down at a time in ps."""

    cable: Cable
    up: bool
    at: int


def read_fabric(
    section: Section, links: list[Section], folder: Path
) -> tuple[Fabric, dict[Cable, float], dict[Cable, int]]:
    """Return the fabric, the bit error rate of each cable, and the bytes of the cables' range
    extenders.

    Raises ScenarioError.
    """
    given = "file" in section
    errors, fabric = _from_file(section, folder) if given else _by_name(section)
    try:
        fabric.check()
    except FabricError as error:
        raise section.error("file" if given else None, f"is no network: {error}") from None
    if len(fabric.hosts) > MAX_HOSTS:
        raise section.error(None, f"has {len(fabric.hosts)} hosts: the most is {MAX_HOSTS}")
    special: dict[tuple[str, int], tuple[Cable, float | None]] = {}
    extenders: dict[Cable, int] = {}
    for link in links:
        cable, own, extender = _change(link, fabric)
        if extender:
            extenders[cable] = extender
        if (cable.a, cable.a_port) in special:
            raise link.error("between", f"is {cable}, which another [[link]] is about")
        special[cable.a, cable.a_port] = cable, own
    bad = dict.fromkeys(fabric.cables(), errors)
    bad |= {cable: own for cable, own in special.values() if own is not None}
    return fabric, bad, extenders


def _wiring(section: Section, of: Wiring) -> dict[str, Any]:
    """Return the keywords of a topology for its cables: the rate, and the delay or the length."""
    wiring: dict[str, Any] = {}
    for prefix in ("", "switch_"):
        rate, delay, length = (
            getattr(of, prefix + name, None) for name in ("rate", "delay", "length_m")
        )
        if delay is not None and length is not None:
            raise section.error(f"{prefix}length_m", "is given, and a delay: one of them is enough")
        delay = None if delay is None else delay / 1000
        for name, value in (("rate", rate), ("length_m", length), ("delay_ns", delay)):
            if value is not None:
                wiring[prefix + name] = value
    return wiring


def _by_name(section: Section) -> tuple[float, Fabric]:
    """Return the bit error rate of all cables, and the fabric of a topology."""
    of = section.read(_TOPOLOGY)
    name = section.table["topology"]
    make, parameters = TOPOLOGIES[name]
    given = {key: value for key in parameters if (value := getattr(of, key)) is not None}
    wiring = _wiring(section, of)
    if name in NODES and NODES[name](given) > MAX_NODES:
        raise section.error(None, f"has about {NODES[name](given):.3g} nodes: far too many")
    try:
        return of.bit_error_rate or 0.0, make(**given, **wiring)
    except FabricError as error:
        raise section.blame(error) from None
    except TypeError:  # a parameter without a default is missing
        missing = ", ".join(key for key in parameters if key not in given)
        raise section.error(None, f"needs more for {name}: {missing}") from None


def _from_file(section: Section, folder: Path) -> tuple[float, Fabric]:
    of = section.read(FromFile)
    for name in ("delay", "switch_rate", "switch_delay", "switch_length_m"):
        if name in section:
            raise section.error(name, "is not for a network from a file: rate and length_m are")
    path, wiring = folder / of.file, _wiring(section, of)
    format_ = of.format or ("dot" if path.suffix in (".dot", ".gv") else "ibnetdiscover")
    if "rate" in wiring:
        wiring["rate"] = wiring["rate"].name
    reader = fabrics.dot.read if format_ == "dot" else fabrics.ibnetdiscover.read
    try:
        return of.bit_error_rate or 0.0, reader(path.read_text(), **wiring)
    except (OSError, ValueError) as error:
        raise section.error("file", f"cannot be read: {error}") from None


def _change(section: Section, fabric: Fabric) -> tuple[Cable, float | None, int | None]:
    """Apply a [[link]]. Return the cable, its bit error rate, and the bytes of its range
    extenders."""
    link = section.read(Link, {"cable": Cables(fabric).find})
    cable, wiring = link.between, _wiring(section, link)
    if wiring:
        rate = wiring.pop("rate", cable.rate)
        if not wiring:
            wiring = {"delay_ns": cable.delay_ps / 1000}
        fabric.disconnect(cable.a, cable.a_port)
        cable = fabric.connect(
            cable.a, cable.b, a_port=cable.a_port, b_port=cable.b_port, rate=rate, **wiring
        )
    return cable, link.bit_error_rate, link.extender


def read_events(
    sections: list[Section], fabric: Fabric, duration: int | None
) -> tuple[tuple[LinkEvent, ...], dict[int, Section]]:
    """Return the events of links, a node's being those of its links, and the [[event]] tables that
    ask for new routes, by their time."""
    found, times = [], {}
    units = {"cable": Cables(fabric).find} if sections else {}
    for section in sections:
        if section.table.get("reroute") is True:
            at = section.read(Reroute).at
            times[at] = section
        elif "node" in section:
            node = section.read(NodeHappening)
            at = node.at
            if node.node not in fabric.graph:
                raise section.error("node", f"= {toml_text(node.node)}: there is no such node")
            found += [
                LinkEvent(cable, node.up, at)
                for cable in fabric.cables()
                if node.node in (cable.a, cable.b)
            ]
        else:
            event = section.read(Happening, units)
            at = event.at
            found.append(LinkEvent(event.link, event.up, at))
        if duration is not None and at > duration:
            raise section.error("at", "is after the end of the run")
    return tuple(found), times


@dataclass(frozen=True)
class Routing:
    """The routes, and how one of several equal paths is chosen (``balance``).

    ``engine`` is None for tables from a file; ``options`` are the engine's. ``reroute`` is the time
    in ps from a link's event until routes are computed again, or None.
    """

    routes: Routes
    balance: str
    engine: str | None
    options: dict[str, Any]
    reroute: int | None


def read_routing(section: Section, fabric: Fabric, folder: Path) -> Routing:
    """Return routes that lead from every host to every other, without loops. Raises
    ScenarioError."""
    if "file" in section:
        of = section.read(Tables)
        return Routing(_given_tables(section, of, fabric, folder), of.balance, None, {}, of.reroute)
    table = {"engine": "minhop", **section.table}
    of = Section(section.document, section.key, table).read(_ENGINE)
    engine = table["engine"]
    options = {key: value for key in ENGINES[engine] if (value := getattr(of, key)) is not None}
    try:
        # fabrics.route would warn of the routes' notes, which become the scenario's.
        routes = fabrics.ENGINES[engine](fabric, **options)
    except FabricError as error:
        raise section.error("engine", f"cannot route this: {error}") from None
    if engine == "updn" and (nowhere := _nowhere(routes)):
        one = f'below a single root, as roots = ["{fabrics.centre(fabric)}"], all have a way'
        raise section.error("roots", f"{nowhere}: {one}")
    return Routing(routes, of.balance, engine, options, of.reroute)


def _nowhere(routes: Routes) -> str:
    """Return a text about pairs of hosts without a path; "" if there are none."""
    if not len(pairs := routes.unreachable()):
        return ""
    a, b = (routes.tables.names[int(routes.tables.end_node[end])] for end in pairs[0])
    return f"leads nowhere from {a} to {b} ({len(pairs)} such pairs)"


def _given_tables(section: Section, of: Tables, fabric: Fabric, folder: Path) -> Routes:
    try:
        tables = fabrics.ibnetdiscover.read_lfts(fabric, (folder / of.file).read_text())
        routes = Routes.from_lft(fabric, tables)
    except (OSError, ValueError) as error:
        raise section.error("file", f"cannot be read: {error}") from None
    if loops := routes.loops():
        raise section.error("file", f"has a routing loop {loops[0]}")
    if nowhere := _nowhere(routes):
        raise section.error("file", nowhere)
    return routes


def error_rates(fabric: Fabric, errors: dict[Cable, float]) -> NDArray[np.float64]:
    """Return the bit error rates of the cables, in the fabric's order."""
    return np.array([errors[cable] for cable in fabric.cables()])
