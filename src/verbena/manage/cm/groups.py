# SPDX-License-Identifier: Apache-2.0
"""The part of ``RdmaCm`` that joins multicast groups: MGIDs, requests to the system, and events.

On RoCE v2 the MGID is the mapped IPv4 address and nobody is asked; on InfiniBand it is IPoIB's
mapping, and subnet administration makes or joins the group. ``RdmaCm`` is the only caller.
"""

from __future__ import annotations

import errno

from ..ip_cm import UDP_PORT_SPACE_QKEY, PortSpace
from ..sa_query import SaQuery
from ..sa_records import JoinState, McMemberRecord
from .addresses import CmAddress, CmFamily
from .host import CmRequest, JoinGroup, LeaveGroup
from .id_table import IdTable
from .identifier import GroupMember, IdInput, IdState, RdmaId
from .infiniband_cm import InfinibandCm
from .rdma_events import RdmaDatagramParameters, RdmaEvent, RdmaEventKind
from .refusals import CmError, CmRefusal
from .routes import CmPort, MadAddress

__all__ = ["Groups", "agreed_qkey", "infiniband_mgid", "roce_mgid"]

_MULTICAST_QPN = 0xFFFFFF
_ROCE_HOP_LIMIT = 64
_JOIN_STATES = {0: JoinState.FULL, 1: JoinState.SEND_ONLY_FULL}
_RDMA_CM_SIGNATURE = 0x4001  # instead of IPoIB's 0x401b and 0x601b, for the port space UDP


def roce_mgid(address: CmAddress) -> bytes:
    """Return the MGID of a group on RoCE v2: ::ffff:a.b.c.d. Raises CmError for IPv6."""
    if address.is_zero:
        raise CmError(CmRefusal.JOIN_ADDRESS)
    if address.family != CmFamily.IPV4:
        raise CmError(CmRefusal.JOIN_IPV6, str(address))
    return address.gid


def infiniband_mgid(address: CmAddress, broadcast: bytes, space: int) -> bytes:
    """Return the MGID of a group on InfiniBand (RFC 4391, and rdma_cm's signature for UDP).

    ``broadcast`` is the MGID of IPoIB's broadcast group, whose scope and P_Key count. A wildcard is
    the MGID 0: the SA chooses one.
    """
    if address.is_any:
        return bytes(16)
    host = address.host
    is_assigned = host[:1] == b"\xff" and host[1] & 0xF0 == 0x10 and host[2:4] == b"\xa0\x1b"
    if address.family == CmFamily.IB or (address.family == CmFamily.IPV6 and is_assigned):
        return host
    scope = bytes([0xFF, 0x10 | broadcast[1] & 0x0F])
    if address.family == CmFamily.IPV4:
        signature, group = b"\x40\x1b", bytes(6) + bytes([host[0] & 0x0F]) + host[1:]
    else:
        signature, group = b"\x60\x1b", host[6:]
    if space == PortSpace.UDP:
        signature = signature[:1] + b"\x01"
    return scope + signature + broadcast[4:6] + group


def agreed_qkey(of: RdmaId, wanted: int) -> int:
    """Set the identifier's Q_Key and return it; 0 means the default. Raises CmError if it differs.

    The default is that of the port space, and of IPoIB that of the broadcast group.
    """
    if not wanted:
        if not of.qkey:
            of.qkey = UDP_PORT_SPACE_QKEY
            if of.space == PortSpace.IPOIB and of.interface is not None:
                of.qkey = of.interface.broadcast_qkey
        return of.qkey
    if of.qkey and of.qkey != wanted:
        raise CmError(CmRefusal.QKEY, f"{wanted:#x} after {of.qkey:#x}")
    of.qkey = wanted
    return wanted


class Groups:
    """See the module. ``requests`` is where joins are put."""

    def __init__(self, table: IdTable, cm: InfinibandCm, requests: list[CmRequest]) -> None:
        self._table = table
        self._cm = cm
        self._requests = requests

    def join(self, of: RdmaId, address: CmAddress, context: int, flags: int) -> int:
        """Begin a join and return the handle. Raises CmError."""
        if flags not in _JOIN_STATES:
            raise CmError(CmRefusal.JOIN_FLAGS)
        of.next_state(IdInput.JOIN)
        if not of.is_datagram:
            raise CmError(CmRefusal.NOT_DATAGRAM)
        port = None if of.interface is None else self._cm.device.port(of.interface.port)
        if port is None:
            raise CmError(CmRefusal.NO_DEVICE_YET)
        mgid = self._mgid(of, address, port)
        handle = self._table.number("group")
        request = self._request(of, handle, port, mgid, _JOIN_STATES[flags])
        member = GroupMember(handle, of.number, context, address, request)
        self._table.groups[handle] = member
        of.groups.append(member)
        self._requests.append(request)
        return handle

    def joined(self, handle: int, answer: McMemberRecord | int) -> None:
        """The system has answered; one that nobody waits for is ignored."""
        member = self._table.groups.get(handle)
        if member is None or member.is_joined:
            return
        of = self._table.ids[member.id]
        if of.state not in (IdState.ADDR_BOUND, IdState.ADDR_RESOLVED):
            return
        record = answer if isinstance(answer, McMemberRecord) else None
        status = 0 if isinstance(answer, McMemberRecord) else answer
        try:
            qkey = agreed_qkey(of, record.qkey if record is not None else 0)
        except CmError as error:
            status, qkey = -(error.errno or errno.EINVAL), 0
        parameters = RdmaDatagramParameters()
        if not status:
            member.is_joined = True
            to = self._address(of, member.request, record)
            parameters = RdmaDatagramParameters(b"", _MULTICAST_QPN, qkey, to)
        kind = RdmaEventKind.MULTICAST_ERROR if status else RdmaEventKind.MULTICAST_JOIN
        event = RdmaEvent(
            kind, of.number, member.context, status, datagram=parameters, group=handle
        )
        self._table.report(of, event)

    def lost(self, port: int) -> None:
        """Tell who has joined groups at a port that these memberships hold no more."""
        for handle, member in self._table.groups.items():
            if member.is_joined and member.request.port == port:
                of = self._table.ids[member.id]
                kind, status = RdmaEventKind.MULTICAST_ERROR, -errno.ENETRESET
                empty = RdmaDatagramParameters()
                self._table.report(
                    of,
                    RdmaEvent(
                        kind, of.number, member.context, status, datagram=empty, group=handle
                    ),
                )

    def leave(self, member: GroupMember) -> None:
        """Leave a group, joined or not."""
        self._table.purge_group(member.handle)
        of = self._table.ids[member.id]
        of.groups.remove(member)
        del self._table.groups[member.handle]
        self._table.give_back("group", member.handle)
        request = member.request
        self._requests.append(
            LeaveGroup(member.handle, request.port, request.mgid, request.sends_igmp)
        )

    @staticmethod
    def _mgid(of: RdmaId, address: CmAddress, port: CmPort) -> bytes:
        if port.is_ethernet:
            return roce_mgid(address)
        assert of.interface is not None
        return infiniband_mgid(address, of.interface.broadcast, of.space)

    @staticmethod
    def _request(
        of: RdmaId, handle: int, port: CmPort, mgid: bytes, join_state: JoinState
    ) -> JoinGroup:
        if port.is_ethernet:
            sends = join_state is JoinState.FULL
            return JoinGroup(handle, port.number, mgid, sends_igmp=sends)
        assert of.interface is not None
        query = SaQuery.of(
            McMemberRecord,
            mgid=mgid,
            port_gid=of.interface.gid,
            p_key=of.interface.p_key,
            join_state=join_state,
            qkey=agreed_qkey(of, 0),
            sl=0,
            flow_label=0,
            traffic_class=0,
        )
        return JoinGroup(handle, port.number, mgid, query, of.interface.broadcast)

    def _address(self, of: RdmaId, request: JoinGroup, record: McMemberRecord | None) -> MadAddress:
        """Return where the group's datagrams go."""
        assert of.interface is not None
        if record is None:
            return MadAddress(
                port=request.port,
                has_grh=True,
                sgid=of.interface.gid,
                dgid=request.mgid,
                hop_limit=_ROCE_HOP_LIMIT,
                traffic_class=of.tos or 0,
            )
        return MadAddress(
            port=request.port,
            has_grh=True,
            sgid=of.interface.gid,
            dgid=record.mgid,
            dlid=record.mlid,
            sl=record.sl,
            p_key=record.p_key,
            flow_label=record.flow_label,
            hop_limit=record.hop_limit,
            traffic_class=record.traffic_class,
        )
