# SPDX-License-Identifier: Apache-2.0
"""What the two interior protocols do when networks vanish, cost more, or are not refreshed."""

from __future__ import annotations

from ipaddress import IPv4Network
from itertools import pairwise

import pytest

from verbena.internet import AddressError, Internet, InternetError
from verbena.internet.distance_vector import (
    INFINITY,
    DistanceVector,
    DistanceVectorSettings,
    SplitHorizon,
)
from verbena.internet.link_state import LinkState
from verbena.internet.lsa import MAX_AGE

FAR = IPv4Network("10.3.0.0/24")


def chain(settings: DistanceVectorSettings) -> tuple[Internet, list[DistanceVector]]:
    """r0 - r1 - r2, and the network FAR at r2."""
    net = Internet(seed=5)
    names = ["r0", "r1", "r2"]
    for name in names:
        net.router(name)
    for left, right in pairwise(names):
        net.link(left, right)
    net.network(FAR, "r2", name="far")
    running = []
    for name in names:
        node = net.node(name)
        running.append(DistanceVector(node, net.random, settings))
        for interface in node.interfaces:
            running[-1].add_interface(interface)
    net.converge()
    return net, running


def metrics_after_the_loss(split_horizon: SplitHorizon) -> tuple[set[int], float]:
    """The finite distances that r0 and r1 believed afterwards, and the seconds until the end."""
    # Without triggered updates, so that news does not overtake what is stale.
    net, running = chain(DistanceVectorSettings(split_horizon, triggered=False))
    assert [one.distances[FAR].metric for one in running] == [3, 2, 1]
    net.links["r1-r2"].cut()
    begin, seen = net.now_s, set()
    while any(FAR in one.distances and one.distances[FAR].metric < INFINITY for one in running[:2]):
        seen |= {one.distances[FAR].metric for one in running[:2] if FAR in one.distances}
        net.run(1)
        assert net.now_s - begin < 2000
    return seen - {INFINITY}, net.now_s - begin


def test_without_split_horizon_two_routers_count_to_infinity() -> None:
    seen, seconds = metrics_after_the_loss(SplitHorizon.OFF)
    assert seen == set(range(3, INFINITY))
    assert seconds > 180


@pytest.mark.parametrize("split_horizon", [SplitHorizon.SIMPLE, SplitHorizon.POISONED])
def test_with_split_horizon_they_do_not(split_horizon: SplitHorizon) -> None:
    seen, seconds = metrics_after_the_loss(split_horizon)
    assert seen == {3}
    assert seconds < 40


def test_the_way_of_least_cost_is_taken() -> None:
    """Two routers more are nearer than a link of cost 9."""
    net = Internet()
    for name in ("a", "b", "c"):
        net.router(name)
    net.network("10.1.0.0/24", "a")
    net.network("10.2.0.0/24", "c")
    costs = {"a-c": 9, "a-b": 2, "b-c": 3}
    for name in costs:
        net.link(*name.split("-"))
    for name in ("a", "b", "c"):
        running = DistanceVector(net.node(name), net.random)
        for interface in net.node(name).interfaces:
            running.add_interface(interface, costs.get(interface.link.link.name, 1))  # type: ignore[attr-defined]
        for cost in (0, INFINITY):
            with pytest.raises(InternetError, match=f"a cost of {cost}: it is 1 to 15"):
                running.announce(FAR, cost)
    net.converge()
    route = net.node("a").table.best(IPv4Network("10.2.0.0/24"))
    assert route is not None
    assert route.metric == 1 + 2 + 3
    assert [hop.name for hop in net.traceroute("a", net.networks[1].prefix[1])] == ["b", "c"]


def test_an_lsa_that_nobody_refreshes_is_removed_everywhere() -> None:
    net = Internet()
    names = ("a", "b", "c")
    for name in names:
        net.router(name)
    net.network(FAR, "a")
    net.link("a", "b")
    net.link("b", "c")
    running = {name: LinkState(net.node(name), net.node(name).address) for name in names}
    for name in names:
        for interface in net.node(name).interfaces:
            running[name].add_interface(interface)
    net.converge()
    a = running["a"].router
    sequence = running["c"].database[a].lsa.sequence
    net.run(1900)
    assert running["c"].database[a].lsa.sequence == sequence + 1
    net.links["a-b"].cut()
    net.run(10)
    # Its LSA is still there, but no link to it counts any more.
    assert net.node("c").table.best(FAR) is None
    assert a in running["c"].database
    net.run(MAX_AGE)
    assert a not in running["b"].database
    assert a not in running["c"].database
    assert set(running["a"].database) == {a}
    net.links["a-b"].restore()
    net.converge()
    assert net.ping("c", FAR[1])[0].ok


def test_a_link_that_is_refused_leaves_its_prefix_free() -> None:
    net = Internet()
    for name in ("a", "b"):
        net.router(name)
    with pytest.raises(AddressError, match="has one address"):
        net.link("a", "b", "10.9.0.0/32")
    with pytest.raises(AddressError, match="is no network of hosts"):
        net.link("a", "b", "224.0.0.0/30")
    with pytest.raises(AddressError, match="has 2 addresses for 3 nodes"):
        net.network("10.9.0.0/30", "a", "b", net.router("c"))
    with pytest.raises(AddressError, match="named twice"):
        net.network("10.9.0.0/30", "a", "a")
    assert (net.links, net.networks, net.node("a").interfaces) == ({}, [], [])
    net.link("a", "b", "10.9.0.0/30")
    assert net.ping("a", "10.9.0.2")[0].ok
