# SPDX-License-Identifier: Apache-2.0
"""What IPv4 adds to Ethernet: its EtherTypes, the addresses of groups, and those of stations.

Interfaces with a MAC address and networks use it. Frames themselves are ``verbena.lan.frame``'s.
"""

from __future__ import annotations

from enum import IntEnum
from ipaddress import IPv4Address

from verbena.internet.errors import AddressError
from verbena.lan.errors import LanError
from verbena.lan.frame import is_group, mac_address


class EtherType(IntEnum):
    IPV4 = 0x0800
    ARP = 0x0806


def multicast_mac(group: IPv4Address) -> bytes:
    """RFC 1112, section 6.4: the low 23 bits of a group's address."""
    return b"\x01\x00\x5e" + (int(group) & 0x7FFFFF).to_bytes(3, "big")


def station_mac(address: str | bytes) -> bytes:
    """Six bytes. Raises AddressError, also for an address of several stations."""
    try:
        mac = mac_address(address)
    except LanError:
        mac = b""
    if not mac or is_group(mac) or not any(mac):
        raise AddressError(f"{address!r} is no MAC address of one station, as 02:00:00:00:00:01 is")
    return mac
