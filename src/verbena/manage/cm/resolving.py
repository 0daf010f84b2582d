# SPDX-License-Identifier: Apache-2.0
"""The part of ``RdmaCm`` that finds addresses and paths: requests to the system, and their answers.

On RoCE a path is computed from the interface and needs no question; on InfiniBand subnet
administration is asked. ``RdmaCm`` has one of these and is its only caller.
"""

from __future__ import annotations

import errno
from dataclasses import replace
from functools import lru_cache

from ..codes import IbMtu
from ..ip_cm import PortSpace
from ..sa_query import SaQuery
from ..sa_records import PathRecord
from .addresses import CmAddress, CmFamily
from .host import AddressAnswer, CmHost, CmRequest, LocalInterface, QueryPath, ResolveAddress
from .id_table import IdTable
from .identifier import IdInput, IdState, RdmaId
from .infiniband_cm import InfinibandCm
from .rdma_events import RdmaEvent, RdmaEventKind
from .refusals import CmError, CmRefusal
from .routes import CmPort, CmRoute

__all__ = ["ROCE_OVERHEAD", "Resolving", "roce_flow_label", "roce_mtu"]

ROCE_OVERHEAD = 96  # bytes: GRH 40, UDP 8, BTH 12, XRC 4, atomic 28, ICRC 4
ROCE_PACKET_LIFE = 18  # time code; CMA_IBOE_PACKET_LIFETIME
_SPACES_OF_IB = {  # what a service ID of AF_IB may belong to, by the identifier's port space
    PortSpace.IB: (PortSpace.IB, PortSpace.TCP, PortSpace.UDP),
    PortSpace.TCP: (PortSpace.TCP,),
    PortSpace.UDP: (PortSpace.UDP,),
    PortSpace.IPOIB: (),
}


@lru_cache
def roce_mtu(mtu: int) -> IbMtu | None:
    """Return the largest payload that fits an interface's MTU, in bytes; None if none fits."""
    for code in (5, 4, 3, 2, 1):
        if IbMtu(code).payload <= mtu - ROCE_OVERHEAD:
            return IbMtu(code)
    return None


def roce_flow_label(source_port: int, destination_port: int) -> int:
    """Return the flow label that Linux gives a connection, from which the UDP port is made."""
    return (source_port * 31 + destination_port) & 0xFFFFF


class Resolving:
    """See the module. ``requests`` is where questions are put."""

    def __init__(self, table: IdTable, cm: InfinibandCm, requests: list[CmRequest]) -> None:
        self._table = table
        self._cm = cm
        self._requests = requests
        self._waiting: dict[int, RdmaId] = {}

    # Names.

    def interface_of(self, address: CmAddress, host: CmHost) -> LocalInterface:
        """Return the interface of a local address. Raises CmError."""
        if address.family == CmFamily.IB:
            port = self._cm.device.port_of_gid(address.host)
            if port is None or port.is_ethernet:  # rdma_cap_af_ib is InfiniBand's alone
                raise CmError(CmRefusal.NO_DEVICE, str(address))
            return LocalInterface(port.number, address.host, mtu=4096 + ROCE_OVERHEAD)
        found = host.interface_of(address)
        if found is None:
            raise CmError(CmRefusal.NOT_LOCAL, str(address))
        if not found.port:
            raise CmError(CmRefusal.NO_DEVICE, str(address))
        return found

    @staticmethod
    def port_space(of: RdmaId) -> int:
        """Return the port space in which an identifier has its port. Raises CmError.

        With AF_IB the service ID says it, as far as its mask does (cma_select_ib_ps).
        """
        if of.source.family != CmFamily.IB:
            return of.space
        mask = of.source.service_mask & ~0xFFFF
        wanted = of.source.service_id & mask
        for space in _SPACES_OF_IB[of.space]:
            if wanted == space << 16 & mask:
                sid = space << 16 | of.source.port
                full = (1 << 64) - 1 & ~0xFFFF | of.source.service_mask
                of.source = replace(of.source, service_id=sid, service_mask=full)
                return space
        raise CmError(CmRefusal.NOT_A_PORT_SPACE, str(of.source))

    @staticmethod
    def wildcard_for(destination: CmAddress) -> CmAddress:
        """Return the source of an identifier that was not bound."""
        made = CmAddress.wildcard(destination.family)
        if destination.family == CmFamily.IB:
            return replace(made, p_key=destination.p_key)
        return replace(made, scope_id=destination.scope_id) if destination.scope_id else made

    # Addresses.

    def resolve_address(
        self, asked: RdmaId, destination: CmAddress, timeout_ms: int, host: CmHost
    ) -> None:
        """Ask for a destination. Raises CmError, also if no route leads there (rdma_resolve_ip)."""
        after = asked.next_state(IdInput.RESOLVE_ADDRESS)
        if destination.family == CmFamily.IB:
            answer = self._ib_answer(asked, destination)
            asked.state = after
            self.address_resolved(asked.number, answer)
            return
        code = 0 if destination.is_any else host.route_error(asked.source, destination)
        if code:
            raise CmError(CmRefusal.NO_ROUTE, str(destination), code)
        asked.state = after
        self._wait(asked, timeout_ms)
        self._requests.append(ResolveAddress(asked.number, asked.source, destination, timeout_ms))

    def address_resolved(self, number: int, answer: AddressAnswer | int) -> None:
        asked = self._table.ids.get(number)
        if asked is None or asked.state is not IdState.ADDR_QUERY:
            return  # destroyed, or timed out
        self._done(asked)
        if isinstance(answer, AddressAnswer) and not answer.interface.port:
            answer = errno.ENODEV
        if not isinstance(answer, AddressAnswer):
            asked.follow(IdInput.ADDRESS_FAILED)
            self._report(asked, RdmaEventKind.ADDR_ERROR, -abs(answer))
            return
        asked.source = answer.source.with_port(asked.source.port)
        asked.interface = answer.interface
        asked.destination_gid = answer.destination_gid
        asked.hop_limit = answer.hop_limit
        asked.follow(IdInput.ADDRESS_FOUND)
        self._report(asked, RdmaEventKind.ADDR_RESOLVED)

    def _ib_answer(self, asked: RdmaId, destination: CmAddress) -> AddressAnswer:
        """Find the port for a GID: the one that has it, or one of its subnet. Raises CmError."""
        device, wanted = self._cm.device, destination.host
        p_key = destination.p_key or 0xFFFF
        if destination.is_any and device.ports and device.ports[0].gids:
            wanted = device.ports[0].gids[0]
        for length in (16, 8):
            for port in (each for each in device.ports if not each.is_ethernet):
                for gid in port.gids:
                    if gid[:length] == wanted[:length] and port.p_key_index(p_key) is not None:
                        local = LocalInterface(port.number, gid, 4096 + ROCE_OVERHEAD, 0, p_key)
                        source = replace(asked.source, host=gid)
                        return AddressAnswer(source, local, wanted, hop_limit=1)
        raise CmError(CmRefusal.NO_DEVICE, str(destination))

    # Routes.

    def resolve_route(self, asked: RdmaId, timeout_ms: int) -> None:
        if not timeout_ms:
            raise CmError(CmRefusal.NO_TIMEOUT)
        after = asked.next_state(IdInput.RESOLVE_ROUTE)
        port = self._port(asked)
        if port.is_ethernet:
            route = self._roce_route(asked)
            asked.state = after
            self._found(asked, route)
            return
        asked.state = after
        self._wait(asked, timeout_ms)
        self._requests.append(self._path_query(asked, port, timeout_ms))

    def path_resolved(self, number: int, answer: PathRecord | int) -> None:
        asked = self._table.ids.get(number)
        if asked is None or asked.state is not IdState.ROUTE_QUERY:
            return
        self._done(asked)
        if isinstance(answer, PathRecord):
            self._found(asked, self._ib_route(asked, answer))
            return
        asked.follow(IdInput.ROUTE_FAILED)
        self._report(asked, RdmaEventKind.ROUTE_ERROR, answer)

    def set_path(self, asked: RdmaId, path: PathRecord) -> None:
        """Take the path that a program gives (RDMA_OPTION_IB_PATH). Raises CmError."""
        asked.next_state(IdInput.SET_PATH)
        asked.route = self._ib_route(asked, path)
        asked.follow(IdInput.SET_PATH)
        self._report(asked, RdmaEventKind.ROUTE_RESOLVED)

    def _found(self, asked: RdmaId, route: CmRoute) -> None:
        asked.route = route
        asked.follow(IdInput.ROUTE_FOUND)
        self._report(asked, RdmaEventKind.ROUTE_RESOLVED)

    def _port(self, asked: RdmaId) -> CmPort:
        port = None if asked.interface is None else self._cm.device.port(asked.interface.port)
        if port is None:
            raise CmError(CmRefusal.NO_DEVICE, f"identifier {asked.number}")
        return port

    def _roce_route(self, asked: RdmaId) -> CmRoute:
        """Return the path that cma_resolve_iboe_route makes."""
        interface, destination = asked.interface, asked.destination
        assert interface is not None
        assert destination is not None
        mtu = roce_mtu(interface.mtu)
        if mtu is None:
            raise CmError(CmRefusal.VALUE, f"an MTU of {interface.mtu} bytes has no room")
        label = 0
        if destination.family == CmFamily.IPV6:
            label = destination.flow_info & 0xFFFFF
        life = ROCE_PACKET_LIFE if asked.ack_timeout is None else max(asked.ack_timeout - 1, 0)
        return CmRoute(
            sgid=interface.gid,
            dgid=asked.destination_gid,
            port=interface.port,
            flow_label=label or roce_flow_label(asked.source.port, destination.port),
            traffic_class=asked.tos or 0,
            hop_limit=asked.hop_limit,
            mtu=mtu,
            packet_life=life,
        )

    def _path_query(self, asked: RdmaId, port: CmPort, timeout_ms: int) -> QueryPath:
        """Return the question of cma_query_ib_route."""
        interface, destination = asked.interface, asked.destination
        assert interface is not None
        assert destination is not None
        if destination.family == CmFamily.IPV4:
            quality = {"qos_class": asked.tos or 0}
        else:
            quality = {"traffic_class": asked.source.flow_info >> 20 & 0xFF}
        query = SaQuery.of(
            PathRecord,
            dgid=asked.destination_gid,
            sgid=interface.gid,
            p_key=interface.p_key,
            numb_path=1,
            reversible=True,
            service_id=destination.service_in(asked.space),
            **quality,
        )
        return QueryPath(asked.number, port.number, query, timeout_ms)

    def _ib_route(self, asked: RdmaId, path: PathRecord) -> CmRoute:
        port = self._port(asked)
        life = path.packet_life_time
        return CmRoute(
            sgid=path.sgid,
            dgid=path.dgid,
            port=port.number,
            is_ethernet=port.is_ethernet,
            slid=path.slid,
            dlid=path.dlid,
            flow_label=path.flow_label,
            traffic_class=path.traffic_class,
            hop_limit=path.hop_limit,
            sl=path.sl,
            rate=path.rate,
            mtu=path.mtu,
            p_key=path.p_key,
            packet_life=life & 0x1F,
        )

    # Waits.

    def _wait(self, asked: RdmaId, timeout_ms: int) -> None:
        asked.deadline = self._cm.now + timeout_ms / 1000
        self._waiting[asked.number] = asked

    def _done(self, asked: RdmaId) -> None:
        asked.deadline = None
        self._waiting.pop(asked.number, None)

    def next_deadline(self) -> float | None:
        """Return when a question has waited too long, or None."""
        self._forget_gone()
        return min(
            (each.deadline for each in self._waiting.values() if each.deadline), default=None
        )

    def expire(self, now: float) -> None:
        """Report what was not answered in time."""
        self._forget_gone()
        for each in list(self._waiting.values()):
            if each.deadline is not None and each.deadline <= now:
                if each.state is IdState.ADDR_QUERY:
                    self.address_resolved(each.number, errno.ETIMEDOUT)
                else:
                    self.path_resolved(each.number, -errno.ETIMEDOUT)

    def _forget_gone(self) -> None:
        for number, each in list(self._waiting.items()):
            if self._table.ids.get(number) is not each:
                del self._waiting[number]

    def _report(self, of: RdmaId, kind: RdmaEventKind, status: int = 0) -> None:
        self._table.report(of, RdmaEvent(kind, of.number, of.context, status))
