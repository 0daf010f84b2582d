# SPDX-License-Identifier: Apache-2.0
"""When a message is sent again, and when its sender gives up.

A connection or a SIDR request has one ``Retransmission`` while it waits for an answer. Times are
seconds of the owner's clock. The state machines ask ``next_at``, and report what happened.
"""

from __future__ import annotations

from collections.abc import Callable

from .settings import CmSettings

__all__ = ["Retransmission"]


class Retransmission:
    """The schedule of one message. ``timeout`` is IBA's, in seconds, and ``retries`` MaxCMRetries.

    ``draw`` returns a random number from 0 on and below 1, for ``CmSettings.spread``. The patience
    is (1 + retries) times the timeout, as if each attempt waited that long. Within it the message
    is sent more often at first: a single lost REQ would cost a program 6 s otherwise.
    """

    def __init__(
        self,
        now: float,
        timeout: float,
        retries: int,
        settings: CmSettings,
        draw: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.timeout = timeout
        self.interval = min(settings.first_resend or timeout, timeout)
        self._spread = settings.spread if settings.first_resend else 0.0
        self._draw = draw
        self.give_up_at = now + timeout * (1 + retries)
        self.next_at = min(now + self._wait(), self.give_up_at)
        self._postponements = retries  # that are left

    def _wait(self) -> float:
        return self.interval * (1 - self._spread * self._draw()) if self._spread else self.interval

    def is_exhausted(self, now: float) -> bool:
        """Whether the patience is over."""
        return now >= self.give_up_at

    def repeated(self, now: float) -> None:
        """The message was sent again."""
        self.interval = min(self.interval * 2, self.timeout)
        self.next_at = min(now + self._wait(), self.give_up_at)

    def postponed(self, now: float, seconds: float) -> None:
        """An MRA came: wait for so long, and then at least once more for the timeout.

        The patience grows as often as the message may be sent again: a peer whose program never
        answers would else hold this side for ever.
        """
        if self._postponements > 0:
            self._postponements -= 1
            self.give_up_at = max(self.give_up_at, now + seconds + self.timeout)
        self.next_at = min(now + seconds, self.give_up_at)

    def shortened(self, now: float, seconds: float) -> None:
        """Nobody waits for the outcome any more: give up within so many seconds."""
        self.give_up_at = min(self.give_up_at, now + seconds)
        self.next_at = min(self.next_at, self.give_up_at)
