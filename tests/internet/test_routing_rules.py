# SPDX-License-Identifier: Apache-2.0
"""Routing protocols among damaged or unusual messages, and what they do when ways change."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from random import Random

import pytest

from verbena.internet import Internet, Node, Origin, Route, UdpArrival
from verbena.internet.bgp import BgpSpeaker
from verbena.internet.distance_vector import (
    FAMILY_IPV4,
    RIP_ENTRY,
    RIP_HEADER,
    RIP_PORT,
    RIP_RESPONSE,
    RIP_VERSION,
    DistanceVector,
    decode_message,
    encode_whole_table_request,
)
from verbena.internet.errors import InternetError, PacketError
from verbena.internet.link_state import LinkState
from verbena.internet.lsa import MAX_AGE, Lsa, LsaLink, LsaLinkKind, decode_lsas


def two_routers() -> tuple[Internet, Node, Node]:
    net = Internet()
    left, right = net.router("left"), net.router("right")
    net.link("left", "right", prefix="10.9.0.0/30")
    return net, left, right


def entry(family: int, address: str, mask: str, metric: int) -> bytes:
    packed = IPv4Address(address).packed, IPv4Address(mask).packed
    return RIP_ENTRY.pack(family, 0, *packed, bytes(4), metric)


def test_a_bad_entry_of_rip_spoils_no_other_one() -> None:
    """RFC 2453, section 3.9.2: ignore the entry, and go on to the next."""
    good = entry(FAMILY_IPV4, "10.1.0.0", "255.255.0.0", 3)
    bad = [
        entry(FAMILY_IPV4, "10.2.0.0", "255.255.0.0", 17),
        entry(FAMILY_IPV4, "10.3.0.0", "255.255.0.0", 0),
        entry(FAMILY_IPV4, "10.4.0.1", "255.255.0.0", 1),
        entry(FAMILY_IPV4, "10.5.0.0", "255.0.255.0", 1),
        entry(FAMILY_IPV4, "127.0.0.0", "255.0.0.0", 1),
        entry(FAMILY_IPV4, "224.0.0.0", "240.0.0.0", 1),
        entry(7, "10.6.0.0", "255.255.0.0", 1),
    ]
    head = RIP_HEADER.pack(RIP_RESPONSE, RIP_VERSION, 0)
    for one in bad:
        entries = decode_message(head + one + good)[1]
        assert entries == [(IPv4Network("10.1.0.0/16"), 3)]


def test_a_request_of_rip_is_answered_at_the_port_from_which_it_came() -> None:
    """RFC 2453, section 3.9.1."""
    net, left, right = two_routers()
    DistanceVector(left, Random(1)).add_interface(left.interfaces[0])
    answers: list[UdpArrival] = []
    socket = right.udp.open(answers.append)
    net.run(1)
    socket.send(encode_whole_table_request(), left.address, RIP_PORT)
    net.run(1)
    assert [one.source_port for one in answers] == [RIP_PORT]


@pytest.mark.parametrize(
    ("identity", "mask"), [("10.1.0.1", "255.255.0.0"), ("10.1.0.0", "255.0.255.0")]
)
def test_an_lsa_with_a_network_that_is_none_is_damaged(identity: str, mask: str) -> None:
    link = LsaLink(LsaLinkKind.STUB, IPv4Address(identity), IPv4Address(mask), 1)
    data = Lsa(IPv4Address("1.1.1.1"), 1, (link,)).encode()
    with pytest.raises(PacketError, match="link"):
        decode_lsas(data, 1)


def test_no_lsa_is_older_than_the_greatest_age() -> None:
    data = Lsa(IPv4Address("1.1.1.1"), 1, (), 5000).encode()
    assert decode_lsas(data, 1)[0].age == MAX_AGE


@pytest.mark.parametrize("cost", [-1, 65536])
def test_a_cost_that_no_lsa_can_have_is_refused(cost: int) -> None:
    _, left, _ = two_routers()
    protocol = LinkState(left, left.address)
    with pytest.raises(InternetError, match="65535"):
        protocol.add_interface(left.interfaces[0], cost)
    with pytest.raises(InternetError, match="65535"):
        protocol.announce(IPv4Network("10.1.0.0/16"), cost)


def test_the_last_sequence_number_of_an_lsa_is_followed_by_the_first() -> None:
    """RFC 2328, section 12.1.6: the old instance is flushed before."""
    net, left, right = two_routers()
    one, other = (LinkState(node, node.address) for node in (left, right))
    for protocol, node in ((one, left), (other, right)):
        protocol.add_interface(node.interfaces[0])
    net.run(30)
    one._sequence = 0x7FFFFFFF - 1
    one.announce(IPv4Network("10.1.0.0/16"))
    net.run(30)
    assert other.database[one.router].lsa.sequence == 0x7FFFFFFF
    one.announce(IPv4Network("10.2.0.0/16"))
    net.run(30)
    assert other.database[one.router].lsa.sequence < 0
    prefixes = {str(route.prefix) for route in right.table.routes}
    assert {"10.1.0.0/16", "10.2.0.0/16"} <= prefixes


def test_a_way_to_a_border_router_that_becomes_longer_or_goes_is_noticed() -> None:
    """Also if the network that leads to it is one that the system announces itself."""
    net, left, right = two_routers()
    speaker = BgpSpeaker(left, 65001, Random(1), router=left.address)
    inside = IPv4Network("10.50.0.0/24")
    speaker.originate(inside)
    peer = BgpSpeaker(right, 65001, Random(1), router=right.address)
    far = IPv4Address("10.50.0.1")
    way = {"interface": left.interfaces[0], "next_hop": right.address}
    left.table.offer(Route(inside, Origin.LINK_STATE, metric=3, **way))
    neighbour = speaker.add_neighbour(peer.router, 65001)
    peer.add_neighbour(left.address, 65001)
    peer.router = far
    outside = IPv4Network("192.0.2.0/24")
    right.table.offer(Route(outside, Origin.STATIC, left.address, right.interfaces[0]))
    peer.originate(outside)
    net.run(300)
    assert neighbour.is_up
    assert (speaker.best[outside].next_hop, speaker.best[outside].cost) == (far, 3)
    left.table.offer(Route(inside, Origin.LINK_STATE, metric=7, **way))
    net.run(0.1)
    assert speaker.best[outside].cost == 7
    left.table.withdraw(inside, Origin.LINK_STATE)
    net.run(0.1)
    assert outside not in speaker.best
