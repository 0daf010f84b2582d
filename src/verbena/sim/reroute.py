# SPDX-License-Identifier: Apache-2.0
"""New routes while a world runs, as a subnet manager or a routing protocol computes them some time
after a link went down or came back.

``ways_without`` has a routing engine route a fabric without some of its cables, and ``Ways.set``
gives the result to the switches of a world that ``build`` made of the whole fabric. Scenarios use
both. Flows keep their queue pairs, lanes and service levels, so only engines that need no lanes are
allowed (ENGINES).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from verbena.fabrics import Cable, Fabric, Routes, route
from verbena.sim._world import World
from verbena.sim.arguments import require
from verbena.sim.build import ways

__all__ = ["ENGINES", "Ways", "reroute", "ways_without"]

ENGINES = ("minhop", "ecmp", "updn", "ftree", "sssp")
"""Engines whose routes need no lanes."""


@dataclass(frozen=True)
class Ways:
    """The forwarding tables of all switches of a fabric.

    ``ports``: for each switch what ``World.set_routes`` takes. ``parts``: the routes of each
    connected part of the fabric that has hosts. ``lost``: pairs of hosts, source and destination,
    that have no path.
    """

    first: int  # the node of the first switch in the world
    ports: tuple[NDArray[np.int32], ...]
    parts: tuple[Routes, ...]
    lost: tuple[tuple[str, str], ...]

    def set(self, world: World) -> None:
        """Give the tables to the switches of a world, all at the present time."""
        for number, table in enumerate(self.ports):
            world.set_routes(self.first + number, table)


def reroute(
    world: World, fabric: Fabric, down: Collection[Cable], engine: str = "minhop", **options: Any
) -> Ways:
    """Give a world new routes without the cables that are down, and return them.

    The world is one that ``build`` made of ``fabric``. ``engine`` is one of ENGINES, and
    ``options`` are its own. Raises TypeError for arguments of other types, ValueError for another
    engine or for hosts with several ports, and FabricError if the engine cannot route what is left.
    """
    require("world", world, World, "a World that build made of the fabric")
    made = ways_without(fabric, down, engine, **options)
    made.set(world)
    return made


def ways_without(
    fabric: Fabric, down: Collection[Cable], engine: str = "minhop", **options: Any
) -> Ways:
    """Return the routes of a fabric without the cables that are down.

    The engine routes each connected part by itself. Raises as ``reroute`` does.
    """
    require("fabric", fabric, Fabric, "a Fabric of verbena.fabrics")
    require("down", down, (list, tuple, set, frozenset), "a list of cables")
    for cable in down:
        require("one of down", cable, Cable, "a Cable, as fabric.cables() yields them")
    if engine not in ENGINES:
        raise ValueError(
            f"routes by {engine!r} are not made anew: by {', '.join(ENGINES)} they are"
        )
    tables = fabric.tables()
    if tables.end_count > tables.host_count:
        raise ValueError(
            f"{fabric.name}: routes are made anew only where each host has one port; use several "
            "hosts in place of one with several ports"
        )
    hosts, first = tables.host_count, tables.host_count
    ports = [np.full((hosts, 1), -1, np.int32) for _ in range(tables.switch_count)]
    reached = np.eye(hosts, dtype=bool)
    routed = []
    for part in _parts(fabric, set(down)):
        inside = [tables.number[name] for name in part.hosts]
        reached[np.ix_(inside, inside)] = True
        if not part.switches:
            continue
        made = route(part, engine, **_own(options, part))
        routed.append(made)
        for number, name in enumerate(part.switches):
            ports[tables.number[name] - first] = _whole(ways(made, number), inside, hosts)
        for a, b in made.unreachable().tolist():
            reached[inside[a], inside[b]] = False
    lost = [(tables.names[a], tables.names[b]) for a, b in np.argwhere(~reached).tolist()]
    return Ways(first, tuple(ports), tuple(routed), tuple(lost))


def _parts(fabric: Fabric, down: set[Cable]) -> list[Fabric]:
    """Return the connected parts that have hosts as fabrics, with nodes in their original order."""
    graph = nx.MultiGraph()
    graph.add_nodes_from(fabric.graph)
    left = [cable for cable in fabric.cables() if cable not in down]
    graph.add_edges_from((cable.a, cable.b) for cable in left)
    parts = []
    for nodes in nx.connected_components(graph):
        if nodes.isdisjoint(fabric.hosts) or len(nodes) == 1:
            continue
        parts.append(_part(fabric, nodes, left))
    return parts


def _part(fabric: Fabric, nodes: set[str], cables: list[Cable]) -> Fabric:
    made = Fabric(fabric.name)
    for name, attributes in fabric.graph.nodes(data=True):
        if name in nodes:
            given = dict(attributes)
            add = made.add_host if given.pop("kind") == "host" else made.add_switch
            add(name, **given)
    for cable in cables:
        if cable.a in nodes:
            made.connect(
                cable.a,
                cable.b,
                a_port=cable.a_port,
                b_port=cable.b_port,
                rate=cable.rate,
                delay_ns=cable.delay_ps / 1000,
            )
    return made


def _own(options: dict[str, Any], part: Fabric) -> dict[str, Any]:
    """Return the options with those roots that are in this part; None lets the engine choose."""
    given = options.get("roots") or []
    if isinstance(given, str) or not isinstance(given, Collection):
        return options  # the engine refuses it
    roots = [name for name in given if name in part.graph]
    return {**options, "roots": roots or None} if "roots" in options else options


def _whole(table: NDArray[np.int32], inside: list[int], hosts: int) -> NDArray[np.int32]:
    """Return rows for all hosts; those of other parts have no port."""
    rows = table.reshape(len(inside), -1)
    whole = np.full((hosts, rows.shape[1]), -1, np.int32)
    whole[inside] = rows
    return whole
