# SPDX-License-Identifier: Apache-2.0
"""Requests for a service whose listener closed a moment ago, kept until it listens again.

perftest closes its listener and opens it again a second later, and its client connects again after
a second, too. On a network the client's path query takes longer than what is left between both;
here its request can be earlier. The connection manager asks this before it refuses a request.
``now`` is in seconds, and never goes backwards.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["ClosedListeners"]

_MOST = 256
Kept = TypeVar("Kept")


def _place(service_id: int) -> int:
    """The port of a service of the IP CM, whatever its port space; or the service ID.

    perftest listens with TCP's port space first, and for datagrams with UDP's then (IBA annex A11).
    """
    return service_id & 0xFFFF if service_id >> 24 == 1 else service_id


class ClosedListeners(Generic[Kept]):
    """Keeps a request for ``patience`` seconds if its listener closed in the last ``memory``."""

    def __init__(self, memory: float, patience: float) -> None:
        self._memory, self._patience = memory, patience
        self._until: dict[int, float] = {}  # by ``_place``, in the order of time
        self._kept: dict[Hashable, tuple[float, int, Kept]] = {}  # in the order of time

    def closed(self, service_id: int, now: float) -> None:
        """Nobody listens to the service any more."""
        while self._until and (first := next(iter(self._until.items())))[1] <= now:
            del self._until[first[0]]
        if self._memory > 0:
            self._until.pop(_place(service_id), None)
            self._until[_place(service_id)] = now + self._memory

    def opened(self, service_id: int) -> list[Kept]:
        """Somebody listens again: return the requests that came meanwhile."""
        keys = [key for key, (_, of, _) in self._kept.items() if of == service_id]
        return [self._kept.pop(key)[2] for key in keys]

    def keep(self, service_id: int, key: Hashable, request: Kept, now: float) -> bool:
        """Keep a request, or one that is a repetition; False if it has to be refused now."""
        if key in self._kept:
            return True
        if self._until.get(_place(service_id), now) <= now or len(self._kept) >= _MOST:
            return False
        self._kept[key] = now + self._patience, service_id, request
        return True

    def next_deadline(self) -> float | None:
        """Return when a request is to be refused."""
        return next(iter(self._kept.values()))[0] if self._kept else None

    def due(self, now: float) -> list[Kept]:
        """Return the requests to be refused: their listener did not come back."""
        refused = []
        while self._kept and (first := next(iter(self._kept.items())))[1][0] <= now:
            refused.append(self._kept.pop(first[0])[2])
        return refused
