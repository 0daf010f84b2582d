# SPDX-License-Identifier: Apache-2.0
"""How links of an internet are named and changed."""

from __future__ import annotations

import pytest

from verbena.internet import Internet, InternetError
from verbena.internet.autonomous_systems import AutonomousSystems


def chain() -> Internet:
    """Two hosts and a router between them, in networks of 1500 bytes."""
    net = Internet(seed=1)
    net.host("a"), net.host("c"), net.router("b")
    net.network("10.1.0.0/24", "b", "a")
    net.network("10.2.0.0/24", "b", "c")
    net.node("a").set_default_gateway("10.1.0.1")
    net.node("c").set_default_gateway("10.2.0.1")
    return net


def test_a_link_has_both_names() -> None:
    net = Internet()
    for name in ("left-1", "right"):
        net.host(name)
    link = net.link("left-1", "right")
    assert net.links["left-1-right"] is link
    assert net.links["right-left-1"] is link
    assert list(net.links) == ["left-1-right"]


def test_a_link_s_own_name_comes_first() -> None:
    net = Internet()
    net.host("a"), net.host("b")
    first, second = net.link("a", "b"), net.link("b", "a")
    assert net.links["a-b"] is first
    assert net.links["b-a"] is second


def test_an_unknown_link_shows_those_that_there_are() -> None:
    with pytest.raises(InternetError, match=r"'a-z': there are 10.1.0.0/24, 10.2"):
        chain().links["a-z"]
    with pytest.raises(InternetError, match="no link is called 5: there are none"):
        Internet().links[5]
    with pytest.raises(InternetError, match="no link is called 'x': there are"):
        chain().capture("x.pcapng", ["x"])


def test_the_mtu_of_a_link_can_be_changed() -> None:
    net = chain()
    assert net.path_mtu("a", "c").mtu == 1500
    net.links["10.2.0.0/24"].mtu = 600
    assert net.path_mtu("a", "c").mtu == 600
    with pytest.raises(InternetError, match="an MTU of -5 bytes: IPv4 needs 68"):
        net.links["10.2.0.0/24"].mtu = -5
    assert net.links["10.2.0.0/24"].mtu == 600


def systems() -> AutonomousSystems:
    """Two systems of a router each, that are not connected."""
    net = Internet(seed=1)
    made = AutonomousSystems(net)
    for number, name in enumerate("ab", 1):
        net.router(name)
        net.network(f"10.{number}.0.0/24", name)
        made.add(number, name)
    return made


def test_what_systems_cannot_answer_is_named() -> None:
    made = systems()
    with pytest.raises(InternetError, match="systems 1 and 2 are not connected"):
        made.is_valley_free([1, 2])
    with pytest.raises(InternetError, match="b is no router of <system 1: a>"):
        made.of("a").speaker(made.net.node("b"))
    with pytest.raises(InternetError, match="'x' is no network"):
        made.of("a").originate("x")


def test_a_datagram_that_udp_cannot_carry_is_named() -> None:
    net = chain()
    sender, to = net.node("a").udp.open(print), net.address_of("c")
    with pytest.raises(InternetError, match="70000 is no port of a destination"):
        sender.send(b"x", to, 70000)
    with pytest.raises(InternetError, match="at most 65507 bytes, and not 65508"):
        sender.send(bytes(65508), to, 7000)
    sender.send(bytes(65507), to, 7000)
