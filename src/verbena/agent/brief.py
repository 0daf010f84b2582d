# SPDX-License-Identifier: Apache-2.0
"""What the system said, kept for a moment.

A thousand connections in a second ask for the same few routes and interfaces. host_addresses.py
keeps answers for as long as a change of an address may take to be noticed anyway.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["BriefMemory"]

_Answer = TypeVar("_Answer")


class BriefMemory(Generic[_Answer]):
    """Answers by question, all of which are forgotten after ``seconds``."""

    def __init__(self, seconds: float = 0.005, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._kept: dict[Hashable, _Answer] = {}
        self._until = 0.0

    def get(self, question: Hashable, ask: Callable[[], _Answer]) -> _Answer:
        """Return the answer. What ``ask`` raises is not kept."""
        now = self._clock()
        if now >= self._until:
            self._kept.clear()
            self._until = now + self._seconds
        found = self._kept.get(question)
        if found is None:
            found = self._kept[question] = ask()
        return found
