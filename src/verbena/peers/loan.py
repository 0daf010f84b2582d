# SPDX-License-Identifier: Apache-2.0
"""The memory of one message, lent to the program. ``Receiving`` makes it for a block."""

from __future__ import annotations

from contextlib import suppress
from weakref import ref

from .session import Arrived, Session

__all__ = ["Loan"]


class Loan:
    """Lends the memory of a message, as ``view``, until ``end`` or ``put_back``.

    If the program has kept an array or a slice over it, that keeps the memory, and the session
    takes other memory in its place.
    """

    def __init__(self, session: Session, message: Arrived) -> None:
        content = session.content(message)
        self.view = content.data
        self._is_kept = ref(content)
        self._session = session
        self._message: Arrived | None = message

    def end(self) -> None:
        """The program has done with the message."""
        message = self._returned()
        if message is not None:
            self._session.give_back(message, self._is_kept() is not None)

    def put_back(self) -> None:
        """Nobody has got the message: it is the next one."""
        message = self._returned()
        if message is not None:
            self._session.put_back(message)

    def _returned(self) -> Arrived | None:
        with suppress(BufferError):
            self.view.release()
        message, self._message = self._message, None
        return message
