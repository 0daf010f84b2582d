# SPDX-License-Identifier: Apache-2.0
"""A link's MTU changes while an internet runs: fragments, errors and searches follow it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.internet.test_internet import two_networks
from tests.internet.test_internet_tcp import pair
from verbena.internet import Internet, InternetError
from verbena.internet.errors import MessageTooLongError
from verbena.lan import Lan


def only_link(net: Internet) -> Any:
    (link,) = net.links.values() if len(net.links) == 1 else [net.links["r1-r2"]]
    return link


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(68, 1500), min_size=1, max_size=4), st.booleans())
def test_a_search_finds_whatever_the_mtu_has_become(mtus: list[int], filtered: bool) -> None:
    net = two_networks()
    net.node("r1").errors_filtered = filtered
    link = only_link(net)
    for mtu in mtus:
        link.mtu = mtu
        assert link.mtu == link.settings.mtu == mtu
        assert [port.mtu for port in link.ports] == [mtu, mtu]
        assert net.path_mtu("h1", "h2").mtu == mtu


def test_a_sender_learns_of_a_smaller_mtu_and_of_a_larger_one_after_ten_minutes() -> None:
    net = two_networks()
    link, h1, h2 = only_link(net), net.node("h1"), net.node("h2")
    taken: list[int] = []
    h2.udp.open(lambda arrival: taken.append(len(arrival.payload)), 9)
    socket = h1.udp.open(lambda _: None)

    def send(size: int) -> None:
        socket.send(bytes(size - 28), h2.address, 9, dont_fragment=True)
        net.run(1)

    send(1500)
    link.mtu = 600
    send(1500)  # too long: an error comes back
    assert taken == [1472]
    assert h1.path_mtu(h2.address) == 600
    with pytest.raises(MessageTooLongError, match="the MTU of 600"):
        send(601)
    send(600)
    link.mtu = 1500
    with pytest.raises(MessageTooLongError):
        send(1500)
    net.run(600)  # what was learnt is forgotten (RFC 1191, 6.3)
    send(1500)
    assert taken == [1472, 572, 1472]


def test_what_may_be_fragmented_is() -> None:
    net = two_networks()
    link = only_link(net)
    before = link.ports[0].line.sent
    assert net.ping("h1", "h2", size=1400)[0].ok
    whole = link.ports[0].line.sent - before
    link.mtu = 500
    assert net.ping("h1", "h2", size=1400)[0].ok
    assert (whole, link.ports[0].line.sent - before - whole) == (1, 3)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 2**20), st.lists(st.sampled_from([68, 300, 1500]), min_size=1, max_size=5))
def test_a_stream_arrives_while_the_mtu_changes(seed: int, mtus: list[int]) -> None:
    net, left, accepted = pair(seed, closes=False, loss=0.01, mbps=10)
    sent = net.random.randbytes(20_000)
    left.connection.write(sent)
    left.connection.end()
    for mtu in mtus:
        net.run(0.004)
        only_link(net).mtu = mtu
    net.run_until(lambda: bool(accepted and accepted[0].ended), 2000)
    assert bytes(accepted[0].got) == sent


def test_a_network_s_mtu_changes_for_all_its_stations() -> None:
    net = two_networks()
    segment = net.networks[0].segment
    segment.mtu = 576
    assert net.path_mtu("h1", "h2").mtu == 576
    net.host("late")
    net.networks[0].attach(net.node("late"))
    assert net.node("late").interfaces[0].mtu == 576


def test_mtus_that_are_refused() -> None:
    net = two_networks()
    link = only_link(net)
    for mtu in (67, 65_536):
        with pytest.raises(InternetError, match=f"an MTU of {mtu} bytes: IPv4 needs 68 to 65535"):
            link.mtu = mtu
    assert link.mtu == 1500
    other = Internet()
    lan = Lan(agenda=other.agenda)
    hub = lan.hub()
    for name in ("a", "b"):
        other.host(name)
        lan.station(name, hub)
    other.lan_network("10.0.0.0/24", lan, ("a", "b"), name="hub")
    with pytest.raises(InternetError, match="hub is a LAN, whose stations all have"):
        other.links["hub"].mtu = 600
    assert other.links["hub"].mtu == 1500
    with pytest.raises(InternetError, match="hub is a LAN, whose stations all have"):
        other.networks[0].mtu = 600
    assert other.networks[0].mtu == 1500


def test_a_network_has_the_mtu_of_its_link() -> None:
    net = Internet()
    for name in ("a", "b"):
        net.host(name)
    network = net.network("10.0.0.0/24", "a", "b", mtu=1200)
    assert network.mtu == 1200
    network.mtu = 800
    assert net.links["10.0.0.0/24"].mtu == network.mtu == 800
    assert net.path_mtu("a", "b").mtu == 800
    with pytest.raises(InternetError, match="an MTU of 67 bytes"):
        network.mtu = 67
    assert network.mtu == 800
