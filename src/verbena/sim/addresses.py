# SPDX-License-Identifier: Apache-2.0
"""The addresses of a world's nodes: LIDs of InfiniBand, MAC and IP addresses of Ethernet.

``World.set_lid`` and ``World.address`` call this. In the core an address is a number of 24 bits
(src/native/event/packet.h), from which all that is here follows, together with a host's number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

import numpy as np
from numpy.typing import NDArray

__all__ = ["LID_MOST", "MULTICAST", "PERMISSIVE", "Address", "Lids", "address_of"]

LID_MOST = 0xBFFF  # the last unicast LID (IBA 4.1.3)
MULTICAST = 0xC000  # the first multicast LID
PERMISSIVE = 0xFFFF  # the LID of directed-route SMPs
NETWORK = int(IPv4Address("10.0.0.0"))
GUIDS = 0x5642 << 48
SWITCH_GUIDS = GUIDS | 1 << 32
NOBODY = 2**32 - 1


@dataclass(frozen=True)
class Address:
    """The addresses of a host's port, or of a switch's port 0.

    InfiniBand: ``guid``, and 2**``lmc`` LIDs from ``lid`` on (0: a switch that has none yet).
    Ethernet: ``mac``, ``ipv4``, and ``ipv6``, which is link-local. ``gid`` is the port's first GID.
    What a link layer does not have is 0, or None. Ethernet switches have no address at all.
    """

    guid: int
    lid: int = 0
    lmc: int = 0
    mac: bytes | None = None
    ipv4: IPv4Address | None = None
    ipv6: IPv6Address | None = None

    @property
    def gid(self) -> bytes:
        if self.ipv4 is not None:
            return bytes(10) + b"\xff\xff" + self.ipv4.packed
        return link_local(self.guid).packed

    @property
    def lids(self) -> range:
        """The LIDs."""
        return range(self.lid, self.lid + (1 << self.lmc) if self.lid else self.lid)


def link_local(guid: int) -> IPv6Address:
    return IPv6Address((0xFE80 << 112) | guid)


def address_of(host: int | None, node: int, number: int, lmc: int, infiniband: bool) -> Address:
    """Return the addresses of a host, or of a switch (``host`` is None), by the core's number."""
    if host is None:
        return Address(SWITCH_GUIDS | (node + 1), lid=number)
    guid = GUIDS | (host + 1)
    if infiniband:
        return Address(guid, number, lmc)
    ipv4 = IPv4Address(NETWORK + number)
    return Address(guid, mac=b"\x02\x00" + ipv4.packed, ipv4=ipv4, ipv6=link_local(guid))


class Lids:
    """Who has which LID of a world, once a LID was assigned.

    ``hosts`` [65536] is the number of the host with each LID, or 2**32 - 1, as the core reads it. A
    host keeps those that it had before, until another one gets them, so that packets that are under
    way still belong to somebody. ``nodes`` [65536] is the node that has each LID now, or -1.
    """

    def __init__(self) -> None:
        self.hosts: NDArray[np.uint32] = np.full(1 << 16, NOBODY, np.uint32)
        self.nodes: NDArray[np.int64] = np.full(1 << 16, -1, np.int64)

    def assign(self, wanted: Sequence[tuple[int, int | None, int, int, int]], lmc: int) -> None:
        """Give 2**lmc LIDs to each of several nodes, in place of those that they have.

        ``wanted``: the node, its number as a host or None, its new first LID, and its old first LID
        and LMC. Raises ValueError, and then changes nothing.
        """
        nodes, hosts = self.nodes.copy(), self.hosts.copy()
        for node, _, _, lid, bits in wanted:
            old = nodes[lid : lid + (1 << bits)]
            old[old == node] = -1
        for node, host, lid, _, _ in wanted:
            self._check(nodes, lid, 1 << lmc)
            nodes[lid : lid + (1 << lmc)] = node
            if host is not None:
                hosts[lid : lid + (1 << lmc)] = host
        self.nodes, self.hosts[:] = nodes, hosts

    @staticmethod
    def _check(nodes: NDArray[np.int64], lid: int, count: int) -> None:
        """Raise ValueError if these LIDs are none, or in use."""
        if lid % count:
            raise ValueError(
                f"LID {lid} is no multiple of {count}, as the first of {count} LIDs is"
            )
        if not 1 <= lid <= LID_MOST + 1 - count:
            last = f" to {lid + count - 1}" if count > 1 else ""
            raise ValueError(f"LID {lid}{last}: unicast LIDs are 1 to {LID_MOST}")
        taken = np.flatnonzero(nodes[lid : lid + count] >= 0)
        if len(taken):
            at = lid + int(taken[0])
            raise ValueError(f"LID {at} is that of node {int(nodes[at])}")

    def take_away(self, nodes: Sequence[int]) -> None:
        """Let nodes have no LID any more."""
        self.nodes[np.isin(self.nodes, nodes)] = -1

    def free(self, wanted: int) -> int:
        """Return this LID, or the lowest free one. Raises ValueError if there is none."""
        if wanted <= LID_MOST and self.nodes[wanted] < 0:
            return wanted
        free = np.flatnonzero(self.nodes[1 : LID_MOST + 1] < 0)
        if not len(free):
            raise ValueError(f"all of the {LID_MOST} unicast LIDs are in use")
        return 1 + int(free[0])


def default_lids(node_of: Callable[[int], int], hosts: int, lids: Lids) -> None:
    """Enter the hosts of a world in which no LID was assigned yet: host h has LID h + 1."""
    for host in range(min(hosts, LID_MOST)):
        lids.hosts[host + 1], lids.nodes[host + 1] = host, node_of(host)
