# SPDX-License-Identifier: Apache-2.0
"""The packets of the reliable multi-packet protocol, RMPP (IBA 13.6).

``rmpp_sender.py`` and ``rmpp_receiver.py`` have the two ends of one transfer, and
``rmpp_transfers.py`` many of them. A message is what a program of Linux's umad hands over: the
headers of its class once, and all the data behind them.
"""

from __future__ import annotations

from enum import IntFlag
from typing import Any

from .attribute_ids import RESPONSE_BIT, MgmtClass
from .codes import Code
from .errors import MadError
from .mad import MAD_BYTES, RmppMad

__all__ = [
    "RMPP_HEADER_BYTES",
    "RMPP_PAYLOAD_BYTES",
    "RMPP_VERSION",
    "RmppFlags",
    "RmppStatus",
    "RmppType",
    "class_header_bytes",
    "control_packet",
    "end_reason",
    "is_rmpp",
    "segments",
]

RMPP_VERSION = 1
RMPP_HEADER_BYTES = 36  # with the common header
RMPP_PAYLOAD_BYTES = MAD_BYTES - RMPP_HEADER_BYTES
MOST_SEGMENTS = (1 << 32) // RMPP_PAYLOAD_BYTES - 1  # their bytes are counted in 32 bits


class RmppType(Code):
    """RMPPType (IBA 13.6.2.1)."""

    NONE = 0, "The MAD is not of the protocol."
    DATA = 1, "A segment of the message."
    ACK = 2, "Segments have come, and there is room for more."
    STOP = 3, "The transfer ends for lack of resources."
    ABORT = 4, "The transfer ends for an error."


class RmppFlags(IntFlag):
    """RMPPFlags."""

    ACTIVE = 1
    FIRST = 2
    LAST = 4


class RmppStatus(Code):
    """RMPPStatus: why a transfer ended (IBA 13.6.2.1)."""

    NORMAL = 0
    RESOURCES_EXHAUSTED = 1, "The peer has no room for the message; ask for less, or later."
    TOTAL_TIME_TOO_LONG = 118, "The transfer took longer than its receiver allows."
    INCONSISTENT_LAST = 119, "The last segment and PayloadLength do not agree."
    INCONSISTENT_FIRST = 120, "The first segment and the segment number do not agree."
    BAD_TYPE = 121, "The type of a packet is unknown, or not of this direction."
    WINDOW_TOO_SMALL = 122, "NewWindowLast is less than the segment that is acknowledged."
    SEGMENT_TOO_BIG = 123, "A segment is acknowledged that was not sent."
    ILLEGAL_STATUS = 124, "The status of a packet is not of its type."
    UNSUPPORTED_VERSION = 125, "The version of the protocol is not supported."
    TOO_MANY_RETRIES = 126, "Segments were sent again and again, and no ACK came."
    UNSPECIFIED = 127, "The peer gives no reason."

    @property
    def is_abort(self) -> bool:
        """It may stand in an ABORT."""
        return 118 <= self <= 127


def class_header_bytes(mgmt_class: int) -> int:
    """Return the bytes of each segment before its data. Raises MadError for a class without RMPP.

    Those between the RMPP header and the data are counted in PayloadLength.
    """
    if mgmt_class == MgmtClass.SUBN_ADM:
        return 56
    if mgmt_class == MgmtClass.DEVICE_MANAGEMENT:
        return 64
    if MgmtClass(mgmt_class).has_oui:
        return 40
    raise MadError(f"the management class {mgmt_class:#04x} has no RMPP")


def is_rmpp(mad: bytes) -> bool:
    """Whether a MAD belongs to a transfer: its class has RMPP, and the ACTIVE flag is set."""
    return (
        len(mad) == MAD_BYTES
        and MgmtClass(mad[1]).has_rmpp
        and bool(RmppMad.get(mad, "rmpp_flags") & RmppFlags.ACTIVE)
    )


def _packet(header: bytes, data: bytes, fields: dict[str, Any]) -> bytes:
    made = bytearray(header + data).ljust(MAD_BYTES, b"\0")
    RmppMad.put(made, 0, rmpp_version=RMPP_VERSION, **fields)
    return bytes(made)


def segments(message: bytes) -> list[bytes]:
    """Return the DATA packets of a message: all of them full but the last.

    Raises MadError for a message that is shorter than the headers of its class, or too long.
    """
    if len(message) < RMPP_HEADER_BYTES:
        raise MadError(f"a message of RMPP has {RMPP_HEADER_BYTES} bytes or more: {len(message)}")
    size = class_header_bytes(message[1])
    if len(message) < size:
        raise MadError(f"the headers of class {message[1]:#04x} have {size} bytes")
    header, room, extra = message[:size], MAD_BYTES - size, size - RMPP_HEADER_BYTES
    count = max(1, -(-(len(message) - size) // room))
    if count > MOST_SEGMENTS:
        raise MadError(f"a message of {len(message)} bytes is too long for RMPP")
    made = []
    for number in range(1, count + 1):
        data = message[size + (number - 1) * room : size + number * room]
        flags, length = RmppFlags.ACTIVE, 0
        if number == 1:
            flags |= RmppFlags.FIRST
            length = len(message) - size + count * extra
        if number == count:
            flags |= RmppFlags.LAST
            length = len(data) + extra
        fields = {"rmpp_type": RmppType.DATA, "rmpp_flags": flags, "rmpp_status": 0}
        fields |= {"segment_number": number, "payload_length": length}
        made.append(_packet(header, data, fields))
    return made


def control_packet(
    packet: bytes,
    kind: RmppType,
    *,
    status: int = 0,
    segment: int = 0,
    window_last: int = 0,
    to_sender: bool = True,
) -> bytes:
    """Return an ACK, STOP or ABORT with the headers of ``packet``, which is of the transfer.

    ``to_sender``: it answers ``packet``, so its method has the other response bit.
    """
    header = bytearray(packet[: class_header_bytes(packet[1])])
    if to_sender:
        header[3] ^= RESPONSE_BIT
    fields = {"rmpp_type": kind, "rmpp_flags": RmppFlags.ACTIVE, "rmpp_status": status}
    fields |= {"segment_number": segment, "payload_length": window_last}
    return _packet(bytes(header), b"", fields)


def end_reason(mad: RmppMad) -> RmppStatus:
    """Return the status of a STOP or ABORT, or ILLEGAL_STATUS if it may not have it."""
    status = RmppStatus(mad.rmpp_status)
    stops = mad.rmpp_type == RmppType.STOP
    legal = status == RmppStatus.RESOURCES_EXHAUSTED if stops else status.is_abort
    return status if legal else RmppStatus.ILLEGAL_STATUS
