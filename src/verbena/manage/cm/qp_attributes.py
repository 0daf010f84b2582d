# SPDX-License-Identifier: Apache-2.0
"""The attributes with which a program brings its QP to INIT, RTR and RTS (INIT_QP_ATTR).

``RdmaCm.qp_attributes`` calls these. The mask says which attributes count, with ibverbs' bits; the
address has GIDs, and the program's side finds the index of the source's in its own table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum, IntFlag

from ..cm_messages import CmTransport
from ..codes import quick_members
from .connection import CmConnection
from .machine import CmState
from .refusals import CmError, CmRefusal
from .routes import CmDevice, MadAddress

__all__ = ["QpAccess", "QpAttributes", "QpMask", "QpTarget", "connection_attributes"]


@quick_members
class QpTarget(IntEnum):
    """States of a QP for which there are attributes, with ibverbs' numbers."""

    INIT = 1
    RTR = 2
    RTS = 3


@quick_members
class QpAccess(IntFlag):
    """What the peer may do with the QP's memory, with ibverbs' bits."""

    REMOTE_WRITE = 2
    REMOTE_READ = 4
    REMOTE_ATOMIC = 8


@quick_members
class QpMask(IntFlag):
    """Which attributes count, with ibverbs' bits."""

    STATE = 1
    ACCESS_FLAGS = 8
    PKEY_INDEX = 0x10
    PORT = 0x20
    QKEY = 0x40
    AV = 0x80
    PATH_MTU = 0x100
    TIMEOUT = 0x200
    RETRY_CNT = 0x400
    RNR_RETRY = 0x800
    RQ_PSN = 0x1000
    MAX_QP_RD_ATOMIC = 0x2000
    MIN_RNR_TIMER = 0x8000
    SQ_PSN = 0x10000
    MAX_DEST_RD_ATOMIC = 0x20000
    DEST_QPN = 0x100000


@dataclass(slots=True, unsafe_hash=True)
class QpAttributes:
    """ib_uverbs_qp_attr, as far as the connection manager knows it; the rest is 0.

    ``rq_psn`` is the first PSN that this QP expects, ``sq_psn`` the first that it sends; see
    ``connection_attributes``. ``access`` are bits of ``QpAccess``.
    """

    mask: QpMask
    state: int
    path_mtu: int = 0
    qkey: int = 0
    rq_psn: int = 0
    sq_psn: int = 0
    dest_qpn: int = 0
    access: int = 0
    address: MadAddress | None = None
    pkey_index: int = 0
    max_rd_atomic: int = 0
    max_dest_rd_atomic: int = 0
    min_rnr_timer: int = 0
    port: int = 0
    timeout: int = 0
    retry_count: int = 0
    rnr_retry: int = 0

    def with_timeout(self, code: int) -> QpAttributes:
        """Return a copy with another ACK timeout, a time code."""
        return replace(self, timeout=code)


_CONNECTING = {CmState.REQ_SENT, CmState.MRA_REQ_RECEIVED}
_KNOWN = {
    *(CmState.REQ_RECEIVED, CmState.MRA_REQ_SENT, CmState.REP_SENT, CmState.MRA_REP_RECEIVED),
    *(CmState.REP_RECEIVED, CmState.MRA_REP_SENT, CmState.ESTABLISHED),
}
_INIT = QpMask.STATE | QpMask.ACCESS_FLAGS | QpMask.PKEY_INDEX | QpMask.PORT
_RTR = QpMask.STATE | QpMask.AV | QpMask.PATH_MTU | QpMask.DEST_QPN | QpMask.RQ_PSN
_RTR_RESPONDER = _RTR | QpMask.MAX_DEST_RD_ATOMIC | QpMask.MIN_RNR_TIMER
_RTS = QpMask.STATE | QpMask.SQ_PSN
_RTS_TARGET = _RTS | QpMask.TIMEOUT
_RTS_REQUESTER = _RTS_TARGET | QpMask.RETRY_CNT | QpMask.RNR_RETRY | QpMask.MAX_QP_RD_ATOMIC
_WRITE_ACCESS = int(QpAccess.REMOTE_WRITE)
_EVERY_ACCESS = int(QpAccess.REMOTE_WRITE | QpAccess.REMOTE_READ | QpAccess.REMOTE_ATOMIC)


def connection_attributes(
    connection: CmConnection, device: CmDevice, target: int, own_psn: int
) -> QpAttributes:
    """Return the attributes of a connection's QP. Raises CmError.

    A starting PSN is the one with which the *peer* begins to send (IBA 12.7.22), so ``rq_psn`` is
    this side's starting PSN and ``sq_psn`` the peer's.
    """
    state = connection.state
    if not 1 <= target <= 3:
        raise CmError(CmRefusal.QP_STATE)
    if state not in _KNOWN and not (target == 1 and state in _CONNECTING):
        raise CmError(CmRefusal.QP_TOO_EARLY)
    if target == 1:
        return _init(connection, device)
    return _rtr(connection, own_psn) if target == 2 else _rts(connection)


def _init(connection: CmConnection, device: CmDevice) -> QpAttributes:
    route = connection.route
    assert route is not None
    port = device.port(route.port)
    return QpAttributes(
        _INIT,
        QpTarget.INIT,
        access=_EVERY_ACCESS if connection.responder_resources else _WRITE_ACCESS,
        pkey_index=(port.p_key_index(route.p_key) or 0) if port is not None else 0,
        port=route.port,
    )


def _is_target(connection: CmConnection) -> bool:
    """Whether it is the side of XRC that receives."""
    return connection.transport is CmTransport.EXTENDED and connection.is_passive


def _rtr(connection: CmConnection, own_psn: int) -> QpAttributes:
    route = connection.route
    assert route is not None
    responds = connection.transport is CmTransport.RC or _is_target(connection)
    return QpAttributes(
        _RTR_RESPONDER if responds else _RTR,
        QpTarget.RTR,
        address=connection.to,
        path_mtu=route.mtu,
        dest_qpn=connection.remote_qpn,
        rq_psn=own_psn,
        max_dest_rd_atomic=connection.responder_resources if responds else 0,
    )


def _rts(connection: CmConnection) -> QpAttributes:
    psn = connection.remote_psn
    transport = connection.transport
    if transport is not CmTransport.RC and transport is not CmTransport.EXTENDED:
        return QpAttributes(_RTS, QpTarget.RTS, sq_psn=psn)
    timeout = connection.ack_timeout
    if _is_target(connection):
        return QpAttributes(_RTS_TARGET, QpTarget.RTS, sq_psn=psn, timeout=timeout)
    return QpAttributes(
        _RTS_REQUESTER,
        QpTarget.RTS,
        sq_psn=psn,
        timeout=timeout,
        retry_count=connection.retry_count,
        rnr_retry=connection.rnr_retry_count,
        max_rd_atomic=connection.initiator_depth,
    )
