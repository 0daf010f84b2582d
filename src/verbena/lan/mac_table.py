# SPDX-License-Identifier: Apache-2.0
"""The addresses that a switch has learnt: behind which port each is, and until when that holds.

``switch.py`` uses it (IEEE 802.1D-1998, 7.9). Times are picoseconds.
"""

from __future__ import annotations

AGEING_PS = 300 * 10**12
CAPACITY = 8192


class MacTable:
    """An entry lasts ``ageing`` after its last frame, and shorter while the topology changes."""

    def __init__(self, ageing_ps: int = AGEING_PS, capacity: int = CAPACITY) -> None:
        self.ageing_ps = ageing_ps
        self.capacity = capacity
        self._hurried_ps: int | None = None
        self._entries: dict[bytes, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def learn(self, address: bytes, port: int, now: int) -> None:
        """A frame of this address came by this port. A full table learns nothing new."""
        if address not in self._entries and len(self._entries) >= self.capacity:
            self._forget_old(now)
            if len(self._entries) >= self.capacity:
                return
        self._entries[address] = (port, now)

    def find(self, address: bytes, now: int) -> int | None:
        """The port behind which the address is; None: it is not known, or too old."""
        entry = self._entries.get(address)
        if entry is None:
            return None
        port, seen = entry
        if now - seen >= self._limit:
            del self._entries[address]
            return None
        return port

    def forget(self, port: int) -> None:
        """Forgets what is behind a port."""
        self._entries = {key: entry for key, entry in self._entries.items() if entry[0] != port}

    def hurry(self, ageing_ps: int | None, now: int) -> None:
        """Lets entries age faster, or (None) as usual again, without those that are too old now."""
        if ageing_ps != self._hurried_ps:
            self._forget_old(now)
        self._hurried_ps = ageing_ps

    @property
    def _limit(self) -> int:
        return self.ageing_ps if self._hurried_ps is None else self._hurried_ps

    def _forget_old(self, now: int) -> None:
        limit = self._limit
        self._entries = {
            key: entry for key, entry in self._entries.items() if now - entry[1] < limit
        }
