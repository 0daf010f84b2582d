# SPDX-License-Identifier: Apache-2.0
"""Finds the coordinates of the switches of a torus or a mesh from its cables.

Dimension-order routing calls this when a fabric has no coordinates, as one that was read from a
file. The dimensions are found by the ports first: a dimension that is cabled consistently has the
same pair of ports everywhere, as OpenSM's `dor` requires. Otherwise they are found by the squares
of the grid (cycles of four switches), whatever the ports are. Either result is checked: no two
switches may have the same coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .errors import FabricError
from .tables import Tables

__all__ = ["coordinates"]

Edge = tuple[int, int]  # two switches, the lower one first


@dataclass(frozen=True)
class _Cabling:
    """``port`` is a switch's lowest port towards a neighbour, ``near`` has each switch's
    neighbours."""

    count: int
    port: Mapping[Edge, int]
    near: tuple[frozenset[int], ...]

    @property
    def edges(self) -> list[Edge]:
        return [(a, b) for a, b in self.port if a < b]


def coordinates(tables: Tables) -> NDArray[np.int64]:
    """Return [S, dimensions]: dimensions by their lowest port, each in the direction of that port.

    Raises FabricError when the switches form neither a torus nor a mesh.
    """
    cabling = _cabling(tables)
    why = "its switches are not cabled as one"
    for kinds in (_by_ports(cabling), _by_squares(cabling)):
        try:
            return _places(cabling, kinds)
        except FabricError as error:
            why = str(error)
    raise FabricError(
        f"dor: no torus and no mesh ({why}): other engines route it, and switches with the "
        "attribute 'coordinate' are taken as they are"
    )


def _cabling(tables: Tables) -> _Cabling:
    port: dict[Edge, int] = {}
    near: list[set[int]] = [set() for _ in range(tables.switch_count)]
    for source, out, target in zip(*(part.tolist() for part in tables.switch_edges), strict=True):
        if source != target:
            port.setdefault((source, target), out)
            near[source].add(target)
    return _Cabling(tables.switch_count, port, tuple(map(frozenset, near)))


# ---- which cables are of one dimension -----------------------------------------------------------


def _by_ports(cabling: _Cabling) -> dict[Edge, Hashable]:
    """Return the pair of ports of each cable."""
    return {(a, b): frozenset((cabling.port[a, b], cabling.port[b, a])) for a, b in cabling.edges}


def _by_squares(cabling: _Cabling) -> dict[Edge, Hashable]:
    """Return each cable's dimension: opposite sides of a square are of one dimension.

    So are two cables of a switch that are not sides of one square: these are neighbours in a line
    or a ring. A ring of four is itself a square, and so becomes two dimensions of two switches, as
    in a hypercube, in which paths are as short.
    """
    same = _Classes()
    for at, near in enumerate(cabling.near):
        some = sorted(near)
        for place, one in enumerate(some):
            for other in some[place + 1 :]:
                corners = (cabling.near[one] & cabling.near[other]) - {at}
                if other in cabling.near[one] or not corners:
                    same.join(_edge(at, one), _edge(at, other))
                for corner in corners - near:
                    same.join(_edge(at, one), _edge(other, corner))
                    same.join(_edge(at, other), _edge(one, corner))
    return {edge: same.of(edge) for edge in cabling.edges}


def _edge(a: int, b: int) -> Edge:
    return (a, b) if a < b else (b, a)


class _Classes:
    """Sets that grow together (Tarjan's union-find)."""

    def __init__(self) -> None:
        self._above: dict[Hashable, Hashable] = {}

    def of(self, item: Hashable) -> Hashable:
        while (above := self._above.get(item, item)) != item:
            self._above[item] = self._above.get(above, above)
            item = above
        return item

    def join(self, one: Hashable, other: Hashable) -> None:
        self._above[self.of(one)] = self.of(other)


# ---- where the switches are ----------------------------------------------------------------------


def _places(cabling: _Cabling, kinds: Mapping[Edge, Hashable]) -> NDArray[np.int64]:
    """Return [S, dimensions]. Raises FabricError if ``kinds`` are not the dimensions of a grid."""
    lowest: dict[Hashable, int] = {}
    for (a, b), kind in kinds.items():
        ports = cabling.port[a, b], cabling.port[b, a]
        lowest[kind] = min(lowest.get(kind, ports[0]), *ports)
    order = sorted(lowest, key=lambda kind: lowest[kind])
    columns = [_line(cabling, kinds, kind) for kind in order]
    places = np.array(columns, np.int64).reshape(len(columns), cabling.count).T
    if not columns:
        places = np.zeros((cabling.count, 1), np.int64)
    shape = (places.max(axis=0) + 1).tolist()
    if len(np.unique(places, axis=0)) < cabling.count or math.prod(shape) != cabling.count:
        raise FabricError(f"{cabling.count} switches are not {' x '.join(map(str, shape))}")
    return places


def _line(cabling: _Cabling, kinds: Mapping[Edge, Hashable], kind: Hashable) -> list[int]:
    """Return [S]: the coordinates in the dimension whose cables are of the ``kind``.

    Switches that other cables join have the same coordinate. Contracted so, the switches must form
    a line or a ring.
    """
    layer = _Classes()
    for (a, b), other in kinds.items():
        if other != kind:
            layer.join(a, b)
    of = [layer.of(switch) for switch in range(cabling.count)]
    near: dict[Hashable, dict[Hashable, int]] = {name: {} for name in of}
    for (a, b), other in kinds.items():
        if other == kind:
            for here, there in ((a, b), (b, a)):
                least = near[of[here]].get(of[there], cabling.port[here, there])
                near[of[here]][of[there]] = min(least, cabling.port[here, there])
    number = {name: place for place, name in enumerate(_walk(near))}
    return [number[name] for name in of]


def _walk(near: Mapping[Hashable, Mapping[Hashable, int]]) -> Iterable[Hashable]:
    """Yield the members of a line from one end, or of a ring by the lowest port of its first."""
    if any(name in ways or len(ways) > 2 for name, ways in near.items()):
        raise FabricError("a dimension is neither a line nor a ring")
    ends = [name for name, ways in near.items() if len(ways) < 2]
    at: Hashable = min(ends, key=lambda name: list(near).index(name)) if ends else next(iter(near))
    seen: dict[Hashable, None] = {at: None}
    while ways := {name: port for name, port in near[at].items() if name not in seen}:
        at = min(ways, key=lambda name: ways[name])
        seen[at] = None
    if len(seen) < len(near):
        raise FabricError("a dimension is in parts")
    return seen
