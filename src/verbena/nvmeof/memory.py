# SPDX-License-Identifier: Apache-2.0
"""Registered memory: the memory of stores, and buffers for commands.

``Regions`` registers the memory of a store once for each protection domain. ``Buffers`` keeps
buffers of powers of two bytes. Those of a target are no peer's to access; those of a host are used
again only after the command that named them has ended.
"""

from __future__ import annotations

import errno

from verbena.verbs import MR, PD, AccessFlags

from .errors import NvmeError
from .stores import Store

__all__ = ["Buffers", "Regions"]

_LEAST = 4096
_KEPT = 64 << 20


class Regions:
    """The memory of stores, registered."""

    def __init__(self) -> None:
        self._known: dict[tuple[PD, Store], MR] = {}

    def of(self, pd: PD, store: Store) -> MR:
        """Return the region of a store that is in memory."""
        found = self._known.get((pd, store))
        if found is None or found.closed:
            if store.memory is None:
                raise NvmeError(errno.EINVAL, "the store has been closed")
            found = pd.reg_mr(store.memory, AccessFlags.LOCAL_WRITE)
            self._known[pd, store] = found
        return found

    def forget(self, store: Store) -> None:
        """Close the regions of a store."""
        for key in [each for each in self._known if each[1] is store]:
            region = self._known.pop(key)
            if not region.closed:
                region.close()

    def close(self) -> None:
        """Close all regions."""
        for region in self._known.values():
            if not region.closed:
                region.close()
        self._known.clear()


class Buffers:
    """Buffers by their protection domain and size, with ``access`` for peers."""

    def __init__(self, access: int = AccessFlags.LOCAL_WRITE) -> None:
        self._access = access
        self._free: dict[tuple[PD, int], list[MR]] = {}
        self._kept = 0
        self._is_closed = False

    def take(self, pd: PD, length: int) -> MR:
        """Return a buffer of at least ``length`` bytes. Raises VerbsError."""
        size = max(_LEAST, 1 << (length - 1).bit_length())
        free = self._free.get((pd, size))
        while free:
            found = free.pop()
            self._kept -= size
            if not found.closed:
                return found
        return pd.alloc(size, self._access)

    def give_back(self, buffer: MR) -> None:
        """Take a buffer back."""
        if buffer.closed:
            return
        if self._is_closed or self._kept + buffer.length > _KEPT:
            buffer.close()
            return
        self._kept += buffer.length
        self._free.setdefault((buffer.pd, buffer.length), []).append(buffer)

    def close(self) -> None:
        """Close those that are kept, and those that come back from now on."""
        self._is_closed = True
        for buffers in self._free.values():
            for buffer in buffers:
                if not buffer.closed:
                    buffer.close()
        self._free.clear()
