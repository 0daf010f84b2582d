# SPDX-License-Identifier: Apache-2.0
"""The states of a TCP connection, and which event leads from which to which (RFC 9293, 3.3.2).

``TcpConnection`` follows the table. LISTEN is none of its states: a listener makes a connection in
SYN-RECEIVED for each SYN.
"""

from __future__ import annotations

from enum import StrEnum


class TcpState(StrEnum):
    SYN_SENT = "SYN-SENT"
    SYN_RECEIVED = "SYN-RECEIVED"
    ESTABLISHED = "ESTABLISHED"
    FIN_WAIT_1 = "FIN-WAIT-1"
    FIN_WAIT_2 = "FIN-WAIT-2"
    CLOSING = "CLOSING"
    TIME_WAIT = "TIME-WAIT"
    CLOSE_WAIT = "CLOSE-WAIT"
    LAST_ACK = "LAST-ACK"
    CLOSED = "CLOSED"


class TcpEvent(StrEnum):
    ACKNOWLEDGED = "the own SYN is acknowledged"
    ENDED = "the program writes no more"
    FIN = "the peer writes no more"
    FIN_ACKNOWLEDGED = "the own FIN is acknowledged"
    FAILED = "a reset, the last timeout, or TIME-WAIT is over"


S, E = TcpState, TcpEvent
TCP_TRANSITIONS: dict[tuple[TcpState, TcpEvent], TcpState] = {
    (S.SYN_SENT, E.ACKNOWLEDGED): S.ESTABLISHED,
    (S.SYN_RECEIVED, E.ACKNOWLEDGED): S.ESTABLISHED,
    (S.ESTABLISHED, E.ENDED): S.FIN_WAIT_1,
    (S.ESTABLISHED, E.FIN): S.CLOSE_WAIT,
    (S.FIN_WAIT_1, E.FIN): S.CLOSING,
    (S.FIN_WAIT_1, E.FIN_ACKNOWLEDGED): S.FIN_WAIT_2,
    (S.FIN_WAIT_2, E.FIN): S.TIME_WAIT,
    (S.CLOSING, E.FIN_ACKNOWLEDGED): S.TIME_WAIT,
    (S.CLOSE_WAIT, E.ENDED): S.LAST_ACK,
    (S.LAST_ACK, E.FIN_ACKNOWLEDGED): S.CLOSED,
} | {(state, E.FAILED): S.CLOSED for state in S if state is not S.CLOSED}

READS = {S.ESTABLISHED, S.FIN_WAIT_1, S.FIN_WAIT_2}
WRITES = {S.SYN_SENT, S.SYN_RECEIVED, S.ESTABLISHED, S.CLOSE_WAIT}
