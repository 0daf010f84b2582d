# SPDX-License-Identifier: Apache-2.0
"""The receiver of one message by RMPP (IBA 13.6.6): a state machine without clock and network.

The caller passes the packets of one transfer in, sends those that come back, and calls ``expire``
at ``timer``. When ``state`` is COMPLETE, ``message`` has the message.

| State | Event | Then |
|---|---|---|
| RECEIVING | a segment that makes the message complete | COMPLETE, and ACK is sent |
| RECEIVING | a segment that fills the window | RECEIVING, and ACK with the next window is sent |
| RECEIVING | another segment of the window | RECEIVING |
| RECEIVING | a segment that was there | RECEIVING, and the ACK is sent again |
| RECEIVING | a segment beyond the window | RECEIVING: it is dropped |
| RECEIVING | a segment for which there is no room | FAILED, and STOP is sent |
| RECEIVING | a packet with a wrong number, flag, length, status, type | FAILED, and ABORT is sent |
| RECEIVING | STOP, ABORT | FAILED |
| RECEIVING | the transfer takes too long | FAILED, and ABORT is sent |
| COMPLETE | a segment that was there | COMPLETE, and the ACK is sent again |
| COMPLETE | ACK of segment 0 | COMPLETE: the transfer is turned, see ``turn_window`` |
| FAILED | a segment | FAILED, and the STOP or ABORT is sent again, if there was one |
| COMPLETE, FAILED | some time has passed | FORGOTTEN |
"""

from __future__ import annotations

from enum import Enum

from .errors import MadError
from .mad import RmppMad
from .rmpp import (
    RMPP_HEADER_BYTES,
    RMPP_PAYLOAD_BYTES,
    RMPP_VERSION,
    RmppFlags,
    RmppStatus,
    RmppType,
    class_header_bytes,
    control_packet,
    end_reason,
)

__all__ = ["ReceiverState", "RmppReceiver"]

WINDOW = 64  # segments; Linux's
TRANSFER_TIMEOUT = 40.0  # seconds; Linux's
# Seconds for which a finished transfer is remembered. Were a sender still to repeat its segments
# then, the message would come twice; Linux gives up after 2 s for each retry, and remembers for 10.
LINGER = 30.0
MOST_BYTES = 1 << 30


class ReceiverState(Enum):
    """State of a receiver. FORGOTTEN: the caller may drop it."""

    RECEIVING = "receiving"
    COMPLETE = "complete"
    FAILED = "failed"
    FORGOTTEN = "forgotten"


class RmppReceiver:
    """Receives a message, from its first packet on.

    ``most_bytes`` is the longest message that it takes.
    """

    def __init__(
        self,
        now: float,
        *,
        window: int = WINDOW,
        transfer_timeout: float = TRANSFER_TIMEOUT,
        linger: float = LINGER,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        if window < 1:
            raise MadError(f"window is {window}, and a transfer needs 1 or more")
        self.state = ReceiverState.RECEIVING
        self.status = RmppStatus.NORMAL  # why it failed
        self.message = b""
        self.turn_window = 1  # segments that the answer may have before its first ACK
        self._window = window
        self._linger = linger
        self._most_bytes = most_bytes
        self._header = b""  # of the first segment that came
        self._data: dict[int, bytes] = {}
        self._received = 0  # the last segment of those that have come without a gap
        self._window_last = 1
        self._last = 0  # the number of the last segment, once it is known
        self._refusal: list[bytes] = []
        self._due: float = now + transfer_timeout

    def timer(self) -> float | None:
        """Return when ``expire`` is to be called; None: not at all."""
        return None if self.state is ReceiverState.FORGOTTEN else self._due

    def receive(self, packet: bytes, now: float) -> list[bytes]:
        """Take a packet of the sender's; return what is to be sent. Raises MadError if short."""
        mad = RmppMad.unpack(packet)
        if self.state is ReceiverState.COMPLETE:
            return self._after_the_end(mad, now)
        if self.state is not ReceiverState.RECEIVING:
            return self._refusal if mad.rmpp_type == RmppType.DATA else []
        if mad.rmpp_version != RMPP_VERSION:
            return self._refuse(packet, RmppStatus.UNSUPPORTED_VERSION, now)
        match mad.rmpp_type:
            case RmppType.DATA:
                return self._on_data(mad, packet, now)
            case RmppType.STOP | RmppType.ABORT:
                self._end(ReceiverState.FAILED, end_reason(mad), now)
                return []
            case _:
                return self._refuse(packet, RmppStatus.BAD_TYPE, now)

    def expire(self, now: float) -> list[bytes]:
        """Return what is to be sent because of the time; nothing before ``timer``."""
        if self.state is ReceiverState.FORGOTTEN or now < self._due:
            return []
        if self.state is not ReceiverState.RECEIVING:
            self.state = ReceiverState.FORGOTTEN
            return []
        return self._refuse(self._header, RmppStatus.TOTAL_TIME_TOO_LONG, now)

    def _on_data(self, mad: RmppMad, packet: bytes, now: float) -> list[bytes]:
        if wrong := self._wrong(mad):
            return self._refuse(packet, wrong, now)
        number = mad.segment_number
        if number <= self._received:
            return [self._ack()]
        if number > self._window_last or number in self._data:
            return []
        size = class_header_bytes(mad.mgmt_class)
        if number == 1 or not self._header:
            self._header = packet[:size]
        if max(self._last, number) * (len(packet) - size) > self._most_bytes:
            return self._refuse(packet, RmppStatus.RESOURCES_EXHAUSTED, now)
        if mad.rmpp_flags & RmppFlags.LAST:
            self._last = number
            packet = packet[: RMPP_HEADER_BYTES + mad.payload_length]
        self._data[number] = packet[size:]
        while self._received + 1 in self._data:
            self._received += 1
        if self._received == self._last:
            return self._complete(now)
        if self._received == self._window_last:
            self._window_last += self._window
            return [self._ack()]
        return []

    def _wrong(self, mad: RmppMad) -> RmppStatus | None:
        """What is wrong with a segment."""
        number, flags = mad.segment_number, mad.rmpp_flags
        extra = class_header_bytes(mad.mgmt_class) - RMPP_HEADER_BYTES
        if mad.rmpp_status:
            return RmppStatus.ILLEGAL_STATUS
        if (number == 1) != bool(flags & RmppFlags.FIRST) or not number:
            return RmppStatus.INCONSISTENT_FIRST
        is_last = bool(flags & RmppFlags.LAST)
        if is_last and not extra <= mad.payload_length <= RMPP_PAYLOAD_BYTES:
            return RmppStatus.INCONSISTENT_LAST
        if self._last and (number > self._last or (number == self._last) != is_last):
            return RmppStatus.INCONSISTENT_LAST
        if is_last and number < max(self._data, default=0):
            return RmppStatus.INCONSISTENT_LAST
        return None

    def _after_the_end(self, mad: RmppMad, now: float) -> list[bytes]:
        self._due = now + self._linger
        if mad.rmpp_type == RmppType.DATA:
            return [self._ack()]
        if mad.rmpp_type == RmppType.ACK and not mad.segment_number:
            self.turn_window = max(1, mad.payload_length)
        return []

    def _complete(self, now: float) -> list[bytes]:
        parts = [self._data[number] for number in range(1, self._last + 1)]
        self.message = self._header + b"".join(parts)
        self._window_last = max(self._window_last, self._last)
        self._end(ReceiverState.COMPLETE, RmppStatus.NORMAL, now)
        return [self._ack()]

    def _ack(self) -> bytes:
        return control_packet(
            self._header,
            RmppType.ACK,
            segment=self._received,
            window_last=self._window_last,
        )

    def _refuse(self, packet: bytes, status: RmppStatus, now: float) -> list[bytes]:
        self._end(ReceiverState.FAILED, status, now)
        kind = RmppType.ABORT if status.is_abort else RmppType.STOP
        self._refusal = [control_packet(packet, kind, status=status)]
        return self._refusal

    def _end(self, state: ReceiverState, status: RmppStatus, now: float) -> None:
        self.state, self.status, self._due = state, status, now + self._linger
        self._data = {}
