# SPDX-License-Identifier: Apache-2.0
"""A world from a fabric and its routes (``verbena.fabrics``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verbena.sim._world import World

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
    tables, settings = routes.tables, dict(switch or {})
    lanes = len(settings.get("lanes", ()))
    if world.nodes:
        raise ValueError(f"the world has {world.nodes} nodes already")
    if (tables.first_end < 0).any():
        name = tables.names[int(np.argmin(tables.first_end))]
        raise ValueError(f"{name} is not plugged in: each simulated host is")
    if lanes and lanes < routes.lanes.lanes:
        raise ValueError(f"the routes need {routes.lanes.lanes} lanes, and there are {lanes}")
    for port in _ranks(tables):
        world.add_host(_framing_of(framing, port))
    ports = tables.out_link.shape[1]
    for number in range(tables.switch_count):
        node = world.add_switch(ports, **(own or {}).get(number, settings))
        if lanes and routes.lanes.lanes > 1:
            by = "lane" if routes.lanes.by_lane else "level"
            world.set_lanes(node, routes.lanes.table(number), by)
    place = _places(tables)
    cables = tables.links[0::2].tolist()
    errors = np.broadcast_to(np.asarray(bit_error_rate, float), len(cables)).tolist()
    boxes = np.broadcast_to(np.asarray(extender, np.int64), len(cables)).tolist()
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


def _framing_of(framing: Sequence[str] | None, port: int) -> str | None:
    if framing is None:
        return None
    if port >= len(framing):
        raise ValueError(f"framing is of {len(framing)} ports, and a host has {port + 1}")
    return framing[port]


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
    source, target = np.broadcast_arrays(source, target)
    if routes.sl is None:
        return np.zeros(source.shape, np.uint8)
    chosen: NDArray[np.uint8] = routes.sl[routes.tables.end_switch[source], target]
    return chosen


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
    from verbena.fabrics import multicast_tree

    names = list(dict.fromkeys(members))
    others = [name for name in dict.fromkeys(senders) if name not in names]
    tables = fabric.tables()
    rows = multicast_tree(fabric, [*names, *others], root).ports.copy()
    ends = [tables.end_of(name) for name in others]
    rows[tables.end_switch[ends], tables.end_switch_port[ends]] = False
    ports = {
        tables.end_count + int(switch): np.flatnonzero(rows[switch]).tolist()
        for switch in np.flatnonzero(rows.any(axis=1))
    }
    return world.add_group([tables.end_of(name) for name in names], ports)


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
