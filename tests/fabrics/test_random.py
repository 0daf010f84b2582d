# SPDX-License-Identifier: Apache-2.0
"""What must hold on every connected fabric."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings

from tests.fabrics import support
from tests.fabrics.support import all_pairs, has_cycle
from tests.fabrics.support import fabrics as any_fabric
from verbena import fabrics
from verbena.fabrics import Fabric, dot, ibnetdiscover

EFFORT = settings(max_examples=40, deadline=None)


def routed(made: Fabric, engine: str) -> fabrics.Routes:
    return support.routed(made, engine, **({"lanes": 15} if engine == "dfsssp" else {}))


@pytest.mark.parametrize("engine", ["minhop", "updn", "sssp", "dfsssp", "ecmp"])
@EFFORT
@given(made=any_fabric())
def test_every_pair_has_a_way_without_a_loop(engine: str, made: Fabric) -> None:
    routes = routed(made, engine)
    assert routes.loops() == []
    assert len(routes.unreachable()) == 0
    routes.links(*all_pairs(routes))


@pytest.mark.parametrize("engine", ["minhop", "sssp", "ecmp"])
@EFFORT
@given(made=any_fabric())
def test_ways_are_shortest(engine: str, made: Fabric) -> None:
    routes = routed(made, engine)
    src, dst = all_pairs(routes)
    lengths = (routes.links(src, dst) >= 0).sum(axis=1)
    hashed = (routes.links(src, dst, entropy=src * 7919 + dst) >= 0).sum(axis=1)
    shortest = dict(nx.all_pairs_shortest_path_length(nx.Graph(made.graph)))
    names = routes.tables.names
    expected = [shortest[names[a]][names[b]] for a, b in zip(src, dst, strict=True)]
    assert lengths.tolist() == expected
    assert hashed.tolist() == expected


@pytest.mark.parametrize("engine", ["updn", "dfsssp"])
@EFFORT
@given(made=any_fabric())
def test_no_credit_loop_where_there_must_be_none(engine: str, made: Fabric) -> None:
    routes = routed(made, engine)
    assert fabrics.credit_loop(routes) is None
    assert not has_cycle(routes)


@EFFORT
@given(made=any_fabric())
def test_up_down_has_no_credit_loop_or_says_that_it_is_min_hop(made: Fabric) -> None:
    routes = fabrics.ENGINES["updn"](made)
    assert (routes.engine == "minhop") == bool(routes.notes)
    if routes.notes:
        assert (routes.out == fabrics.route(made, "minhop").out).all()
    else:
        assert fabrics.credit_loop(routes) is None


@EFFORT
@given(made=any_fabric())
def test_the_check_for_credit_loops_agrees_with_networkx(made: Fabric) -> None:
    routes = fabrics.route(made, "minhop")
    assert (fabrics.credit_loop(routes) is not None) == has_cycle(routes)


@pytest.mark.parametrize("form", [ibnetdiscover, dot], ids=["ibnetdiscover", "dot"])
@EFFORT
@given(made=any_fabric())
def test_a_written_fabric_is_read_again(form: object, made: Fabric) -> None:
    again = form.read(form.write(made))  # type: ignore[attr-defined]
    assert ends(again) == ends(made)
    assert {n: made.guid(n) for n in made.graph} == {n: again.guid(n) for n in again.graph}
    one, other = made.tables(), again.tables()
    lids = dict(zip(one.names, one.lid.tolist(), strict=False))
    assert form is dot or lids == dict(zip(other.names, other.lid.tolist(), strict=False))


def ends(made: Fabric) -> set[tuple[object, ...]]:
    return {
        (*min((c.a, c.a_port), (c.b, c.b_port)), *max((c.a, c.a_port), (c.b, c.b_port)), c.rate)
        for c in made.cables()
    }


@EFFORT
@given(made=any_fabric())
def test_sets_hold_what_the_forwarding_table_chose(made: Fabric) -> None:
    routes = fabrics.route(made, "ecmp")
    assert routes.groups is not None
    for switch, end in np.ndindex(routes.out.shape):
        assert routes.out[switch, end] in routes.groups.of(switch, end)
