# SPDX-License-Identifier: Apache-2.0
"""Routes: the forwarding tables and lanes that a routing engine made, and functions to examine
them.

``fabrics.route`` returns them, ``sim.build`` fills switches with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import FabricError
from .fabric import Fabric
from .lanes import LaneMap, identity
from .tables import Tables

__all__ = ["Detours", "Hop", "PortGroups", "Routes"]

MAX_LID = 0xBFFF  # the last unicast LID (IBA 4.1.3)


@dataclass(frozen=True)
class Hop:
    """One directed link of a path, and the lane that the packet is on."""

    link: int
    name: str
    vl: int

    def __str__(self) -> str:
        return f"{self.name} (VL {self.vl})"


@dataclass(frozen=True)
class PortGroups:
    """Equal-cost next hops: ports of group g are ``ports[start[g] : start[g+1]]``, ascending.

    ``group`` [S, D] is the group of each switch and destination; groups are shared by all switches.
    Group 0 is empty: no path.
    """

    group: NDArray[Any]
    start: NDArray[np.int32]
    ports: NDArray[Any]

    def of(self, switch: int, end: int) -> NDArray[Any]:
        """Return the ports from which a switch chooses."""
        group = int(self.group[switch, end])
        return self.ports[self.start[group] : self.start[group + 1]]


@dataclass(frozen=True)
class Detours:
    """Paths through a third group of switches, beside those of the tables (sim.World.set_detours).

    ``group`` [S]: each switch's group, counted from 0. ``adaptive``: the queues of the first switch
    decide; otherwise every packet to another group makes a detour. ``per``: "flow" or "packet".
    ``threshold``: bytes times links. ``gap``: ps.
    """

    group: NDArray[np.int64]
    adaptive: bool
    per: str
    threshold: int
    gap: int


@dataclass(frozen=True)
class Routes:
    """Routes of a fabric of S switches to its D end ports.

    ``out`` [S, D] uint8, or uint16 for switches of more than 254 ports: the port to a destination,
    or ``none`` (255, 65535). ``sl`` [S, D] uint8: the SL of packets from hosts at a switch to a
    destination; None means 0. ``lanes`` has the VLs. ``groups`` are the equal-cost sets, for
    Ethernet; ``out`` is then one choice from each. ``detours``: packets also take other paths,
    which ``links``, ``path`` and the loads do not include. ``notes``: remarks of the engine for the
    user.
    """

    fabric: Fabric
    tables: Tables
    engine: str
    out: NDArray[Any]
    sl: NDArray[np.uint8] | None
    lanes: LaneMap
    groups: PortGroups | None = None
    detours: Detours | None = None
    notes: tuple[str, ...] = ()

    @property
    def none(self) -> int:
        """The value in ``out`` and ``lft`` that means no path."""
        return int(np.iinfo(self.out.dtype).max)

    @property
    def lft(self) -> NDArray[Any]:
        """[S, highest LID + 1]: linear forwarding tables by destination LID.

        Raises FabricError if there are more LIDs than a subnet has.
        """
        lids = self.tables.lid
        if len(lids) and lids.max() > MAX_LID:
            raise FabricError(f"{self.fabric.name}: LID {lids.max()} is beyond {MAX_LID}")
        table = np.full((len(self.out), int(lids.max(initial=0)) + 1), self.none, self.out.dtype)
        table[:, lids] = self.out
        return table

    def ports_of(self, switch: int) -> NDArray[np.int32]:
        """Return [D, width]: the ports of a switch that lead to each end port, then -1.

        ``width`` is 1, or with equal-cost sets the size of the largest set.
        """
        if self.groups is None:
            ports = self.out[switch].astype(np.int32)[:, None]
            return np.where(ports == self.none, np.int32(-1), ports)
        group = self.groups.group[switch].astype(np.int64)
        first, last = self.groups.start[group], self.groups.start[group + 1]
        place = first[:, None] + np.arange(max(1, int((last - first).max(initial=1))))
        known = np.append(self.groups.ports, 0)[np.minimum(place, len(self.groups.ports))]
        return np.where(place < last[:, None], known, -1).astype(np.int32)

    @classmethod
    def from_lft(cls, fabric: Fabric, lft: NDArray[Any]) -> Routes:
        """Routes by linear forwarding tables [S, LIDs], as OpenSM or a user made them.

        Raises FabricError when the shape does not fit, or a port is not there.
        """
        tables = fabric.tables()
        lids = tables.lid
        if lft.ndim != 2 or len(lft) != tables.switch_count or lft.shape[1] <= lids.max():
            raise FabricError(
                f"{fabric.name}: forwarding tables of shape {lft.shape} for "
                f"{tables.switch_count} switches and LIDs to {lids.max()}"
            )
        if lft.dtype not in (np.dtype(np.uint8), np.dtype(np.uint16)):
            raise FabricError(f"{fabric.name}: forwarding tables are uint8 or uint16")
        out = np.ascontiguousarray(lft[:, lids])
        _check_ports(tables, out)
        return cls(fabric, tables, "given", out, None, identity(tables))

    # ---- following -----------------------------------------------------------------------------

    def links(
        self, src: ArrayLike, dst: ArrayLike, entropy: ArrayLike | None = None
    ) -> NDArray[np.int32]:
        """[n, longest path]: directed links from end ports ``src`` to end ports ``dst``, then -1.

        ``entropy`` [n] stands for the fields that a switch hashes (addresses, UDP source port)
        where there are equal-cost sets; without it, ``out`` is followed. Raises FabricError, which
        names the pair, if there is no path or a loop, and for a pair of a host with itself.
        """
        src, dst = np.broadcast_arrays(np.asarray(src, np.int64), np.asarray(dst, np.int64))
        self._check_ends(src, dst)
        tables, steps = self.tables, [self.tables.end_link[src]]
        goal = tables.links["src"][tables.end_link[dst]], tables.end_port[dst]
        hashed = np.broadcast_to(
            np.asarray(0 if entropy is None else entropy, np.uint64), src.shape
        )
        ports = self._hashed_ports if entropy is not None and self.groups else self._fixed_ports
        while True:
            last = steps[-1]
            going = last >= 0
            at = tables.links["dst"][last]
            going &= ~((at == goal[0]) & (tables.links["dst_port"][last] == goal[1]))
            if not going.any():
                return np.stack(steps, axis=1).astype(np.int32)
            switch = at - tables.host_count
            lost = going & (switch < 0)
            port = np.full(src.shape, self.none, np.int64)
            live = going & ~lost
            port[live] = ports(switch[live], dst[live], hashed[live])
            lost |= going & (port == self.none)
            if lost.any() or len(steps) > tables.switch_count + 1:
                self._no_way(src, dst, lost if lost.any() else going)
            following = np.full(src.shape, -1, np.int32)
            following[live] = tables.out_link[switch[live], port[live]]
            steps.append(following)

    def _fixed_ports(
        self, switch: NDArray[Any], dst: NDArray[Any], _: NDArray[np.uint64]
    ) -> NDArray[np.int64]:
        ports: NDArray[np.int64] = self.out[switch, dst].astype(np.int64)
        return ports

    def _hashed_ports(
        self, switch: NDArray[Any], dst: NDArray[Any], entropy: NDArray[np.uint64]
    ) -> NDArray[np.int64]:
        assert self.groups is not None
        group = self.groups.group[switch, dst].astype(np.int64)
        first = self.groups.start[group]
        size = self.groups.start[group + 1] - first
        chosen = _mixed(entropy, switch) % np.maximum(size, 1).astype(np.uint64)
        ports = np.append(self.groups.ports, 0).astype(np.int64)  # for empty groups
        return np.where(size > 0, ports[first + chosen.astype(np.int64)], self.none)

    def _check_ends(self, src: NDArray[Any], dst: NDArray[Any]) -> None:
        for what in (src, dst):
            if what.size and not (what.min() >= 0 and what.max() < self.tables.end_count):
                raise FabricError(f"{self.fabric.name}: no end port {what.max()} or {what.min()}")
        if (src == dst).any():
            name = self._end_name(int(src[src == dst][0]))
            raise FabricError(f"{name}: no path leads from a host to itself")

    def _no_way(self, src: NDArray[Any], dst: NDArray[Any], where: NDArray[np.bool_]) -> None:
        a, b = (self._end_name(int(what[where][0])) for what in (src, dst))
        loops = [loop for loop in self.loops() if loop.startswith(f"to {b}:")]
        why = f" (loop {loops[0]})" if loops else ""
        raise FabricError(f"{self.engine}: no way from {a} to {b}{why}")

    def _end_name(self, end: int) -> str:
        return self.tables.names[int(self.tables.end_node[end])]

    def path(self, src: str | int, dst: str | int, entropy: int | None = None) -> list[Hop]:
        """Return the path of a packet between the first ports of two hosts. Raises FabricError."""
        a, b = self.tables.end_of(src), self.tables.end_of(dst)
        links = self.links([a], [b], None if entropy is None else [entropy])[0]
        lanes = self.lanes_of(np.array([a]), np.array([b]), links[None])[0]
        return [
            Hop(int(link), self.tables.link_name(int(link)), int(lane))
            for link, lane in zip(links, lanes, strict=True)
        ]

    def lanes_of(
        self, src: NDArray[Any], dst: NDArray[Any], links: NDArray[np.int32]
    ) -> NDArray[np.uint8]:
        """[n, longest path]: the VL on each link that ``links`` returned."""
        tables = self.tables
        at = tables.end_switch[src]
        sl = np.zeros(len(src), np.int64)
        if self.sl is not None:
            sl = np.where(at >= 0, self.sl[np.maximum(at, 0), dst], 0).astype(np.int64)
        lanes = np.zeros(links.shape, np.uint8)
        lanes[:, 0] = self.lanes.lane[0, 0, sl]
        for step in range(1, links.shape[1]):
            live = links[:, step] >= 0
            before, after = links[live, step - 1], links[live, step]
            switch = tables.links["src"][after] - tables.host_count
            enter = self.lanes.kind[switch, tables.links["dst_port"][before]]
            leave = self.lanes.kind[switch, tables.links["src_port"][after]]
            key = lanes[live, step - 1] if self.lanes.by_lane else sl[live]
            lanes[live, step] = self.lanes.lane[enter, leave, key]
        return lanes

    # ---- load ----------------------------------------------------------------------------------

    def link_load(
        self, src: ArrayLike, dst: ArrayLike, entropy: ArrayLike | None = None
    ) -> NDArray[np.int64]:
        """[L]: how many of the pairs use each directed link."""
        links = self.links(src, dst, entropy)
        return np.bincount(links[links >= 0], minlength=len(self.tables.links))

    def max_link_load(
        self, src: ArrayLike, dst: ArrayLike, entropy: ArrayLike | None = None
    ) -> int:
        """Return the load of the most loaded link: 1 means that no two pairs share a link."""
        return int(self.link_load(src, dst, entropy).max())

    def rates(
        self, src: ArrayLike, dst: ArrayLike, entropy: ArrayLike | None = None
    ) -> NDArray[np.float64]:
        """Return [n]: 1 / the load of the most loaded link on each pair's path, its share of the
        rate if all flows have equal shares."""
        links = self.links(src, dst, entropy)
        load = np.bincount(links[links >= 0], minlength=len(self.tables.links))
        fullest: NDArray[np.int64] = np.where(links >= 0, load[links], 0).max(axis=1)
        return 1.0 / fullest

    def effective_bisection(self, patterns: int = 200, seed: int = 1) -> NDArray[np.float64]:
        """[patterns]: the mean of ``rates`` over random bisections.

        Half of the hosts, chosen at random, each send to one of the other half (Hoefler, Schneider
        and Lumsdaine, "Multistage switches are not crossbars", Cluster 2008).
        """
        random = np.random.default_rng(seed)
        ends = self.tables.first_end
        half = len(ends) // 2
        if not half:
            raise FabricError(f"{self.fabric.name}: one host has no halves")
        means = []
        for _ in range(patterns):
            shuffled = ends[random.permutation(len(ends))]
            means.append(self.rates(shuffled[:half], shuffled[half : 2 * half]).mean())
        return np.array(means)

    # ---- faults ----------------------------------------------------------------------------------

    def _ends_of_ways(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return [S, D] twice: whether following ``out`` arrives, and whether it loops."""
        tables = self.tables
        ends = np.arange(tables.end_count)
        port = np.where(self.out == self.none, 0, self.out)
        link = tables.out_link[np.arange(len(self.out))[:, None], port]
        link = np.where(self.out == self.none, -1, link)
        arrives = (link >= 0) & (link == tables.end_link[ends] ^ 1)
        following = np.maximum(tables.links["dst"][link] - tables.host_count, -1)
        following[arrives | (link < 0)] = -1
        unsure = following >= 0
        for _ in range(tables.switch_count):
            rows, columns = np.nonzero(unsure)
            there = following[rows, columns]
            done = ~unsure[there, columns]
            if not done.any():
                break
            rows, columns, there = rows[done], columns[done], there[done]
            arrives[rows, columns] = arrives[there, columns]
            unsure[rows, columns] = False
        return arrives, unsure

    def loops(self, most: int = 16) -> list[str]:
        """Routing loops, named switch by switch: "to h3: s1, s2, s1"; no more than ``most``."""
        tables = self.tables
        _, endless = self._ends_of_ways()
        found = []
        for end in np.nonzero(endless.any(axis=0))[0][:most]:
            switch, way = int(np.argmax(endless[:, end])), list[int]()
            while switch not in way:
                way.append(switch)
                switch = int(tables.neighbour[switch, self.out[switch, end]])
            circle = [*way[way.index(switch) :], switch]
            names = ", ".join(tables.switch_name(at) for at in circle)
            found.append(f"to {self._end_name(int(end))}: {names}")
        return found

    def unreachable(self) -> NDArray[np.int64]:
        """Return [n, 2]: pairs of end ports, source and destination, without a path."""
        tables = self.tables
        arrives, _ = self._ends_of_ways()
        at = tables.end_switch
        reached = np.zeros((tables.end_count, tables.end_count), bool)
        reached[at >= 0] = arrives[at[at >= 0]]
        direct = np.nonzero(at < 0)[0]
        peer = {int(link): int(end) for end, link in enumerate(tables.end_link)}
        for end in direct:
            reached[end, peer[int(tables.end_link[end]) ^ 1]] = True
        np.fill_diagonal(reached, True)
        return np.argwhere(~reached)

    def check(self) -> None:
        """Raises FabricError for a routing loop, an unreachable pair or a credit loop.

        With equal-cost sets a credit loop is no error: lossy Ethernet cannot deadlock.
        """
        from .deadlock import credit_loop

        if loops := self.loops():
            raise FabricError(f"{self.engine}: routing loop {loops[0]}")
        if len(pairs := self.unreachable()):
            a, b = (self._end_name(int(end)) for end in pairs[0])
            raise FabricError(f"{self.engine}: no way from {a} to {b} ({len(pairs)} such pairs)")
        if self.groups is None and (loop := credit_loop(self)) is not None:
            raise FabricError(f"{self.engine}: {loop}")


def _check_ports(tables: Tables, out: NDArray[Any]) -> None:
    known = np.where(out == np.iinfo(out.dtype).max, 0, out)
    rows = np.arange(len(out))[:, None]
    wrong = known >= tables.out_link.shape[1]
    wrong |= (out != np.iinfo(out.dtype).max) & (
        tables.out_link[rows, np.where(wrong, 0, known)] < 0
    )
    if wrong.any():
        switch, end = (int(at) for at in np.argwhere(wrong)[0])
        raise FabricError(
            f"{tables.switch_name(switch)}: LID {tables.lid[end]} goes to port "
            f"{out[switch, end]}, where no cable is"
        )


def _mixed(entropy: NDArray[np.uint64], switch: Sequence[int] | NDArray[Any]) -> NDArray[np.uint64]:
    """A hash that differs from switch to switch (the finaliser of SplitMix64)."""
    with np.errstate(over="ignore"):
        x = entropy + (np.asarray(switch).astype(np.uint64) + 1) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: NDArray[np.uint64] = x ^ (x >> np.uint64(31))
        return mixed
