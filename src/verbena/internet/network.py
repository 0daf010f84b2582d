# SPDX-License-Identifier: Apache-2.0
"""A network: a prefix, an Ethernet, and the nodes on it, to which it gives addresses.

``Internet.network`` makes them. A host without a default route uses the first router that joins
its network.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from verbena._arguments import checked_class
from verbena.internet.errors import AddressError, InternetError, InternetTypeError
from verbena.internet.ethernet import station_mac
from verbena.internet.interface import Interface
from verbena.internet.lan_segment import LanSegment
from verbena.internet.links import LinkEnd, Segment
from verbena.internet.node import DEFAULT_ROUTE, Node
from verbena.internet.table import Origin
from verbena.lan.frame import mac_text


@checked_class(InternetTypeError)
class Network:
    """``segment`` carries the frames of members that bring no link of their own; without it, every
    member has to, as the stations of ``lan`` do."""

    def __init__(
        self,
        prefix: IPv4Network,
        segment: Segment | None,
        new_mac: Callable[[], bytes],
        lan: LanSegment | None = None,
    ) -> None:
        self.prefix = prefix
        self.segment = segment
        self._lan = lan
        self.members: dict[IPv4Address, Node] = {}
        self.on_attach: list[Callable[[Node, Interface], None]] = []
        self._new_mac = new_mac
        self._macs: set[bytes] = set()

    def __repr__(self) -> str:
        return f"<network {self.prefix}>"

    @property
    def mtu(self) -> int:
        """That of the network's link, which is ``net.links[name]``, and set as that is. Raises
        InternetError for what no link has, for another one on a LAN, and for a network without a
        link."""
        return self._link.mtu

    @mtu.setter
    def mtu(self, mtu: int) -> None:
        self._link.mtu = mtu

    @property
    def _link(self) -> Segment | LanSegment:
        link = self.segment or self._lan
        if link is None:
            raise InternetError(f"{self.prefix} has no link of its own: ask those of its members")
        return link

    def attach(
        self,
        node: Node,
        address: str | IPv4Address | None = None,
        mac: str | bytes | None = None,
        link: LinkEnd | None = None,
    ) -> Interface:
        """Give a node an interface here, with the next free address if none is given.

        ``link`` is a station of another link layer (with ``send``, ``on_frame`` and ``mtu``), which
        carries frames instead of the network's segment; it needs the MAC address of its station.
        Raises AddressError for an address that is taken, or is not of this network.
        """
        wanted = self._free() if address is None else self._checked(address)
        if link is not None and mac is None:
            raise AddressError(f"{node.name}: name the MAC address of the station that it uses")
        if link is None and self.segment is None:
            raise AddressError(f"{self.prefix} is a LAN: name the station of its new member")
        own = self._new_mac() if mac is None else station_mac(mac)
        if own in self._macs:
            raise AddressError(f"{self.prefix} already has a station {mac_text(own)}")
        whole = IPv4Interface((wanted, self.prefix.prefixlen))
        node.check_address(whole)
        if link is None:
            assert self.segment is not None
            link = self.segment.port(own)
        interface = node.attach(link, whole, own)
        self._macs.add(own)
        self.members[wanted] = node
        self._set_gateways()
        for call in self.on_attach:
            call(node, interface)
        return interface

    def _checked(self, address: str | IPv4Address) -> IPv4Address:
        try:
            wanted = IPv4Address(address)
        except ValueError:
            raise AddressError(f"{address!r} is no IPv4 address, as 10.0.0.1 is") from None
        if wanted not in self.prefix:
            raise AddressError(f"{wanted} is not in the network {self.prefix}")
        if wanted in self.members:
            raise AddressError(
                f"{wanted} is the address of {self.members[wanted].name} already; "
                f"the next free one is {self._free()}"
            )
        return wanted

    def _free(self) -> IPv4Address:
        for address in self.prefix.hosts():
            if address not in self.members:
                return address
        raise AddressError(f"all {len(self.members)} addresses of {self.prefix} are taken")

    def _set_gateways(self) -> None:
        gateway = next((at for at, node in self.members.items() if node.forwards), None)
        if gateway is None:
            return
        for node in self.members.values():
            if not node.forwards and node.table.offered(DEFAULT_ROUTE, Origin.STATIC) is None:
                node.set_default_gateway(gateway)


def parse_network(prefix: str | IPv4Network) -> IPv4Network:
    """Raises AddressError for what is no prefix, with the prefix that was perhaps meant."""
    try:
        return IPv4Network(prefix)
    except ValueError as error:
        try:
            meant = f"; did you mean {IPv4Network(prefix, strict=False)}?"
        except ValueError:
            meant = ", as 10.1.0.0/16 is"
        raise AddressError(f"{prefix!r} is no network ({error}){meant}") from None


__all__ = ["InternetError", "Network", "parse_network"]
