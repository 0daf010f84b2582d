# SPDX-License-Identifier: Apache-2.0
"""Times and numbers of the connection manager. The defaults interoperate with Linux's cm and cma.

Time codes are IBA's: 4.096 µs times 2 to the power of the code; the wait is Linux's approximation,
2^(code - 8) ms.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..cm_messages import cm_timeout_ms

__all__ = ["LIVE_SETTINGS", "CmSettings", "ack_timeout_code", "wait_seconds"]


_WAITS = tuple(cm_timeout_ms(code) / 1000 for code in range(32))


def wait_seconds(code: int) -> float:
    """Return the seconds of a time code, as Linux approximates them: at least 1 ms."""
    return _WAITS[code] if 0 <= code < 32 else cm_timeout_ms(code) / 1000


def ack_timeout_code(ack_delay: int, packet_life: int) -> int:
    """Return the code of a QP's ACK timeout: the CA's delay and twice the packet life, rounded.

    Adding 1 to a code doubles the time. So it is the larger of both, and 1 more if the other is
    more than half of it (IBA 9.7.6.1.3 gives the sum; Linux's cm_ack_timeout rounds like this).
    """
    twice = packet_life + 1
    larger, smaller = max(twice, ack_delay), min(twice, ack_delay)
    return min(31, larger + (smaller >= larger - 1))


@dataclass(frozen=True)
class CmSettings:
    """How long the connection manager waits, and how often it sends again."""

    response_timeout: int = 20
    """Time code that both sides of a REQ have to answer within: 4096 ms."""
    max_retries: int = 15
    """MaxCMRetries of a REQ: the patience is (1 + it) times the timeout."""
    first_resend: float = 0.25
    """Seconds until a message is first sent again; the wait then doubles up to IBA's timeout. 0:
    IBA's timeout from the first, as Linux does. The patience is the same."""
    spread: float = 0.0
    """The part of each wait before a repetition, at most, that is left out at random: requests that
    found a listener's backlog full in one instant do not come again in one. 0: none, as Linux,
    whose clients wait equally long. Less than 1; without ``first_resend`` it has no effect."""
    service_timeout: int = 24
    """Time code of an MRA: the program has 65.5 s more."""
    thinking: float = 0.5
    """The part of the response timeout after which an MRA tells the peer that the program is slow.
    An MRA also answers a repeated message. 0: only that, as Linux does."""
    closing_patience: float = 8.192
    """Seconds for which a DREQ is repeated after its identifier was destroyed."""
    comm_id_rest: float = 4.096
    """Seconds for which a communication ID is not used again. At least 2 s are needed."""
    answer_memory: float = 8.192
    """Seconds for which a rejection and a SIDR_REP are repeated to a repeated request."""
    listener_memory: float = 0.0
    """Seconds after a listener has closed in which a request for it is not refused at once. 0: it
    is, as Linux does."""
    listener_patience: float = 1.0
    """Seconds for which such a request waits for the listener to come back."""
    most_answers: int = 4096
    """How many of these are remembered; the oldest are forgotten first."""
    transaction_high: int = 1
    """Upper 32 bits of transaction IDs. A kernel puts the number of its agent there."""


LIVE_SETTINGS = CmSettings(listener_memory=3.0, spread=0.5)
"""Those of processes of this machine, whose messages have no network to cross."""
