# SPDX-License-Identifier: Apache-2.0
"""A network for MADs in virtual time, which loses, repeats and delays packets by a seed."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

Take = Callable[[str, bytes, float], list[tuple[str, bytes]]]


@dataclass(frozen=True)
class Faults:
    """What happens to a packet, as probabilities; delays are seconds."""

    loss: float = 0.0
    repeat: float = 0.0
    delay: float = 0.01
    jitter: float = 0.0


class Channel:
    """Ends by name; each is a function of the sender's name, a packet and the time.

    An end returns packets, each with its destination. ``timers`` returns for an end when it wants
    to be woken, and ``wake`` does that.
    """

    def __init__(
        self,
        rng: random.Random,
        faults: Faults,
        ends: dict[str, Take],
        timers: dict[str, Callable[[], float | None]],
        wake: dict[str, Callable[[float], list[tuple[str, bytes]]]],
    ) -> None:
        self.now = 0.0
        self.carried = 0
        self._rng = rng
        self._faults = faults
        self._ends = ends
        self._timers = timers
        self._wake = wake
        self._order = count()
        self._flying: list[tuple[float, int, str, str, bytes]] = []

    def send(self, source: str, packets: list[tuple[str, bytes]]) -> None:
        """Put packets on their way."""
        for target, packet in packets:
            for _ in range(2 if self._rng.random() < self._faults.repeat else 1):
                if self._rng.random() >= self._faults.loss:
                    late = self._faults.delay + self._rng.random() * self._faults.jitter
                    flying = (self.now + late, next(self._order), source, target, packet)
                    heapq.heappush(self._flying, flying)

    def run(self, until: float, steps: int = 200_000) -> None:
        """Carry packets and time until nothing is left to do. Fails if that does not end."""
        for _ in range(steps):
            dues = [(due, name) for name, timer in self._timers.items() if (due := timer())]
            due, name = min(dues, default=(until, ""))
            arrival = self._flying[0][0] if self._flying else until
            if min(due, arrival) >= until:
                self.now = until
                return
            if arrival <= due:
                self.now, _, source, target, packet = heapq.heappop(self._flying)
                self.carried += 1
                self.send(target, self._ends[target](source, packet, self.now))
            else:
                self.now = max(self.now, due)
                self.send(name, self._wake[name](self.now))
        raise AssertionError("the exchange does not end")
