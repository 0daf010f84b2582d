# SPDX-License-Identifier: Apache-2.0
"""Next hops that cannot be used, two routers with one identifier, and pings without end."""

from __future__ import annotations

from functools import partial
from ipaddress import IPv4Address, IPv4Network
from itertools import pairwise

import pytest

from tests.internet.test_bgp import GOOD_OPEN, speaker_and_socket
from verbena.host.clock import Agenda
from verbena.internet import AddressError, Internet, InternetError, Node, NoRouteError
from verbena.internet.bgp_messages import BgpKeepalive, BgpUpdate, PathAttributes, encode_message
from verbena.internet.link_state import OWN_IDENTIFIER, LinkState
from verbena.internet.links import LineSettings, PointToPoint
from verbena.internet.node import MOST_TO_ITSELF
from verbena.internet.udp_sockets import UdpArrival


@pytest.mark.parametrize("bad", ["192.0.2.1", "10.0.0.1"])  # the speaker itself; not on the link
def test_a_next_hop_that_cannot_be_used_is_ignored(bad: str) -> None:
    """RFC 4271, section 6.3; a route that was good before is replaced by nothing."""
    net, speaker, connection, _ = speaker_and_socket()
    target = IPv4Network("10.2.0.0/16")
    node = net.node("speaker")
    for message in (GOOD_OPEN, BgpKeepalive()):
        connection.write(encode_message(message))
    net.run(0.1)
    for next_hop, is_used in (("192.0.2.0", True), (bad, False)):
        path = PathAttributes((2,), IPv4Address(next_hop))
        connection.write(encode_message(BgpUpdate((), path, (target,))))
        net.run(0.1)
        assert (target in speaker.best) == (node.table.best(target) is not None) == is_used
    (neighbour,) = speaker.neighbours.values()
    assert neighbour.is_up  # the session goes on
    assert node.counters["next hop cannot be used"] == 1


def test_two_routers_of_an_internet_have_two_identifiers() -> None:
    net = Internet()
    one, other = net.router("one"), net.router("other")
    net.link("one", "other")
    LinkState(one, one.address)
    with pytest.raises(AddressError, match=r"other: .* is one's already"):
        LinkState(other, one.address)
    assert other.counters == {}
    LinkState(other, other.address)


@pytest.mark.parametrize("between", [0, 1])
def test_a_router_with_the_own_identifier_is_counted(between: int) -> None:
    """Nodes that no internet has; next to each other, or with another router between."""
    agenda = Agenda()
    net = Internet(agenda=agenda)
    nodes = [Node(f"n{number}", agenda, True) for number in range(2 + between)]
    for number, (left, right) in enumerate(pairwise(nodes)):
        link = PointToPoint(f"l{number}", agenda, LineSettings(), net.random)
        left.attach(link.ports[0], f"10.0.{number}.1/30")
        right.attach(link.ports[1], f"10.0.{number}.2/30")
    ids = ["1.1.1.1"] * (2 + between) if not between else ["1.1.1.1", "2.2.2.2", "1.1.1.1"]
    for node, router in zip(nodes, ids, strict=True):
        protocol = LinkState(node, IPv4Address(router))
        for interface in node.interfaces:
            protocol.add_interface(interface)
    net.run(60)
    assert nodes[0].counters[OWN_IDENTIFIER] > 0
    assert nodes[-1].counters[OWN_IDENTIFIER] > 0


def test_routers_with_their_own_identifiers_count_nothing() -> None:
    net = Internet()
    names = ["a", "b", "c"]
    nodes = [net.router(name) for name in names]
    for left, right in ("ab", "bc", "ca"):
        net.link(left, right)
    for node in nodes:
        protocol = LinkState(node, node.address)
        for interface in node.interfaces:
            protocol.add_interface(interface)
    net.run(30)
    net.links["a-b"].cut()
    net.run(4000)
    net.links["a-b"].restore()
    net.run(60)
    assert [node.counters[OWN_IDENTIFIER] for node in nodes] == [0, 0, 0]


def test_a_ping_has_as_many_echoes_as_sequence_numbers() -> None:
    net = Internet()
    for name in ("left", "right"):
        net.host(name)
    net.link("left", "right")
    with pytest.raises(InternetError, match="at most 65,535"):
        net.ping("left", "right", 65536)
    assert net.now_s == 0


@pytest.mark.parametrize(("sockets", "most"), [(1, MOST_TO_ITSELF), (2, 500)])
def test_a_node_that_answers_itself_for_ever_is_told_so(
    sockets: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verbena.internet.node.MOST_TO_ITSELF", most)
    net = Internet()
    node = net.host("left")
    net.link(node, net.host("right"))
    address, got = node.address, 0

    def answer(arrival: UdpArrival) -> None:
        nonlocal got
        got += 1
        ends[got % sockets].send(arrival.payload, arrival.source, arrival.source_port)

    ends = [node.udp.open(answer, 7 + number) for number in range(sockets)]
    ends[0].send(b"again", address, ends[-1].port)
    with pytest.raises(InternetError, match=r"left has sent .* to itself .*answer later"):
        net.run(1)
    assert got == most
    assert net.ping("left", "right")[0].ok


def test_a_node_may_answer_itself_for_ever_if_time_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("verbena.internet.node.MOST_TO_ITSELF", 500)
    net = Internet()
    node = net.host("left")
    net.link(node, net.host("right"))
    got = 0

    def answer(arrival: UdpArrival) -> None:
        nonlocal got
        got += 1
        later = partial(socket.send, arrival.payload, arrival.source, 7)
        net.agenda.add(net.agenda.now + 10**6, later)

    socket = node.udp.open(answer, 7)
    socket.send(b"again", node.address, 7)
    net.run(1e-3)
    assert got > 500


@pytest.mark.parametrize(
    ("times", "text"),
    [
        ({"limit_s": 100}, r"limit_s is 100 s, and below quiet_s, 200 s: .* raise limit_s"),
        ({"quiet_s": -1}, "quiet_s is -1 s: it is a time from 0 on"),
        ({"limit_s": -1}, "limit_s is -1 s: it is a time from 0 on"),
    ],
)
def test_times_of_converge_that_cannot_be(times: dict[str, float], text: str) -> None:
    net = Internet(seed=1)
    net.network("10.0.0.0/24", net.host("a"), net.host("b"))
    with pytest.raises(InternetError, match=text):
        net.converge(**times)
    assert net.converge(quiet_s=100, limit_s=100) == 0


def test_a_host_whose_network_is_cut_is_told_so() -> None:
    net = Internet(seed=1)
    router, host = net.router("r"), net.host("h")
    net.network("10.1.0.0/24", router, host)
    net.network("10.2.0.0/24", router, net.host("far"))
    net.links["10.1.0.0/24"].cut()
    with pytest.raises(NoRouteError, match=r"its interface to .* is down, so restore that"):
        net.node("h").source_for(net.address_of("far"))
