# SPDX-License-Identifier: Apache-2.0
"""Interfaces of nodes: what turns datagrams into a link's frames and back.

A point-to-point interface sends datagrams as they are. An Ethernet interface has a MAC address, and
asks for its neighbours' by ARP. Frames that are damaged, or for somebody else, are counted and
dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Protocol

from verbena._arguments import checked_class
from verbena.host.clock import Agenda
from verbena.internet.arp import ArpPacket, ArpResolver
from verbena.internet.errors import AddressError, InternetError, InternetTypeError, PacketError
from verbena.internet.ethernet import EtherType, multicast_mac
from verbena.internet.icmp import LIMITED_BROADCAST
from verbena.internet.ipv4 import MIN_MTU, Datagram
from verbena.internet.links import LinkEnd
from verbena.lan.frame import BROADCAST, HEADER, frame_of, padded, parts_of
from verbena.lan.frame import is_group as is_group_mac


class Owner(Protocol):
    """What an interface needs of its node."""

    agenda: Agenda

    def receive(self, datagram: Datagram, interface: Interface, to_several: bool) -> None: ...

    def next_hop_is_silent(self, datagram: Datagram) -> None: ...

    def queue_is_full(self) -> None: ...


# What no network of hosts may have, and why.
RESERVED = {
    IPv4Network("0.0.0.0/8"): "means this network (RFC 1122, 3.2.1.3)",
    IPv4Network("127.0.0.0/8"): "is loopback, which no link carries (RFC 1122, 3.2.1.3)",
    IPv4Network("224.0.0.0/4"): "is multicast (RFC 1112)",
    IPv4Network("240.0.0.0/4"): "is reserved (RFC 1112, section 4)",
}


def check_unicast(network: IPv4Network) -> None:
    """Raises AddressError for a network of addresses that no host has."""
    for reserved, why in RESERVED.items():
        if network.overlaps(reserved):
            raise AddressError(f"{network} is no network of hosts: {reserved} {why}")


def check_interface_address(address: IPv4Interface) -> None:
    """Raises AddressError for a network's own address and its broadcast, and for what
    ``check_unicast`` refuses."""
    network = address.network
    check_unicast(network)
    reserved = {network.network_address, network.broadcast_address}
    if network.prefixlen <= 30 and address.ip in reserved:
        raise AddressError(
            f"{address.ip} is the address of the network {network} or its broadcast: "
            f"hosts have {network[1]} to {network[-2]}"
        )


@checked_class(InternetTypeError, but=("is_broadcast", "receive_frame", "transmit"))
class Interface:
    """An interface with one address, on a point-to-point link.

    ``damaged`` counts frames that came, and ``dropped`` those that it sent and for which the queue
    of its link had no room.
    """

    mac: bytes | None = None
    is_ethernet = False

    def __init__(self, owner: Owner, name: str, address: IPv4Interface, link: LinkEnd) -> None:
        check_interface_address(address)
        if link.mtu < MIN_MTU:
            raise InternetError(
                f"{name}: an MTU of {link.mtu} bytes: IPv4 needs {MIN_MTU} on every link"
            )
        self.owner = owner
        self.name = name
        self.address: IPv4Address = address.ip
        self.network: IPv4Network = address.network
        self.link = link
        self.enabled = True
        self.damaged = 0
        self.dropped = 0
        self.on_carrier: list[Callable[[Interface], None]] = []
        link.on_frame = self.receive_frame
        if hasattr(link, "on_carrier"):
            link.on_carrier = self.carrier_changed
        if hasattr(link, "on_drop"):
            link.on_drop = self._queue_is_full

    @property
    def mtu(self) -> int:
        return self.link.mtu

    @property
    def up(self) -> bool:
        return self.enabled and bool(getattr(self.link, "up", True))

    @property
    def broadcast(self) -> IPv4Address | None:
        """None on a network of two addresses or one (RFC 3021)."""
        return self.network.broadcast_address if self.network.prefixlen <= 30 else None

    def shut_down(self) -> None:
        self.enabled = False
        self.carrier_changed()

    def start_up(self) -> None:
        self.enabled = True
        self.carrier_changed()

    def carrier_changed(self) -> None:
        for call in self.on_carrier:
            call(self)

    def is_broadcast(self, address: IPv4Address) -> bool:
        return address in (LIMITED_BROADCAST, self.broadcast)

    def _queue_is_full(self) -> None:
        self.dropped += 1
        self.owner.queue_is_full()

    def transmit(self, datagram: Datagram, next_hop: IPv4Address) -> None:
        """Send a datagram that fits into the MTU."""
        if self.up:
            self.link.send(datagram.encode())

    def receive_frame(self, frame: bytes) -> None:
        if not self.enabled:
            return
        self._receive_datagram(frame, False)

    def _receive_datagram(self, data: bytes, by_group: bool) -> None:
        try:
            datagram = Datagram.decode(data)
        except PacketError:
            self.damaged += 1
            return
        to_several = by_group or self.is_broadcast(datagram.destination)
        self.owner.receive(datagram, self, to_several)


@checked_class(InternetTypeError, but=("receive_frame", "transmit"))
class EthernetInterface(Interface):
    """An interface with a MAC address, on an Ethernet."""

    is_ethernet = True
    mac: bytes

    def __init__(
        self, owner: Owner, name: str, address: IPv4Interface, link: LinkEnd, mac: bytes
    ) -> None:
        super().__init__(owner, name, address, link)
        self.mac = mac
        self.arp = ArpResolver(
            owner.agenda,
            mac,
            self.address,
            self._send_arp,
            self._send_to,
            owner.next_hop_is_silent,
        )

    def carrier_changed(self) -> None:
        if not self.up:
            self.arp.clear()
        super().carrier_changed()

    def transmit(self, datagram: Datagram, next_hop: IPv4Address) -> None:
        if not self.up:
            return
        if self.is_broadcast(datagram.destination):
            self._send_to(datagram, BROADCAST)
        elif datagram.destination.is_multicast:
            self._send_to(datagram, multicast_mac(datagram.destination))
        else:
            self.arp.send(datagram, next_hop)

    def receive_frame(self, frame: bytes) -> None:
        if not self.enabled:
            return
        if len(frame) < HEADER:
            self.damaged += 1
            return
        destination, _, kind, payload = parts_of(frame)
        for_group = is_group_mac(destination)
        if not for_group and destination != self.mac:
            return
        try:
            if kind == EtherType.ARP:
                self.arp.receive(ArpPacket.decode(payload))
            elif kind == EtherType.IPV4:
                self._receive_datagram(payload, for_group)
        except PacketError:
            self.damaged += 1

    def _send_to(self, datagram: Datagram, mac: bytes) -> None:
        self.link.send(padded(frame_of(mac, self.mac, EtherType.IPV4, datagram.encode())))

    def _send_arp(self, packet: ArpPacket, mac: bytes | None) -> None:
        if self.up:
            to = mac or BROADCAST
            self.link.send(padded(frame_of(to, self.mac, EtherType.ARP, packet.encode())))
