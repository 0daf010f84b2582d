# SPDX-License-Identifier: Apache-2.0
"""A world made from a fabric and its routes (``verbena.fabrics``).

``sim.run`` and ``Scenario.world`` call ``build``; ``reroute`` uses ``ways`` for tables that change
during a run. The numbers of a world's nodes follow from those of ``routes.tables``: first one host
for each end port, then the switches, then the range extenders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verbena.sim._world import World
from verbena.sim.addresses import LID_MOST
from verbena.sim.arguments import (
    adapter_keywords,
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

__all__ = ["add_group", "build", "build_bare", "host_ports", "levels"]

MANAGED = {"lanes": [{"flow": "credits", "room": 64 << 10}], "management": 8192}


def build(
    world: World,
    routes: Routes | Sequence[Routes],
    switch: Mapping[str, Any] | None = None,
    bit_error_rate: ArrayLike = 0.0,
    extender: ArrayLike = 0,
    own: Mapping[int, Mapping[str, Any]] | None = None,
    framing: Sequence[str] | None = None,
    adapters: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Fill an empty world with the hosts, switches, links and forwarding tables of a routed fabric.

    The world gets one host for each end port of ``routes.tables``, and the host has the end port's
    number. Such a host has one port, whose number is 0. A host of the fabric that has several
    cables is therefore several hosts of the world, which send and receive independently of each
    other; ``tables.end_port`` says which port of the fabric's host each of them is. The switches
    follow, with the ports' numbers that they have in the fabric.

    InfiniBand's ports have the LIDs of ``routes.tables``, and its switches, too, whose tables have
    the shortest way to each other switch. ``routes`` may be a list of 2, 4 or more routes of one
    fabric: then each host's port has as many LIDs, and the routes to each of them are those of the
    list (``add_flows``: path). These routes have one port for each destination, and the lanes of
    the first.

    ``switch``: the keywords of ``World.add_switch`` for all switches. Where the routes use several
    lanes, the SL to VL tables of the switches are set; otherwise a packet's lane is its service
    level.
    ``own``: keywords for single switches, which replace ``switch``; the key is the number of the
    switch among the switches.
    ``bit_error_rate``: the probability that a bit is wrong, one number for all cables or an array
    with one for each cable. ``extender``: likewise, the bytes of buffer of a pair of range
    extenders on the cable, or 0 for none. The extenders are nodes behind all others, and
    ``World.links()`` has their links.
    ``framing``: a list with the framing of each host's first port, second port and so on, which
    replaces the world's. It has as many entries as the host with the most ports has ports.
    ``adapters``: by the name of a host, the keywords of ``World.add_host`` for each of its ports.

    Raises TypeError for an argument of another type (a Fabric needs ``fabrics.route`` first), and
    ValueError for a world that is not empty, a host without a cable, switches with fewer lanes than
    the routes need, more LIDs than a subnet has, and any value that World refuses.
    """
    require("world", world, World, "a World")
    paths = _paths(routes)
    routes = paths[0]
    tables, settings = routes.tables, switch_keywords("switch", switch)
    lanes = _lane_count(settings, tables.out_link.shape[1])
    if lanes and lanes < routes.lanes.lanes:
        _check_empty(world, tables)
        raise ValueError(f"the routes need {routes.lanes.lanes} lanes, and there are {lanes}")
    _add_nodes(world, tables, settings, _own(own, tables), framing, adapters)
    for number in range(tables.switch_count) if lanes and routes.lanes.lanes > 1 else ():
        by = "lane" if routes.lanes.by_lane else "level"
        world.set_lanes(tables.end_count + number, routes.lanes.table(number), by)
    _connect(world, tables, bit_error_rate, extender)
    if any(world.address(node).lid for node in range(tables.end_count)):
        _set_lids(world, tables, len(paths))
    elif len(paths) > 1:
        raise ValueError("several routes are for LIDs, which only InfiniBand has")
    for number in range(tables.switch_count):
        node = tables.end_count + number
        world.set_routes(node, ways(routes, number))
        for path, other in enumerate(paths[1:], 1):
            world.set_routes(node, ways(other, number), path)
    if routes.detours is not None:
        _detour(world, routes, routes.detours)


def build_bare(
    world: World,
    fabric: Fabric,
    switch: Mapping[str, Any] | None = None,
    bit_error_rate: ArrayLike = 0.0,
    own: Mapping[int, Mapping[str, Any]] | None = None,
    adapters: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Fill an empty world with the hosts, switches and links of a fabric, and no routes.

    A ``ManagedWorld`` gives its nodes agents, and a subnet manager the LIDs and tables. ``switch``
    has a lane with credits and a queue for VL15 by default. The other arguments are those of
    ``build``. Raises TypeError and ValueError.
    """
    from verbena.fabrics import Fabric

    require("world", world, World, "a World")
    require("fabric", fabric, Fabric, "a Fabric of verbena.fabrics")
    tables, settings = fabric.tables(), switch_keywords("switch", switch or MANAGED)
    _lane_count(settings, tables.out_link.shape[1])
    _add_nodes(world, tables, settings, _own(own, tables), None, adapters)
    _connect(world, tables, bit_error_rate, 0)


def _check_empty(world: World, tables: Tables) -> None:
    if world.nodes:
        raise ValueError(f"the world has {world.nodes} nodes already")
    if (tables.first_end < 0).any():
        name = tables.names[int(np.argmin(tables.first_end))]
        raise ValueError(f"{name} is not plugged in: each simulated host is")


def _add_nodes(
    world: World,
    tables: Tables,
    settings: dict[str, Any],
    own: dict[int, dict[str, Any]],
    framing: Sequence[str] | None,
    adapters: Mapping[str, Mapping[str, Any]] | None,
) -> None:
    """Add a host for each end port, and the switches."""
    _check_empty(world, tables)
    ranks = _ranks(tables)
    kinds = framing_list(framing, max(ranks) + 1, _widest(tables, ranks))
    settings_of = adapter_keywords(adapters, tables.names[: tables.host_count])
    for port, host in zip(ranks, tables.end_node.tolist(), strict=True):
        kind = None if kinds is None else kinds[port]
        _add_host(world, tables.names[host], kind, settings_of.get(host, {}))
    for number in range(tables.switch_count):
        world.add_switch(tables.out_link.shape[1], **own.get(number, settings))


def _connect(world: World, tables: Tables, bit_error_rate: ArrayLike, extender: ArrayLike) -> None:
    """Connect the nodes by the cables."""
    place = _places(tables)
    cables = tables.links[0::2].tolist()
    errors = values_for("bit_error_rate", bit_error_rate, len(cables), "cable").tolist()
    boxes = values_for("extender", extender, len(cables), "cable", whole=True).tolist()
    for cable, wrong, box in zip(cables, errors, boxes, strict=True):
        a, a_port, b, b_port, rate, _, _, delay = cable
        settings = {"rate": rate, "delay": delay, "bit_error_rate": wrong, "extender": box}
        world.connect(*place(a, a_port), *place(b, b_port), **settings)


def _add_host(world: World, name: str, framing: str | None, adapter: Mapping[str, Any]) -> None:
    try:
        world.add_host(framing, **adapter)
    except (TypeError, ValueError) as error:
        raise type(error)(f"adapters[{name!r}]: {error}" if adapter else str(error)) from None


def host_ports(tables: Tables) -> list[tuple[int, ...]]:
    """Return for each host of the fabric the numbers of its end ports, in the order of the ports.

    An end port is a host of the world that ``build`` makes.
    """
    ports: list[list[int]] = [[] for _ in range(tables.host_count)]
    for end in np.lexsort((tables.end_port, tables.end_node)).tolist():
        ports[tables.end_node[end]].append(end)
    return [tuple(own) for own in ports]


def _ranks(tables: Tables) -> list[int]:
    """Return for each end port how many end ports of the same host precede it."""
    ranks = [0] * tables.end_count
    for own in host_ports(tables):
        for rank, end in enumerate(own):
            ranks[end] = rank
    return ranks


def _widest(tables: Tables, ranks: list[int]) -> str:
    """Return the name of a host that has as many ports as any other."""
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
    """Return the keywords of single switches by their number. Raises TypeError, ValueError."""
    wanted = "a dictionary of keywords of World.add_switch, by the number of a switch"
    require("own", {} if given is None else given, Mapping, wanted)
    last = tables.switch_count - 1
    return {
        whole_number("a switch of own", number, 0, last): switch_keywords(
            f"own[{number}]", keywords
        )
        for number, keywords in (given or {}).items()
    }


def _paths(given: Routes | Sequence[Routes]) -> list[Routes]:
    """Return the routes of each path. Raises TypeError, ValueError."""
    paths: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
    for one in paths:
        _require_routes("build", one)
    first = paths[0] if paths else None
    if first is None or len(paths) not in (1 << lmc for lmc in range(8)):
        raise ValueError(f"there are {len(paths)} routes, and a port has 1, 2, 4, ... 128 LIDs")
    for one in paths[1:]:
        if not np.array_equal(one.tables.links, first.tables.links):
            raise ValueError("the routes are those of different fabrics")
        if one.lanes.lanes > first.lanes.lanes or one.groups is not None:
            raise ValueError("each further path has one port, and the lanes of the first")
    return paths


def _set_lids(world: World, tables: Tables, paths: int) -> None:
    """Give the ports of InfiniBand their LIDs, and the switches, and routes to the switches."""
    ends, switches = tables.end_count, tables.switch_count
    chosen = [node for node in range(ends) if world.address(node).lid]
    lids, switch_lids = tables.lid.astype(np.int64), tables.switch_lid.astype(np.int64)
    if paths > 1 and np.array_equal(lids, np.arange(1, ends + 1)):  # the default, but aligned
        lids, switch_lids = paths * lids, paths * (ends + 1) + np.arange(switches)
    need = len(chosen) * paths + switches
    if (
        need > LID_MOST
        or max(lids[chosen].max() + paths - 1, switch_lids.max(initial=0)) > LID_MOST
    ):
        raise ValueError(
            f"an InfiniBand subnet has {LID_MOST} unicast LIDs, and {len(chosen)} ports of hosts "
            f"with {paths} each and {switches} switches need {need}"
        )
    if paths > 1 or (lids[chosen] != np.array(chosen) + 1).any():
        world.set_lids(chosen, lids[chosen], paths.bit_length() - 1)
    has = np.flatnonzero(switch_lids)
    world.set_lids(ends + has, switch_lids[has])
    for switch, ports in enumerate(_switch_ports(tables)):
        world.set_lid_ports(ends + switch, switch_lids[has], ports[has])


def _switch_ports(tables: Tables) -> NDArray[np.int16]:
    """Return [S, S]: the first port of each switch on a shortest path to another; 0 to itself."""
    from verbena.fabrics.hops import FAR, hop_table

    every = np.arange(tables.switch_count, dtype=np.int32)
    hops = hop_table(tables, leaves=every).astype(np.int32)
    ports = np.full(hops.shape, -1, np.int16)
    for source, port, target in zip(*(part[::-1] for part in tables.switch_edges), strict=True):
        nearer = (hops[source] == hops[target] + 1) & (hops[source] != FAR)
        ports[source, nearer] = port
    np.fill_diagonal(ports, 0)
    return ports


def _places(tables: Tables) -> Callable[[int, int], tuple[int, int]]:
    """Return a function from a node of the tables and its port to the node and port of the
    world."""
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
    """Return the service level that the routes require for packets from each source to each target.

    ``source`` and ``target`` are numbers of hosts, or arrays of them that are broadcast together.
    Returns uint8 of the same shape. Packets in the opposite direction, acknowledgements included,
    have the level of their own path, as in the path record of that direction (IBA 15.2.5.16):
    ``level=levels(routes, a, b), back_level=levels(routes, b, a)``. If both are set,
    ``fabrics.credit_loop`` of the routes holds for all packets of the flows.

    Raises TypeError for anything but Routes, and ValueError for a host that does not exist.
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
    """Return an array of numbers of hosts. Raises ValueError for a number that is no host."""
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
    """Add a multicast group of hosts to a world, and return the number of the group.

    The world is one that ``build`` made of routes of this fabric. Packets follow the tree that
    ``fabrics.multicast_tree`` computes. ``members`` are names of hosts. ``root`` is the name of the
    switch at which the tree begins; by default ``multicast_tree`` chooses it. ``senders`` are names
    of hosts that send to the group without being members (SendOnlyNonMember, IBA 15.2.5.17).

    Raises TypeError for arguments of other types, and FabricError for hosts and switches that the
    fabric does not have.
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
    """Return the names without repetitions. Raises TypeError for anything but a list of names."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise TypeError(f"{argument} is {given!r}, and not a list of hosts' names, as ['h0', 'h1']")
    names = list(dict.fromkeys(given))
    for name in names:
        require(f"one of {argument}", name, str, "the name of a host")
    return names


def ways(routes: Routes, switch: int) -> NDArray[np.int32]:
    """Return the forwarding table of a switch as ``World.set_routes`` takes it.

    int32 of shape [hosts], or [hosts, ports] where several ports lead to a host; -1 stands for
    none.
    """
    if routes.groups is not None:
        return _padded(routes.groups, switch)
    out = routes.out[switch].astype(np.int32)
    return np.where(out == routes.none, -1, out).astype(np.int32)


def _padded(groups: PortGroups, switch: int) -> NDArray[np.int32]:
    """Return the ports of each host's port group; rows shorter than the longest end with -1."""
    chosen, where = np.unique(groups.group[switch], return_inverse=True)
    width = max(1, int((groups.start[chosen + 1] - groups.start[chosen]).max()))
    rows = np.full((len(chosen), width), -1, np.int32)
    for row, group in zip(rows, chosen, strict=True):
        ports = groups.ports[groups.start[group] : groups.start[group + 1]]
        row[: len(ports)] = ports
    return rows[where]
