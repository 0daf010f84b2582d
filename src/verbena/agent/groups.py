# SPDX-License-Identifier: Apache-2.0
"""Memberships in IP multicast groups, so that the network brings a group's packets to this host.

A RoCE group that a program joins by rdma_cm is an IPv4 group of the network (IGMP). The socket that
is its member receives nothing; QPs get the datagrams by ibv_attach_mcast.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

__all__ = ["GroupMemberships"]


class GroupMemberships:
    """One socket for each membership. ``address_of`` gives a port's IPv4 address, or None."""

    def __init__(self, address_of: Callable[[int], str | None]) -> None:
        self._address_of = address_of
        self._sockets: dict[int, socket.socket] = {}

    def join(self, group: int, port: int, mgid: bytes) -> None:
        """Become a member of ::ffff:a.b.c.d on the port's interface. What fails is let be: within
        the host the group works without."""
        address = self._address_of(port)
        member = mgid[12:] + socket.inet_aton(address or "0.0.0.0")
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        except OSError:
            sock.close()
            return
        self._sockets[group] = sock

    def leave(self, group: int) -> None:
        """End a membership."""
        sock = self._sockets.pop(group, None)
        if sock is not None:
            sock.close()
