# SPDX-License-Identifier: Apache-2.0
"""Why connections to peers end, and the exceptions of verbena.peers.

Each exception is an OSError, and a ConnectionError where the connection has ended; its text says
what to do. ``Ended`` is what ``conn.closed`` returns.
"""

from __future__ import annotations

import errno
from enum import StrEnum

__all__ = ["Ended", "PeerConnectionEnded", "PeerError", "PeerMemoryRevoked", "UnknownSession"]


class Ended(StrEnum):
    """Why a connection has ended."""

    HERE = "it was closed here"
    PEER = "the peer closed it"
    CUT = (
        "the peer closed it before this side had fetched all of its messages, and the rest is lost:"
        " receive sooner, or close with more patience there"
    )
    DIED = (
        "the peer has ended without closing it, or cannot be reached, or an array or a window was"
        " used that was given up: see what became of it"
    )
    REFUSED = (
        "the device ended it, since an access was refused: an array or a window that is used was"
        " given up by its owner, or the range is wrong"
    )
    RESTARTED = "the peer does not know it any more, so it has restarted: connect anew"
    FORKED = "it belongs to the process that forked: connect anew in the child"
    GIVEN_UP = "the peer did not come back in the time of the Reconnect policy"


class PeerError(OSError):
    """A call over a connection failed; the text says why and what to do."""


class PeerConnectionEnded(PeerError, ConnectionError):
    """The connection has ended; ``reason`` is an ``Ended``.

    The text also has what the device said of the request that failed first, where it says more.
    ``is_closing``: the connection still waits in ``close``, and takes nothing new.
    """

    def __init__(
        self, reason: Ended, about: str, lost: int = 0, said: str = "", is_closing: bool = False
    ) -> None:
        self.reason = reason
        codes = {Ended.HERE: errno.EPIPE, Ended.FORKED: errno.ECHILD}
        code = codes.get(reason, errno.ECONNRESET)
        text = f"the connection to {about} "
        if is_closing:
            text += (
                "is being closed here, and takes no more messages or requests: wait for them before"
                " close(), or before the block ends"
            )
        else:
            text += f"has ended: {reason}"
        if lost:
            text += f"; the peer has not confirmed {lost} messages that were sent"
        if said:
            text += f". The device says: {said}"
        super().__init__(code, text)


class PeerMemoryRevoked(PeerError, PermissionError):
    """The peer has ended the window that lent this array, or given up its array.

    ``refusal`` is what its device said, where an access was under way; the queue pair has ended
    then.
    """

    def __init__(self, refusal: str = "") -> None:
        text = "the peer has ended the window that lent this array: ask it to lend the array again"
        if refusal:
            text = (
                "the peer's device refused the access, which ends the queue pair: the owner has"
                f" given up the array or window; ask it for another one. {refusal}"
            )
        super().__init__(errno.EACCES, text)


class UnknownSession(PeerError):
    """The peer does not know the session to which a side comes back."""
