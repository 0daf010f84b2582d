# SPDX-License-Identifier: Apache-2.0
"""Assigns paths to lanes, such that the channel dependencies of each lane have no cycle.

DFSSSP (sssp.py) calls ``layers``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import FabricError
from .routes import Routes

__all__ = ["layers"]

WHITE, GREY, BLACK = 0, 1, 2


def layers(routes: Routes, most: int) -> NDArray[np.uint8]:
    """Return [S, D]: a lane for each path from a switch with hosts to a destination.

    Raises FabricError when ``most`` lanes do not suffice.
    """
    tables = routes.tables
    source, end = (
        a.ravel() for a in np.meshgrid(tables.leaves, np.arange(tables.end_count), indexing="ij")
    )
    remote = tables.end_switch[end] != source
    source, end = source[remote], end[remote]
    path, edge, names = _dependencies(routes, source, end)
    lane = np.zeros(len(source), np.uint8)
    for current in range(most):
        here = lane == current
        if not here.any():
            break
        graph = _Graph.of(path[here[path]], edge[here[path]], names, len(source))
        moved = graph.break_circles()
        if len(moved) and current + 1 == most:
            raise FabricError(f"{routes.engine}: {routes.fabric.name} needs more than {most} lanes")
        lane[moved] = current + 1
    sl = np.zeros(routes.out.shape, np.uint8)
    sl[source, end] = lane
    return sl


def _dependencies(
    routes: Routes, switch: NDArray[Any], end: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return pairs of path and dependency, and the two links of each dependency."""
    tables = routes.tables
    link_count = len(tables.links)
    number = np.arange(len(switch))
    before = np.full(len(switch), -1, np.int64)
    paths, keys = [], []
    for _ in range(tables.switch_count):
        port = routes.out[switch, end]
        live = (port != routes.none) & (end >= 0)
        switch, end, number, before, port = (a[live] for a in (switch, end, number, before, port))
        link = tables.out_link[switch, port].astype(np.int64)
        following = tables.neighbour[switch, port]
        live = following >= 0  # the last cable, to a host, is on no cycle
        known = live & (before >= 0)
        paths.append(number[known])
        keys.append(before[known] * link_count + link[known])
        switch, end, number, before = following[live], end[live], number[live], link[live]
        if not len(end):
            break
    unique, edge = np.unique(np.concatenate(keys), return_inverse=True)
    return np.concatenate(paths), edge.ravel(), np.stack(divmod(unique, link_count), axis=1)


@dataclass
class _Graph:
    """The dependencies of one lane, and the paths that cause them."""

    tail: NDArray[np.int64]
    head: NDArray[np.int64]
    weight: NDArray[np.int64]
    paths: tuple[NDArray[np.int64], NDArray[np.int64]]  # by edge: start, members
    edges: tuple[NDArray[np.int64], NDArray[np.int64]]  # by path: start, members
    alive: NDArray[np.bool_]

    @classmethod
    def of(
        cls, path: NDArray[Any], edge: NDArray[Any], names: NDArray[Any], path_count: int
    ) -> _Graph:
        _, ends = np.unique(names, return_inverse=True)
        ends = ends.reshape(names.shape)
        alive = np.zeros(path_count, bool)
        alive[path] = True
        return cls(
            ends[:, 0],
            ends[:, 1],
            np.bincount(edge, minlength=len(names)),
            _grouped(edge, path, len(names)),
            _grouped(path, edge, path_count),
            alive,
        )

    def break_circles(self) -> NDArray[np.int64]:
        """Remove edges until the graph has no cycle; return the paths that were removed with them.

        The search is depth first. An edge back to the current path closes a cycle, which loses its
        weakest edge. No cycle leads through vertices that the search has finished, and removing
        edges makes none, so one search over the graph is enough.
        """
        count = int(max(self.tail.max(initial=-1), self.head.max(initial=-1))) + 1
        start, order = _grouped(self.tail, np.arange(len(self.tail)), count)
        colour, place = [WHITE] * count, start[:-1].tolist()
        last, leaving, head = start[1:].tolist(), order.tolist(), self.head.tolist()
        moved: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        for root in range(count):
            if colour[root] != WHITE:
                continue
            way: list[int] = []  # edges from the root to the current vertex
            node = root
            colour[root] = GREY
            while True:
                if place[node] == last[node]:
                    colour[node] = BLACK
                    if not way:
                        break
                    node = int(self.tail[way.pop()])
                    continue
                edge = leaving[place[node]]
                place[node] += 1
                to = head[edge]
                if not self.weight[edge] or colour[to] == BLACK:
                    continue
                if colour[to] == WHITE:
                    way.append(edge)
                    node, colour[to] = to, GREY
                    continue
                circle = self._circle(way, edge)
                moved.append(self._remove(min(circle, key=lambda e: (int(self.weight[e]), e))))
                node = self._retreat(way, node, colour, place, start)
        return np.concatenate(moved)

    def _circle(self, way: list[int], edge: int) -> list[int]:
        """Return the edges of the cycle that ``edge`` closes."""
        circle = [edge]
        for back in reversed(way):
            if self.tail[circle[-1]] == self.head[edge]:
                break
            circle.append(back)
        return circle

    def _remove(self, edge: int) -> NDArray[np.int64]:
        start, members = self.paths
        paths = members[start[edge] : start[edge + 1]]
        paths = paths[self.alive[paths]]
        self.alive[paths] = False
        first, edges = self.edges
        gone = np.concatenate([edges[first[p] : first[p + 1]] for p in paths.tolist()])
        self.weight -= np.bincount(gone, minlength=len(self.weight))
        return paths

    def _retreat(
        self, way: list[int], node: int, colour: list[int], place: list[int], start: NDArray[Any]
    ) -> int:
        """Go back to before the first removed edge; vertices behind it count as not visited."""
        gone = next((i for i, edge in enumerate(way) if not self.weight[edge]), None)
        if gone is None:
            return node
        for edge in way[gone:]:
            to = int(self.head[edge])
            colour[to], place[to] = WHITE, int(start[to])
        node = int(self.tail[way[gone]])
        del way[gone:]
        return node


def _grouped(
    key: NDArray[Any], value: NDArray[Any], count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Group values by key: those of key k are members[start[k] : start[k+1]]."""
    order = np.argsort(key, kind="stable")
    return np.searchsorted(key[order], np.arange(count + 1)), value[order]
