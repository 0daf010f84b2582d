# SPDX-License-Identifier: Apache-2.0
"""The adapter's DMA that is under way, and who has to know when there is no memory for it.

All DMA of the adapter goes through ``Transfers``. It takes nothing while the adapter is away, and
forgets what was under way when that was dropped: nobody hears of it then (``setback.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verbena.host.hca.device import Hca


@dataclass(frozen=True)
class _Transfer:
    address: int
    size: int
    is_write: bool
    failed: Callable[[], None]


class Transfers:
    """Of one adapter."""

    def __init__(self, hca: Hca) -> None:
        self._hca = hca
        self._under_way: dict[int, _Transfer] = {}
        self._count = 0
        self._ended = 0  # that have failed here, and that the bus has still to speak of
        self.is_cut = False  # what was under way was dropped, and nothing was done about it yet

    def read(
        self, address: int, size: int, then: Callable[[bytes], None], failed: Callable[[], None]
    ) -> None:
        """Reads memory, and calls ``then`` with the bytes, or ``failed``: there is no memory."""
        if self._hca.is_away:
            return
        number = self._add(address, size, False, failed)

        def arrived(data: bytes) -> None:
            if self._is_live(number):
                then(data)

        self._hca.dma_read(address, size, arrived)

    def write(
        self, address: int, data: bytes, then: Callable[[], None], failed: Callable[[], None]
    ) -> None:
        """Writes to memory, and calls ``then`` when the bytes are there, or ``failed``."""
        if self._hca.is_away:
            return
        number = self._add(address, len(data), True, failed)

        def landed() -> None:
            if self._is_live(number):
                then()

        self._hca.dma_write(address, data, landed)

    def _add(self, address: int, size: int, is_write: bool, failed: Callable[[], None]) -> int:
        self._count += 1
        self._under_way[self._count] = _Transfer(address, size, is_write, failed)
        return self._count

    def _is_live(self, number: int) -> bool:
        """Whether one that has arrived is still waited for."""
        if self._under_way.pop(number, None) is not None:
            return True
        self._ended -= 1  # memory went, and came again
        return False

    def has_memory(self, address: int, size: int, write: bool) -> bool:
        """Whether there is memory at an address as the adapter knows it, which it may reach. Behind
        an IOMMU, whose driver maps addresses to themselves, False may be wrong."""
        iommu = self._hca.iommu
        if iommu is not None and not iommu.allows(address, size, write=write):
            return False
        return self._hca.home.memory.find(address, size) is not None

    def fail(self) -> None:
        """The bus has said that there was no memory for one: ends all for which there is none, of
        which it will speak later, or every one, where an IOMMU's addresses do not tell."""
        wrong = [
            number
            for number, one in self._under_way.items()
            if not self.has_memory(one.address, one.size, one.is_write)
        ]
        if not wrong and self._ended:
            self._ended -= 1
            return
        found = [self._under_way.pop(number) for number in wrong or list(self._under_way)]
        self._ended += max(len(found) - 1, 0)
        for one in found:
            one.failed()

    def cut(self) -> None:
        """What is under way was dropped."""
        self.is_cut = True
        self._under_way.clear()
        self._ended = 0
