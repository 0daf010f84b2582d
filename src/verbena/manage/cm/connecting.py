# SPDX-License-Identifier: Apache-2.0
"""The part of ``RdmaCm`` that connects: calls to the connection manager, and its events' meaning.

``settle`` takes the events of ``InfinibandCm`` and makes those of rdma_cm; it runs after each input
and before anything is taken, so no caller sees half of a change. ``RdmaCm`` is the only caller.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ..cm_messages import CmRej, CmRep, CmReq, CmTransport, SidrRep, SidrReq
from ..ip_cm import IP_CM_HEADER_BYTES
from .addresses import CmAddress, CmFamily
from .bindings import BindingTable
from .connection import CmAccept, CmConnect, CmConnection
from .groups import agreed_qkey
from .host import CmHost, LocalInterface
from .id_table import IdTable
from .identifier import IdInput, IdState, QpKind, RdmaId
from .infiniband_cm import InfinibandCm
from .machine import CmEvent, CmEventKind
from .qp_attributes import QpAttributes, QpMask, QpTarget, connection_attributes
from .rdma_events import (
    RdmaConnectionParameters,
    RdmaDatagramParameters,
    RdmaEvent,
    RdmaEventKind,
)
from .refusals import CmError, CmRefusal
from .resolution import CmResolution, SidrQuestion
from .routes import MadAddress

__all__ = ["Connecting"]

_REQ_BYTES, _SIDR_REQ_BYTES = 92, 216
_REASONS = (28, 35)  # with which a program may reject
_COMM_ESTABLISHED = 4  # IBV_EVENT_COMM_EST
_HEADER = struct.Struct(">BBH16s16s")  # IpCmHeader's, for which a record takes 5 µs longer
_INIT_UD = QpMask.STATE | QpMask.PKEY_INDEX | QpMask.PORT | QpMask.QKEY
_INIT = QpMask.STATE | QpMask.PKEY_INDEX | QpMask.PORT | QpMask.ACCESS_FLAGS
_NOTHING = RdmaConnectionParameters(retry_count=0, rnr_retry_count=0)
_TRANSPORTS: dict[int, tuple[CmTransport, int]] = {
    QpKind.RC: (CmTransport.RC, 0),
    QpKind.UC: (CmTransport.UC, 0),
    QpKind.XRC_SEND: (CmTransport.EXTENDED, 1),
}
_KINDS = {CmTransport.EXTENDED: QpKind.XRC_RECV, CmTransport.UC: QpKind.UC}


def _kind_of(req: CmReq) -> QpKind:
    """Return the kind of the QP that a REQ wants to meet."""
    return _KINDS.get(req.transport, QpKind.RC)


class Connecting:
    """See the module."""

    def __init__(
        self, table: IdTable, cm: InfinibandCm, bindings: BindingTable, host: CmHost
    ) -> None:
        self._table = table
        self._cm = cm
        self._bindings = bindings
        self._host = host
        self._handlers: dict[CmEventKind, Callable[[RdmaId, CmEvent], None]] = {
            CmEventKind.REP_RECEIVED: self._on_rep,
            CmEventKind.RTU_RECEIVED: self._on_established,
            CmEventKind.COMM_ESTABLISHED: self._on_established,
            CmEventKind.REJ_RECEIVED: self._on_rej,
            CmEventKind.REQ_ERROR: self._on_no_answer,
            CmEventKind.REP_ERROR: self._on_no_answer,
            CmEventKind.DREQ_RECEIVED: self._on_ended,
            CmEventKind.DREP_RECEIVED: self._on_ended,
            CmEventKind.DREQ_ERROR: self._on_ended,
            CmEventKind.TIMEWAIT_EXIT: self._on_timewait_exit,
            CmEventKind.SIDR_REP_RECEIVED: self._on_sidr_rep,
            CmEventKind.SIDR_REQ_ERROR: self._on_no_answer,
        }

    def settle(self) -> None:
        """Take every event of the connection manager."""
        cm = self._cm
        events = cm.events
        while cm.looped or events:
            if cm.looped:
                cm.deliver_looped()
            if not events:
                return
            event = events.popleft()
            if event.kind is CmEventKind.REQ_RECEIVED:
                self._on_req(event)
            elif event.kind is CmEventKind.SIDR_REQ_RECEIVED:
                self._on_sidr_req(event)
            else:
                of: RdmaId | None = event.subject.context
                if of is not None and self._table.ids.get(of.number) is of:
                    self._handlers[event.kind](of, event)

    # Calls.

    def connect(
        self, of: RdmaId, wanted: RdmaConnectionParameters, vendor_id: int, options: int
    ) -> None:
        after = of.next_state(IdInput.CONNECT)
        assert of.route is not None
        assert of.destination is not None
        private_data = self._with_header(of, wanted.private_data)
        most = _SIDR_REQ_BYTES if of.is_datagram else _REQ_BYTES
        if len(private_data) > most:
            raise CmError(CmRefusal.PRIVATE_DATA, f"{len(private_data)} of {most} bytes")
        service = of.destination.service_in(of.space)
        if of.is_datagram:
            question = SidrQuestion(service, of.route, private_data)
            of.resolution = self._cm.resolve(question)
            of.resolution.context = of
        else:
            transport, extended = _TRANSPORTS.get(of.qp_kind, (None, 0))
            if transport is None:
                raise CmError(CmRefusal.WRONG_STATE, f"QPs of kind {of.qp_kind} do not connect")
            # fmt: off
            of.connection = self._cm.connect(CmConnect(
                service, of.route, wanted.qpn & 0xFFFFFF, of.psn, transport, extended,
                wanted.responder_resources, wanted.initiator_depth, min(wanted.retry_count, 7),
                min(wanted.rnr_retry_count, 7), wanted.flow_control, wanted.srq, private_data,
                vendor_id, options,
            ))
            # fmt: on
            of.connection.context = of
        of.qpn, of.srq = wanted.qpn & 0xFFFFFF, wanted.srq
        of.state = after

    def accept(
        self,
        of: RdmaId,
        answer: RdmaConnectionParameters | None,
        vendor_id: int,
        options: int,
    ) -> None:
        """Accept; if that fails, reject as Linux does, and raise CmError."""
        of.next_state(IdInput.ACCEPT)
        if answer is not None:
            of.qpn, of.srq = answer.qpn & 0xFFFFFF, answer.srq
        try:
            if of.is_datagram:
                self._answer_sidr(of, answer)
            elif of.connection is None:
                raise CmError(CmRefusal.NO_CONNECTION)
            elif answer is None:
                of.connection.establish()
            else:
                self._send_rep(of, of.connection, answer, vendor_id, options)
        except CmError:
            with suppress(CmError):  # there may be nothing to reject
                self.reject(of, b"", 28)
            raise

    @staticmethod
    def _send_rep(
        of: RdmaId,
        connection: CmConnection,
        answer: RdmaConnectionParameters,
        vendor_id: int,
        options: int,
    ) -> None:
        # fmt: off
        connection.accept(CmAccept(
            of.qpn, of.psn, answer.responder_resources, answer.initiator_depth,
            min(answer.rnr_retry_count, 7), answer.flow_control, of.srq, answer.private_data,
            vendor_id, options,
        ))
        # fmt: on

    @staticmethod
    def _answer_sidr(of: RdmaId, answer: RdmaConnectionParameters | None) -> None:
        if of.resolution is None:
            raise CmError(CmRefusal.NO_CONNECTION)
        qkey = agreed_qkey(of, answer.qkey if answer is not None else 0)
        private_data = answer.private_data if answer is not None else b""
        of.resolution.answer(0, of.qpn, qkey, private_data)

    def reject(self, of: RdmaId, private_data: bytes, reason: int) -> None:
        reason = reason or 28
        if reason not in _REASONS:
            raise CmError(CmRefusal.REASON, f"reason {reason}")
        if of.is_datagram and of.resolution is not None:
            of.resolution.answer(2, 0, 0, private_data)
        elif of.connection is not None:
            of.connection.reject(reason, private_data)
        else:
            raise CmError(CmRefusal.NO_CONNECTION)

    @staticmethod
    def disconnect(of: RdmaId) -> None:
        if of.connection is None and of.resolution is None:
            raise CmError(CmRefusal.NO_CONNECTION)
        if of.connection is not None:
            with suppress(CmError):  # nothing to end: Linux returns 0
                of.connection.disconnect()

    @staticmethod
    def notify(of: RdmaId, event: int) -> None:
        if of.connection is None:
            raise CmError(CmRefusal.NO_CONNECTION)
        if event != _COMM_ESTABLISHED:
            raise CmError(CmRefusal.NOTIFICATION, f"event {event}")
        of.connection.notify_established()

    def end(self, of: RdmaId) -> None:
        """The identifier is being destroyed."""
        if of.service_id is not None:
            self._cm.unlisten(of.service_id)
        for machine in (of.connection, of.resolution):
            if machine is not None:
                machine.context = None
                machine.close()

    def qp_attributes(self, of: RdmaId, target: int) -> QpAttributes:
        """Return what INIT_QP_ATTR gives. Raises CmError.

        Before the exchange, and of UD, these are INIT's attributes whatever the state, as in Linux.
        """
        device = self._cm.device
        if of.connection is None or of.is_datagram:
            if of.interface is None or (port := device.port(of.interface.port)) is None:
                raise CmError(CmRefusal.NO_DEVICE_YET)
            if not 0 <= target <= 6:
                raise CmError(CmRefusal.QP_STATE)
            index = port.p_key_index(0xFFFF if port.is_ethernet else of.interface.p_key) or 0
            mask, qkey = (_INIT_UD, agreed_qkey(of, 0)) if of.is_datagram else (_INIT, 0)
            psn = of.psn if target == QpTarget.RTR else 0
            return QpAttributes(
                mask, target, qkey=qkey, rq_psn=psn, pkey_index=index, port=port.number
            )
        made = connection_attributes(of.connection, device, target, of.psn)
        if of.ack_timeout is not None and made.mask & QpMask.TIMEOUT:
            made = made.with_timeout(of.ack_timeout)
        return made

    # Events of a connection.

    def _tell(self, of: RdmaId, kind: RdmaEventKind, status: int = 0, **more: Any) -> None:
        self._table.report(of, RdmaEvent(kind, of.number, of.context, status, **more))

    def _on_rep(self, of: RdmaId, event: CmEvent) -> None:
        if of.state is not IdState.CONNECT:
            return
        rep: CmRep = event.message
        parameters = RdmaConnectionParameters(
            qpn=event.subject.remote_qpn,
            private_data=rep.private_data,
            responder_resources=rep.initiator_depth,
            initiator_depth=rep.responder_resources,
            flow_control=rep.end_to_end_flow_control,
            retry_count=0,
            rnr_retry_count=rep.rnr_retry_count,
            srq=rep.srq,
        )
        vendor = rep.vendor_id_high << 16 | rep.vendor_id_middle << 8 | rep.vendor_id_low
        self._tell(
            of,
            RdmaEventKind.CONNECT_RESPONSE,
            connection=parameters,
            vendor_id=vendor,
            options=event.modifier,
        )

    def _on_established(self, of: RdmaId, event: CmEvent) -> None:
        if of.state is IdState.CONNECT:
            self._tell(of, RdmaEventKind.ESTABLISHED, connection=_NOTHING)

    def _on_rej(self, of: RdmaId, event: CmEvent) -> None:
        if of.state is not IdState.CONNECT:
            return
        rej: CmRej = event.message
        parameters = replace(_NOTHING, private_data=rej.private_data)
        self._tell(of, RdmaEventKind.REJECTED, int(rej.reason), connection=parameters)

    def _on_no_answer(self, of: RdmaId, event: CmEvent) -> None:
        if of.state is IdState.CONNECT:
            self._tell(of, RdmaEventKind.UNREACHABLE, -errno.ETIMEDOUT)

    def _on_ended(self, of: RdmaId, event: CmEvent) -> None:
        if of.state is not IdState.CONNECT:
            return
        of.follow(IdInput.ENDED)
        status = -errno.ETIMEDOUT if event.kind is CmEventKind.DREQ_ERROR else 0
        self._tell(of, RdmaEventKind.DISCONNECTED, status)

    def _on_timewait_exit(self, of: RdmaId, event: CmEvent) -> None:
        if of.state is IdState.DISCONNECT:
            self._tell(of, RdmaEventKind.TIMEWAIT_EXIT)

    def _on_sidr_rep(self, of: RdmaId, event: CmEvent) -> None:
        if of.state is not IdState.CONNECT:
            return
        reply: SidrRep = event.message
        parameters = RdmaDatagramParameters(private_data=reply.private_data)
        if reply.status:
            status = int(reply.status)
            self._tell(of, RdmaEventKind.UNREACHABLE, status, datagram=parameters)
            return
        try:
            agreed_qkey(of, reply.qkey)
        except CmError as error:
            status = -(error.errno or errno.EINVAL)
            self._tell(of, RdmaEventKind.ADDR_ERROR, status, datagram=parameters)
            return
        to = of.route.address() if of.route is not None else None
        parameters = RdmaDatagramParameters(reply.private_data, reply.qpn, reply.qkey, to)
        self._tell(of, RdmaEventKind.ESTABLISHED, datagram=parameters)

    # Requests of peers.

    def _on_req(self, event: CmEvent) -> None:
        connection: CmConnection = event.subject
        req: CmReq = event.message
        assert connection.route is not None
        way_back = connection.route.address()
        found = self._listener(req.service_id, req.private_data, way_back)
        kind = _kind_of(req)
        if found is None or found[0].qp_kind not in (kind, QpKind.ANY):
            connection.close()  # REJ 28
            return
        listener, local, peer = found
        if not self._take_backlog(listener):
            connection.drop()
            connection.close()
            return
        made = self._new_id(listener, kind, local, peer)
        made.connection = connection
        made.route = connection.route
        connection.context = made
        made.interface = LocalInterface(
            connection.route.port, connection.route.sgid, p_key=connection.route.p_key
        )
        made.destination_gid = connection.route.dgid
        offset = 0 if listener.source.family == CmFamily.IB else IP_CM_HEADER_BYTES
        parameters = RdmaConnectionParameters(
            qpn=req.local_qpn,
            private_data=req.private_data[offset:],
            responder_resources=req.initiator_depth,
            initiator_depth=req.responder_resources,
            flow_control=req.end_to_end_flow_control,
            retry_count=req.retry_count,
            rnr_retry_count=req.rnr_retry_count,
            srq=req.srq,
        )
        self._request(
            listener,
            made,
            connection=parameters,
            vendor_id=req.vendor_id,
            options=event.modifier,
        )

    def _on_sidr_req(self, event: CmEvent) -> None:
        resolution: CmResolution = event.subject
        request: SidrReq = event.message
        assert resolution.to is not None
        found = self._listener(request.service_id, request.private_data, resolution.to)
        if found is None or found[0].qp_kind not in (QpKind.UD, QpKind.ANY):
            resolution.close()  # SIDR_REP 2
            return
        listener, local, peer = found
        if not self._take_backlog(listener):
            resolution.close()
            return
        made = self._new_id(listener, QpKind.UD, local, peer)
        made.resolution = resolution
        resolution.context = made
        made.interface = LocalInterface(resolution.to.port, resolution.to.sgid, p_key=request.p_key)
        made.destination_gid = resolution.to.dgid
        offset = 0 if listener.source.family == CmFamily.IB else IP_CM_HEADER_BYTES
        parameters = RdmaDatagramParameters(private_data=request.private_data[offset:])
        self._request(listener, made, datagram=parameters)

    def _request(self, listener: RdmaId, made: RdmaId, **more: Any) -> None:
        self._table.report(
            made,
            RdmaEvent(
                RdmaEventKind.CONNECT_REQUEST,
                made.number,
                listener.context,
                listener=listener.number,
                **more,
            ),
        )

    def _take_backlog(self, listener: RdmaId) -> bool:
        """Take one of the requests that may wait; the peer repeats one that finds no room."""
        if listener.backlog <= 0:
            self._table.note_reads(listener.channel)
        if listener.backlog > 0 and len(self._table.ids) < 65536:
            listener.backlog -= 1
            return True
        self._cm.counters.refused[CmRefusal.BACKLOG_FULL] += 1
        listener.turned_away += 1
        return False

    def _new_id(self, listener: RdmaId, kind: QpKind, local: CmAddress, peer: CmAddress) -> RdmaId:
        made = self._table.new_id(listener.channel, listener.space, kind, 0)
        made.source, made.destination = local, peer
        made.state = IdState.CONNECT
        return made

    def _listener(
        self, service: int, private_data: bytes, way_back: MadAddress
    ) -> tuple[RdmaId, CmAddress, CmAddress] | None:
        """Return who listens, and the local and the peer's address; None for a bad request.

        A header of another version is refused. One that names no IP version may be AF_IB's.
        """
        space, port = service >> 16 & 0xFFFF, service & 0xFFFF
        holders = [
            holder
            for holder in self._bindings.holders(space, port)
            if isinstance(holder, RdmaId) and holder.is_listening
        ]
        addresses = _header_addresses(private_data, port)
        if addresses is not None:
            local, peer = addresses
            for holder in holders:
                if holder.source.family != CmFamily.IB and _takes(holder, local):
                    reaches = self._host.reaches(local, peer, way_back.port)
                    return (holder, local, peer) if reaches else None
        for holder in holders:
            if holder.source.family == CmFamily.IB:
                local = CmAddress.ib(way_back.sgid, service)
                return holder, local, CmAddress.ib(way_back.dgid)
        return None

    # Names.

    @staticmethod
    def _with_header(of: RdmaId, private_data: bytes) -> bytes:
        """Return the private data behind the header of the RDMA IP CM; AF_IB has none."""
        if of.source.family == CmFamily.IB:
            return private_data
        assert of.destination is not None
        source, destination = of.source, of.destination
        version = 0x40 if source.family == CmFamily.IPV4 else 0x60
        hosts = source.host.rjust(16, b"\0"), destination.host.rjust(16, b"\0")
        return _HEADER.pack(0, version, source.port, *hosts) + private_data


def _header_addresses(private_data: bytes, port: int) -> tuple[CmAddress, CmAddress] | None:
    """Return the local and the peer's address of a request's IpCmHeader.

    None: it is of another version, or names no IP version.
    """
    versions, ip_version, source_port, source, destination = _HEADER.unpack_from(private_data)
    ip_version >>= 4
    if versions or ip_version not in (4, 6):
        return None
    family, skipped = (CmFamily.IPV4, 12) if ip_version == 4 else (CmFamily.IPV6, 0)
    local = CmAddress(family, destination[skipped:], port)
    return local, CmAddress(family, source[skipped:], source_port)


def _takes(listener: RdmaId, local: CmAddress) -> bool:
    """Whether a listener takes requests for a local IP address (cma_match_private_data)."""
    source = listener.source
    if source.is_any and not listener.af_only:
        return True
    if source.family != local.family:
        return False
    return source.is_any or source.host == local.host
