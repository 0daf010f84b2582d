# SPDX-License-Identifier: Apache-2.0
"""Routing engines for any fabric: min-hop, up/down, fat-tree, and equal-cost sets for Ethernet.

``fabrics.route`` calls them. They compute the same tables as OpenSM's engines of these names.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import FabricError
from .fabric import Fabric
from .hops import FAR, Candidates, MinimalHops, UpDownHops, ends_by_leaf, hop_table
from .lanes import identity
from .routes import PortGroups, Routes
from .tables import Tables

__all__ = ["auto_roots", "centre", "ecmp", "fat_tree", "min_hop", "up_down"]

FORBIDDEN = 1 << 30
NO_ROOTS = (
    "updn found no roots, since {}, and the routes are those of minhop, as with OpenSM: name the "
    "roots (roots = [...]), or route with dfsssp"
)


def empty(tables: Tables) -> NDArray[Any]:
    """Return ``Routes.out`` with only the ports to hosts at their own switches."""
    wide = tables.out_link.shape[1] > np.iinfo(np.uint8).max
    kind = np.uint16 if wide else np.uint8
    out = np.full((tables.switch_count, tables.end_count), np.iinfo(kind).max, kind)
    ends = np.nonzero(tables.end_switch >= 0)[0]
    out[tables.end_switch[ends], ends] = tables.end_switch_port[ends]
    return out


def balanced(tables: Tables, candidates: Candidates) -> NDArray[Any]:
    """Return ``Routes.out`` in which a switch gives each destination its least used port.

    The lowest of equally used ports is taken. As in OpenSM, hosts are routed one after the other,
    in the order of ``hops.leaf_order``.
    """
    out = empty(tables)
    source, port, _ = tables.switch_edges
    used = np.zeros(tables.out_link.shape, np.int32)
    every = np.arange(tables.switch_count)
    for leaf, ends in ends_by_leaf(tables):
        can = candidates.edges_to(leaf)
        score = np.full(used.shape, FORBIDDEN, np.int32)
        score[source[can], port[can]] = used[source[can], port[can]]
        routed = np.zeros(tables.switch_count, bool)
        routed[source[can]] = True
        rows = every[routed]
        score = score[rows]
        local = np.arange(len(rows))
        for end in ends:
            chosen = score.argmin(axis=1)
            score[local, chosen] += 1
            out[rows, end] = chosen
        used[source[can], port[can]] = score[np.searchsorted(rows, source[can]), port[can]]
    return out


def min_hop(fabric: Fabric) -> Routes:
    """Shortest paths, with OpenSM's balancing of ports. May have credit loops outside of trees."""
    tables = fabric.tables()
    out = balanced(tables, MinimalHops.of(tables))
    return Routes(fabric, tables, "minhop", out, None, identity(tables))


def up_down(fabric: Fabric, roots: Sequence[str] | None = None) -> Routes:
    """Up*/down* (Autonet, Schroeder et al. 1991): never up again after going down.

    Up is towards the ``roots``: names of switches, by default those that ``auto_roots`` finds. If
    it finds none, or roots that leave pairs of switches without a path, the routes are those of
    ``min_hop``, to which OpenSM also falls back: then ``engine`` is "minhop" and ``notes`` says so.
    With named roots a pair may have no path, which ``check`` reports; with a single root, as
    ``centre``, every pair has one. Raises FabricError when a root is not a switch.
    """
    tables = fabric.tables()
    numbers = auto_roots(tables) if roots is None else _root_numbers(tables, roots)
    if tables.switch_count and not len(numbers):
        why = "no switch is about equally far from all hosts"
        return replace(min_hop(fabric), notes=(NO_ROOTS.format(why),))
    candidates = UpDownHops.of(tables, _rank_order(tables, numbers))
    if roots is None and (candidates.hops[tables.leaves] == FAR).any():
        names = ", ".join(map(tables.switch_name, numbers[:4])) + ", ..." * (len(numbers) > 4)
        why = f"not all hosts have a way up to {names} and down again"
        return replace(min_hop(fabric), notes=(NO_ROOTS.format(why),))
    return Routes(fabric, tables, "updn", balanced(tables, candidates), None, identity(tables))


def _root_numbers(tables: Tables, roots: Sequence[str]) -> NDArray[np.int64]:
    if isinstance(roots, str) or not isinstance(roots, Collection):
        raise FabricError(f"roots is {roots!r}, and not a list of switches' names")
    numbers = np.array([tables.number.get(name, -1) for name in roots]) - tables.host_count
    if len(numbers) == 0 or (numbers < 0).any():
        wrong = [name for name, number in zip(roots, numbers, strict=True) if number < 0]
        raise FabricError(f"updn: {', '.join(wrong) or 'nothing'} is no switch to be a root")
    return numbers


def auto_roots(tables: Tables) -> NDArray[np.int64]:
    """Return the roots that OpenSM finds: switches about equally far from all hosts.

    A root has more than 90 % of the hosts at one distance, and no more than 5 % at each other
    distance. There may be none, as on a torus. If there are many leaves, each leaf fulfils that,
    too. OpenSM takes all of them as roots and routes between roots as min-hop does. Here only
    switches without hosts are roots, if there are any; tables of trees are the same.
    """
    if not tables.switch_count:
        return np.zeros(0, np.int64)
    hops = hop_table(tables)
    weight = tables.hosts_at[tables.leaves]
    some = hops != FAR
    far = int(np.where(some, hops, 0).max(initial=0))
    share = np.stack([((hops == n) * weight).sum(axis=1) for n in range(far + 1)], axis=1) / max(
        weight.sum(), 1
    )
    level = ((share > 0.9).sum(axis=1) == 1) & ((share > 0.05).sum(axis=1) == 1)
    bare = level & (tables.hosts_at == 0)
    return np.nonzero(bare if bare.any() else level)[0]


def centre(fabric: Fabric) -> str:
    """Return the switch with the smallest sum of distances to all hosts.

    It is a root for fabrics that are not trees: ``route(fabric, "updn", roots=[centre(fabric)])``.
    Raises FabricError for a fabric without a switch.
    """
    tables = fabric.tables()
    if not tables.switch_count:
        raise FabricError(f"{fabric.name} has no switch")
    hops = hop_table(tables)
    far = np.where(hops != FAR, hops, tables.switch_count).astype(np.int64)
    return tables.switch_name(int(np.argmin(far @ tables.hosts_at[tables.leaves])))


def _rank_order(tables: Tables, roots: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return [S]: the rank of each switch by its distance from the roots and then by its GUID."""
    source, _, target = tables.switch_edges
    rank = np.full(tables.switch_count, tables.switch_count, np.int64)
    rank[roots] = 0
    for _ in range(tables.switch_count):
        before = rank.copy()
        np.minimum.at(rank, target, before[source] + 1)
        if (rank == before).all():
            break
    order = np.empty(tables.switch_count, np.int64)
    order[np.lexsort((tables.guids[tables.host_count :], rank))] = np.arange(tables.switch_count)
    return order


def fat_tree(fabric: Fabric) -> Routes:
    """d-mod-k for fat-trees (Zahavi, "D-Mod-K routing ... for fat-trees", 2010).

    Destination number d leaves a switch of level l by its parent (d / W(l)) mod w(l+1), W being the
    product of the numbers of parents up to l. Shift permutations then share no link of a full tree.
    Parents are ordered by GUID; where cables or switches are missing, d is taken modulo the
    remaining number. Raises FabricError, naming a cable, when cables do not join neighbouring
    levels.
    """
    tables = fabric.tables()
    level = _levels(tables)
    source, port, target = tables.switch_edges
    guids = tables.guids[tables.host_count :]
    order = np.empty(tables.switch_count, np.int64)
    order[np.lexsort((guids, -level))] = np.arange(tables.switch_count)
    candidates = UpDownHops.of(tables, order)
    copy = _copies(source, target)
    by_parent = np.lexsort((guids[target], copy, source))
    divisor = _divisors(tables, level)
    out = empty(tables)
    most = int(tables.hosts_at.max(initial=0))
    first = np.zeros(len(tables.leaves), np.int64)
    first[np.argsort(guids[tables.leaves])] = most * np.arange(len(tables.leaves))
    above = len(port) + 1  # every count is below
    for leaf, ends in ends_by_leaf(tables):
        can = by_parent[candidates.edges_to(leaf)[by_parent]]
        rows, start, count = np.unique(source[can], return_index=True, return_counts=True)
        number = first[leaf] + np.arange(len(ends))
        # Few pairs of divisor and count are different: each is divided once.
        kinds, kind = np.unique(divisor[rows] * above + count, return_inverse=True)
        which = number // (kinds // above)[:, None] % (kinds % above)[:, None]
        out[rows[:, None], ends[None, :]] = port[can][start[:, None] + which[kind]]
    return Routes(fabric, tables, "ftree", out, None, identity(tables))


def _levels(tables: Tables) -> NDArray[np.int64]:
    """Return [S]: 1 for switches with hosts, one more for each hop away from them."""
    hops = hop_table(tables)
    level: NDArray[np.int64] = hops.min(axis=1, initial=FAR).astype(np.int64) + 1
    source, port, target = tables.switch_edges
    flat = level[source] == level[target]
    if flat.any():
        edge = int(np.argmax(flat))
        link = int(tables.out_link[source[edge], port[edge]])
        raise FabricError(f"ftree: no fat-tree: {tables.link_name(link)} stays on one level")
    return level


def _copies(source: NDArray[np.int32], target: NDArray[np.int32]) -> NDArray[np.int64]:
    """[E]: 0 for the first of parallel cables, 1 for the second, ..."""
    order = np.lexsort((np.arange(len(source)), target, source))
    pair = np.stack([source[order], target[order]], axis=1)
    fresh = np.ones(len(order), bool)
    fresh[1:] = (pair[1:] != pair[:-1]).any(axis=1)
    start = np.maximum.accumulate(np.where(fresh, np.arange(len(order)), 0))
    copy = np.empty(len(order), np.int64)
    copy[order] = np.arange(len(order)) - start
    return copy


def _divisors(tables: Tables, level: NDArray[np.int64]) -> NDArray[np.int64]:
    """[S]: W of the switch's level."""
    source, _, target = tables.switch_edges
    pairs = np.unique(np.stack([source, target], axis=1), axis=0)
    climbs = pairs[level[pairs[:, 1]] > level[pairs[:, 0]]]
    parents = np.bincount(climbs[:, 0], minlength=tables.switch_count)
    divisor = np.ones(int(level.max(initial=1)) + 1, np.int64)
    for above in range(2, len(divisor)):
        divisor[above] = divisor[above - 1] * max(1, int(parents[level == above - 1].max()))
    of_switch: NDArray[np.int64] = divisor[level]
    return of_switch


def ecmp(fabric: Fabric) -> Routes:
    """All shortest paths: for each switch and destination the set of ports that lead nearer."""
    tables = fabric.tables()
    candidates = MinimalHops.of(tables)
    source, port, _ = tables.switch_edges
    columns, leaves = tables.out_link.shape[1], len(tables.leaves)
    bits = np.zeros((leaves, tables.switch_count, (columns + 7) // 8), np.uint8)
    for leaf in range(leaves):
        mask = np.zeros(tables.out_link.shape, bool)
        can = candidates.edges_to(leaf)
        mask[source[can], port[can]] = True
        bits[leaf] = np.packbits(mask, axis=1)
    flat = bits.reshape(-1, bits.shape[2])
    own = np.zeros((tables.end_count, columns), bool)
    ends = np.nonzero(tables.end_switch >= 0)[0]
    own[ends, tables.end_switch_port[ends]] = True
    # The first row, without a port, makes group 0 the empty one.
    rows = np.concatenate([np.zeros((1, flat.shape[1]), np.uint8), flat, np.packbits(own, axis=1)])
    distinct, group = np.unique(
        rows.view(np.dtype((np.void, rows.shape[1]))).ravel(), return_inverse=True
    )
    sets = np.unpackbits(distinct.view(np.uint8).reshape(len(distinct), -1), axis=1, count=columns)
    start = np.concatenate([[0], np.cumsum(sets.sum(axis=1, dtype=np.int64))]).astype(np.int32)
    group = group.ravel().astype(np.uint16 if len(distinct) <= 1 << 16 else np.uint32)
    by_leaf = group[1 : 1 + len(flat)].reshape(leaves, tables.switch_count)
    of_leaf = np.searchsorted(tables.leaves, tables.end_switch)
    groups = np.zeros((tables.switch_count, tables.end_count), group.dtype)
    groups[:, ends] = by_leaf[of_leaf[ends]].T
    groups[tables.end_switch[ends], ends] = group[1 + len(flat) :][ends]
    out = balanced(tables, candidates)
    ports = np.nonzero(sets)[1].astype(out.dtype)
    made = PortGroups(groups, start, ports)
    return Routes(fabric, tables, "ecmp", out, None, identity(tables), made)
