# SPDX-License-Identifier: Apache-2.0
"""Datagrams between networks: ARP, fragments, errors, path MTU, and interior routing."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from random import Random

import pytest

from verbena.internet import AddressError, Datagram, Internet, InternetError
from verbena.internet.distance_vector import DistanceVector
from verbena.internet.fragments import fragments
from verbena.internet.link_state import LinkState
from verbena.internet.prefixes import PrefixMap


def two_networks(**line: object) -> Internet:
    net = Internet()
    for name in ("h1", "h2"):
        net.host(name)
    for name in ("r1", "r2"):
        net.router(name)
    net.network("10.1.0.0/24", "r1", "h1")
    net.network("10.2.0.0/24", "r2", "h2")
    net.link("r1", "r2", "100.64.0.0/31", **line)
    net.node("r1").add_static_route("10.2.0.0/24", "100.64.0.1")
    net.node("r2").add_static_route("10.1.0.0/24", "100.64.0.0")
    return net


def test_a_ping_crosses_two_routers_and_traceroute_names_them() -> None:
    net = two_networks()
    (reply,) = net.ping("h1", "h2")
    assert reply.ok
    assert reply.ttl == 62
    assert [hop.name for hop in net.traceroute("h1", "h2")] == ["r1", "r2", "h2"]


def test_fragments_of_4000_bytes_over_1500() -> None:
    one, two = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")
    parts = fragments(Datagram(17, one, two, bytes(3980)), 1500)
    assert [len(part.payload) for part in parts] == [1480, 1480, 1020]
    assert [part.offset // 8 for part in parts] == [0, 185, 370]
    assert [part.more_fragments for part in parts] == [True, True, False]


@pytest.mark.parametrize("filtered", [False, True])
def test_the_path_mtu_is_found_with_and_without_errors(filtered: bool) -> None:
    net = two_networks(mtu=1000)
    net.node("r1").errors_filtered = filtered
    found = net.path_mtu("h1", "h2")
    assert (found.mtu, found.black_hole) == (1000, filtered)


def test_the_longest_prefix_is_that_of_brute_force() -> None:
    random = Random(1)
    table: PrefixMap[int] = PrefixMap()
    kept: dict[IPv4Network, int] = {}
    for number in range(600):
        prefix = IPv4Network((random.getrandbits(12) << 20, random.randrange(33)), strict=False)
        table[prefix] = kept[prefix] = number
    for prefix in random.sample(list(kept), len(kept) // 3):
        del table[prefix], kept[prefix]
    for _ in range(300):
        address = IPv4Address(random.getrandbits(32))
        having = [prefix for prefix in kept if address in prefix]
        best = max(having, key=lambda prefix: prefix.prefixlen, default=None)
        assert table.longest(address) == (None if best is None else (best, kept[best]))


def test_bad_descriptions_say_what_is_wrong() -> None:
    net = two_networks()
    with pytest.raises(AddressError, match=r"overlaps 10\.1\.0\.0/24"):
        net.network("10.1.0.128/25")
    with pytest.raises(AddressError, match="the address of h1 already"):
        net.networks[0].attach(net.host("h3"), "10.1.0.2")
    with pytest.raises(InternetError, match="an MTU of 60 bytes"):
        net.link("r1", "r2", mtu=60)


@pytest.mark.parametrize("protocol", ["distance vector", "link state"])
@pytest.mark.parametrize("silent", [False, True])
def test_a_ring_of_routers_heals(protocol: str, silent: bool) -> None:
    net = Internet(seed=3)
    names = ("r1", "r2", "r3", "r4")
    routers = [net.router(name) for name in names]
    for number, name in enumerate(names):
        net.host(f"h{number}")
        net.network(f"10.{number}.0.0/24", name, f"h{number}")
        net.link(name, names[number - 1])
    for router in routers:
        running = (
            DistanceVector(router, net.random)
            if protocol == "distance vector"
            else LinkState(router, router.address)
        )
        for interface in router.interfaces:
            running.add_interface(interface)
    net.converge()
    assert [hop.name for hop in net.traceroute("h0", "h1")] == ["r1", "r2", "h1"]
    net.links["r2-r1"].cut(silent)
    net.converge()
    way = [hop.name for hop in net.traceroute("h0", "h1")]
    assert way == ["r1", "r4", "r3", "r2", "h1"]
