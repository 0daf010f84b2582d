# SPDX-License-Identifier: Apache-2.0
"""Multicast: one tree over the switches for each group. ``sim.add_group`` and programs call
this."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from .errors import FabricError
from .fabric import Fabric
from .hops import FAR, hop_table

__all__ = ["MulticastTree", "multicast_tree"]


@dataclass(frozen=True)
class MulticastTree:
    """``ports`` [S, P+1] bool: a packet leaves a switch by all ports of its row except its input
    port.

    ``root`` is the switch from which the tree was grown.
    """

    root: str
    ports: NDArray[np.bool_]


def multicast_tree(
    fabric: Fabric, members: Iterable[str], root: str | None = None
) -> MulticastTree:
    """Return a tree of shortest paths from ``root`` to the members (hosts by name).

    By default the root is the switch with the smallest sum of hops to the members, as in OpenSM.
    Raises FabricError for a member that is not a host, and for a root that cannot reach one.
    """
    tables = fabric.tables()
    ends = np.array([tables.end_of(name) for name in dict.fromkeys(members)], np.int64)
    if not len(ends) or (tables.end_switch[ends] < 0).any():
        raise FabricError(f"{fabric.name}: a multicast group needs members behind switches")
    centre = _centre(fabric, ends) if root is None else root
    if centre not in fabric.graph or fabric.graph.nodes[centre]["kind"] != "switch":
        raise FabricError(f"{centre}: no switch to be the root of a multicast tree")
    parents = {below: above for above, below in nx.bfs_edges(_switch_graph(fabric), centre)}
    ports = np.zeros(tables.out_link.shape, bool)
    ports[tables.end_switch[ends], tables.end_switch_port[ends]] = True
    for switch in dict.fromkeys(tables.switch_name(int(at)) for at in tables.end_switch[ends]):
        at = switch
        while at != centre:
            if at not in parents:
                raise FabricError(f"{centre}: no way to {switch} for a multicast tree")
            above = parents[at]
            one, other = tables.number[at], tables.number[above]
            row = tables.neighbour[one - tables.host_count]
            port = int(np.argmax(row == other - tables.host_count))
            link = tables.out_link[one - tables.host_count, port]
            ports[one - tables.host_count, port] = True
            ports[other - tables.host_count, tables.links["dst_port"][link]] = True
            at = above
    return MulticastTree(centre, ports)


def _switch_graph(fabric: Fabric) -> nx.Graph:
    tables = fabric.tables()
    graph = nx.Graph()
    graph.add_nodes_from(fabric.switches)
    source, _, target = tables.switch_edges
    graph.add_edges_from(
        (tables.switch_name(a), tables.switch_name(b)) for a, b in zip(source, target, strict=True)
    )
    return graph


def _centre(fabric: Fabric, ends: NDArray[np.int64]) -> str:
    tables = fabric.tables()
    columns = np.searchsorted(tables.leaves, tables.end_switch[ends])
    hops = hop_table(tables)[:, columns].astype(np.int64)
    hops[hops == FAR] = tables.switch_count**2
    return tables.switch_name(int(hops.sum(axis=1).argmin()))
