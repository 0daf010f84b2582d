# SPDX-License-Identifier: Apache-2.0
"""What the adapter's driver does with its MSI-X table: an entry for each completion queue.

``HcaDriver(..., msix=True)`` has one. Every change is a store to page 0 of the registers, over the
link, as machine code makes it.
"""

from __future__ import annotations

from collections.abc import Callable

from verbena.host.devices import checked_vector
from verbena.host.errors import HostError
from verbena.host.interrupt_message import message_address
from verbena.host.msix import ADDRESS, DATA, ENABLE, ENTRY, TABLE, VECTOR_CONTROL, Msix


class CompletionVectors:
    """``store(offset, size, value)`` reaches the registers of the adapter that has ``msix``."""

    def __init__(self, msix: Msix, store: Callable[[int, int, int], None]) -> None:
        self._msix, self._store = msix, store
        self._used = 0
        self._store(msix.at, 2, ENABLE)

    def take(self, vector: int, core: int) -> int:
        """An entry for a completion queue. HostError if all are in use."""
        if self._used == self._msix.entries:
            raise HostError(
                f"all {self._used} entries of the adapter's MSI-X table are in use: make it with "
                "Hca(vectors=...)"
            )
        entry, self._used = self._used, self._used + 1
        self.steer(entry, vector, core)
        return entry

    def steer(self, entry: int, vector: int, core: int) -> None:
        """Lets an entry interrupt a core with a vector from now on; while it is changed it is
        masked, so that no interrupt is lost."""
        checked_vector(vector)
        self.mask(entry)
        self._write(entry, ADDRESS, 8, message_address(core))
        self._write(entry, DATA, 4, vector)
        self.unmask(entry)

    def mask(self, entry: int) -> None:
        """Lets an entry's interrupt wait."""
        self._write(entry, VECTOR_CONTROL, 4, 1)

    def unmask(self, entry: int) -> None:
        """Lets an entry's interrupt come, also one that has waited."""
        self._write(entry, VECTOR_CONTROL, 4, 0)

    def _write(self, entry: int, field: int, size: int, value: int) -> None:
        self._store(self._msix.at + TABLE + entry * ENTRY + field, size, value)
