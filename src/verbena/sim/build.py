# SPDX-License-Identifier: Apache-2.0
"""A world from a fabric and its routes (``verbena.fabrics``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verbena.sim._world import World
from verbena.sim.arguments import (
    framing_list,
    require,
    switch_keywords,
    values_for,
    whole_number,
)
from verbena.sim.world_settings import switch_settings

if TYPE_CHECKING:
    from verbena.fabrics import Detours, Fabric, Routes
    from verbena.fabrics.routes import PortGroups
    from verbena.fabrics.tables import Tables

__all__ = ["add_group", "build", "host_ports", "levels"]


def build(
    world: World,
    routes: Routes,
    switch: Mapping[str, Any] | None = None,
    bit_error_rate: ArrayLike = 0.0,
    extender: ArrayLike = 0,
    own: Mapping[int, Mapping[str, Any]] | None = None,
    framing: Sequence[str] | None = None,
) -> None:
    """Fills an empty world with the hosts, switches, links and tables of a routed fabric.

    The world has a host for each end port of ``routes.tables``, with the end port's number, whose
    only port is 0: of a host that is plugged in twice each port sends and receives by itself, and
    ``tables.end_port`` says which it is. Switches come behind them, with their ports' numbers.
    ``switch``: the keywords of ``World.add_switch`` for all switches. Where the routes use several
    lanes, their SL to VL tables are set; otherwise a packet's lane is its level.
    ``own``: other keywords than ``switch``, by the number of a switch among the switches.
    ``bit_error_rate``: of all cables, or of each. ``extender``: bytes of a pair of range extenders
    on each cable, or 0; they are nodes behind all others, and their links are in ``links()``.
    ``framing``: of each host's first port, second port and so on, in place of the world's.
    Raises ValueError for a world that is not empty, a host that is not plugged in, and switches
    with fewer lanes than the routes need.
    """
    require("world", world, World, "a World")
    _require_routes("build", routes)
    tables, settings = routes.tables, switch_keywords("switch", switch)
    ports = tables.out_link.shape[1]
    lanes = _lane_count(settings, ports)
    if world.nodes:
        raise ValueError(f"the world has {world.nodes} nodes already")
    if (tables.first_end < 0).any():
        name = tables.names[int(np.argmin(tables.first_end))]
        raise ValueError(f"{name} is not plugged in: each simulated host is")
    if lanes and lanes < routes.lanes.lanes:
        raise ValueError(f"the routes need {routes.lanes.lanes} lanes, and there are {lanes}")
    own = _own(own, tables)
    ranks = _ranks(tables)
    kinds = framing_list(framing, max(ranks) + 1, _widest(tables, ranks))
    for port in ranks:
        world.add_host(None if kinds is None else kinds[port])
    for number in range(tables.switch_count):
        node = world.add_switch(ports, **own.get(number, settings))
        if lanes and routes.lanes.lanes > 1:
            by = "lane" if routes.lanes.by_lane else "level"
            world.set_lanes(node, routes.lanes.table(number), by)
    place = _places(tables)
    cables = tables.links[0::2].tolist()
    errors = values_for("bit_error_rate", bit_error_rate, len(cables), "cable").tolist()
    boxes = values_for("extender", extender, len(cables), "cable", whole=True).tolist()
    for cable, wrong, box in zip(cables, errors, boxes, strict=True):
        a, a_port, b, b_port, rate, _, _, delay = cable
        settings = {"rate": rate, "delay": delay, "bit_error_rate": wrong, "extender": box}
        world.connect(*place(a, a_port), *place(b, b_port), **settings)
    for number in range(tables.switch_count):
        world.set_routes(tables.end_count + number, ways(routes, number))
    if routes.detours is not None:
        _detour(world, routes, routes.detours)


def host_ports(tables: Tables) -> list[tuple[int, ...]]:
    """The end ports of each host in the order of their numbers: hosts of a world, where built."""
    ports: list[list[int]] = [[] for _ in range(tables.host_count)]
    for end in np.lexsort((tables.end_port, tables.end_node)).tolist():
        ports[tables.end_node[end]].append(end)
    return [tuple(own) for own in ports]


def _ranks(tables: Tables) -> list[int]:
    """Of each end port: how many others of its host come before it."""
    ranks = [0] * tables.end_count
    for own in host_ports(tables):
        for rank, end in enumerate(own):
            ranks[end] = rank
    return ranks


def _widest(tables: Tables, ranks: list[int]) -> str:
    """The name of a host that has as many ports as any."""
    return tables.names[int(tables.end_node[int(np.argmax(ranks))])]


def _require_routes(function: str, routes: object) -> None:
    from verbena.fabrics import Fabric, Routes

    if isinstance(routes, Fabric):
        raise TypeError(
            f"{function} takes routes, and {routes.name} is a Fabric without routes: "
            "fabrics.route(fabric) makes them"
        )
    require("routes", routes, Routes, "the Routes that fabrics.route(fabric) makes")


def _lane_count(settings: dict[str, Any], ports: int) -> int:
    try:
        return len(switch_settings({"ports": ports, **settings}).lanes)
    except (TypeError, ValueError) as error:
        raise type(error)(f"switch: {error}") from None


def _own(
    given: Mapping[int, Mapping[str, Any]] | None, tables: Tables
) -> dict[int, dict[str, Any]]:
    """Keywords by the number of a switch. Raises TypeError, ValueError."""
    wanted = "a dictionary of keywords of World.add_switch, by the number of a switch"
    require("own", {} if given is None else given, Mapping, wanted)
    last = tables.switch_count - 1
    return {
        whole_number("a switch of own", number, 0, last): switch_keywords(
            f"own[{number}]", keywords
        )
        for number, keywords in (given or {}).items()
    }


def _places(tables: Tables) -> Callable[[int, int], tuple[int, int]]:
    """From a node of the tables and its port to those of the world."""
    at = zip(tables.end_node.tolist(), tables.end_port.tolist(), strict=True)
    end = {where: number for number, where in enumerate(at)}
    shift = tables.end_count - tables.host_count

    def place(node: int, port: int) -> tuple[int, int]:
        return (end[node, port], 0) if node < tables.host_count else (node + shift, port)

    return place


def _detour(world: World, routes: Routes, detours: Detours) -> None:
    group = np.concatenate([detours.group[routes.tables.end_switch], detours.group])
    world.set_detours(
        group,
        adaptive=detours.adaptive,
        per=detours.per,
        threshold=detours.threshold,
        gap=detours.gap,
    )


def levels(routes: Routes, source: ArrayLike, target: ArrayLike) -> NDArray[np.uint8]:
    """The service levels that the routes ask for, of packets between these hosts.

    What comes back, acknowledgements too, has the level of its own way, as in the path record for
    it: ``level=levels(routes, a, b), back_level=levels(routes, b, a)``. With both, what
    ``fabrics.credit_loop`` says of the routes holds for all packets of the flows.
    """
    _require_routes("levels", routes)
    hosts = routes.tables.host_count
    source, target = np.broadcast_arrays(
        _host_numbers("source", source, hosts), _host_numbers("target", target, hosts)
    )
    if routes.sl is None:
        return np.zeros(source.shape, np.uint8)
    chosen: NDArray[np.uint8] = routes.sl[routes.tables.end_switch[source], target]
    return chosen


def _host_numbers(name: str, given: ArrayLike, hosts: int) -> NDArray[Any]:
    """Raises ValueError for numbers of hosts that there are not."""
    numbers = np.asarray(given)
    if numbers.dtype.kind not in "iu":
        raise ValueError(f"{name} is {given!r}, and not the number of a host, or an array of them")
    if numbers.size and (numbers.min() < 0 or numbers.max() >= hosts):
        wrong = numbers.min() if numbers.min() < 0 else numbers.max()
        raise ValueError(f"{name}: there is no host {wrong}: there are 0 to {hosts - 1}")
    return numbers


def add_group(
    world: World,
    fabric: Fabric,
    members: Iterable[str],
    root: str | None = None,
    senders: Iterable[str] = (),
) -> int:
    """A multicast group of hosts by name, over the tree that ``fabrics.multicast_tree`` makes.

    ``senders``: hosts that are to reach the group and are not in it (SendOnlyNonMember of IBA
    15.2.5.17). The world is one that ``build`` made of routes of this fabric. Returns the group's
    number.
    """
    from verbena.fabrics import Fabric, multicast_tree

    require("world", world, World, "a World")
    require("fabric", fabric, Fabric, "the Fabric that the world was built of")
    names = _host_names("members", members)
    others = [name for name in _host_names("senders", senders) if name not in names]
    tables = fabric.tables()
    rows = multicast_tree(fabric, [*names, *others], root).ports.copy()
    ends = [tables.end_of(name) for name in others]
    rows[tables.end_switch[ends], tables.end_switch_port[ends]] = False
    ports = {
        tables.end_count + int(switch): np.flatnonzero(rows[switch]).tolist()
        for switch in np.flatnonzero(rows.any(axis=1))
    }
    return world.add_group([tables.end_of(name) for name in names], ports)


def _host_names(argument: str, given: object) -> list[str]:
    """Each name once. Raises TypeError for what is no list of names."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise TypeError(f"{argument} is {given!r}, and not a list of hosts' names, as ['h0', 'h1']")
    names = list(dict.fromkeys(given))
    for name in names:
        require(f"one of {argument}", name, str, "the name of a host")
    return names


def ways(routes: Routes, switch: int) -> NDArray[np.int32]:
    """[hosts] or [hosts, ways]: ports, as World.set_routes takes them."""
    if routes.groups is not None:
        return _padded(routes.groups, switch)
    out = routes.out[switch].astype(np.int32)
    return np.where(out == routes.none, -1, out).astype(np.int32)


def _padded(groups: PortGroups, switch: int) -> NDArray[np.int32]:
    chosen, where = np.unique(groups.group[switch], return_inverse=True)
    width = max(1, int((groups.start[chosen + 1] - groups.start[chosen]).max()))
    rows = np.full((len(chosen), width), -1, np.int32)
    for row, group in zip(rows, chosen, strict=True):
        ports = groups.ports[groups.start[group] : groups.start[group + 1]]
        row[: len(ports)] = ports
    return rows[where]
