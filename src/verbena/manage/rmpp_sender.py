# SPDX-License-Identifier: Apache-2.0
"""The sender of one message by RMPP (IBA 13.6.6): a state machine without clock and network.

The caller passes packets in, sends those that come back, and calls ``expire`` at ``timer``. Times
are seconds of any clock that does not go back.

| State | Event | Then |
|---|---|---|
| SENDING | ACK of the last segment | DONE |
| SENDING | ACK of more segments | SENDING: the retries start anew, the window is sent |
| SENDING | ACK that is older than another | SENDING |
| SENDING | ACK with a wrong number, window or status, or another type | FAILED, and ABORT is sent |
| SENDING | STOP, ABORT | FAILED |
| SENDING | no ACK in time | SENDING: what is not acknowledged is sent again |
| SENDING | no ACK after all retries | FAILED, and ABORT is sent |
| DONE | ACK | DONE: the turning ACK is sent again, if there is one |
| DONE | some time has passed | DONE, and ``timer`` is None: the caller may drop it |
"""

from __future__ import annotations

from enum import Enum

from .errors import MadError
from .mad import RmppMad
from .rmpp import RMPP_VERSION, RmppStatus, RmppType, control_packet, end_reason, segments

__all__ = ["RmppSender", "SenderState"]

ACK_TIMEOUT = 2.0  # seconds; what Linux takes
RETRIES = 7
LINGER = 10.0  # seconds for which a turned transfer is remembered


class SenderState(Enum):
    """State of a sender; the last two are final."""

    SENDING = "sending"
    DONE = "done"
    FAILED = "failed"


class RmppSender:
    """Sends a message: ``start``, then ``receive`` for each packet and ``expire`` at ``timer``.

    ``turn_window`` is for a double-sided transfer (IBA 13.6.4): the peer answers with a message of
    its own, of which it may send so many segments before the first ACK. ``window`` is how many
    segments go out before the first ACK, 1 unless the peer turned a transfer with more.
    """

    def __init__(
        self,
        message: bytes,
        *,
        window: int = 1,
        turn_window: int = 0,
        ack_timeout: float = ACK_TIMEOUT,
        retries: int = RETRIES,
    ) -> None:
        """Raises MadError for a message that cannot be sent, and for a window below 1."""
        if window < 1:
            raise MadError(f"window is {window}, and the first segment needs 1")
        self.state = SenderState.SENDING
        self.status = RmppStatus.NORMAL  # why it failed
        self._packets = segments(message)
        self._window_last = window
        self._turn_window = turn_window
        self._ack_timeout = ack_timeout
        self._retries = self._retries_left = retries
        self._acknowledged = 0  # the last segment that the receiver has, with all before it
        self._sent = 0
        self._due: float | None = None

    def timer(self) -> float | None:
        """Return when ``expire`` is to be called; None: not at all."""
        return self._due

    def start(self, now: float) -> list[bytes]:
        """Return the first packets."""
        return self._send_window(now)

    def receive(self, packet: bytes, now: float) -> list[bytes]:
        """Take a packet of the receiver's; return what is to be sent. Raises MadError if short."""
        mad = RmppMad.unpack(packet)
        if self.state is SenderState.DONE:
            return self._turned() if mad.rmpp_type == RmppType.ACK else []
        if self.state is SenderState.FAILED:
            return []
        if mad.rmpp_version != RMPP_VERSION:
            return self._abort(RmppStatus.UNSUPPORTED_VERSION)
        match mad.rmpp_type:
            case RmppType.ACK:
                return self._on_ack(mad, now)
            case RmppType.STOP | RmppType.ABORT:
                self._end(SenderState.FAILED, end_reason(mad))
                return []
            case _:
                return self._abort(RmppStatus.BAD_TYPE)

    def expire(self, now: float) -> list[bytes]:
        """Return what is to be sent because no ACK came; nothing before ``timer``."""
        if self._due is None or now < self._due:
            return []
        if self.state is not SenderState.SENDING:
            self._due = None
            return []
        if not self._retries_left:
            return self._abort(RmppStatus.TOO_MANY_RETRIES)
        self._retries_left -= 1
        self._sent = self._acknowledged
        return self._send_window(now)

    def cancel(self) -> list[bytes]:
        """Give up; return the ABORT, if the transfer was not over."""
        return self._abort(RmppStatus.UNSPECIFIED) if self.state is SenderState.SENDING else []

    def _send_window(self, now: float) -> list[bytes]:
        last = min(self._window_last, len(self._packets))
        sent = self._packets[self._sent : last]
        self._sent = max(self._sent, last)
        self._due = now + self._ack_timeout
        return sent

    def _on_ack(self, mad: RmppMad, now: float) -> list[bytes]:
        segment, window_last = mad.segment_number, mad.payload_length
        if mad.rmpp_status:
            return self._abort(RmppStatus.ILLEGAL_STATUS)
        if window_last < segment:
            return self._abort(RmppStatus.WINDOW_TOO_SMALL)
        if segment > min(len(self._packets), self._window_last):
            return self._abort(RmppStatus.SEGMENT_TOO_BIG)
        if segment == len(self._packets):
            self._end(SenderState.DONE)
            if self._turn_window:
                self._due = now + LINGER
            return self._turned()
        if (segment, window_last) == (self._acknowledged, self._window_last):
            return []
        if segment < self._acknowledged or window_last < self._window_last:
            return []  # an older ACK
        if segment > self._acknowledged:
            self._retries_left = self._retries
        # After a retry it may acknowledge more than was sent again.
        self._acknowledged, self._window_last = segment, window_last
        self._sent = max(self._sent, segment)
        return self._send_window(now)

    def _turned(self) -> list[bytes]:
        if not self._turn_window:
            return []
        turning = control_packet(
            self._packets[0], RmppType.ACK, window_last=self._turn_window, to_sender=False
        )
        return [turning]

    def _abort(self, status: RmppStatus) -> list[bytes]:
        self._end(SenderState.FAILED, status)
        return [control_packet(self._packets[0], RmppType.ABORT, status=status, to_sender=False)]

    def _end(self, state: SenderState, status: RmppStatus = RmppStatus.NORMAL) -> None:
        self.state, self.status, self._due = state, status, None
