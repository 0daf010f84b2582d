# SPDX-License-Identifier: Apache-2.0
"""Service ID resolution (SIDR, IBA 12.11): the state machine of both sides as a table.

``InfinibandCm`` makes resolutions. The side that asks waits for a SIDR_REP; the owner of the other
side calls ``answer``. There is no timewait: a repeated SIDR_REQ gets the same answer again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..cm_messages import SidrRep, SidrReq, SidrStatus
from ..errors import MadError
from .machine import CmEventKind, CmInput, CmKeeper, CmMachine, CmState, cm_rules
from .refusals import CmError, CmRefusal
from .routes import CmRoute, MadAddress, MadArrival
from .settings import wait_seconds

__all__ = ["RESOLUTION_RULES", "CmResolution", "SidrQuestion"]

_S, _I = CmState, CmInput

RESOLUTION_RULES = cm_rules(
    [
        (_S.IDLE, _I.RESOLVE, "send_request", _S.SIDR_REQ_SENT),
        (_S.SIDR_REQ_SENT, _I.RESEND, "resend", None),
        (_S.SIDR_REQ_SENT, _I.EXHAUSTED, "give_up", _S.IDLE),
        (_S.SIDR_REQ_SENT, _I.SIDR_REP, "take_reply", _S.IDLE),
        (_S.SIDR_REQ_SENT, _I.CLOSE, "end", _S.IDLE),
        (_S.IDLE, _I.SIDR_REQ, "take_request", _S.SIDR_REQ_RECEIVED),
        (_S.SIDR_REQ_RECEIVED, _I.SIDR_REQ, "count_duplicate", None),
        (_S.SIDR_REQ_RECEIVED, _I.ANSWER, "send_reply", _S.IDLE),
        (_S.SIDR_REQ_RECEIVED, _I.DROP, "end", _S.IDLE),
        (_S.SIDR_REQ_RECEIVED, _I.CLOSE, "send_refusal", _S.IDLE),
        (_S.IDLE, _I.CLOSE, "end", _S.IDLE),
    ]
)


@dataclass(slots=True, unsafe_hash=True)
class SidrQuestion:
    """What a SIDR_REQ asks for."""

    service_id: int
    route: CmRoute
    private_data: bytes = b""


class CmResolution(CmMachine):
    """One question and its answer. ``remote_id`` is the peer's request ID if the peer asks."""

    RULES = RESOLUTION_RULES

    def __init__(self, keeper: CmKeeper, local_id: int) -> None:
        super().__init__(keeper, local_id)
        self.remote_id = 0
        self.to: MadAddress | None = None
        self.route: CmRoute | None = None
        self.service_id = 0

    def resolve(self, question: SidrQuestion) -> None:
        """Send a SIDR_REQ with up to 216 bytes of private data. Raises CmError."""
        self.feed(CmInput.RESOLVE, question)

    def answer(
        self,
        status: int = SidrStatus.VALID,
        qpn: int = 0,
        qkey: int = 0,
        private_data: bytes = b"",
    ) -> None:
        """Send a SIDR_REP with up to 136 bytes of private data. Raises CmError."""
        self.feed(CmInput.ANSWER, (status, qpn, qkey, private_data))

    # Actions.

    def send_request(self, question: SidrQuestion) -> None:
        """Send a SIDR_REQ."""
        settings, route = self.keeper.settings, question.route
        try:
            request = SidrReq(
                request_id=self.local_id,
                p_key=route.p_key,
                service_id=question.service_id,
                private_data=question.private_data,
            )
        except MadError as error:
            raise CmError(CmRefusal.PRIVATE_DATA, str(error)) from None
        self.service_id, self.route, self.to = question.service_id, route, route.address()
        datagram = self.built(request, self.to, self.transaction_id)
        self.send_awaiting(datagram, wait_seconds(settings.response_timeout), settings.max_retries)

    def give_up(self, _: Any) -> None:
        """Report SIDR_REQ_ERROR."""
        self.tell(CmEventKind.SIDR_REQ_ERROR)

    def take_reply(self, reply: SidrRep) -> None:
        """Report SIDR_REP_RECEIVED."""
        self.tell(CmEventKind.SIDR_REP_RECEIVED, reply)

    def take_request(self, taken: tuple[SidrReq, MadArrival, int]) -> None:
        """Report SIDR_REQ_RECEIVED."""
        request, arrival, self.transaction_id = taken
        self.remote_id, self.service_id = request.request_id, request.service_id
        self.to = arrival.reply()
        self.tell(CmEventKind.SIDR_REQ_RECEIVED, request)

    def send_reply(self, what: tuple[int, int, int, bytes]) -> None:
        """Send a SIDR_REP."""
        status, qpn, qkey, private_data = what
        assert self.to is not None
        try:
            reply = SidrRep(
                request_id=self.remote_id,
                status=SidrStatus(status),
                qpn=qpn,
                service_id=self.service_id,
                qkey=qkey,
                private_data=private_data,
            )
        except MadError as error:
            raise CmError(CmRefusal.PRIVATE_DATA, str(error)) from None
        datagram = self.built(reply, self.to, self.transaction_id)
        self.keeper.send(datagram)
        self.keeper.remember(self, datagram)

    def send_refusal(self, _: Any) -> None:
        """Send a SIDR_REP (rejected)."""
        self.send_reply((SidrStatus.REJECTED, 0, 0, b""))
