# SPDX-License-Identifier: Apache-2.0
"""REQs for a service whose listener closed a moment ago, kept until it listens again or time is up.

Programs close a listener and open it again between two connections of one peer (perftest does). On
a network the peer's path query takes longer than that; here its REQ can be earlier. The connection
manager asks this before it refuses a REQ. ``now`` is in seconds, and never goes backwards.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["ClosedListeners"]

_MOST = 256
Kept = TypeVar("Kept")


class ClosedListeners(Generic[Kept]):
    """Keeps requests for ``memory`` seconds after their listener closed; 0 keeps none."""

    def __init__(self, memory: float) -> None:
        self._memory = memory
        self._until: dict[int, float] = {}  # by service ID, in the order of time
        self._kept: dict[Hashable, tuple[int, Kept]] = {}

    def closed(self, service_id: int, now: float) -> None:
        """Nobody listens to the service any more."""
        if self._memory > 0:
            self._until.pop(service_id, None)
            self._until[service_id] = now + self._memory

    def opened(self, service_id: int) -> list[Kept]:
        """Somebody listens again: return the requests that came meanwhile."""
        if self._until.pop(service_id, None) is None:
            return []
        return self._take(service_id)

    def keep(self, service_id: int, key: Hashable, request: Kept, now: float) -> bool:
        """Keep a request, or one that is a repetition; False if it has to be refused now."""
        if key in self._kept:
            return True
        if self._until.get(service_id, now) <= now or len(self._kept) >= _MOST:
            return False
        self._kept[key] = service_id, request
        return True

    def next_deadline(self) -> float | None:
        """Return when a request is to be refused."""
        if not self._kept:
            return None
        return min(self._until[service_id] for service_id, _ in self._kept.values())

    def due(self, now: float) -> list[Kept]:
        """Return the requests to be refused: their listener did not come back."""
        refused: list[Kept] = []
        while self._until and (first := next(iter(self._until.items())))[1] <= now:
            del self._until[first[0]]
            refused += self._take(first[0])
        return refused

    def _take(self, service_id: int) -> list[Kept]:
        keys = [key for key, (of, _) in self._kept.items() if of == service_id]
        return [self._kept.pop(key)[1] for key in keys]
