# SPDX-License-Identifier: Apache-2.0
"""The [fabric], [[link]], [[event]] and [routing] of a scenario."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verbena import fabrics
from verbena.fabrics import Cable, Fabric, FabricError, Routes
from verbena.fabrics.links import LinkNames
from verbena.sim import kinds
from verbena.sim.document import Section

__all__ = [
    "Cables",
    "LinkEvent",
    "Routing",
    "error_rates",
    "read_events",
    "read_fabric",
    "read_routing",
]

MAX_HOSTS = 1 << 16  # of the simulator
MAX_NODES = 1 << 18
_COUNT = kinds.whole(1, 1 << 20)
_NONE_OR_MORE = kinds.whole(0, 1 << 20)
_SIZES = kinds.list_of(kinds.whole(1, 1 << 20))
_RATIO = kinds.number(0, 1000, above=True)

Kinds = dict[str, Callable[[Any], Any]]
TOPOLOGIES: dict[str, tuple[Callable[..., Fabric], Kinds]] = {
    "pair": (fabrics.pair, {}),
    "one_switch": (fabrics.one_switch, {"hosts": _COUNT}),
    "diamond": (fabrics.diamond, {"hosts": _COUNT, "paths": _COUNT}),
    "dumbbell": (fabrics.dumbbell, {"left": _COUNT, "right": _COUNT}),
    "chain": (fabrics.chain, {"switches": _COUNT, "hosts": _COUNT}),
    "parking_lot": (fabrics.parking_lot, {"senders": _COUNT}),
    "ring": (fabrics.ring, {"switches": _COUNT, "hosts": _COUNT}),
    "torus": (fabrics.torus, {"shape": _SIZES, "hosts": _NONE_OR_MORE, "wrap": kinds.flag}),
    "fat_tree": (fabrics.fat_tree, {"k": _COUNT}),
    "clos2": (
        fabrics.clos2,
        {"radix": _COUNT, "oversubscription": _RATIO, "leaves": _COUNT, "parallel": _COUNT},
    ),
    "clos3": (
        fabrics.clos3,
        {
            "radix": _COUNT,
            "oversubscription": _RATIO,
            "pods": _COUNT,
            "pod_leaves": _COUNT,
            "core_oversubscription": _RATIO,
        },
    ),
    "xgft": (fabrics.xgft, {"children": _SIZES, "parents": _SIZES, "parallel": _SIZES}),
    "dragonfly": (
        fabrics.dragonfly,
        {"p": _COUNT, "a": _COUNT, "h": _COUNT, "groups": _COUNT},
    ),
}
# About how many nodes the larger ones have, before they are made.
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
    """Of a switch's ports."""
    return float(given.get("radix", 0) * (1 - 1 / (1 + given.get(ratio, 1))))


_PER = kinds.one_of(("flow", "packet"))
FORMATS = ("ibnetdiscover", "dot")
ENGINES: dict[str, Kinds] = {
    **{name: {} for name in fabrics.ENGINES},
    "updn": {"roots": kinds.list_of(kinds.text)},
    "dor": {"dateline": kinds.flag},
    "dfsssp": {"lanes": kinds.whole(1, 15)},
    "valiant": {"per": _PER},
    "ugal": {"per": _PER, "threshold": kinds.size(0, (1 << 32) - 1), "gap": kinds.time},
}
_METRES = kinds.number(0, 2e8)
_ERRORS = kinds.number(0, 0.01)


class Cables:
    """Cables by the names of their links (``fabrics.links``)."""

    def __init__(self, fabric: Fabric) -> None:
        self._names = LinkNames.of(fabric)
        self._cables = list(fabric.cables())

    def find(self, value: object) -> Cable:
        """Raises ValueError where there is none, or more than one."""
        return self._cables[self.link(value) // 2]

    def link(self, value: object) -> int:
        """The number of a directed link, as Tables.links counts them; raises ValueError."""
        return self._names.find(value)


@dataclass(frozen=True)
class LinkEvent:
    """A link that goes up or down at a time in ps."""

    cable: Cable
    up: bool
    at: int


def read_fabric(
    section: Section, links: list[Section], folder: Path
) -> tuple[Fabric, dict[Cable, float], dict[Cable, int]]:
    """The fabric, the bit error rates of its cables, and the bytes of those with range extenders.

    Raises ScenarioError.
    """
    wiring = _wiring(section, ("", "switch_"))
    errors = section.take("bit_error_rate", _ERRORS, 0.0)
    given = "file" in section
    fabric = _from_file(section, wiring, folder) if given else _by_name(section, wiring)
    try:
        fabric.check()
    except FabricError as error:
        raise section.error("file" if given else None, f"is no network: {error}") from None
    if len(fabric.hosts) > MAX_HOSTS:
        raise section.error(None, f"has {len(fabric.hosts)} hosts: the most is {MAX_HOSTS}")
    special: dict[tuple[str, int], tuple[Cable, float | None]] = {}
    extenders: dict[Cable, int] = {}
    for link in links:
        cable, own = _change(link, fabric)
        if extender := link.take("extender", kinds.size(1, (1 << 32) - 1), 0):
            extenders[cable] = extender
        link.close()
        if (cable.a, cable.a_port) in special:
            raise link.error("between", f"is {cable}, which another [[link]] is about")
        special[cable.a, cable.a_port] = cable, own
    bad = dict.fromkeys(fabric.cables(), errors)
    bad |= {cable: own for cable, own in special.values() if own is not None}
    return fabric, bad, extenders


def _wiring(section: Section, prefixes: tuple[str, ...]) -> dict[str, Any]:
    """Keywords of a topology's wiring: rate, and delay or length."""
    wiring: dict[str, Any] = {}
    for prefix in prefixes:
        rate = section.take(f"{prefix}rate", kinds.rate, None)
        delay = section.take(f"{prefix}delay", kinds.time, None)
        length = section.take(f"{prefix}length_m", _METRES, None)
        if delay is not None and length is not None:
            raise section.error(f"{prefix}length_m", "is given, and a delay: one of them is enough")
        for name, value in (("rate", rate), ("length_m", length)):
            if value is not None:
                wiring[prefix + name] = value
        if delay is not None:
            wiring[f"{prefix}delay_ns"] = delay / 1000
    return wiring


def _by_name(section: Section, wiring: dict[str, Any]) -> Fabric:
    name = section.take("topology", kinds.one_of(TOPOLOGIES))
    make, parameters = TOPOLOGIES[name]
    given = {
        key: value
        for key, kind in parameters.items()
        if (value := section.take(key, kind, None)) is not None
    }
    section.close()
    if name in NODES and NODES[name](given) > MAX_NODES:
        raise section.error(None, f"has about {NODES[name](given):.3g} nodes: far too many")
    try:
        return make(**given, **wiring)
    except FabricError as error:
        raise section.blame(error) from None
    except TypeError:  # a parameter without a default is missing
        missing = ", ".join(key for key in parameters if key not in given)
        raise section.error(None, f"needs more for {name}: {missing}") from None


def _from_file(section: Section, wiring: dict[str, Any], folder: Path) -> Fabric:
    path = folder / section.take("file", kinds.text)
    guess = "dot" if path.suffix in (".dot", ".gv") else "ibnetdiscover"
    format_ = section.take("format", kinds.one_of(FORMATS), guess)
    section.close()
    for name in ("delay", "switch_rate", "switch_delay", "switch_length_m"):
        if name in section:
            raise section.error(name, "is not for a network from a file: rate and length_m are")
    if "rate" in wiring:
        wiring["rate"] = wiring["rate"].name
    try:
        text = path.read_text()
        if format_ == "dot":
            return fabrics.dot.read(text, **wiring)
        return fabrics.ibnetdiscover.read(text, **wiring)
    except (OSError, ValueError) as error:
        raise section.error("file", f"cannot be read: {error}") from None


def _change(section: Section, fabric: Fabric) -> tuple[Cable, float | None]:
    """One [[link]]: the cable that is there now, and its bit error rate if it has its own."""
    cable = section.take("between", Cables(fabric).find)
    wiring = _wiring(section, ("",))
    errors = section.take("bit_error_rate", _ERRORS, None)
    if wiring:
        rate = wiring.pop("rate", cable.rate)
        if not wiring:
            wiring = {"delay_ns": cable.delay_ps / 1000}
        fabric.disconnect(cable.a, cable.a_port)
        cable = fabric.connect(
            cable.a, cable.b, a_port=cable.a_port, b_port=cable.b_port, rate=rate, **wiring
        )
    return cable, errors


def read_events(
    sections: list[Section], fabric: Fabric, duration: int | None
) -> tuple[tuple[LinkEvent, ...], dict[int, Section]]:
    """The [[event]] tables: what happens to links, and the times at which routes are made anew."""
    found, times = [], {}
    cables = Cables(fabric) if sections else None
    for section in sections:
        assert cables is not None
        at = section.take("at", kinds.time)
        if section.take("reroute", kinds.flag, False):
            times[at] = section
        else:
            cable = section.take("link", cables.find)
            found.append(LinkEvent(cable, section.take("up", kinds.flag), at))
        section.close()
        if duration is not None and at > duration:
            raise section.error("at", "is after the end of the run")
    return tuple(found), times


@dataclass(frozen=True)
class Routing:
    """How packets find their way. ``balance``: how one of several equal ways is chosen.

    ``engine`` is None for tables from a file; ``options`` are the engine's. ``reroute``: the time
    in ps from a link's event until routes are made anew, or None.
    """

    routes: Routes
    balance: str
    engine: str | None
    options: dict[str, Any]
    reroute: int | None


def read_routing(section: Section, fabric: Fabric, folder: Path) -> Routing:
    """An engine's routes lead everywhere, without loops."""
    balance = section.take("balance", kinds.one_of(("flow", "packet")), "flow")
    delay = section.take("reroute", kinds.time, None)
    if "file" in section:
        return Routing(_given_tables(section, fabric, folder), balance, None, {}, delay)
    engine, options = _engine(section)
    try:
        routes = fabrics.ENGINES[engine](fabric, **options)  # its notes become the scenario's
    except FabricError as error:
        raise section.error("engine", f"cannot route this: {error}") from None
    if engine == "updn" and (nowhere := _nowhere(routes)):
        one = f'below a single root, as roots = ["{fabrics.centre(fabric)}"], all have a way'
        raise section.error("roots", f"{nowhere}: {one}")
    return Routing(routes, balance, engine, options, delay)


def _engine(section: Section) -> tuple[str, dict[str, Any]]:
    """Its name, and its options."""
    engine = section.take("engine", kinds.one_of(ENGINES), "minhop")
    options = {
        key: value
        for key, kind in ENGINES[engine].items()
        if (value := section.take(key, kind, None)) is not None
    }
    section.close()
    return engine, options


def _nowhere(routes: Routes) -> str:
    """A pair of hosts without a way, in words, or nothing."""
    if not len(pairs := routes.unreachable()):
        return ""
    a, b = (routes.tables.names[int(routes.tables.end_node[end])] for end in pairs[0])
    return f"leads nowhere from {a} to {b} ({len(pairs)} such pairs)"


def _given_tables(section: Section, fabric: Fabric, folder: Path) -> Routes:
    path = folder / section.take("file", kinds.text)
    section.close()
    try:
        tables = fabrics.ibnetdiscover.read_lfts(fabric, path.read_text())
        routes = Routes.from_lft(fabric, tables)
    except (OSError, ValueError) as error:
        raise section.error("file", f"cannot be read: {error}") from None
    if loops := routes.loops():
        raise section.error("file", f"has a routing loop {loops[0]}")
    if nowhere := _nowhere(routes):
        raise section.error("file", nowhere)
    return routes


def error_rates(fabric: Fabric, errors: dict[Cable, float]) -> NDArray[np.float64]:
    """[cables], in their order."""
    return np.array([errors[cable] for cable in fabric.cables()])
