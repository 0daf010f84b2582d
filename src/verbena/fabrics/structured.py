# SPDX-License-Identifier: Apache-2.0
"""Routing engines for one kind of topology each: tori and meshes, and dragonflies.

``fabrics.route`` calls them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .engines import empty
from .errors import FabricError
from .fabric import Fabric
from .grid import coordinates
from .lanes import SLS, LaneMap, identity
from .routes import Detours, Routes
from .tables import Tables

__all__ = ["dimension_order", "dragonfly_minimal", "dragonfly_ugal", "dragonfly_valiant"]

MAX_RINGS = 4  # dimensions that wrap around: an SL has a bit for each


def dimension_order(fabric: Fabric, *, dateline: bool = True) -> Routes:
    """Dimension order: one dimension after the other, each by the shorter way (Dally and Seitz
    1987).

    With ``dateline`` a bit of the SL says that the path crosses the dateline of a dimension, and
    the SL-to-VL tables put it on VL 1 in that dimension, as OpenSM's torus-2QoS does: two lanes,
    and no credit loop. Without it, a torus of more than three switches in a dimension has a credit
    loop, as with OpenSM's dor. If both directions are equally long, the upward one is taken.

    The positions of switches are their attribute ``coordinate``, as ``torus`` sets it. Without
    coordinates, as in a fabric that was read from a file, they are derived from the cables:
    dimensions are then in the order of their lowest ports, and up is towards the lower one, which
    is the order of OpenSM's dor. Raises FabricError if the fabric is neither a torus nor a mesh, if
    a cable is missing that a path needs, and for more than four dimensions that wrap around.
    """
    tables = fabric.tables()
    place, shape = _places(fabric, tables)
    step = _step_ports(tables, place, shape)
    rings = [d for d, size in enumerate(shape) if _wraps(step, place, d, size)]
    if len(rings) > MAX_RINGS:
        raise FabricError(
            f"dor: {fabric.name} has {len(rings)} rings, and an SL is for {MAX_RINGS}"
        )
    goal = place[np.maximum(tables.end_switch, 0)]
    out = empty(tables)
    todo = np.broadcast_to((tables.end_switch >= 0)[None, :], out.shape).copy()
    todo[tables.end_switch[tables.end_switch >= 0], np.nonzero(tables.end_switch >= 0)[0]] = False
    around = np.zeros(out.shape, np.uint8)
    for d, size in enumerate(shape):
        way = (goal[None, :, d] - place[:, None, d]) % size
        up = way <= size - way
        ahead = goal[None, :, d] > place[:, None, d]
        if d in rings:
            around |= ((way != 0) & (up != ahead)).astype(np.uint8) << rings.index(d)
        else:
            up = ahead
        here = todo & (way != 0)
        rows, columns = np.nonzero(here)
        port = step[rows, d, np.where(up[rows, columns], 0, 1)]
        if (port < 0).any():
            lost = int(rows[np.argmax(port < 0)])
            raise FabricError(f"dor: {tables.switch_name(lost)} has no cable along dimension {d}")
        out[rows, columns] = port
        todo &= ~here
    if not dateline:
        return Routes(fabric, tables, "dor", out, None, identity(tables))
    return Routes(fabric, tables, "dor", out, around, _dateline(tables, step, rings))


def _places(fabric: Fabric, tables: Tables) -> tuple[NDArray[np.int64], list[int]]:
    """[S, dimensions], and the size of each."""
    names = tables.names[tables.host_count :]
    if not names:
        raise FabricError(f"dor: {fabric.name} has no switch")
    places = [fabric.graph.nodes[name].get("coordinate") for name in names]
    if all(place is None for place in places):
        made = coordinates(tables)
    else:
        for name, place in zip(names, places, strict=True):
            if place is None or not place or len(place) != len(places[0] or ()):
                raise FabricError(f"dor: {name} has no coordinate, or one of other dimensions")
        made = np.array(places, np.int64)
    return made, [int(size) for size in made.max(axis=0) + 1]


def _step_ports(tables: Tables, place: NDArray[np.int64], shape: list[int]) -> NDArray[np.int64]:
    """[S, dimensions, 2]: the lowest port to the next and to the previous switch, or -1."""
    step = np.full((len(place), len(shape), 2), -1, np.int64)
    source, port, target = (a[::-1] for a in tables.switch_edges)
    apart = (place[source] != place[target]).sum(axis=1)
    for d, size in enumerate(shape):
        way = (place[target, d] - place[source, d]) % max(size, 1)
        for side, distance in ((0, 1), (1, size - 1)):
            fits = (apart == 1) & (way == distance) & (size > 1)
            step[source[fits], d, side] = port[fits]
    return step


def _wraps(step: NDArray[np.int64], place: NDArray[np.int64], d: int, size: int) -> bool:
    """Return whether a dimension is a ring. A dimension of two switches is not one."""
    return size > 2 and bool((step[place[:, d] == size - 1, d, 0] >= 0).any())


def _dateline(tables: Tables, step: NDArray[np.int64], rings: list[int]) -> LaneMap:
    """Return the SL-to-VL tables: ports of kind 0 lead to hosts and along lines, those of kind b +
    1 along ring b, where bit b of the SL is the VL."""
    kind = np.zeros(tables.out_link.shape, np.uint8)
    lane = np.zeros((len(rings) + 1, len(rings) + 1, SLS), np.uint8)
    for bit, d in enumerate(rings):
        switch, side = np.nonzero(step[:, d] >= 0)
        kind[switch, step[switch, d, side]] = bit + 1
        lane[:, bit + 1, :] = (np.arange(SLS) >> bit) & 1
    return LaneMap(kind, lane)


def dragonfly_minimal(fabric: Fabric) -> Routes:
    """Minimal: at most one local, one global and one local cable (MIN of Kim et al., ISCA 2008).

    A local cable after a global one is on VL 1, all others on VL 0, so there is no credit loop.
    Needs switches with the attribute ``group``; raises FabricError if one has none, or if two
    groups, or two switches of a group, have no cable.
    """
    tables = fabric.tables()
    group = _groups(fabric, tables)
    source, port, target = (a[::-1] for a in tables.switch_edges)
    local = group[source] == group[target]
    to_switch = np.full((tables.switch_count, tables.switch_count), -1, np.int32)
    to_switch[source[local], target[local]] = port[local]
    groups = int(group.max()) + 1
    gate = np.full((groups, groups), -1, np.int64)  # the switch of a group that leads to another
    gate_port = np.full((groups, groups), -1, np.int64)
    where = group[source[~local]], group[target[~local]]
    gate[where], gate_port[where] = source[~local], port[~local]
    out = empty(tables)
    for end in np.nonzero(tables.end_switch >= 0)[0]:
        goal = tables.end_switch[end]
        exit_ = np.where(group == group[goal], goal, gate[group, group[goal]])
        hop = to_switch[np.arange(len(exit_)), np.maximum(exit_, 0)]
        at_gate = (exit_ == np.arange(len(exit_))) & (group != group[goal])
        hop = np.where(at_gate, gate_port[group, group[goal]], hop)
        hop[goal] = tables.end_switch_port[end]
        if ((hop < 0) | (exit_ < 0)).any():
            lost = int(np.argmax((hop < 0) | (exit_ < 0)))
            raise FabricError(
                f"dragonfly: {tables.switch_name(lost)} has no minimal way to "
                f"{tables.switch_name(int(goal))}"
            )
        out[:, end] = hop
    kind = np.zeros(tables.out_link.shape, np.uint8)
    kind[source, port] = np.where(local, 1, 2)
    lane = np.zeros((3, 3, SLS), np.uint8)
    lane[2, 1] = 1
    return Routes(fabric, tables, "dragonfly", out, None, LaneMap(kind, lane))


def dragonfly_valiant(fabric: Fabric, *, per: str = "flow") -> Routes:
    """From group to group through a third one, chosen at random (VAL of Kim et al., ISCA 2008).

    So all traffic patterns between groups are served equally, at twice the load of the global
    cables. All packets of a flow take one group, which keeps the order that reliable connections
    need; with ``per`` = "packet" each packet takes its own. Within a group packets take the direct
    cable. The VL counts the global cables that a packet has crossed: three VLs, and no credit loop.
    Raises FabricError as dragonfly_minimal does.
    """
    return _detoured(fabric, "valiant", Detours(np.zeros(0, np.int64), False, per, 0, 0))


def dragonfly_ugal(
    fabric: Fabric, *, per: str = "flow", threshold: int = 0, gap: int = 100_000_000
) -> Routes:
    """Minimal, or through a third group if the first switch's queues decide so (UGAL-L, ibid.).

    A packet makes the detour if the queue of the minimal path times its number of links exceeds the
    same product of the detour by more than ``threshold`` bytes. A flow's packets take one path
    until the flow pauses for ``gap`` ps; with ``per`` = "packet" each packet is decided by itself.
    Otherwise as dragonfly_valiant.
    """
    detours = Detours(np.zeros(0, np.int64), True, per, threshold, gap)
    return _detoured(fabric, "ugal", detours)


def _detoured(fabric: Fabric, engine: str, detours: Detours) -> Routes:
    if detours.per not in ("flow", "packet"):
        raise FabricError(f"{engine}: per is 'flow' or 'packet', and not {detours.per!r}")
    for name, value in (("threshold", detours.threshold), ("gap", detours.gap)):
        if not isinstance(value, int) or value < 0:
            raise FabricError(f"{engine}: {name} is {value!r}, and not a whole number from 0")
    short = dragonfly_minimal(fabric)
    tables = short.tables
    group = _groups(fabric, tables).astype(np.int64)
    ends = np.unique(group[tables.end_switch[tables.end_switch >= 0]])
    if len(ends) <= group.max():
        lost = int(np.argmax(~np.isin(group, ends)))
        raise FabricError(f"{engine}: the group of {tables.switch_name(lost)} has no hosts")
    crossed = np.arange(SLS, dtype=np.uint8)
    lane = np.zeros((3, 3, SLS), np.uint8)
    lane[1], lane[2] = np.minimum(crossed, 2), np.minimum(crossed + 1, 2)
    lanes = LaneMap(short.lanes.kind, lane, by_lane=True)
    return replace(short, engine=engine, lanes=lanes, detours=replace(detours, group=group))


def _groups(fabric: Fabric, tables: Tables) -> NDArray[Any]:
    found = [fabric.graph.nodes[name].get("group") for name in tables.names[tables.host_count :]]
    if not found or None in found:
        name = tables.names[tables.host_count + found.index(None)] if found else fabric.name
        raise FabricError(f"dragonfly: {name} is in no group")
    return np.unique(np.array(found), return_inverse=True)[1].ravel()
