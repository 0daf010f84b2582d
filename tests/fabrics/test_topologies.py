# SPDX-License-Identifier: Apache-2.0
"""Topologies have the sizes that their papers give, and every pair of hosts a way."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest

from tests.fabrics.support import routed
from verbena import fabrics
from verbena.fabrics import Fabric, FabricError

MADE = [
    # fabric, hosts, switches, cables
    (fabrics.pair(), 2, 0, 1),
    (fabrics.one_switch(5), 5, 1, 5),
    (fabrics.diamond(2, 3), 4, 5, 10),
    (fabrics.chain(4, 2), 8, 4, 11),
    (fabrics.dumbbell(3, 4), 7, 2, 8),
    (fabrics.parking_lot(5), 6, 5, 10),
    (fabrics.ring(5, 2), 10, 5, 15),
    (fabrics.torus((4, 3, 2), 2), 48, 24, 24 * 2 + 24 * 2 + 12),
    (fabrics.torus((4, 3), wrap=False), 12, 12, 12 + 3 * 3 + 4 * 2),
    (fabrics.xgft([2, 3], [1, 2], [1, 2]), 6, 5, 6 + 12),
    (fabrics.fat_tree(4), 16, 20, 48),
    (fabrics.fat_tree(8), 128, 80, 384),
    (fabrics.clos2(36), 648, 54, 1296),
    (fabrics.clos2(8, oversubscription=3), 48, 10, 64),
    (fabrics.clos2(8, parallel=2), 16, 6, 32),
    (fabrics.clos3(8, pods=3), 48, 4 * 3 + 4 * 3 + 16, 48 * 3),
    (fabrics.clos3(8, oversubscription=3), 8 * 4 * 6, 32 + 16 + 8, 192 + 64 + 64),
    (fabrics.dragonfly(4, 8, 4), 1056, 264, 1056 + 33 * 28 + 33 * 16),
    (fabrics.dragonfly(1, 2, 1, groups=2), 4, 4, 4 + 2 + 1),
]


@pytest.mark.parametrize(
    ("fabric", "hosts", "switches", "cables"), MADE, ids=[made[0].name for made in MADE]
)
def test_sizes(fabric: Fabric, hosts: int, switches: int, cables: int) -> None:
    assert (len(fabric.hosts), len(fabric.switches)) == (hosts, switches)
    assert len(list(fabric.cables())) == cables
    fabric.check()
    assert fabric.hosts == [f"h{n}" for n in range(hosts)]


@pytest.mark.parametrize("fabric", [m[0] for m in MADE], ids=[m[0].name for m in MADE])
def test_every_pair_has_a_way(fabric: Fabric) -> None:
    routes = routed(fabric, "updn")
    routes.check()
    assert str(routes.path("h0", fabric.hosts[-1])[0]).startswith("h0-")


def test_a_fat_tree_has_the_numbering_of_its_docstring() -> None:
    made = fabrics.fat_tree(4)
    assert made.cable("h5", 1) is made.cable("e2", 2)
    assert Counter(dict(made.graph.degree()).values()) == {4: 20, 1: 16}
    assert nx.diameter(nx.Graph(made.graph)) == 6


def test_a_dragonfly_joins_any_two_groups_once() -> None:
    made = fabrics.dragonfly(2, 4, 2)
    group = nx.get_node_attributes(made.graph, "group")
    joined = Counter(
        frozenset((group[c.a], group[c.b]))
        for c in made.cables()
        if c.a in group and c.b in group and group[c.a] != group[c.b]
    )
    assert len(joined) == 9 * 8 // 2
    assert set(joined.values()) == {1}


def test_a_torus_has_its_ports_by_dimension() -> None:
    made = fabrics.torus((3, 4), 1)
    assert str(made.cable("s0", 2)) == "s0[2]-s4[3]"
    assert str(made.cable("s0", 5)) == "s3[4]-s0[5]"
    assert made.graph.nodes["s7"]["coordinate"] == (1, 3)


def test_wiring_of_switches_can_differ() -> None:
    made = fabrics.dumbbell(
        1, 1, rate="100GbE", delay_ns=10, switch_rate="25GbE", switch_length_m=9
    )
    inner, outer = made.cable("s0", 2), made.cable("h0", 1)
    assert inner is not None
    assert outer is not None
    assert (inner.rate.name, inner.delay_ps) == ("25GbE", 45_000)
    assert (outer.rate.name, outer.delay_ps) == ("100GbE", 10_000)


@pytest.mark.parametrize("made", [m[0] for m in MADE], ids=[m[0].name for m in MADE])
def test_places_are_given_and_distinct(made: Fabric) -> None:
    place = fabrics.positions(made)
    assert place.keys() == set(made.graph)
    assert len(set(place.values())) == len(place)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fabrics.fat_tree(5), "k is 5, which is not an even number"),
        (lambda: fabrics.one_switch(0), "one switch: hosts is 0, which is less than 1"),
        (lambda: fabrics.ring(2), "ring: switches is 2, which is less than 3"),
        (lambda: fabrics.torus((4, 0)), "dimension 1 is 0"),
        (lambda: fabrics.torus(()), "dimensions is 0"),
        (lambda: fabrics.dragonfly(1, 2, 1, groups=9), "9 groups, where .* allows 2 to 3"),
        (lambda: fabrics.clos2(8, leaves=9), "9 leaves, but a spine has ports for 1 to 8"),
        (lambda: fabrics.clos2(8, parallel=3), "4 uplinks do not go into 3"),
        (lambda: fabrics.clos3(8, pods=9), "9 pods"),
        (lambda: fabrics.clos2(8, oversubscription=0), "oversubscription 0"),
        (lambda: fabrics.xgft([2], [2]), "a host has one parent"),
        (lambda: fabrics.xgft([2, 2], [1]), "different lengths"),
        (lambda: fabrics.xgft([2, 2], [1, 10**9]), "1048576 nodes on one"),
        (lambda: fabrics.torus((10**5, 10**5)), "more than 1048576 switches"),
        (lambda: fabrics.ring(4, rat="EDR"), "no such wiring: rat"),  # type: ignore[call-arg]
    ],
)
def test_a_size_that_makes_no_sense_is_refused(make: Callable[[], Fabric], message: str) -> None:
    with pytest.raises(FabricError, match=message):
        make()


def end_port(routes: fabrics.Routes, host: int, port: int) -> int:
    tables = routes.tables
    (found,) = np.nonzero((tables.end_node == host) & (tables.end_port == port))[0]
    return int(found)


def test_rails_have_a_leaf_for_each_port() -> None:
    fabric = fabrics.rails(6, rails=3, leaf_servers=4, spines=2)
    tables = fabric.tables()
    assert (tables.host_count, tables.switch_count, tables.end_count) == (6, 3 * 2 + 2, 18)
    for server in range(6):
        for rail in (1, 2, 3):
            leaf = f"r{rail}l{server // 4}"
            assert str(fabric.cable(f"h{server}", rail)).startswith(f"h{server}[{rail}]-{leaf}[")
    routes = fabrics.route(fabric, "minhop")
    for to, links in (((1, 1), 2), ((5, 1), 4), ((1, 2), 4), ((5, 3), 4)):
        way = routes.links([end_port(routes, 0, 1)], [end_port(routes, *to)])
        assert np.count_nonzero(way >= 0) == links


def test_rails_without_spines_are_networks_of_their_own() -> None:
    routes = fabrics.route(fabrics.rails(4, rails=2), "minhop")
    for port in (1, 2):
        ends = [end_port(routes, host, port) for host in range(4)]
        links = routes.links(ends[:3], ends[1:])
        assert (np.count_nonzero(links >= 0, axis=1) == 2).all()
    with pytest.raises(FabricError, match="no way from h0 to h1"):
        routes.links([end_port(routes, 0, 1)], [end_port(routes, 1, 2)])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"servers": 0}, "servers is 0, which is less than 1"),
        ({"servers": 4, "rails": 0}, "rails is 0, which is less than 1"),
        ({"servers": 4, "spines": -1}, "spines is -1, which is less than 0"),
        ({"servers": 4, "leaf_servers": 0}, "leaf_servers is 0, which is less than 1"),
        ({"servers": 5, "leaf_servers": 2}, "5 servers are on 3 leaves of a rail, which no spine"),
    ],
)
def test_impossible_rails(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(FabricError, match=re.escape(text)):
        fabrics.rails(**arguments)
