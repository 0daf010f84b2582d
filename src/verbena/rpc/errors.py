# SPDX-License-Identifier: Apache-2.0
"""What may go wrong with a call, and how the wire says it.

Clients raise these exceptions. Each is an ``RpcError`` and, where Python has one for the case, also
that (``TimeoutError``, ``ConnectionError``, ``TypeError``); its text says what to do.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = [
    "CallStatus",
    "DeadlinePassed",
    "MessageTooLarge",
    "NoSuchMethod",
    "RemoteFailure",
    "RpcError",
    "ServerGone",
    "WrongArguments",
    "failure_of",
]


class CallStatus(IntEnum):
    """How a call has ended, in the frame of its response."""

    OK = 0
    NO_METHOD = 1
    WRONG_ARGUMENTS = 2
    FAILED = 3
    CANCELLED = 4
    DEADLINE = 5
    CLOSING = 6
    TOO_LARGE = 7


class RpcError(Exception):
    """A call failed; the text says why."""


class NoSuchMethod(RpcError, AttributeError):
    """The server has no method of this name."""


class WrongArguments(RpcError, TypeError):
    """The arguments do not fit the method's signature; the method was not called."""


class RemoteFailure(RpcError):
    """The method raised an exception: ``kind`` is the name of its type, ``text`` what it said."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        self.text = text
        super().__init__(f"{kind}: {text}" if text else kind)


class DeadlinePassed(RpcError, TimeoutError):
    """The call's time is over; the server is asked to stop."""


class ServerGone(RpcError, ConnectionError):
    """The connection has ended. ``may_have_run``: whether the server may have begun the call."""

    def __init__(self, text: str, may_have_run: bool) -> None:
        self.may_have_run = may_have_run
        super().__init__(text)


class MessageTooLarge(RpcError, ValueError):
    """Arguments or a result are larger than the receiver takes (``max_message``)."""


def failure_of(status: int, text: str, about: str) -> RpcError:
    """Return the exception for a call that has ended with a status other than OK."""
    if status == CallStatus.NO_METHOD:
        return NoSuchMethod(text)
    if status == CallStatus.WRONG_ARGUMENTS:
        return WrongArguments(text)
    if status == CallStatus.TOO_LARGE:
        return MessageTooLarge(text)
    if status == CallStatus.DEADLINE:
        return DeadlinePassed(f"{about}: the deadline has passed at the server")
    if status == CallStatus.CLOSING:
        return ServerGone(f"{about}: the server closes, and has not begun the call", False)
    if status == CallStatus.CANCELLED:
        return RpcError(f"{about}: the server has cancelled the call, which may have run")
    kind, _, said = text.partition("\n")
    return RemoteFailure(kind, said)
