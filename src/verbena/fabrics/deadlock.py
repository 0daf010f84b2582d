# SPDX-License-Identifier: Apache-2.0
"""Credit loops: cycles of channels that can wait for each other for ever (Dally and Seitz 1987).

``Routes.check`` and programs call ``credit_loop``. A channel is a directed link with one virtual
lane. A packet that holds a buffer behind one channel and requests the next makes the first depend
on the second. If the dependencies of all paths have no cycle, no traffic can deadlock a network
with credits or pauses.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .hops import MinimalHops
from .routes import Detours, Routes
from .tables import Tables

__all__ = ["CreditLoop", "credit_loop", "dependencies", "find_cycle"]

LANES = 16
CHUNK = 1 << 20  # paths that are followed at once


@dataclass(frozen=True)
class CreditLoop:
    """A cycle of channels: each waits for the next one, and the last for the first.

    ``channels``: link and VL; ``names``: the links' names; ``switches``: the names of the switches
    in the cycle.
    """

    channels: tuple[tuple[int, int], ...]
    names: tuple[str, ...]
    switches: tuple[str, ...]

    def __str__(self) -> str:
        around = " -> ".join((*self.switches, self.switches[0]))
        waits = [
            f"{name} on VL {vl}" for name, (_, vl) in zip(self.names, self.channels, strict=True)
        ]
        chain = ", which waits for ".join((*waits, waits[0]))
        return f"credit loop {around}: {chain}"


def credit_loop(routes: Routes) -> CreditLoop | None:
    """Return a cycle in the channel dependency graph of the routes, or None if there is none.

    The paths of every pair of hosts count, in both directions. So acknowledgements are included, if
    they have the level of their own path (see ``sim.levels``). With equal-cost sets every choice
    counts, and with detours the path through each group.
    """
    before, after = dependencies(routes)
    cycle = find_cycle(before, after)
    return None if cycle is None else _named(routes.tables, cycle)


def dependencies(routes: Routes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of channels, the first waiting for the second; a channel is 16 * link + VL."""
    if routes.groups is not None:
        return _of_sets(routes.tables)
    return _of_paths(routes)


def _of_paths(routes: Routes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Follow every path, from each switch with hosts to each destination, all at once.

    A detour is two paths: towards a group, and from the switch where it enters that group to each
    destination.
    """
    tables = routes.tables
    leaves = tables.leaves
    found = [np.zeros(0, np.int64)]
    span = max(1, CHUNK // max(1, len(leaves)))
    channels = LANES * len(tables.links)
    for first in range(0, tables.end_count, span):
        ends = np.arange(first, min(first + span, tables.end_count))
        starts = _Packets.at(routes, leaves, ends)
        found += [_followed(routes, starts, channels)[0]]
    if routes.detours is not None:
        found += _around(routes, routes.detours, channels)
    key = np.unique(np.concatenate(found))
    return key // channels, key % channels


@dataclass(frozen=True)
class _Packets:
    """Packets in switches: switch, destination, SL, and the kind of port and the channel by which
    each came (-1: from a host)."""

    switch: NDArray[np.int64]
    end: NDArray[np.int64]
    sl: NDArray[np.int64]
    enter: NDArray[np.int64]
    before: NDArray[np.int64]

    @classmethod
    def at(cls, routes: Routes, leaves: NDArray[Any], ends: NDArray[np.int64]) -> _Packets:
        """Return packets from hosts at each of the switches to each of the ends."""
        switch, end = (a.ravel().astype(np.int64) for a in np.meshgrid(leaves, ends, indexing="ij"))
        sl = np.zeros(len(end), np.int64) if routes.sl is None else routes.sl[switch, end]
        return cls(switch, end, sl, np.zeros(len(end), np.int64), np.full(len(end), -1, np.int64))

    def __getitem__(self, which: NDArray[Any]) -> _Packets:
        return _Packets(*(part[which] for part in self._parts))

    @property
    def _parts(self) -> tuple[NDArray[np.int64], ...]:
        return self.switch, self.end, self.sl, self.enter, self.before


def _followed(
    routes: Routes, packets: _Packets, channels: int, stop: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], list[_Packets]]:
    """Follow packets; return pairs of channels, each pair as one number, and stopped packets.

    ``stop`` [S] is a number for each switch: a packet that comes to a switch with the number of its
    destination's switch is returned, and followed no further.
    """
    tables, lanes = routes.tables, routes.lanes
    found, stopped = [np.zeros(0, np.int64)], list[_Packets]()
    for _ in range(tables.switch_count + 1):
        packets = packets[routes.out[packets.switch, packets.end] != routes.none]
        port = routes.out[packets.switch, packets.end]
        link = tables.out_link[packets.switch, port].astype(np.int64)
        waits = packets.before >= 0
        key = np.where(waits, packets.before % LANES, 0) if lanes.by_lane else packets.sl
        kind = lanes.kind[packets.switch, port]
        channel = LANES * link + lanes.lane[packets.enter, kind, key]
        found.append(np.unique(packets.before[waits] * channels + channel[waits]))
        following = tables.neighbour[packets.switch, port].astype(np.int64)
        live = following >= 0
        if not live.any():
            break
        switch, back = following[live], tables.links["dst_port"][link[live]]
        enter = lanes.kind[switch, back].astype(np.int64)
        packets = _Packets(switch, packets.end[live], packets.sl[live], enter, channel[live])
        if stop is not None:
            here = stop[packets.switch] == stop[tables.end_switch[packets.end]]
            stopped.append(packets[here])
            packets = packets[~here]
    return np.concatenate(found), stopped


def _around(routes: Routes, detours: Detours, channels: int) -> list[NDArray[np.int64]]:
    """Return the pairs of channels of detours through each group.

    A detour leads towards the group's first host, as in the simulator, and from the switch where it
    enters the group to one host of each switch.
    """
    tables, group = routes.tables, detours.group
    ends = np.nonzero(tables.end_switch >= 0)[0]
    _, gates = np.unique(group[tables.end_switch[ends]], return_index=True)
    starts = _Packets.at(routes, tables.leaves, ends[gates])
    starts = starts[group[starts.switch] != group[tables.end_switch[starts.end]]]
    key, stopped = _followed(routes, starts, channels, group)
    found = [key]
    _, last = np.unique(tables.end_switch[ends], return_index=True)
    goals = ends[last]
    span = max(1, CHUNK // len(goals))
    for entered in stopped:
        _, which = np.unique(entered.before, return_index=True)
        for first in range(0, len(which), span):
            again = np.repeat(which[first : first + span], len(goals))
            onward = replace(entered[again], end=np.tile(goals, len(again) // len(goals)))
            found.append(_followed(routes, onward, channels)[0])
    return found


def _of_sets(tables: Tables) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For equal-cost sets: an edge into a switch and one out of it that serve the same leaf."""
    candidates = MinimalHops.of(tables)
    source, port, target = tables.switch_edges
    leaves = len(tables.leaves)
    serves = np.zeros((len(source), leaves), bool)
    for leaf in range(leaves):
        serves[:, leaf] = candidates.edges_to(leaf)
    used = _used(tables, serves, candidates)
    link = LANES * tables.out_link[source, port].astype(np.int64)
    before, after = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for switch in range(tables.switch_count):
        into, out = np.nonzero(target == switch)[0], np.nonzero(source == switch)[0]
        both = used[into].astype(np.float32) @ used[out].astype(np.float32).T > 0
        i, o = np.nonzero(both)
        before.append(link[into[i]])
        after.append(link[out[o]])
    return np.concatenate(before), np.concatenate(after)


def _used(tables: Tables, serves: NDArray[np.bool_], hops: MinimalHops) -> NDArray[np.bool_]:
    """[E, leaves]: the edges that packets of some host can reach on their shortest ways."""
    source, _, target = tables.switch_edges
    passes = np.zeros((tables.switch_count, serves.shape[1]), bool)
    passes[tables.leaves] = True
    for _ in range(int(np.where(hops.hops < 0xFFFF, hops.hops, 0).max(initial=0))):
        moving = serves & passes[source]
        np.logical_or.at(passes, target, moving)
    return serves & passes[source]


def find_cycle(before: NDArray[np.int64], after: NDArray[np.int64]) -> list[int] | None:
    """A circle of the directed graph whose edges are before[i] to after[i], or None.

    What nothing points to, and what points to nothing, is on no circle; so it is taken away until
    nothing changes. From what is left, the shortest circle through one node is searched.
    """
    names, flat = np.unique(np.concatenate([before, after]), return_inverse=True)
    tail, head = flat.ravel()[: len(before)], flat.ravel()[len(before) :]
    while len(tail):
        has_in = np.zeros(len(names), bool)
        has_out = np.zeros(len(names), bool)
        has_in[head], has_out[tail] = True, True
        keep = has_in[tail] & has_out[head]
        if keep.all():
            break
        tail, head = tail[keep], head[keep]
    if not len(tail):
        return None
    order = np.argsort(tail, kind="stable")
    tail, head = tail[order], head[order]
    start = np.searchsorted(tail, np.arange(len(names) + 1))
    return [
        int(names[node]) for node in _shortest(_on_a_circle(start, head, int(tail[0])), start, head)
    ]


def _on_a_circle(start: NDArray[Any], head: NDArray[Any], node: int) -> int:
    """Every node has a successor, so whoever walks on comes to a node twice."""
    seen = set[int]()
    while node not in seen:
        seen.add(node)
        node = int(head[start[node]])
    return node


def _shortest(node: int, start: NDArray[Any], head: NDArray[Any]) -> list[int]:
    """The shortest circle through a node that is on one, by breadth-first search."""
    parent: dict[int, int] = {}
    queue = deque([node])
    while node not in parent:
        at = queue.popleft()
        for following in head[start[at] : start[at + 1]].tolist():
            if following not in parent:
                parent[following] = at
                queue.append(following)
    circle = [parent[node]]
    while circle[-1] != node:
        circle.append(parent[circle[-1]])
    return circle[::-1]


def _named(tables: Tables, cycle: list[int]) -> CreditLoop:
    channels = tuple(divmod(channel, LANES) for channel in cycle)
    links = [link for link, _ in channels]
    return CreditLoop(
        channels,
        tuple(tables.link_name(link) for link in links),
        tuple(tables.names[tables.links["src"][link]] for link in links),
    )
