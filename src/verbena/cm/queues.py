# SPDX-License-Identifier: Apache-2.0
"""Queue pairs of connections: made with good defaults, or from what the caller gives.

``Queues`` owns what it has made and closes that alone. ``bring_to`` applies the attributes that the
connection manager has for a state, as librdmacm does.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, TypedDict

from verbena.aio import AsyncCQ, AsyncQP
from verbena.verbs import (
    AH,
    CQ,
    PD,
    QP,
    SRQ,
    AHAttr,
    Context,
    QPCap,
    QPState,
    QPType,
    VerbsError,
)

from .program_abi import AddressVector, ProgramAttributes

__all__ = ["QueueAccess", "QueueOptions", "Queues", "bring_to", "make_ah", "make_queues"]


class QueueOptions(TypedDict, total=False):
    """Keywords for the queue pair of a connection; each may be left out.

    ``qp`` is a queue pair of the caller's, in RESET. Otherwise one is made in ``pd`` (default: one
    that all connections of the loop, or of the listener, share), which completes to ``cq`` and
    ``recv_cq`` (default: a CQ of its own; with asyncio an AsyncCQ) and takes its receives from
    ``srq`` if that is given. ``cap`` says how much its queues hold: 128 requests of 4 SGEs, and 64
    bytes of inline data. ``prepare`` is called with the queue pair in INIT, before the peer can
    send: the place to post receives.
    """

    qp: QP | None
    pd: PD | None
    cq: CQ | AsyncCQ | None
    recv_cq: CQ | AsyncCQ | None
    srq: SRQ | None
    cap: QPCap | None
    prepare: Callable[[QP], object] | None


DEFAULT_CAP = QPCap(
    max_send_wr=128, max_recv_wr=128, max_send_sge=4, max_recv_sge=4, max_inline_data=64
)


class Queues:
    """A queue pair with its CQs."""

    def __init__(self, qp: QP, is_own: bool, acq: AsyncCQ | None, aqp: AsyncQP | None) -> None:
        self.qp = qp
        self._acq = acq
        self._aqp = aqp
        self._is_own = is_own
        self._made: list[Any] = []

    @property
    def acq(self) -> AsyncCQ:
        """The AsyncCQ of its sends. Raises VerbsError if there is none."""
        if self._acq is None:
            raise _not_async()
        return self._acq

    @property
    def aqp(self) -> AsyncQP:
        """Its AsyncQP. Raises VerbsError if there is none."""
        if self._aqp is None:
            raise _not_async()
        return self._aqp

    def to_error(self) -> None:
        """Have the requests that are left complete with an error, as a disconnect does."""
        if not self.qp.closed and self.qp.state not in (QPState.RESET, QPState.ERR):
            self.qp.modify(qp_state=QPState.ERR)

    def close(self) -> None:
        """Close what was made here. A queue pair of the caller's goes to ERR."""
        if self._is_own:
            self.qp.close()
        elif self.qp.qp_type != QPType.UD:
            self.to_error()
        while self._made:
            self._made.pop().close()


def _not_async() -> VerbsError:
    return VerbsError(
        errno.EINVAL,
        "there is no AsyncQP without asyncio, and none for a queue pair or a CQ of the caller's:"
        " give cq=aio.AsyncCQ(...), or make an AsyncQP",
    )


class QueueAccess:
    """What a connection and a datagram service show of their queues."""

    _queues: Queues
    pd: PD

    @property
    def qp(self) -> QP:
        """Its own queue pair."""
        return self._queues.qp

    @property
    def cq(self) -> CQ:
        """The CQ of its sends, and of its receives unless ``recv_cq`` was given."""
        return self._queues.qp.send_cq

    @property
    def context(self) -> Context:
        """The device of its queue pair."""
        return self.pd.context

    @property
    def acq(self) -> AsyncCQ:
        """Its CQ for await. Raises VerbsError if it has none."""
        return self._queues.acq

    @property
    def aqp(self) -> AsyncQP:
        """Its queue pair for await. Raises VerbsError if it has none."""
        return self._queues.aqp


def make_queues(
    context: Context, pd: PD, is_async: bool, qp_type: QPType, options: QueueOptions
) -> Queues:
    """Return the queues of a connection. Raises VerbsError, and leaves nothing behind then."""
    given = options.get("qp")
    if given is not None:
        return Queues(given, False, None, None)
    cap = options.get("cap") or DEFAULT_CAP
    made: list[Any] = []
    try:
        acq, cq = _choose_cq(context, options.get("cq"), is_async, cap, made)
        recv_acq, recv_cq = acq, cq
        if (wanted := options.get("recv_cq")) is not None:
            recv_acq, recv_cq = _choose_cq(context, wanted, is_async, cap, made)
        qp = pd.create_qp(
            send_cq=cq,
            recv_cq=recv_cq,
            qp_type=qp_type,
            srq=options.get("srq"),
            max_send_wr=cap.max_send_wr,
            max_recv_wr=cap.max_recv_wr,
            max_send_sge=cap.max_send_sge,
            max_recv_sge=cap.max_recv_sge,
            max_inline_data=cap.max_inline_data,
        )
    except BaseException:
        while made:
            made.pop().close()
        raise
    aqp = AsyncQP(qp, acq, recv_acq) if acq is not None and recv_acq is not None else None
    queues = Queues(qp, True, acq, aqp)
    queues._made = made
    return queues


def _choose_cq(
    context: Context, given: CQ | AsyncCQ | None, is_async: bool, cap: QPCap, made: list[Any]
) -> tuple[AsyncCQ | None, CQ]:
    """Return the CQ, and its AsyncCQ if there is one; add what was made to ``made``."""
    if isinstance(given, AsyncCQ):
        return given, given.cq
    if given is not None:
        return None, given
    channel = context.create_comp_channel()
    made.append(channel)
    cq = context.create_cq(cap.max_send_wr + cap.max_recv_wr, channel)
    made.append(cq)
    if not is_async:
        return None, cq
    acq = AsyncCQ(cq)
    made.append(acq)
    return acq, cq


# ---- attributes ----------------------------------------------------------------------------------

_NAMES = (
    (0x8, "qp_access_flags", "access"),
    (0x10, "pkey_index", "pkey_index"),
    (0x20, "port_num", "port"),
    (0x40, "qkey", "qkey"),
    (0x100, "path_mtu", "path_mtu"),
    (0x200, "timeout", "timeout"),
    (0x400, "retry_cnt", "retry_count"),
    (0x800, "rnr_retry", "rnr_retry"),
    (0x1000, "rq_psn", "rq_psn"),
    (0x2000, "max_rd_atomic", "max_rd_atomic"),
    (0x8000, "min_rnr_timer", "min_rnr_timer"),
    (0x10000, "sq_psn", "sq_psn"),
    (0x20000, "max_dest_rd_atomic", "max_dest_rd_atomic"),
    (0x100000, "dest_qp_num", "dest_qpn"),
)
_AV = 0x80


def bring_to(qp: QP, state: QPState, attributes: ProgramAttributes, others: dict[str, int]) -> None:
    """Modify a queue pair by the attributes that the connection manager has for a state.

    Those in ``others`` have the values there.
    """
    changes: dict[str, Any] = {
        name: getattr(attributes, field) for bit, name, field in _NAMES if attributes.mask & bit
    }
    if attributes.mask & _AV:
        changes["ah_attr"] = ah_attr(qp.context, attributes.address)
    qp.modify(qp_state=state, **(changes | others))


def ah_attr(context: Context, address: AddressVector) -> AHAttr:
    """Return an address for ibverbs, with the index that the GID has here."""
    return AHAttr(
        dgid=address.dgid,
        sgid_index=_gid_index(context, address),
        dlid=address.dlid,
        is_global=address.is_global,
        port_num=address.port,
        hop_limit=address.hop_limit,
        traffic_class=address.traffic_class,
        sl=address.sl,
        flow_label=address.flow_label,
        src_path_bits=address.src_path_bits,
        static_rate=address.static_rate,
    )


def make_ah(pd: PD, address: AddressVector) -> AH:
    """Return an address handle."""
    return pd.create_ah(ah_attr(pd.context, address))


def _gid_index(context: Context, address: AddressVector) -> int:
    if address.sgid is None:
        return address.sgid_index
    for entry in context.query_gid_table():
        if entry.port_num == address.port and bytes(entry.gid) == address.sgid:
            return entry.gid_index
    raise VerbsError(
        errno.ENODEV,
        "the address has gone, or is of an interface that this process's device lacks",
    )
