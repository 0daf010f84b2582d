# SPDX-License-Identifier: Apache-2.0
"""Balanced shortest paths, and lanes that keep them from deadlock.

DFSSSP: Domke, Hoefler and Nagel, "Deadlock-free oblivious routing for arbitrary topologies", IPDPS
2011.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .deadlock import dependencies, find_cycle
from .engines import empty
from .errors import FabricError
from .fabric import Fabric
from .hops import MinimalHops, ends_by_leaf
from .lanes import SLS, identity
from .layers import layers
from .routes import Routes
from .tables import Tables

__all__ = ["dfsssp", "sssp"]

POSITION_BITS = 22  # for an edge's number; the rest of 63 bits is the cost of a path


def sssp(fabric: Fabric) -> Routes:
    """Shortest paths, of which those with the least load are chosen, one destination after the
    other.

    The load of a link is the number of paths that already lead over it, counted from every host.
    May have credit loops: see dfsssp.
    """
    tables = fabric.tables()
    return Routes(fabric, tables, "sssp", _lightest(tables), None, identity(tables))


def _lightest(tables: Tables) -> NDArray[Any]:
    out = empty(tables)
    source, port, target = tables.switch_edges
    candidates = MinimalHops.of(tables)
    load = np.zeros(len(source), np.int64)
    for leaf, ends in ends_by_leaf(tables):
        rings = _rings(candidates, leaf, source)
        for end in ends:
            cost = np.zeros(tables.switch_count, np.int64)
            chosen = []
            for edges, starts in rings:
                ways = load[edges] + cost[target[edges]]
                least = np.minimum.reduceat((ways << POSITION_BITS) | edges, starts)
                best = least & ((1 << POSITION_BITS) - 1)
                cost[source[best]] = least >> POSITION_BITS
                out[source[best], end] = port[best]
                chosen.append(best)
            _add_load(load, chosen, tables.hosts_at.copy(), source, target)
    return out


def _rings(
    candidates: MinimalHops, leaf: int, source: NDArray[np.int32]
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return, by distance from the leaf, the edges that lead nearer, and where each switch's
    begin."""
    can = np.nonzero(candidates.edges_to(leaf))[0]
    hops = candidates.hops_to(leaf)[source[can]]
    rings = []
    for distance in range(1, int(hops.max(initial=0)) + 1):
        edges = can[hops == distance]
        rings.append((edges, np.unique(source[edges], return_index=True)[1]))
    return rings


def _add_load(
    load: NDArray[np.int64],
    chosen: list[NDArray[np.int64]],
    paths: NDArray[np.int64],
    source: NDArray[np.int32],
    target: NDArray[np.int32],
) -> None:
    """Add the load of paths: from the farthest switches inwards, each adds its own paths and those
    that it got to its next link."""
    for edges in reversed(chosen):
        count = paths[source[edges]]
        load[edges] += count
        np.add.at(paths, target[edges], count)


def dfsssp(fabric: Fabric, lanes: int = 8) -> Routes:
    """sssp, with the paths spread over virtual lanes such that no lane has a credit loop.

    All paths begin on lane 0. As long as its dependencies have a cycle, the paths that cause the
    cycle's weakest dependency (that of the fewest paths) move to the next lane; then the next lane
    is treated in the same way. A path's SL is its lane. Raises FabricError when ``lanes`` do not
    suffice.
    """
    if not isinstance(lanes, int) or not 1 <= lanes <= SLS - 1:
        raise FabricError(f"dfsssp: {lanes!r} lanes, which is not 1 to {SLS - 1}")
    tables = fabric.tables()
    plain = Routes(fabric, tables, "dfsssp", _lightest(tables), None, identity(tables))
    if find_cycle(*dependencies(plain)) is None:
        return plain
    sl = layers(plain, lanes)
    used = int(sl.max()) + 1
    return Routes(fabric, tables, "dfsssp", plain.out, sl, identity(tables, used))
