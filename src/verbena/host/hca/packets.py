# SPDX-License-Identifier: Apache-2.0
"""Packets of the reliable connection between two adapters, with the sizes of RoCE v2.

The contents are objects; only their sizes are those of bytes on a cable: Ethernet with preamble,
gap and FCS, IPv4, UDP, the headers of the InfiniBand transport (IBA volume 1, chapter 9) and ICRC.
PSNs count from 0 and do not wrap.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from verbena.host.hca.formats import HcaOpcode

# Ethernet header 14, IPv4 20, UDP 8, BTH 12, ICRC 4, FCS 4; preamble 8 and gap 12 on the cable
_FRAME = 14 + 20 + 8 + 12 + 4 + 4
_SMALLEST = 64
_CABLE = 20
_RETH, _AETH, _ATOMIC, _ATOMIC_ACK, _IMMEDIATE = 16, 4, 28, 8, 4


class Reply(Enum):
    """What an acknowledgement or an answer says (IBA 9.7.5.2.8)."""

    ACK = "ACK"
    RNR = "RNR NAK"
    SEQUENCE = "NAK: PSN sequence error"
    INVALID = "NAK: invalid request"
    ACCESS = "NAK: remote access error"
    OPERATION = "NAK: remote operational error"
    READ = "READ response"
    ATOMIC = "ATOMIC acknowledge"


@dataclass(frozen=True)
class Packet:
    """A request's packet, or with ``reply`` a packet of the responder.

    ``packets`` is how many PSNs it takes: the number of its responses for a READ, otherwise 1.
    ``address``, ``rkey`` and ``length`` are those of the message, in its first packet. A packet of
    SEND or WRITE that is the last of its message, or ``asks``, gets an acknowledgement.
    """

    qpn: int  # of the receiver
    psn: int
    opcode: HcaOpcode
    data: bytes = b""
    is_first: bool = True
    is_last: bool = True
    asks: bool = False
    packets: int = 1
    address: int = 0
    rkey: int = 0
    length: int = 0
    immediate: int = 0
    operand: int = 0
    swap: int = 0
    reply: Reply | None = None
    rnr_ps: int = 0  # how long the requester shall wait

    @property
    def wire_bytes(self) -> int:
        """What it takes of the cable."""
        padded = -(-len(self.data) // 4) * 4
        return max(_FRAME + self._headers() + padded, _SMALLEST) + _CABLE

    def _headers(self) -> int:
        if self.reply is not None:
            middle = self.reply is Reply.READ and not (self.is_first or self.is_last)
            # An atomic's answer has its value in a header.
            return 0 if middle else _AETH
        if self.opcode.is_atomic:
            return _ATOMIC
        size = _IMMEDIATE if self.opcode.has_immediate and self.is_last else 0
        if self.opcode is HcaOpcode.READ or (self.opcode.is_write and self.is_first):
            size += _RETH
        return size
