# SPDX-License-Identifier: Apache-2.0
"""A connection of the connection manager: its state machine as a table, and the table's actions.

``InfinibandCm`` makes connections and feeds them with messages and time; their owner calls
``accept``, ``establish``, ``reject``, ``delay``, ``disconnect`` and ``close``. Rules are IBA 12.9.7
and 12.9.8; where Linux's cm.c differs, a comment says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..cm_messages import (
    AprStatus,
    CmApr,
    CmDrep,
    CmDreq,
    CmLap,
    CmMra,
    CmRej,
    CmRep,
    CmReq,
    CmRtu,
    CmTransport,
    MraOf,
    RejOf,
    RejReason,
)
from ..errors import MadError
from .machine import CmEventKind, CmInput, CmMachine, CmState, cm_rules
from .quick_messages import quick_dreq, quick_plain, quick_rep, quick_req
from .refusals import CmError, CmRefusal
from .routes import CmDatagram, CmRoute, MadAddress
from .settings import ack_timeout_code, wait_seconds

__all__ = ["CONNECTION_RULES", "CmAccept", "CmConnect", "CmConnection"]

_S, _I = CmState, CmInput
_AWAIT_REP = (_S.REQ_SENT, _S.MRA_REQ_RECEIVED)
_ASKED = (_S.REQ_RECEIVED, _S.MRA_REQ_SENT)
_AWAIT_RTU = (_S.REP_SENT, _S.MRA_REP_RECEIVED)
_ANSWERED = (_S.REP_RECEIVED, _S.MRA_REP_SENT)

CONNECTION_RULES = cm_rules(
    [
        # The side that connects.
        (_S.IDLE, _I.CONNECT, "send_req", _S.REQ_SENT),
        (_AWAIT_REP, _I.RESEND, "resend", None),
        (_AWAIT_REP, _I.EXHAUSTED, "give_up_req", _S.IDLE),
        (_AWAIT_REP, _I.MRA_OF_REQ, "postpone", _S.MRA_REQ_RECEIVED),
        (_AWAIT_REP, _I.REP, "take_rep", _S.REP_RECEIVED),
        (_AWAIT_REP, _I.REJ, "take_rej", _S.IDLE),
        (_AWAIT_REP, _I.REJ_STALE, "take_rej", _S.TIMEWAIT),
        (_AWAIT_REP, _I.REJECT, "send_rej", _S.IDLE),
        (_AWAIT_REP, _I.CLOSE, "send_rej_timeout", _S.IDLE),
        (_S.REP_RECEIVED, _I.THINKING, "send_mra_of_rep", _S.MRA_REP_SENT),
        (_ANSWERED, _I.REP, "repeat_mra_of_rep", _S.MRA_REP_SENT),
        (_ANSWERED, _I.DELAY, "send_mra_of_rep", _S.MRA_REP_SENT),
        (_ANSWERED, _I.ESTABLISH, "send_rtu", _S.ESTABLISHED),
        (_ANSWERED, _I.REJ, "take_rej", _S.TIMEWAIT),
        (_ANSWERED, _I.REJ_STALE, "take_rej", _S.TIMEWAIT),
        (_ANSWERED, _I.REJECT, "send_rej", _S.IDLE),
        (_ANSWERED, _I.CLOSE, "send_rej_consumer", _S.IDLE),
        # The side that listens.
        (_S.IDLE, _I.REQ, "take_req", _S.REQ_RECEIVED),
        (_S.REQ_RECEIVED, _I.THINKING, "send_mra_of_req", _S.MRA_REQ_SENT),
        (_ASKED, _I.REQ, "repeat_mra_of_req", _S.MRA_REQ_SENT),
        (_ASKED, _I.DELAY, "send_mra_of_req", _S.MRA_REQ_SENT),
        (_ASKED, _I.ACCEPT, "send_rep", _S.REP_SENT),
        (_ASKED, _I.REJ, "take_rej", _S.IDLE),
        (_ASKED, _I.REJ_STALE, "take_rej", _S.TIMEWAIT),
        (_ASKED, _I.REJECT, "send_rej", _S.IDLE),
        (_ASKED, _I.DROP, "end", _S.IDLE),
        (_ASKED, _I.CLOSE, "send_rej_consumer", _S.IDLE),
        (_AWAIT_RTU, _I.REQ, "count_duplicate", None),
        (_AWAIT_RTU, _I.RESEND, "resend", None),
        (_AWAIT_RTU, _I.EXHAUSTED, "give_up_rep", _S.IDLE),
        (_AWAIT_RTU, _I.MRA_OF_REP, "postpone", _S.MRA_REP_RECEIVED),
        (_AWAIT_RTU, _I.RTU, "take_rtu", _S.ESTABLISHED),
        (_AWAIT_RTU, _I.NOTIFY, "take_data", _S.ESTABLISHED),
        (_AWAIT_RTU, _I.REJ, "take_rej", _S.IDLE),
        (_AWAIT_RTU, _I.REJ_STALE, "take_rej", _S.TIMEWAIT),
        (_AWAIT_RTU, _I.REJECT, "send_rej", _S.TIMEWAIT),
        (_AWAIT_RTU, _I.CLOSE, "send_rej_consumer", _S.TIMEWAIT),
        (_AWAIT_RTU, _I.DREQ, "take_dreq", _S.DREQ_RECEIVED),
        # Both sides.
        (_S.ESTABLISHED, _I.REQ, "count_duplicate", None),
        (_S.ESTABLISHED, _I.REP, "repeat_rtu", None),
        (_S.ESTABLISHED, _I.RTU, "count_duplicate", None),
        (_S.ESTABLISHED, _I.LAP, "refuse_lap", None),
        (_S.ESTABLISHED, _I.NOTIFY, "refuse_notify", None),
        (_S.ESTABLISHED, _I.REJ, "take_rej", _S.TIMEWAIT),
        (_S.ESTABLISHED, _I.REJ_STALE, "take_rej", _S.TIMEWAIT),
        (_S.ESTABLISHED, _I.DREQ, "take_dreq", _S.DREQ_RECEIVED),
        (_S.ESTABLISHED, _I.STALE, "send_dreq", _S.DREQ_SENT),
        (_S.ESTABLISHED, _I.DISCONNECT, "send_dreq", _S.DREQ_SENT),
        (_S.ESTABLISHED, _I.CLOSE, "send_last_dreq", _S.DREQ_SENT),
        (_S.DREQ_SENT, _I.REQ, "count_duplicate", None),
        (_S.DREQ_SENT, _I.REP, "count_duplicate", None),
        (_S.DREQ_SENT, _I.RTU, "count_duplicate", None),
        (_S.DREQ_SENT, _I.RESEND, "resend", None),
        (_S.DREQ_SENT, _I.EXHAUSTED, "give_up_dreq", _S.TIMEWAIT),
        (_S.DREQ_SENT, _I.DREP, "take_drep", _S.TIMEWAIT),
        (_S.DREQ_SENT, _I.DREQ, "cross_dreq", _S.TIMEWAIT),
        (_S.DREQ_SENT, _I.REJ, "take_rej", _S.TIMEWAIT),
        (_S.DREQ_SENT, _I.REJ_STALE, "take_rej", _S.TIMEWAIT),
        (_S.DREQ_SENT, _I.CLOSE, "hasten", None),
        (_S.DREQ_RECEIVED, _I.REQ, "count_duplicate", None),
        (_S.DREQ_RECEIVED, _I.REP, "count_duplicate", None),
        (_S.DREQ_RECEIVED, _I.RTU, "count_duplicate", None),
        (_S.DREQ_RECEIVED, _I.DREQ, "count_duplicate", None),
        (_S.DREQ_RECEIVED, _I.DREP, "end", _S.TIMEWAIT),
        (_S.DREQ_RECEIVED, _I.DISCONNECT, "send_drep", _S.TIMEWAIT),
        (_S.DREQ_RECEIVED, _I.CLOSE, "send_drep", _S.TIMEWAIT),
        (_S.TIMEWAIT, _I.REQ, "refuse_req", None),
        (_S.TIMEWAIT, _I.REP, "repeat_rejection", None),
        (_S.TIMEWAIT, _I.DREQ, "repeat_drep", None),
        (_S.TIMEWAIT, _I.DREP, "ignore", None),
        (_S.TIMEWAIT, _I.RTU, "count_duplicate", None),
        (_S.TIMEWAIT, _I.TIMEWAIT_OVER, "leave_timewait", _S.IDLE),
        (_S.TIMEWAIT, _I.CLOSE, "ignore", None),
        (_S.IDLE, _I.REP, "repeat_rejection", None),
        (_S.IDLE, _I.DREQ, "repeat_drep", None),
        (_S.IDLE, _I.CLOSE, "end", None),
    ]
)


@dataclass(slots=True, unsafe_hash=True)
class CmConnect:
    """What a REQ asks for. Depths and resources are numbers of READs and atomics at once."""

    service_id: int
    route: CmRoute
    qpn: int
    starting_psn: int
    transport: CmTransport = CmTransport.RC
    extended_transport: int = 0
    responder_resources: int = 0
    initiator_depth: int = 0
    retry_count: int = 7
    rnr_retry_count: int = 7
    flow_control: bool = False
    srq: bool = False
    private_data: bytes = b""
    vendor_id: int = 0  # of enhanced connection establishment
    options: int = 0


@dataclass(slots=True, unsafe_hash=True)
class CmAccept:
    """What a REP answers."""

    qpn: int
    starting_psn: int
    responder_resources: int = 0
    initiator_depth: int = 0
    rnr_retry_count: int = 7
    flow_control: bool = False
    srq: bool = False
    private_data: bytes = b""
    vendor_id: int = 0
    options: int = 0


class CmConnection(CmMachine):
    """A connection from its REQ to the end of its timewait.

    ``responder_resources`` and ``initiator_depth`` are this side's, as agreed so far;
    ``local_psn`` is the first PSN that this side wants to receive, ``remote_psn`` the peer's.
    ``ack_timeout`` is the time code for this side's QP.
    """

    RULES = CONNECTION_RULES

    # As they are before the first message: most of them are set once, and some never.
    remote_id = 0  # 0: not known yet
    remote_ca_guid = 0
    remote_qpn = 0
    local_qpn = 0
    route: CmRoute | None = None
    to: MadAddress | None = None
    service_id = 0
    transport = CmTransport.RC
    extended_transport = 0
    local_psn = 0
    remote_psn = 0
    responder_resources = 0
    initiator_depth = 0
    retry_count = 0
    rnr_retry_count = 0
    ack_timeout = 0
    max_retries = 0
    is_passive = False
    _timeout = 0.0  # of REQ, REP and DREQ, in seconds
    _mra_data = b""
    _answer: CmDatagram | None = None  # RTU, REJ or DREP, for a peer that asks again

    # Calls of the owner.

    def connect(self, wanted: CmConnect) -> None:
        """Send a REQ. Raises CmError for a value that does not fit."""
        self.feed(CmInput.CONNECT, wanted)

    def accept(self, answer: CmAccept) -> None:
        """Send a REP to the REQ that came. Raises CmError."""
        self.feed(CmInput.ACCEPT, answer)

    def establish(self, private_data: bytes = b"") -> None:
        """Send an RTU to the REP that came; up to 224 bytes of private data. Raises CmError."""
        self.feed(CmInput.ESTABLISH, private_data)

    def reject(
        self,
        reason: int = RejReason.CONSUMER_REJECT,
        private_data: bytes = b"",
        ari: bytes = b"",
    ) -> None:
        """Send a REJ with up to 148 bytes of private data and 72 of ARI. Raises CmError."""
        self.feed(CmInput.REJECT, (reason, private_data, ari))

    def delay(self, private_data: bytes = b"") -> None:
        """Send an MRA: the answer takes longer. Up to 222 bytes of private data. Raises CmError."""
        self.feed(CmInput.DELAY, private_data)

    def disconnect(self, private_data: bytes = b"") -> None:
        """Send a DREQ, or answer the peer's by a DREP. Raises CmError."""
        self.feed(CmInput.DISCONNECT, private_data)

    def notify_established(self) -> None:
        """The QP received data before the RTU came (COMM_EST). Raises CmError."""
        self.feed(CmInput.NOTIFY)

    def drop(self) -> None:
        """Forget a REQ as if it had not come; the peer sends it again. Raises CmError."""
        self.feed(CmInput.DROP)

    # Actions of the side that connects.

    def send_req(self, wanted: CmConnect) -> None:
        """Send a REQ."""
        settings, device, route = self.keeper.settings, self.keeper.device, wanted.route
        is_xrc = wanted.transport == CmTransport.EXTENDED  # an initiator, which receives nothing
        try:
            # fmt: off
            req = quick_req(
                self.local_id, device.ca_guid, wanted.service_id, wanted.qpn,
                wanted.starting_psn, wanted.transport, wanted.extended_transport,
                (0 if is_xrc else wanted.responder_resources, wanted.initiator_depth),
                (0, 0) if is_xrc else (wanted.retry_count, wanted.rnr_retry_count),
                wanted.flow_control, not is_xrc and wanted.srq, route.p_key, route.mtu,
                route.cm_path(device.ack_delay), settings, wanted.vendor_id, wanted.private_data,
            )
            # fmt: on
            to = route.address()
            datagram = self.built(req, to, self.transaction_id, wanted.options)
        except MadError as error:
            raise CmError(CmRefusal.VALUE, str(error)) from None
        self.route, self.to = route, to
        self.service_id = wanted.service_id
        self.transport, self.extended_transport = wanted.transport, wanted.extended_transport
        self.local_qpn, self.local_psn = wanted.qpn, wanted.starting_psn
        self.responder_resources = wanted.responder_resources
        self.initiator_depth = wanted.initiator_depth
        self.retry_count, self.rnr_retry_count = wanted.retry_count, wanted.rnr_retry_count
        self.ack_timeout = route.packet_life + 1
        self.max_retries = settings.max_retries
        self._timeout = 2 * wait_seconds(route.packet_life) + wait_seconds(
            settings.response_timeout
        )
        self.send_awaiting(datagram, self._timeout, self.max_retries)

    def give_up_req(self, _: Any) -> None:
        """Send a REJ (timeout), and report REQ_ERROR."""
        # Linux sends no REJ here; IBA 12.9.7.1 wants one, and it spares the peer its own wait.
        self.send_rej_timeout()
        self.tell(CmEventKind.REQ_ERROR)

    def postpone(self, mra: CmMra) -> None:
        """Wait for the MRA's service timeout."""
        if self.state in (CmState.MRA_REQ_RECEIVED, CmState.MRA_REP_RECEIVED):
            self.keeper.duplicate(CmMra)
        assert self._waiting is not None
        seconds = wait_seconds(mra.service_timeout) + wait_seconds(self.ack_timeout)
        self._waiting.postponed(self.keeper.now, seconds)
        self.arm(self._waiting.next_at)

    def take_rep(self, rep: CmRep) -> None:
        """Report REP_RECEIVED."""
        self.remote_id = rep.local_comm_id
        self.remote_ca_guid = rep.local_ca_guid
        self.remote_qpn = rep.local_eecn if self.transport == 3 else rep.local_qpn
        self.initiator_depth = rep.responder_resources
        self.responder_resources = rep.initiator_depth
        self.remote_psn = rep.starting_psn
        self.rnr_retry_count = rep.rnr_retry_count
        self.ack_timeout = ack_timeout_code(rep.target_ack_delay, self.ack_timeout - 1)
        self._think()
        self.tell(CmEventKind.REP_RECEIVED, rep)

    def send_rtu(self, private_data: bytes) -> None:
        """Send an RTU."""
        self._answer = self._message(CmRtu, private_data)
        self.keeper.send(self._answer)

    def repeat_rtu(self, rep: CmRep) -> None:
        """Send the RTU again."""
        self.keeper.duplicate(CmRep)
        if self._answer is not None:  # None on the side that sent the REP
            self.keeper.send(self._answer, is_retry=True)

    def send_mra_of_rep(self, private_data: bytes | None = None) -> None:
        """Send an MRA."""
        self._send_mra(MraOf.REP, private_data)

    def repeat_mra_of_rep(self, _: CmRep) -> None:
        """Send an MRA, again if there was one."""
        self.keeper.duplicate(CmRep)
        self._send_mra(MraOf.REP, None)

    # Actions of the side that listens.

    def take_req(self, taken: tuple[CmReq, CmRoute]) -> None:
        """Report REQ_RECEIVED."""
        req, route = taken
        self.is_passive = True
        self.route, self.to = route, route.address()
        self.remote_id = req.local_comm_id
        self.remote_ca_guid = req.local_ca_guid
        self.remote_qpn = req.local_qpn
        self.service_id = req.service_id
        self.transport, self.extended_transport = req.transport, req.extended_transport
        self.remote_psn = req.starting_psn
        self.responder_resources = req.initiator_depth
        self.initiator_depth = req.responder_resources
        self.retry_count, self.rnr_retry_count = req.retry_count, req.rnr_retry_count
        self.ack_timeout = route.packet_life + 1
        self.max_retries = req.max_cm_retries
        self._timeout = wait_seconds(req.local_cm_response_timeout)
        self._think(req.remote_cm_response_timeout)
        self.tell(CmEventKind.REQ_RECEIVED, req)

    def send_mra_of_req(self, private_data: bytes | None = None) -> None:
        """Send an MRA."""
        self._send_mra(MraOf.REQ, private_data)

    def repeat_mra_of_req(self, _: CmReq) -> None:
        """Send an MRA, again if there was one."""
        self.keeper.duplicate(CmReq)
        self._send_mra(MraOf.REQ, None)

    def send_rep(self, answer: CmAccept) -> None:
        """Send a REP."""
        assert self.to is not None
        device = self.keeper.device
        is_xrc = self.transport == CmTransport.EXTENDED
        try:
            # fmt: off
            rep = quick_rep(
                (self.local_id, self.remote_id), 0 if is_xrc else answer.qpn,
                answer.qpn if is_xrc else 0, answer.starting_psn,
                (answer.responder_resources, 0 if is_xrc else answer.initiator_depth),
                device.ack_delay, not is_xrc and answer.flow_control, answer.rnr_retry_count,
                is_xrc or answer.srq, device.ca_guid, answer.vendor_id, answer.private_data,
            )
            # fmt: on
            datagram = self.built(rep, self.to, self.transaction_id, answer.options)
        except MadError as error:
            raise CmError(CmRefusal.VALUE, str(error)) from None
        self.local_qpn, self.local_psn = answer.qpn, answer.starting_psn
        self.responder_resources = answer.responder_resources
        self.initiator_depth = answer.initiator_depth
        self.send_awaiting(datagram, self._timeout, self.max_retries)

    def give_up_rep(self, _: Any) -> None:
        """Send a REJ (timeout), and report REP_ERROR."""
        self.send_rej_timeout()
        self.tell(CmEventKind.REP_ERROR)

    def take_rtu(self, rtu: CmRtu) -> None:
        """Report RTU_RECEIVED."""
        self.tell(CmEventKind.RTU_RECEIVED, rtu)

    def take_data(self, _: Any) -> None:
        """Report COMM_ESTABLISHED."""
        self.tell(CmEventKind.COMM_ESTABLISHED)

    def refuse_notify(self, _: Any) -> None:
        """Refuse: EISCONN."""
        raise CmError(CmRefusal.ALREADY_CONNECTED)

    # Rejections.

    def send_rej(self, why: tuple[int, bytes, bytes]) -> None:
        """Send a REJ with the reason of the call."""
        reason, private_data, ari = why
        assert self.to is not None
        state = self.state
        message = RejOf.NONE
        if state in _ASKED:
            message = RejOf.REQ
        elif state in _ANSWERED:
            message = RejOf.REP
        try:
            rej = CmRej(
                local_comm_id=0 if state is CmState.REQ_RECEIVED else self.local_id,
                remote_comm_id=self.remote_id,
                message=message,
                reason=RejReason(reason),
                ari_length=len(ari),
                ari=ari,
                private_data=private_data,
            )
        except MadError as error:
            raise CmError(CmRefusal.PRIVATE_DATA, str(error)) from None
        self._answer = self.built(rej, self.to, self.transaction_id)
        self.keeper.send(self._answer)
        if state in _ASKED:
            self.keeper.remember(self, self._answer)

    def send_rej_consumer(self, _: Any = None) -> None:
        """Send a REJ (consumer reject)."""
        self.send_rej((RejReason.CONSUMER_REJECT, b"", b""))

    def send_rej_timeout(self, _: Any = None) -> None:
        """Send a REJ (timeout)."""
        guid = self.keeper.device.ca_guid.to_bytes(8, "big")
        self.send_rej((RejReason.TIMEOUT, b"", guid))

    def take_rej(self, rej: CmRej) -> None:
        """Report REJ_RECEIVED."""
        self._answer = None
        self.tell(CmEventKind.REJ_RECEIVED, rej)

    def repeat_rejection(self, rep: CmRep) -> None:
        """Send the REJ again, if there was one."""
        self.keeper.duplicate(CmRep)
        if self._answer is not None and self._answer.record.ATTRIBUTE == CmRej.ATTRIBUTE:
            self.keeper.send(self._answer, is_retry=True)

    def refuse_req(self, _: CmReq) -> None:
        """Send a REJ (stale connection)."""
        assert self.to is not None
        self.keeper.duplicate(CmReq)
        rej = CmRej(
            local_comm_id=self.local_id,
            remote_comm_id=self.remote_id,
            message=RejOf.REQ,
            reason=RejReason.STALE_CONNECTION,
        )
        self.keeper.send(self.built(rej, self.to, self.transaction_id))

    # The end.

    def send_dreq(self, private_data: bytes | None) -> None:
        """Send a DREQ."""
        assert self.to is not None
        tid = self.keeper.settings.transaction_high << 32 | self.local_id
        try:
            dreq = quick_dreq(self.local_id, self.remote_id, self.remote_qpn, private_data or b"")
        except MadError as error:
            raise CmError(CmRefusal.PRIVATE_DATA, str(error)) from None
        self.transaction_id = tid
        self.send_awaiting(self.built(dreq, self.to, tid), self._timeout, self.max_retries)

    def send_last_dreq(self, _: Any) -> None:
        """Send a DREQ, and repeat it for the closing patience."""
        # Linux sends it once and forgets; a lost one would leave the peer connected for ever.
        self.send_dreq(None)
        self.hasten()

    def hasten(self, _: Any = None) -> None:
        """Give up after the closing patience."""
        if self._waiting is not None:
            self._waiting.shortened(self.keeper.now, self.keeper.settings.closing_patience)
            self.arm(self._waiting.next_at)

    def give_up_dreq(self, _: Any) -> None:
        """Report DREQ_ERROR."""
        self.tell(CmEventKind.DREQ_ERROR)

    def take_dreq(self, taken: tuple[CmDreq, int]) -> None:
        """Report DREQ_RECEIVED."""
        dreq, self.transaction_id = taken
        self._answer = None
        self.tell(CmEventKind.DREQ_RECEIVED, dreq)

    def send_drep(self, private_data: bytes | None) -> None:
        """Send a DREP."""
        self._answer = self._message(CmDrep, private_data or b"")
        self.keeper.send(self._answer)

    def take_drep(self, drep: CmDrep) -> None:
        """Report DREP_RECEIVED."""
        self.tell(CmEventKind.DREP_RECEIVED, drep)

    def cross_dreq(self, taken: tuple[CmDreq, int]) -> None:
        """Send a DREP, and report DREQ_RECEIVED."""
        dreq, self.transaction_id = taken
        self.send_drep(None)
        self.tell(CmEventKind.DREQ_RECEIVED, dreq)

    def repeat_drep(self, taken: tuple[CmDreq, int]) -> None:
        """Send a DREP again."""
        _, self.transaction_id = taken
        self.keeper.duplicate(CmDreq)
        self.keeper.send(self._message(CmDrep, b""), is_retry=True)

    def enter_timewait(self) -> None:
        """Wait for the time in which packets can still be on their way (IBA 12.9.8.4)."""
        self.arm(self.keeper.now + wait_seconds(self.ack_timeout))

    def leave_timewait(self, _: Any) -> None:
        """Report TIMEWAIT_EXIT."""
        self.tell(CmEventKind.TIMEWAIT_EXIT)

    def refuse_lap(self, lap: CmLap) -> None:
        """Send an APR (unsupported)."""
        assert self.to is not None
        apr = CmApr(
            local_comm_id=self.local_id,
            remote_comm_id=self.remote_id,
            status=AprStatus.UNSUPPORTED,
        )
        self.keeper.send(self.built(apr, self.to, self.transaction_id))

    # What several actions need.

    def _message(self, kind: type[CmRtu | CmDrep], private_data: bytes) -> CmDatagram:
        assert self.to is not None
        try:
            record = quick_plain(kind, self.local_id, self.remote_id, private_data)
        except MadError as error:
            raise CmError(CmRefusal.PRIVATE_DATA, str(error)) from None
        return self.built(record, self.to, self.transaction_id)

    def _think(self, code: int | None = None) -> None:
        """The program has to answer: tell the peer, when half of its patience is over."""
        settings = self.keeper.settings
        if settings.thinking:
            seconds = wait_seconds(settings.response_timeout if code is None else code)
            self._waiting = None
            self.arm(self.keeper.now + seconds * settings.thinking)

    def _send_mra(self, message: MraOf, private_data: bytes | None) -> None:
        assert self.to is not None
        if private_data is not None:
            self._mra_data = private_data
        try:
            mra = CmMra(
                local_comm_id=self.local_id,
                remote_comm_id=self.remote_id,
                message=message,
                service_timeout=self.keeper.settings.service_timeout,
                private_data=self._mra_data,
            )
        except MadError as error:
            self._mra_data = b""
            raise CmError(CmRefusal.PRIVATE_DATA, str(error)) from None
        self.keeper.send(self.built(mra, self.to, self.transaction_id))
