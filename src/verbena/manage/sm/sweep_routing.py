# SPDX-License-Identifier: Apache-2.0
"""Forwarding tables of a sweep: an engine of ``verbena.fabrics`` decides, for every LID.

``Sweep`` calls ``route_subnet``. Engines route to hosts. What is added here are the LIDs of
switches, and the further LIDs of ports with an LMC:

* To a switch with hosts, packets take the way to one of its hosts. So they wait for no channel for
  which packets to that host do not wait, whatever the engine's rule against deadlock is. To a
  switch without hosts they take shortest paths, by up/down with ``updn`` and ``ftree``; these lead
  from no root to another one, as with OpenSM.
* LID number k of a port takes, at each switch, the k-th next of the ports that the engine could
  have chosen, with ``minhop``, ``updn`` and ``ftree``; with other engines the same port.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verbena import fabrics
from verbena.fabrics.engines import auto_roots, balanced, min_hop
from verbena.fabrics.hops import FAR, Candidates, MinimalHops, UpDownHops, hop_table
from verbena.fabrics.tables import Tables

from ..errors import MadError
from .discovered import DiscoveredSubnet, SubnetNode
from .discovered_fabric import discovered_fabric
from .settings import SmSettings

__all__ = ["SubnetRoutes", "route_subnet"]

NO_PATH = 0xFF
_BLOCK = 64


@dataclass(frozen=True)
class SubnetRoutes:
    """Routes of a subnet. ``linear`` [S, a multiple of 64]: the port to each LID, 255 without one.

    ``rows`` is the row of each switch by GUID, and ``ends`` the column of ``routes`` of each end
    port by GUID and number of its port; ``switch_ends`` is the column whose way a switch's LID
    takes, or -1. ``notes`` are for the user: what the engine could not do.
    """

    fabric: fabrics.Fabric
    routes: fabrics.Routes
    linear: NDArray[np.uint8]
    rows: Mapping[int, int]
    ends: Mapping[tuple[int, int], int]
    switch_ends: NDArray[np.int64]
    notes: tuple[str, ...] = field(default=())

    @property
    def lanes(self) -> int:
        """Data lanes that the engine needs."""
        return self.routes.lanes.lanes

    def sl(self, switch: int | None, end: int) -> int:
        """Return the SL of packets from hosts at a switch's row to an end's column."""
        if self.routes.sl is None or switch is None or end < 0:
            return 0
        return int(self.routes.sl[switch, end])

    def row_bytes(self, node: SubnetNode) -> bytes:
        """Return the whole table of a switch."""
        return bytes(self.linear[self.rows[node.guid]])


def route_subnet(subnet: DiscoveredSubnet, settings: SmSettings) -> SubnetRoutes | None:
    """Return the routes of a subnet whose ports have LIDs; None if it has no link.

    If the engine cannot route this subnet the routes are those of ``minhop``, with a note, as
    OpenSM does. Raises MadError if not even that is possible.
    """
    fabric = discovered_fabric(subnet, settings.node_attributes)
    if not fabric.hosts or not any(True for _ in fabric.cables()):
        if len(subnet.nodes) > 1:
            subnet.notes.append("the subnet has no hosts, and its switches were not routed")
        return None
    notes: list[str] = []
    routes = _routed(fabric, settings, notes)
    tables = routes.tables
    lids = _LidSpread(subnet, tables, settings.lmc)
    linear = np.full((tables.switch_count, lids.width), NO_PATH, np.uint8)
    if tables.switch_count:
        out = _as_bytes(routes.out, routes.none)
        linear[:, tables.lid] = out
        candidates = _candidates(routes, settings)
        if lids.most_lmc and candidates is not None:
            _spread(linear, routes, candidates, lids, out)
        else:
            for number in range(1, 1 << lids.most_lmc):
                has = np.nonzero(lids.lmc > 0)[0]
                linear[:, tables.lid[has] + number] = out[:, has]
        switch_ends = _to_switches(linear, routes, candidates, lids, settings)
    else:
        switch_ends = np.zeros(0, np.int64)
    rows = {subnet_guid: row for row, subnet_guid in enumerate(_switch_guids(tables))}
    ends = {
        (int(tables.guids[node]), int(port)): end
        for end, (node, port) in enumerate(
            zip(tables.end_node.tolist(), tables.end_port.tolist(), strict=True)
        )
    }
    return SubnetRoutes(fabric, routes, linear, rows, ends, switch_ends, tuple(notes))


def _routed(fabric: fabrics.Fabric, settings: SmSettings, notes: list[str]) -> fabrics.Routes:
    engine = fabrics.ENGINES.get(settings.engine)
    try:
        if engine is None:
            raise fabrics.FabricError(
                f"no routing engine {settings.engine!r}: there are {', '.join(fabrics.ENGINES)}"
            )
        routes = engine(fabric, **settings.engine_options)
        if routes.groups is not None or routes.detours is not None or routes.lanes.by_lane:
            raise fabrics.FabricError(
                f"{settings.engine} needs more than a linear forwarding table in each switch"
            )
        notes += routes.notes
        return routes
    except (fabrics.FabricError, TypeError) as error:
        notes.append(f"{error}; the routes are those of minhop")
    try:
        return min_hop(fabric)
    except fabrics.FabricError as error:
        raise MadError(f"the subnet cannot be routed: {error}") from error


def _switch_guids(tables: Tables) -> list[int]:
    return [int(guid) for guid in tables.guids[tables.host_count :]]


def _as_bytes(out: NDArray[Any], none: int) -> NDArray[np.uint8]:
    return np.where(out == none, NO_PATH, out).astype(np.uint8)


class _LidSpread:
    """LIDs as arrays: ``lmc`` [D] of each end port, and the width of tables for all of them."""

    def __init__(self, subnet: DiscoveredSubnet, tables: Tables, lmc: int) -> None:
        by_place = {
            (port.node.name, port.number): port.lmc for port in subnet.end_ports if port.lmc
        }
        self.lmc = np.array(
            [
                by_place.get((tables.names[node], int(port)), 0)
                for node, port in zip(tables.end_node, tables.end_port, strict=True)
            ],
            np.int64,
        )
        self.switch_lmc = np.array(
            [by_place.get((name, 0), 0) for name in tables.names[tables.host_count :]], np.int64
        )
        self.most_lmc = int(self.lmc.max(initial=0))
        ends = tables.lid + (1 << self.lmc)
        switches = tables.switch_lid + (1 << self.switch_lmc)
        top = max(int(ends.max(initial=1)), int(switches.max(initial=1)))
        self.width = -(-top // _BLOCK) * _BLOCK


def _candidates(routes: fabrics.Routes, settings: SmSettings) -> Candidates | None:
    """Return among which ports the engine has chosen; None if its rule is another one."""
    tables = routes.tables
    if routes.engine == "minhop":
        return MinimalHops.of(tables)
    if routes.engine in ("updn", "ftree"):
        return UpDownHops.of(tables, _up_order(routes, settings))
    return None


def _up_order(routes: fabrics.Routes, settings: SmSettings) -> NDArray[np.int64]:
    """Return [S]: the order of switches from the roots down, by which the routes go up and down.

    It is read from the engine's rule: the level above the hosts with ``ftree``, and the distance
    from the roots with ``updn``; the switches of one rank are in the order of their GUIDs.
    """
    tables = routes.tables
    if routes.engine == "ftree":
        level = hop_table(tables).min(axis=1, initial=FAR).astype(np.int64)
        rank = -level
    else:
        named = settings.engine_options.get("roots")
        if named is None:
            roots = auto_roots(tables)
        else:
            roots = np.array([tables.number[name] - tables.host_count for name in named], np.int64)
        rank = hop_table(tables, leaves=roots.astype(np.int32)).min(axis=1).astype(np.int64)
    order = np.empty(tables.switch_count, np.int64)
    order[np.lexsort((tables.guids[tables.host_count :], rank))] = np.arange(tables.switch_count)
    return order


def _spread(
    linear: NDArray[np.uint8],
    routes: fabrics.Routes,
    candidates: Candidates,
    lids: _LidSpread,
    out: NDArray[np.uint8],
) -> None:
    """Fill in the further LIDs of ports with an LMC."""
    tables = routes.tables
    source, port, _ = tables.switch_edges
    place = np.zeros(tables.out_link.shape, np.int64)
    for leaf in range(len(tables.leaves)):
        at = tables.leaves[leaf]
        ends = np.nonzero((tables.end_switch == at) & (lids.lmc > 0))[0]
        can = np.nonzero(candidates.edges_to(leaf))[0]
        rows, start, count = np.unique(source[can], return_index=True, return_counts=True)
        ports = port[can]
        place[source[can], ports] = np.arange(len(can)) - np.repeat(start, count)
        first = place[rows[:, None], out[rows[:, None], ends[None, :]]]
        for number in range(1, 1 << lids.most_lmc):
            chosen = start[:, None] + (first + number) % count[:, None]
            linear[rows[:, None], tables.lid[ends][None, :] + number] = ports[chosen]
            linear[at, tables.lid[ends] + number] = out[at, ends]


def _to_switches(
    linear: NDArray[np.uint8],
    routes: fabrics.Routes,
    candidates: Candidates | None,
    lids: _LidSpread,
    settings: SmSettings,
) -> NDArray[np.int64]:
    """Fill in the LIDs of switches, and return [S]: the end whose way each takes, or -1."""
    tables = routes.tables
    taken = np.full(tables.switch_count, -1, np.int64)
    order = np.lexsort((tables.end_switch_port, tables.end_switch))
    for at in tables.leaves.tolist():
        first = int(np.searchsorted(tables.end_switch[order], at))
        taken[at] = order[first + at % int(tables.hosts_at[at])]
    leaves = np.nonzero((taken >= 0) & (tables.switch_lid > 0))[0]
    columns = linear[:, tables.lid[taken[leaves]]]
    bare = np.nonzero((taken < 0) & (tables.switch_lid > 0))[0]
    further = _to_bare_switches(routes, candidates, bare, settings)
    for number in range(1 << int(lids.switch_lmc.max(initial=0))):
        for switches, ports in ((leaves, columns), (bare, further)):
            has = number >> lids.switch_lmc[switches] == 0
            linear[:, tables.switch_lid[switches[has]] + number] = ports[:, has]
            linear[switches[has], tables.switch_lid[switches[has]] + number] = 0
    return taken


def _to_bare_switches(
    routes: fabrics.Routes,
    candidates: Candidates | None,
    bare: NDArray[np.int64],
    settings: SmSettings,
) -> NDArray[np.uint8]:
    """Return [S, len(bare)]: the ports to switches without hosts."""
    tables = routes.tables
    if not len(bare):
        return np.zeros((tables.switch_count, 0), np.uint8)
    # As if each of these switches had a host, on its port 0.
    numbers = np.arange(len(bare), dtype=np.int32)
    as_ends = replace(
        tables,
        end_node=numbers,
        end_port=np.ones(len(bare), np.int32),
        end_link=np.full(len(bare), -1, np.int32),
        end_switch=bare.astype(np.int32),
        end_switch_port=np.zeros(len(bare), np.int32),
        lid=tables.switch_lid[bare],
    )
    kind: Candidates = MinimalHops.of(as_ends)
    if isinstance(candidates, UpDownHops):
        kind = UpDownHops.of(as_ends, _up_order(routes, settings))
    out = balanced(as_ends, kind)
    return _as_bytes(out, int(np.iinfo(out.dtype).max))
