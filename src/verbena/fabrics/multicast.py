# SPDX-License-Identifier: Apache-2.0
"""Multicast: one tree over the switches for each group. ``sim.add_group``, the subnet manager and
programs call this."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from .errors import FabricError
from .fabric import Fabric
from .hops import FAR, hop_table

__all__ = ["MulticastTree", "multicast_tree", "tree_of_ends"]


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
    ends = [tables.end_of(name) for name in dict.fromkeys(members)]
    return tree_of_ends(fabric, ends, root=root)


def tree_of_ends(
    fabric: Fabric,
    members: Sequence[int],
    switches: Sequence[int] = (),
    root: str | None = None,
) -> MulticastTree:
    """Return the tree to end ports and to switches, all by number: ``multicast_tree`` says how.

    A member that is a switch gets packets by its port 0. Raises FabricError.
    """
    tables = fabric.tables()
    ends = np.array(members, np.int64)
    if (not len(ends) and not len(switches)) or (tables.end_switch[ends] < 0).any():
        raise FabricError(f"{fabric.name}: a multicast group needs members behind switches")
    at_ends = tables.end_switch[ends].tolist()
    centre = _centre(fabric, ends) if root is None and at_ends else root
    if centre is None:
        centre = tables.switch_name(switches[0])
    if centre not in fabric.graph or fabric.graph.nodes[centre]["kind"] != "switch":
        raise FabricError(f"{centre}: no switch to be the root of a multicast tree")
    parents = {below: above for above, below in nx.bfs_edges(_switch_graph(fabric), centre)}
    ports = np.zeros(tables.out_link.shape, bool)
    ports[tables.end_switch[ends], tables.end_switch_port[ends]] = True
    ports[list(switches), 0] = True
    for switch in dict.fromkeys(tables.switch_name(at) for at in [*at_ends, *switches]):
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
