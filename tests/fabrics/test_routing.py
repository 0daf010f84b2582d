# SPDX-License-Identifier: Apache-2.0
"""Routes against theory, published figures, and what OpenSM 3.3.23 was seen to make."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest

from tests.fabrics.support import all_pairs, has_cycle, routed
from verbena import fabrics
from verbena.fabrics import Fabric, FabricError, Routes

# OpenSM 3.3.23 on k-ary fat-trees: effective bisection bandwidth, and the greatest link load of
# shift permutations with how many of them share no link.
ORACLE = {
    ("ftree", 8): (0.758, 1, 127),
    ("minhop", 8): (0.444, 4, 8),
    ("updn", 8): (0.444, 4, 8),
    ("ftree", 16): (0.706, 1, 1023),
    ("minhop", 16): (0.239, None, None),
}


@pytest.fixture(scope="module")
def trees() -> dict[int, Fabric]:
    return {k: fabrics.fat_tree(k) for k in (8, 16)}


def shifts(routes: Routes) -> list[int]:
    hosts = np.arange(routes.tables.end_count)
    return [routes.max_link_load(hosts, (hosts + by) % len(hosts)) for by in range(1, len(hosts))]


@pytest.mark.parametrize("k", [8, 16])
def test_shifts_share_no_link_of_a_fat_tree_under_d_mod_k(trees: dict[int, Fabric], k: int) -> None:
    assert set(shifts(fabrics.route(trees[k], "ftree"))) == {1}


def test_shifts_share_no_link_of_trees_of_other_shapes() -> None:
    for made in (fabrics.xgft([3, 4, 2], [1, 3, 4]), fabrics.clos2(12, parallel=3)):
        assert set(shifts(fabrics.route(made, "ftree"))) == {1}


@pytest.mark.parametrize("engine", ["ftree", "updn", "minhop", "dfsssp", "ecmp"])
def test_a_tree_with_missing_cables_is_routed(engine: str) -> None:
    made = fabrics.fat_tree(4)
    for name, port in (("e0", 3), ("a2", 4), ("c1", 3)):
        made.disconnect(name, port)
    fabrics.route(made, engine).check()


def test_an_oversubscribed_tree_shares_as_little_as_it_can() -> None:
    made = fabrics.clos2(8, oversubscription=3)
    assert max(shifts(fabrics.route(made, "ftree"))) == 3


@pytest.mark.parametrize(("engine", "k"), ORACLE)
def test_effective_bisection_is_that_of_opensm(
    trees: dict[int, Fabric], engine: str, k: int
) -> None:
    expected, load, free = ORACLE[engine, k]
    routes = fabrics.route(trees[k], engine)
    seen = routes.effective_bisection(200 if k == 8 else 20).mean()
    assert seen == pytest.approx(expected, abs=0.02)
    if load is not None and k == 8:
        loads = shifts(routes)
        assert (max(loads), loads.count(1)) == (load, free)


@pytest.mark.parametrize(("k", "oracle"), [(8, 0.695), (16, 0.622)])
def test_dfsssp_is_at_least_as_good_as_opensm(
    trees: dict[int, Fabric], k: int, oracle: float
) -> None:
    """On a tree both need one lane; ours breaks ties such that it comes near to d-mod-k."""
    routes = fabrics.route(trees[k], "dfsssp")
    assert oracle - 0.02 < routes.effective_bisection(200 if k == 8 else 20).mean() < 0.78
    assert routes.lanes.lanes == 1


def test_static_routes_of_a_multistage_network_reach_little_more_than_half() -> None:
    """Hoefler, Schneider and Lumsdaine, Cluster 2008: 55 to 60 % on large systems; a full-bisection
    tree of 648 hosts with random paths is smaller, and so a little better."""
    routes = fabrics.route(fabrics.clos2(36), "ecmp")
    random = np.random.default_rng(1)
    means = []
    for _ in range(20):
        ends = random.permutation(648)
        entropy = random.integers(0, 1 << 62, 324)
        means.append(routes.rates(ends[:324], ends[324:], entropy).mean())
    assert 0.5 < np.mean(means) < 0.7


@pytest.mark.parametrize(
    ("made", "other", "factor"),
    [
        (fabrics.torus((8, 8), 4), "updn", 1.15),
        (fabrics.dragonfly(2, 4, 2), "updn", 1.15),
        (fabrics.fat_tree(8), "minhop", 1.6),
    ],
    ids=["torus", "dragonfly", "fat-tree"],
)
def test_dfsssp_beats_what_was_there(made: Fabric, other: str, factor: float) -> None:
    """DFSSSP, IPDPS 2011: up to twice the bandwidth of OpenSM's engines, without deadlock."""
    routes = fabrics.route(made, "dfsssp", lanes=15), routed(made, other)
    bandwidth, least = (some.effective_bisection(60).mean() for some in routes)
    assert bandwidth > factor * least


# ---- the dragonfly of 1,056 hosts, p=4 a=8 h=4 (Kim et al., ISCA 2008) ---------------------------


@pytest.fixture(scope="module")
def dragonfly() -> Routes:
    routes = fabrics.route(fabrics.dragonfly(4, 8, 4), "dragonfly")
    routes.check()
    return routes


def test_minimal_routes_of_a_dragonfly_are_short(dragonfly: Routes) -> None:
    links = dragonfly.links(*all_pairs(dragonfly))
    assert links.shape[1] == 2 + 3
    assert dragonfly.lanes.lanes == 2


def test_traffic_to_the_next_group_has_one_cable(dragonfly: Routes) -> None:
    """Each host gets 1/(a*p) of its rate."""
    hosts = np.arange(1056)
    assert dragonfly.max_link_load(hosts, (hosts + 32) % 1056) == 32


def test_uniform_traffic_fills_no_cable_of_a_dragonfly(dragonfly: Routes) -> None:
    load = dragonfly.link_load(*all_pairs(dragonfly)) / 1055
    assert 0.9 < load.max() <= 1.0


def test_a_detour_by_a_random_group_gives_half(dragonfly: Routes) -> None:
    """Valiant: every pair by every middle, each an equal share of the pair's rate."""
    hosts = np.arange(1056)
    goal = (hosts + 32) % 1056
    total = np.zeros(len(dragonfly.tables.links))
    for by in range(64, 1056, 32):
        middle = (hosts + by) % 1056
        for a, b in ((hosts, middle), (middle, goal)):
            total += dragonfly.link_load(a[a != b], b[a != b])
    source = dragonfly.tables.links["src"]
    between = (source >= 1056) & (dragonfly.tables.links["dst"] >= 1056)
    group = (source - 1056) // 8
    there = (dragonfly.tables.links["dst"] - 1056) // 8
    load = total[between & (group != there)] / 31
    assert load.max() == pytest.approx(2, abs=0.1)


# ---- credit loops --------------------------------------------------------------------------------

CYCLIC = [fabrics.ring(6), fabrics.torus((5, 4)), fabrics.torus((4, 4, 4))]


@pytest.mark.parametrize("made", CYCLIC, ids=lambda made: made.name)
@pytest.mark.parametrize("engine", ["minhop", "sssp", "ecmp"])
def test_shortest_ways_around_a_ring_have_a_credit_loop(made: Fabric, engine: str) -> None:
    routes = fabrics.route(made, engine)
    loop = fabrics.credit_loop(routes)
    assert loop is not None
    links = routes.tables.links[[link for link, _ in loop.channels]]
    assert (links["dst"] == np.roll(links["src"], -1)).all()
    assert engine == "ecmp" or has_cycle(routes)


@pytest.mark.parametrize("made", CYCLIC, ids=lambda made: made.name)
@pytest.mark.parametrize("engine", ["updn", "dfsssp", "dor"])
def test_engines_without_credit_loops(made: Fabric, engine: str) -> None:
    routes = routed(made, engine)
    routes.check()
    assert not has_cycle(routes)


@pytest.mark.parametrize("engine", ["minhop", "updn", "ftree", "sssp", "dfsssp", "ecmp"])
def test_shortest_ways_in_a_tree_have_no_credit_loop(engine: str) -> None:
    fabrics.route(fabrics.fat_tree(4), engine).check()
    assert fabrics.credit_loop(fabrics.route(fabrics.fat_tree(4), engine)) is None


def test_dimension_order_without_a_dateline_has_a_loop_on_tori_only() -> None:
    assert fabrics.credit_loop(fabrics.route(fabrics.torus((4, 4)), "dor", dateline=False))
    mesh = fabrics.torus((4, 4), wrap=False)
    fabrics.route(mesh, "dor", dateline=False).check()


def test_a_credit_loop_is_told_in_words() -> None:
    made = fabrics.ring(4)
    loop = str(fabrics.credit_loop(fabrics.route(made, "dor", dateline=False)))
    assert loop.startswith("credit loop s0 -> s1 -> s2 -> s3 -> s0: s0-s1 on VL 0, which")
    with pytest.raises(FabricError, match="dor: credit loop s0"):
        fabrics.route(made, "dor", dateline=False).check()


def test_a_dateline_needs_two_lanes_and_an_sl_bit_for_each_dimension() -> None:
    routes = fabrics.route(fabrics.torus((5, 5)), "dor")
    assert routes.lanes.lanes == 2
    assert routes.sl is not None
    assert set(np.unique(routes.sl)) == {0, 1, 2, 3}
    path = routes.path("h4", "h20")  # (0, 4) to (4, 0): around both ends
    assert [hop.vl for hop in path] == [0, 1, 1, 0]


def test_dfsssp_says_when_lanes_do_not_suffice() -> None:
    with pytest.raises(FabricError, match="8x8 torus needs more than 2 lanes"):
        fabrics.route(fabrics.torus((8, 8)), "dfsssp", lanes=2)


# ---- tables by hand ------------------------------------------------------------------------------


def test_a_routing_loop_is_named() -> None:
    made = fabrics.chain(3)
    lft = fabrics.route(made).lft.copy()
    lft[1, 3] = 2  # back to s0
    routes = Routes.from_lft(made, lft)
    assert routes.loops() == ["to h2: s0, s1, s0"]
    with pytest.raises(FabricError, match="routing loop to h2: s0, s1, s0"):
        routes.check()
    with pytest.raises(FabricError, match=r"no way from h0 to h2 \(loop to h2: s0, s1, s0\)"):
        routes.path("h0", "h2")


def test_unreachable_pairs_are_listed() -> None:
    made = fabrics.chain(3)
    lft = fabrics.route(made).lft.copy()
    lft[1, 3] = 255
    routes = Routes.from_lft(made, lft)
    assert routes.unreachable().tolist() == [[0, 2], [1, 2]]
    with pytest.raises(FabricError, match=r"no way from h0 to h2 \(2 such pairs\)"):
        routes.check()


def test_tables_to_where_no_cable_is_are_refused() -> None:
    made = fabrics.chain(3)
    lft = fabrics.route(made).lft.copy()
    lft[0, 3] = 3
    with pytest.raises(FabricError, match="s0: LID 3 goes to port 3, where no cable is"):
        Routes.from_lft(made, lft)
    with pytest.raises(FabricError, match="of shape"):
        Routes.from_lft(made, lft[:, :2])


def test_two_hosts_and_a_cable_need_no_switch() -> None:
    for engine in ("minhop", "updn", "ftree", "dfsssp", "ecmp"):
        routes = fabrics.route(fabrics.pair(), engine)
        routes.check()
        assert [str(hop) for hop in routes.path("h0", "h1")] == ["h0-h1 (VL 0)"]


def test_a_wide_switch_has_wide_tables() -> None:
    routes = fabrics.route(fabrics.one_switch(300))
    assert routes.lft.dtype == np.uint16
    assert routes.path("h0", "h299")[-1].name == "s0-h299"


@pytest.mark.parametrize(
    ("engine", "made", "message"),
    [
        ("dor", fabrics.fat_tree(4), r"dor: no torus and no mesh \(a dimension is neither"),
        ("dor", fabrics.pair(), "dor: pair has no switch"),
        ("dragonfly", fabrics.ring(4), "s0 is in no group"),
        ("ftree", fabrics.ring(4), r"no fat-tree: s0-s1 stays on one level"),
        ("magic", fabrics.ring(4), "no routing engine 'magic'"),
    ],
)
def test_an_engine_says_what_it_cannot_route(engine: str, made: Fabric, message: str) -> None:
    with pytest.raises(FabricError, match=message):
        fabrics.route(made, engine)


def test_roots_can_be_named() -> None:
    made = fabrics.ring(5)
    one, other = (fabrics.route(made, "updn", roots=[name]) for name in ("s3", "s0"))
    assert (one.out != other.out).any()
    with pytest.raises(FabricError, match="h1 is no switch to be a root"):
        fabrics.route(made, "updn", roots=["h1"])


@pytest.mark.parametrize("made", [fabrics.torus((5, 3)), fabrics.dragonfly(2, 4, 2)], ids=str)
def test_up_down_without_roots_says_that_it_is_min_hop(made: Fabric) -> None:
    with pytest.warns(fabrics.FabricWarning, match="updn found no roots.* those of minhop"):
        routes = fabrics.route(made, "updn")
    assert routes.engine == "minhop"
    assert len(routes.notes) == 1
    assert (routes.out == fabrics.route(made, "minhop").out).all()
    with pytest.raises(FabricError, match="minhop: credit loop"):
        routes.check()
    fabrics.route(made, "updn", roots=[fabrics.centre(made)]).check()


def test_where_there_are_roots_nothing_is_said() -> None:
    for made in (fabrics.fat_tree(4), fabrics.one_switch(3), fabrics.diamond(2, 3), fabrics.pair()):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert fabrics.route(made, "updn").notes == ()


def test_the_centre_is_the_switch_that_is_nearest_to_all() -> None:
    assert fabrics.centre(fabrics.chain(5)) == "s2"
    with pytest.raises(FabricError, match="has no switch"):
        fabrics.centre(fabrics.pair())


# ---- a torus without coordinates -----------------------------------------------------------------

GRIDS = [
    fabrics.torus((4, 5), 2),
    fabrics.torus((3, 3, 3)),
    fabrics.torus((7, 2)),
    fabrics.torus((4, 4, 2)),
    fabrics.torus((6, 5), wrap=False),
    fabrics.torus((5, 1, 3)),
    fabrics.torus((2, 2, 2, 2, 2)),
    fabrics.ring(4),
    fabrics.ring(9, 2),
    fabrics.chain(6),
    fabrics.one_switch(3),
]


def copied(made: Fabric, mixed: int | None = None) -> Fabric:
    """Without coordinates; with a seed the switches' ports and order are mixed, too."""
    again, draw = Fabric(made.name), random.Random(mixed)
    switches, ports = made.switches, {}
    if mixed is not None:
        draw.shuffle(switches)
    for name in switches:
        count = made.graph.nodes[name]["ports"]
        again.add_switch(name, ports=count)
        order = (
            draw.sample(range(1, count + 1), count) if mixed is not None else range(1, count + 1)
        )
        ports[name] = dict(zip(range(1, count + 1), order, strict=True))
    for name in made.hosts:
        again.add_host(name)
    for cable in made.cables():
        a_port, b_port = (ports[end][port] if end in ports else port for end, port in
                          ((cable.a, cable.a_port), (cable.b, cable.b_port)))  # fmt: skip
        again.connect(cable.a, cable.b, a_port=a_port, b_port=b_port)
    return again


@pytest.mark.parametrize("made", GRIDS, ids=lambda made: made.name)
def test_a_torus_without_coordinates_is_routed_as_with_them(made: Fabric) -> None:
    found = fabrics.route(copied(made), "dor")
    found.check()
    if made.graph.nodes[made.switches[0]].get("coordinate"):
        known = fabrics.route(made, "dor")
        assert (found.out == known.out).all()
        assert (found.sl == known.sl).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("made", GRIDS, ids=lambda made: made.name)
def test_a_torus_is_found_whatever_its_ports_are(made: Fabric, seed: int) -> None:
    routes = fabrics.route(copied(made, seed), "dor")
    routes.check()
    assert not has_cycle(routes)
    src, dst = all_pairs(routes)
    hops = (routes.links(src, dst) >= 0).sum(axis=1)
    shortest = (fabrics.route(routes.fabric, "minhop").links(src, dst) >= 0).sum(axis=1)
    assert (hops == shortest).all()


def test_a_torus_with_a_missing_cable_is_found_by_its_ports() -> None:
    made = copied(fabrics.torus((4, 5)))
    made.disconnect("s7", 2)
    with pytest.raises(FabricError, match="dor: s7 has no cable along dimension 0"):
        fabrics.route(made, "dor")


def test_coordinates_are_given_to_all_or_to_none() -> None:
    made = fabrics.torus((3, 3))
    del made.graph.nodes["s4"]["coordinate"]
    with pytest.raises(FabricError, match="s4 has no coordinate"):
        fabrics.route(made, "dor")


def test_more_rings_than_an_sl_has_bits_are_refused() -> None:
    with pytest.raises(FabricError, match="has 5 rings, and an SL is for 4"):
        fabrics.route(fabrics.torus((3,) * 5), "dor")


# ---- equal-cost sets and multicast -------------------------------------------------------------


def test_equal_cost_sets_are_all_ports_that_lead_nearer() -> None:
    routes = fabrics.route(fabrics.fat_tree(4), "ecmp")
    assert routes.groups is not None
    number = routes.tables.number
    edge = number["e0"] - routes.tables.host_count
    assert routes.groups.of(edge, number["h15"]).tolist() == [3, 4]
    assert routes.groups.of(edge, number["h1"]).tolist() == [2]
    core = number["c0"] - routes.tables.host_count
    assert routes.groups.of(core, number["h15"]).tolist() == [4]


def test_the_ports_of_a_switch_are_rows() -> None:
    made = fabrics.fat_tree(4)
    number = made.tables().number
    edge = number["e0"] - len(made.hosts)
    rows = fabrics.route(made, "ecmp").ports_of(edge)
    assert rows[[0, 1, 15]].tolist() == [[1, -1], [2, -1], [3, 4]]
    cut = fabrics.route(fabrics.chain(2)).lft.copy()
    cut[0, 2] = 255
    assert Routes.from_lft(fabrics.chain(2), cut).ports_of(0).tolist() == [[1], [-1]]


def test_entropy_chooses_among_all_ways_and_keeps_to_one() -> None:
    routes = fabrics.route(fabrics.fat_tree(4), "ecmp")
    ways = {tuple(hop.link for hop in routes.path("h0", "h15", entropy=flow)) for flow in range(64)}
    assert len(ways) == 4
    assert routes.path("h0", "h15", entropy=7) == routes.path("h0", "h15", entropy=7)


def test_a_multicast_tree_reaches_its_members_and_no_other() -> None:
    made = fabrics.fat_tree(4)
    tables = made.tables()
    tree = fabrics.multicast_tree(made, ["h0", "h5", "h15"])
    reached, queue = set(), [(tables.number["h0"], int(tables.end_link[0]))]
    while queue:
        _, link = queue.pop()
        at, came = int(tables.links["dst"][link]), int(tables.links["dst_port"][link])
        assert at not in reached, "a packet came twice"
        reached.add(at)
        if at < tables.host_count:
            continue
        row = tree.ports[at - tables.host_count]
        for port in np.nonzero(row)[0]:
            if port != came:
                queue.append((at, int(tables.out_link[at - tables.host_count, port])))
    hosts = {tables.names[node] for node in reached if node < tables.host_count}
    assert hosts == {"h5", "h15"}


@pytest.mark.parametrize(
    ("members", "root", "message"),
    [
        (["h99"], None, "h99: no such host"),
        ([], None, "needs members"),
        (["h1"], "h0", "no switch"),
    ],
)
def test_a_wrong_multicast_group_is_refused(
    members: list[str], root: str | None, message: str
) -> None:
    with pytest.raises(FabricError, match=message):
        fabrics.multicast_tree(fabrics.fat_tree(4), members, root)
