# SPDX-License-Identifier: Apache-2.0
"""A cache of a fixed number of entries that gives up the one which was not used for longest.

The IO-TLB, the adapter's caches of translations and the model of the processor's caches use it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from verbena.host.errors import HostError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Lru(Generic[K, V]):
    """At most ``entries`` values by key; ``hits`` and ``misses`` count the look-ups."""

    def __init__(self, entries: int) -> None:
        if entries < 1:
            raise HostError(f"a cache has at least one entry, not {entries}")
        self.entries = entries
        self.hits = 0
        self.misses = 0
        self._values: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: K) -> bool:
        """Whether the key is there; no look-up, and no use."""
        return key in self._values

    def get(self, key: K) -> V | None:
        """The value, which is now the one used last; None: a miss."""
        if key not in self._values:
            self.misses += 1
            return None
        self.hits += 1
        self._values.move_to_end(key)
        return self._values[key]

    def put(self, key: K, value: V) -> K | None:
        """Adds or replaces a value; the key that was given up for it, or None."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) <= self.entries:
            return None
        return self._values.popitem(last=False)[0]

    def held(self) -> list[K]:
        """Those that are there; no look-up, and no use."""
        return list(self._values)

    def drop(self, key: K) -> None:
        """Forgets a key; nothing if it is not there."""
        self._values.pop(key, None)

    def clear(self) -> None:
        """Forgets all."""
        self._values.clear()
