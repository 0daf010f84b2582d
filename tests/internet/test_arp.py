# SPDX-License-Identifier: Apache-2.0
"""ARP: what the first packet waits for, retries, expiry, and the one datagram that is kept."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from verbena.internet import EthernetInterface, Internet, UdpArrival
from verbena.internet.arp import ENTRY_LIFETIME, RETRY, TRIES
from verbena.internet.timer import SECOND

PORT = 7000
SILENT = IPv4Address("10.0.0.99")


def lan(hosts: int = 2, **line: object) -> Internet:
    net = Internet()
    names = [f"h{number}" for number in range(hosts)]
    for name in names:
        net.host(name)
    net.network("10.0.0.0/24", *names, **line)
    return net


def ethernet(net: Internet, name: str) -> EthernetInterface:
    (interface,) = net.node(name).interfaces
    assert isinstance(interface, EthernetInterface)
    return interface


def received(net: Internet, name: str) -> list[UdpArrival]:
    arrivals: list[UdpArrival] = []
    net.node(name).udp.open(arrivals.append, PORT)
    return arrivals


def test_the_first_packet_waits_one_round_trip() -> None:
    net = lan(delay_us=100.0, mbps=100.0)
    first, second = net.ping("h0", "h1", count=2, size=18)
    # A request and its answer have the size of the smallest frame, as an echo of 18 bytes has.
    assert first.rtt_ps == 2 * second.rtt_ps
    assert second.rtt_ps == 4 * (100 * 10**6 + 84 * 8 * 10**4)
    assert ethernet(net, "h0").arp.requests == 1
    assert ethernet(net, "h1").arp.requests == 0


@pytest.mark.parametrize("hosts", [2, 5, 9])
def test_each_of_n_hosts_asks_for_a_pair_at_most_once(hosts: int) -> None:
    net = lan(hosts)
    seen: list[bytes] = []
    net.links["10.0.0.0/24"].taps.append(seen.append)
    for one in range(hosts):
        for two in range(hosts):
            assert one == two or net.ping(f"h{one}", f"h{two}")[0].ok
    # The one that is asked learns from the question, so that one of each pair asks.
    asked = [frame for frame in seen if frame[:6] == b"\xff" * 6]
    assert len(asked) == hosts * (hosts - 1) // 2
    assert {len(frame) for frame in asked} == {60}


def test_nobody_answers_three_requests_and_the_sender_hears_it() -> None:
    net = lan()
    h0, arp = net.node("h0"), ethernet(net, "h0").arp
    errors: list[tuple[str, int]] = []
    socket = h0.udp.open(lambda _: None)
    socket.on_error = lambda message, _, port: errors.append((message.text, port))
    socket.send(b"lost", SILENT, PORT)
    net.run((TRIES * RETRY - 1) / SECOND)
    assert (arp.requests, errors) == (TRIES, [])
    net.run(1)
    assert errors == [("host unreachable", PORT)]
    assert SILENT not in arp.entries
    assert h0.counters["next hop silent"] == 1


def test_a_lost_request_is_repeated_after_a_second() -> None:
    net = lan()
    arrivals = received(net, "h1")
    net.links["10.0.0.0/24"].cut(silent=True)
    net.node("h0").udp.open(lambda _: None).send(b"late", net.node("h1").address, PORT)
    net.run(0.5)
    net.links["10.0.0.0/24"].restore()
    net.run(0.499)
    assert arrivals == []
    net.run(0.1)
    assert [one.payload for one in arrivals] == [b"late"]
    assert ethernet(net, "h0").arp.requests == 2


def test_an_entry_expires_and_is_asked_for_again() -> None:
    net = lan()
    net.ping("h0", "h1")
    arp = ethernet(net, "h0").arp
    net.run(ENTRY_LIFETIME / SECOND - 2)
    net.ping("h0", "h1")
    assert arp.requests == 1
    net.run(ENTRY_LIFETIME / SECOND + 1)
    assert arp.entries == {}
    net.ping("h0", "h1")
    assert arp.requests == 2


def test_the_newest_of_three_datagrams_is_kept() -> None:
    net = lan()
    arrivals = received(net, "h1")
    socket = net.node("h0").udp.open(lambda _: None)
    for payload in (b"one", b"two", b"three"):
        socket.send(payload, net.node("h1").address, PORT)
    net.run(1)
    assert [one.payload for one in arrivals] == [b"three"]
    assert ethernet(net, "h0").arp.replaced == 2
    socket.send(b"four", net.node("h1").address, PORT)
    net.run(1)
    assert arrivals[-1].payload == b"four"


def test_all_fragments_of_the_newest_datagram_are_kept() -> None:
    net = lan()
    arrivals = received(net, "h1")
    socket = net.node("h0").udp.open(lambda _: None)
    for payload in (bytes(5000), b"\1" * 5000):
        socket.send(payload, net.node("h1").address, PORT)
    net.run(1)
    assert [one.payload for one in arrivals] == [b"\1" * 5000]
    assert ethernet(net, "h0").arp.replaced == 1


def test_one_error_is_sent_for_a_fragmented_datagram() -> None:
    net = lan()
    h0 = net.node("h0")
    errors: list[str] = []
    socket = h0.udp.open(lambda _: None)
    socket.on_error = lambda message, _, __: errors.append(message.text)
    socket.send(bytes(5000), SILENT, PORT)
    net.run(5)
    assert errors == ["host unreachable"]
