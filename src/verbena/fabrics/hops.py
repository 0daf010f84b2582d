# SPDX-License-Identifier: Apache-2.0
"""Distances from switches to the switches that have hosts (leaves), and the ports that lead nearer.

The routing engines use this.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .tables import Tables

__all__ = ["Candidates", "MinimalHops", "UpDownHops", "ends_by_leaf", "hop_table", "leaf_order"]

FAR = np.iinfo(np.uint16).max  # no path


class Candidates(Protocol):
    """Which ports an engine may choose from. E edges: ``Tables.switch_edges``."""

    def edges_to(self, leaf: int) -> NDArray[np.bool_]:
        """[E]: whether a packet for the leaf, an index of ``Tables.leaves``, may take the edge."""
        ...

    def hops_to(self, leaf: int) -> NDArray[np.uint16]:
        """[S]: the number of edges from each switch to the leaf, or FAR."""
        ...


def hop_table(
    tables: Tables,
    allowed: NDArray[np.bool_] | None = None,
    leaves: NDArray[np.int32] | None = None,
) -> NDArray[np.uint16]:
    """Return [S, leaves]: the number of edges from each switch to each leaf, FAR without a path.

    ``allowed`` [E] says which edges may be used. ``leaves`` are switches in place of those that
    have hosts. All leaves are searched at once, a bit for each,
    breadth first.
    """
    source, _, target = tables.switch_edges
    if allowed is not None:
        source, target = source[allowed], target[allowed]
    leaves = tables.leaves if leaves is None else leaves
    hops = np.full((tables.switch_count, len(leaves)), FAR, np.uint16)
    hops[leaves, np.arange(len(leaves))] = 0
    reached = np.packbits(hops == 0, axis=1)
    movers, starts = np.unique(source, return_index=True)
    for step in range(1, tables.switch_count):
        if not len(movers):
            break
        gained = np.bitwise_or.reduceat(reached[target], starts, axis=0) & ~reached[movers]
        some = gained.any(axis=1)
        if not some.any():
            break
        fresh = np.unpackbits(gained[some], axis=1, count=len(leaves)).astype(bool)
        rows = movers[some]
        hops[rows] = np.where(fresh, step, hops[rows])
        reached[rows] |= gained[some]
    return hops


@dataclass(frozen=True)
class MinimalHops:
    """Every port on a shortest path."""

    tables: Tables
    hops: NDArray[np.uint16]

    @classmethod
    def of(cls, tables: Tables) -> MinimalHops:
        return cls(tables, hop_table(tables))

    def edges_to(self, leaf: int) -> NDArray[np.bool_]:
        source, _, target = self.tables.switch_edges
        hops = self.hops[:, leaf].astype(np.int32)
        nearer: NDArray[np.bool_] = (hops[source] != FAR) & (hops[source] == hops[target] + 1)
        return nearer

    def hops_to(self, leaf: int) -> NDArray[np.uint16]:
        return self.hops[:, leaf]


@dataclass(frozen=True)
class UpDownHops:
    """Ports on shortest paths that never go up after they went down (Autonet, Schroeder 1991).

    A forwarding table does not depend on where a packet came from. So a switch from which a path
    down exists uses it, even where a path up and down would be shorter: otherwise a packet that
    went down could be sent up again.
    """

    tables: Tables
    up: NDArray[np.bool_]
    down_hops: NDArray[np.uint16]
    hops: NDArray[np.uint16]

    @classmethod
    def of(cls, tables: Tables, order: NDArray[np.int64]) -> UpDownHops:
        """``order`` [S] is a different number for each switch; up is towards smaller ones."""
        source, _, target = tables.switch_edges
        up = order[target] < order[source]
        down_hops = hop_table(tables, ~up)
        hops = down_hops.copy()
        first = np.searchsorted(source, np.arange(tables.switch_count + 1))
        for switch in np.argsort(order):
            edges = slice(first[switch], first[switch + 1])
            above = target[edges][up[edges]]
            if len(above):
                best = hops[above].min(axis=0).astype(np.int32) + 1
                stuck = (hops[switch] == FAR) & (best <= FAR)
                hops[switch] = np.where(stuck, best, hops[switch])
        return cls(tables, up, down_hops, hops)

    @cached_property
    def _ends(self) -> tuple[NDArray[Any], ...]:
        """The edges up, and those down: for each kind their numbers, sources and targets."""
        source, _, target = self.tables.switch_edges
        climbing, falling = np.nonzero(self.up)[0], np.nonzero(~self.up)[0]
        return (
            *(climbing, source[climbing], target[climbing]),
            *(falling, source[falling], target[falling]),
        )

    def edges_to(self, leaf: int) -> NDArray[np.bool_]:
        climbing, below, above, falling, higher, lower = self._ends
        down = self.down_hops[:, leaf].astype(np.int32)
        hops = self.hops[:, leaf].astype(np.int32)
        may = np.empty(len(self.up), bool)
        # No number of hops is FAR - 1, so FAR equals none that is one more.
        may[falling] = down[higher] == down[lower] + 1
        may[climbing] = (down == FAR)[below] & (hops[below] == hops[above] + 1)
        return may

    def hops_to(self, leaf: int) -> NDArray[np.uint16]:
        return self.hops[:, leaf]


def leaf_order(tables: Tables) -> NDArray[np.int64]:
    """The order in which OpenSM balances paths: most hosts first, then by GUID."""
    leaves = tables.leaves
    guids = tables.guids[tables.host_count :][leaves]
    return np.lexsort((guids, -tables.hosts_at[leaves]))


def ends_by_leaf(tables: Tables) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each leaf in OpenSM's order, with its end ports by the switch's port."""
    order = np.lexsort((tables.end_switch_port, tables.end_switch))
    starts = np.searchsorted(tables.end_switch[order], tables.leaves)
    ends = np.searchsorted(tables.end_switch[order], tables.leaves, side="right")
    for leaf in leaf_order(tables):
        yield int(leaf), order[starts[leaf] : ends[leaf]]
