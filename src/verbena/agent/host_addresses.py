# SPDX-License-Identifier: Apache-2.0
"""The addresses of this host for the connection manager, and the way to those of others.

``HostAddresses`` answers what ``RdmaCm`` asks at once. ``AddressResolver`` answers ResolveAddress:
the kernel has the route, and is asked again until the next hop has answered it.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from verbena import verbs
from verbena.agent.brief import BriefMemory
from verbena.agent.kernel_routes import (
    IpAddress,
    KernelRoute,
    NeighbourState,
    find_neighbour,
    find_route,
    interface_mtu,
)
from verbena.manage.cm.addresses import CmAddress, CmFamily
from verbena.manage.cm.host import AddressAnswer, LocalInterface, ResolveAddress

__all__ = ["AddressResolver", "HostAddresses", "as_ip", "may_bind"]

_UNPRIVILEGED = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
_ROCE_PORT = 4791
_HOP_LIMIT = 64
_LATE = 0.02  # seconds
_LOOKS = 20
_LOOPBACK = CmAddress.ip("127.0.0.1")


def as_ip(address: CmAddress) -> IpAddress:
    """Return an IPv4 or IPv6 address without its port."""
    return ipaddress.ip_address(address.host)


def from_ip(address: IpAddress, like: CmAddress) -> CmAddress:
    """Return it as an address with the port of another one."""
    family = CmFamily.IPV4 if address.version == 4 else CmFamily.IPV6
    scope = like.scope_id if address.version == 6 else 0
    return CmAddress(family, address.packed, like.ip_port, scope)


def _is_ipv6_loopback(address: CmAddress) -> bool:
    return address.family == CmFamily.IPV6 and address.is_loopback


class HostAddresses:
    """The IP addresses behind which the device's GIDs stand. See ``CmHost``.

    ``changed`` is called when the device has a GID that ``is_known`` does not know yet: an address
    may be used before the device's event about it has been read.
    """

    def __init__(
        self,
        context: verbs.Context,
        is_known: Callable[[bytes], bool] = lambda _: True,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._context = context
        self._is_known = is_known
        self._changed = changed
        self._interfaces = BriefMemory[LocalInterface | None](_LATE)
        self._routes = BriefMemory[KernelRoute](_LATE)

    def entry_of(self, gid: bytes, index: int = 0) -> verbs.GidEntry | None:
        """Return the entry of a GID that belongs to an interface: to that of ``index``, or any."""
        for entry in self._context.query_gid_table():
            if entry.ndev_ifindex and bytes(entry.gid) == gid and index in (0, entry.ndev_ifindex):
                return entry
        return None

    def gids(self, port: int) -> list[bytes]:
        """Return the GIDs of a port that belong to interfaces, in the order of its table."""
        table = self._context.query_gid_table()
        return [bytes(each.gid) for each in table if each.ndev_ifindex and each.port_num == port]

    def route(
        self, destination: CmAddress, source: CmAddress | None, index: int = 0
    ) -> KernelRoute:
        """Return the kernel's route. Raises OSError.

        A link-local address leads by the interface of ``index``, or else of its scope; without a
        scope the kernel's tables choose one, as for Linux's rdma_cm (``addr6_resolve``).
        """
        index = (index or destination.scope_id) if destination.is_link_local else 0
        if source is not None and source.is_link_local:
            index = index or source.scope_id
        return self._routes.get(
            (destination.host, None if source is None else source.host, index),
            lambda: find_route(
                as_ip(destination), None if source is None else as_ip(source), index
            ),
        )

    def interface_of(self, address: CmAddress) -> LocalInterface | None:
        """Return the interface that has an address; its ``port`` is 0 without a device.

        The device has no GID for ::1, which is therefore reached by that of 127.0.0.1: in Linux
        a loopback address means the device's first GID, whatever its family (cma_bind_loopback).
        """
        if _is_ipv6_loopback(address):
            address = _LOOPBACK
        return self._interfaces.get(
            (address.gid, _scope(address)), lambda: self._find_interface(address)
        )

    def _find_interface(self, address: CmAddress) -> LocalInterface | None:
        entry = self.entry_of(address.gid, _scope(address)) or self._late_entry_of(address)
        if entry is None:
            return _interface_without_device(address)
        if not self._is_known(address.gid):
            self._changed()
        try:
            mtu = interface_mtu(socket.if_indextoname(entry.ndev_ifindex))
        except OSError:
            return None  # it has gone since
        return LocalInterface(
            port=entry.port_num, gid=bytes(entry.gid), mtu=mtu, index=entry.ndev_ifindex
        )

    def _late_entry_of(self, address: CmAddress) -> verbs.GidEntry | None:
        """The device reads a new address of the host a moment after it is there."""
        for _ in range(_LOOKS):
            if _interface_without_device(address) is None:
                return None
            time.sleep(_LATE / _LOOKS)
            entry = self.entry_of(address.gid, _scope(address))
            if entry is not None:
                return entry
        return None

    def reaches(self, local: CmAddress, peer: CmAddress, port: int) -> bool:
        """Whether ``local`` is an address of the port, and packets to ``peer`` leave by it."""
        interface = self.interface_of(local)
        if interface is None or interface.port != port:
            return False
        try:
            route = self.route(peer, local, interface.index)
            return route.is_local or route.interface == socket.if_indextoname(interface.index)
        except OSError:
            return False  # no route, or the interface has gone since

    def may_bind(self, port: int) -> bool:
        """Whether programs of this user may bind a port below 1024."""
        return may_bind(port)

    def route_error(self, source: CmAddress, destination: CmAddress) -> int:
        """Return the errno of the kernel's routes where none leads to an address, or 0."""
        try:
            self.route(destination, None if source.is_zero else source)
        except OSError as error:
            return error.errno or errno.ENETUNREACH
        return 0


def _scope(address: CmAddress) -> int:
    """The index of the interface that alone may have the address; 0: any."""
    return address.scope_id if address.is_link_local else 0


def may_bind(port: int) -> bool:
    """Whether programs of this user may bind a port below 1024."""
    if os.geteuid() == 0:
        return True
    try:
        with open(_UNPRIVILEGED, encoding="ascii") as file:
            return port >= int(file.read())
    except (OSError, ValueError):
        return False


def _interface_without_device(address: CmAddress) -> LocalInterface | None:
    """An address that the device lacks may still be one of the host's."""
    family = socket.AF_INET if address.family == CmFamily.IPV4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        try:
            scope = (0, address.scope_id) if family == socket.AF_INET6 else ()
            sock.bind((str(as_ip(address)), 0, *scope))
        except OSError:
            return None
    return LocalInterface(port=0, gid=bytes(16))


# ---- resolution --------------------------------------------------------------------------------


@dataclass
class _Pending:
    """A destination whose next hop has not answered yet."""

    request: ResolveAddress
    route: KernelRoute
    deadline: float
    look_at: float
    pause: float = 0.001


class AddressResolver:
    """Answers ResolveAddress by ``answer(identifier, found, errno)``."""

    def __init__(
        self, host: HostAddresses, answer: Callable[[int, AddressAnswer | None, int], None]
    ) -> None:
        self._host = host
        self._answer = answer
        self._pending: dict[int, _Pending] = {}

    def resolve(self, request: ResolveAddress, now: float) -> None:
        """Begin, and answer at once if the kernel knows the way."""
        source = None if request.source.is_zero else request.source
        try:
            route = self._host.route(request.destination, source)
        except OSError as error:
            self._answer(request.id, None, error.errno or errno.ENETUNREACH)
            return
        pending = _Pending(request, route, now + request.timeout_ms / 1000, now)
        if route.is_local or not route.has_neighbour or self._is_known(route):
            self._finish(pending)
            return
        _call_next_hop(route)
        self._pending[request.id] = pending

    def next_deadline(self) -> float | None:
        """Return when ``tick`` has something to do."""
        return min((each.look_at for each in self._pending.values()), default=None)

    def tick(self, now: float) -> None:
        """Look again for the next hops that have not answered."""
        for pending in [each for each in self._pending.values() if each.look_at <= now]:
            state = self._state(pending.route)
            if state.is_usable:
                self._finish(pending)
            elif now >= pending.deadline:
                self._fail(pending, errno.ETIMEDOUT)
            else:
                pending.pause = min(pending.pause * 2, 0.1)
                pending.look_at = min(now + pending.pause, pending.deadline)

    def _state(self, route: KernelRoute) -> NeighbourState:
        try:
            return find_neighbour(route.interface, route.next_hop)
        except OSError:
            return NeighbourState.FAILED

    def _is_known(self, route: KernelRoute) -> bool:
        return self._state(route).is_usable

    def _finish(self, pending: _Pending) -> None:
        self._pending.pop(pending.request.id, None)
        source = from_ip(pending.route.source, pending.request.source)
        destination = pending.request.destination
        interface = self._host.interface_of(source)
        if interface is None or not interface.port:
            self._answer(pending.request.id, None, errno.ENODEV)
            return
        found = AddressAnswer(
            source=source,
            interface=interface,
            destination_gid=interface.gid if _is_ipv6_loopback(destination) else destination.gid,
            hop_limit=_HOP_LIMIT,
        )
        self._answer(pending.request.id, found, 0)

    def _fail(self, pending: _Pending, error: int) -> None:
        del self._pending[pending.request.id]
        self._answer(pending.request.id, None, error)


def _call_next_hop(route: KernelRoute) -> None:
    """Have the kernel ask for the next hop's link address.

    An empty datagram to RoCE's port does that, and means nothing to whoever gets it.
    """
    family = socket.AF_INET if route.next_hop.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        try:
            if route.next_hop.version == 6:
                index = socket.if_nametoindex(route.interface)
                sock.sendto(b"", (str(route.next_hop), _ROCE_PORT, 0, index))
            else:
                sock.sendto(b"", (str(route.next_hop), _ROCE_PORT))
        except OSError:
            pass  # the deadline will say that nobody answers
