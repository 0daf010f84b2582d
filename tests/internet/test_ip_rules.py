# SPDX-License-Identifier: Apache-2.0
"""What hosts and routers must not do with datagrams that others made wrongly or with bad intent."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from verbena.host.clock import Agenda
from verbena.internet import Datagram, Internet, Message, Node, Protocol
from verbena.internet.arp import REPLY, ArpPacket
from verbena.internet.errors import InternetError
from verbena.internet.ethernet import EtherType
from verbena.internet.fragments import Reassembler, fragments
from verbena.internet.icmp import Kind, Unreachable, error_about
from verbena.internet.interface import EthernetInterface
from verbena.internet.udp import UdpPacket
from verbena.lan import BROADCAST, Frame


def one_network() -> tuple[Internet, Node, EthernetInterface]:
    """Three hosts; the node and the interface are the second one's."""
    net = Internet()
    for name in ("one", "two", "three"):
        net.host(name)
    net.network("10.0.0.0/24", "one", "two", "three")
    node = net.node("two")
    interface = node.interfaces[0]
    assert isinstance(interface, EthernetInterface)
    return net, node, interface


def udp(source: str, destination: str) -> Datagram:
    addresses = IPv4Address(source), IPv4Address(destination)
    return Datagram(Protocol.UDP, *addresses, UdpPacket(1, 9, b"?").encode(*addresses))


def test_a_broadcast_frame_for_one_host_s_address_is_dropped() -> None:
    """RFC 1122, section 3.3.6; and there is no error about it (section 3.2.2)."""
    net, node, interface = one_network()
    data = udp("10.0.0.1", "10.0.0.2").encode()
    interface.receive_frame(Frame(BROADCAST, b"\x02" * 6, EtherType.IPV4, data).pack())
    net.run(1)
    assert node.counters["delivered"] == node.counters["errors sent"] == 0
    interface.receive_frame(Frame(interface.mac, b"\x02" * 6, EtherType.IPV4, data).pack())
    net.run(1)
    assert node.counters["delivered"] == node.counters["errors sent"] == 1


@pytest.mark.parametrize("source", ["10.0.0.255", "255.255.255.255", "224.0.0.5", "127.0.0.1"])
def test_a_source_that_is_no_host_is_dropped(source: str) -> None:
    """RFC 1122, section 3.2.1.3: an answer would go to everybody."""
    net, node, interface = one_network()
    echo = Message(Kind.ECHO, 0, 1, 1, b"").encode()
    asked = Datagram(Protocol.ICMP, IPv4Address(source), interface.address, echo)
    for datagram in (asked, udp(source, "10.0.0.2")):
        frame = Frame(interface.mac, b"\x02" * 6, EtherType.IPV4, datagram.encode())
        interface.receive_frame(frame.pack())
    net.run(1)
    assert node.counters["sent"] == node.counters["delivered"] == 0
    assert node.counters["bad source"] == 2


def test_fragments_of_more_than_a_datagram_s_bytes_are_discarded() -> None:
    """The first one's options count: without them the last one just fits."""
    net, node, interface = one_network()
    addresses = IPv4Address("10.0.0.1"), interface.address
    for options in (bytes(40), b""):
        first = Datagram(99, *addresses, bytes(8), 64, 7, more_fragments=True, options=options)
        last = Datagram(99, *addresses, bytes(65504), 64, 7, offset=8)
        node.receive(last, interface, False)
        node.receive(first, interface, False)
        net.run(100)
    assert node.counters["no protocol"] == 1


def test_a_fragment_without_bytes_changes_nothing() -> None:
    reassembler = Reassembler(Agenda(), lambda first: None)
    whole = udp("10.0.0.1", "10.0.0.2")
    whole = replace(whole, payload=whole.payload * 4, identification=5)
    first, last = fragments(whole, 44)
    empty = replace(first, payload=b"")
    assert [reassembler.add(one) for one in (empty, first, last)] == [None, None, whole]


def test_an_arp_reply_with_a_group_s_mac_is_not_believed() -> None:
    """RFC 1812, section 3.3.2."""
    net, node, interface = one_network()
    lie = ArpPacket(REPLY, BROADCAST, IPv4Address("10.0.0.1"), interface.mac, interface.address)
    interface.receive_frame(Frame(interface.mac, b"\x02" * 6, EtherType.ARP, lie.encode()).pack())
    assert not interface.arp.entries
    assert net.ping("two", "one")[0].ok
    assert node.counters["sent"] == 1


def test_the_search_for_an_mtu_ends_though_a_router_always_complains() -> None:
    net, node, interface = one_network()

    def complain(datagram: Datagram, _: object) -> None:
        error = error_about(datagram, Kind.UNREACHABLE, Unreachable.FRAGMENTATION_NEEDED, 1500)
        node.send(Protocol.ICMP, None, datagram.source, error.encode())

    node.on_datagram(Protocol.ICMP, complain)
    with pytest.raises(InternetError, match="68 bytes"):
        net.path_mtu("one", interface.address)
