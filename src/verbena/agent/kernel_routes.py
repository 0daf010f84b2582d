# SPDX-License-Identifier: Apache-2.0
"""What the kernel knows of the way to an address: its route, and whether the next hop answers.

Questions to rtnetlink (rtnetlink(7)), one socket for each. resolution.py asks. A library for
rtnetlink would take longer to import than the agent may take to start.
"""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntFlag

__all__ = ["KernelRoute", "NeighbourState", "find_neighbour", "find_route", "interface_mtu"]

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_HEADER = struct.Struct("=IHHII")
_ROUTE = struct.Struct("=BBBBBBBBI")
_NEIGHBOUR = struct.Struct("=BxxxiHBB")
_ATTRIBUTE = struct.Struct("=HH")
_IFREQ = struct.Struct("=16si20x")
_SIOCGIFMTU = 0x8921
_RTM_GETROUTE, _RTM_NEWROUTE = 26, 24
_RTM_GETNEIGH, _RTM_NEWNEIGH = 30, 28
_NLM_REQUEST = 1
_NLMSG_ERROR = 2
_RTN_UNICAST, _RTN_LOCAL = 1, 2
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_PREFSRC, _RTA_SRC = 1, 4, 5, 7, 2
_RTA_VIA = 18
_NDA_DST = 1
_ANSWER_BYTES = 1 << 15
_TIMEOUT = 1.0


class NeighbourState(IntFlag):
    """The state of the next hop's link address (include/uapi/linux/neighbour.h)."""

    NONE = 0
    INCOMPLETE = 0x01
    REACHABLE = 0x02
    STALE = 0x04
    DELAY = 0x08
    PROBE = 0x10
    FAILED = 0x20
    NOARP = 0x40
    PERMANENT = 0x80

    @property
    def is_usable(self) -> bool:
        """Whether the kernel has a link address that it sends to."""
        return bool(self & ~(NeighbourState.INCOMPLETE | NeighbourState.FAILED))


@dataclass(frozen=True)
class KernelRoute:
    """The route to an address. ``next_hop`` is the address itself where there is no gateway."""

    interface: str
    source: IpAddress
    next_hop: IpAddress
    is_local: bool
    has_neighbour: bool
    """Somebody on the link has to answer; of a group nobody does."""


def find_route(
    destination: IpAddress, source: IpAddress | None = None, index: int = 0
) -> KernelRoute:
    """Return the kernel's route. Raises OSError as connect(2) does, as with ENETUNREACH.

    ``index`` is that of the interface which has to lead there; 0: any.
    """
    family = socket.AF_INET if destination.version == 4 else socket.AF_INET6
    bits = destination.max_prefixlen
    body = _ROUTE.pack(family, bits, bits if source else 0, 0, 0, 0, 0, 0, 0)
    body += _attribute(_RTA_DST, destination.packed)
    if source is not None:
        body += _attribute(_RTA_SRC, source.packed)
    if index:
        body += _attribute(_RTA_OIF, struct.pack("=I", index))
    answered, answer = _ask(_RTM_GETROUTE, body)
    if answered != _RTM_NEWROUTE:
        raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
    kind = _ROUTE.unpack_from(answer)[7]
    found = dict(_attributes(answer[_ROUTE.size :]))
    interface = socket.if_indextoname(struct.unpack("=I", found[_RTA_OIF])[0])
    chosen = found.get(_RTA_PREFSRC, source.packed if source else destination.packed)
    return KernelRoute(
        interface,
        ipaddress.ip_address(chosen),
        _next_hop(found, destination),
        kind == _RTN_LOCAL,
        kind == _RTN_UNICAST,
    )


def _next_hop(found: dict[int, bytes], destination: IpAddress) -> IpAddress:
    if _RTA_VIA in found:  # a gateway of the other family
        return ipaddress.ip_address(found[_RTA_VIA][2:])
    return ipaddress.ip_address(found[_RTA_GATEWAY]) if _RTA_GATEWAY in found else destination


def find_neighbour(interface: str, address: IpAddress) -> NeighbourState:
    """Return what the kernel knows of a neighbour; NONE if it has never been asked for."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    body = _NEIGHBOUR.pack(family, socket.if_nametoindex(interface), 0, 0, 0)
    try:
        kind, answer = _ask(_RTM_GETNEIGH, body + _attribute(_NDA_DST, address.packed))
    except OSError as error:
        if error.errno == errno.ENOENT:
            return NeighbourState.NONE
        raise
    if kind != _RTM_NEWNEIGH:
        return NeighbourState.NONE
    return NeighbourState(_NEIGHBOUR.unpack_from(answer)[2])


def interface_mtu(interface: str) -> int:
    """Return the MTU of an interface in bytes. Raises OSError if it has gone.

    /sys may be that of another network namespace, the call is not.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        answer = fcntl.ioctl(sock, _SIOCGIFMTU, _IFREQ.pack(interface.encode(), 0))
    return int(_IFREQ.unpack(answer)[1])


# ---- rtnetlink ---------------------------------------------------------------------------------


def _attribute(kind: int, value: bytes) -> bytes:
    return (_ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value).ljust(
        _ATTRIBUTE.size + (len(value) + 3 & ~3), b"\0"
    )


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        if length < _ATTRIBUTE.size:
            return
        yield kind & 0x3FFF, data[_ATTRIBUTE.size : length]
        data = data[length + 3 & ~3 :]


def _ask(kind: int, body: bytes) -> tuple[int, bytes]:
    """Return the kind and the body of the kernel's answer. Raises OSError for its refusal."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sock:
        sock.settimeout(_TIMEOUT)
        sock.send(_HEADER.pack(_HEADER.size + len(body), kind, _NLM_REQUEST, 1, 0) + body)
        answer = sock.recv(_ANSWER_BYTES)
    length, answered, _, _, _ = _HEADER.unpack_from(answer)
    content = answer[_HEADER.size : length]
    if answered == _NLMSG_ERROR:
        (code,) = struct.unpack_from("=i", content)
        if code:
            raise OSError(-code, os.strerror(-code))
    return answered, content
