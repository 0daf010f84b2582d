# SPDX-License-Identifier: Apache-2.0
"""Payload on its way to memory, which the adapter keeps until it is there.

An acknowledgement or a completion does not wait for the bytes that it speaks of: they are posted
before it. If they are dropped, since the adapter failed or was unmapped, the adapter writes them
when it is back, by a new look at the region's key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verbena.host.hca.tables import Absent, Found, HcaAccess, Parts

if TYPE_CHECKING:
    from verbena.host.hca.device import Hca


@dataclass
class Landing:
    """Bytes for ``address`` of the region that has ``key``, of a packet for QP ``qpn``."""

    qpn: int
    key: int
    address: int
    access: HcaAccess
    data: bytes
    left: int = 0  # parts that are not in memory


class Landings:
    """Of one adapter, in the order in which they were begun."""

    def __init__(self, hca: Hca) -> None:
        self._hca = hca
        self._kept: dict[int, Landing] = {}  # by id

    @property
    def qpns(self) -> set[int]:
        """The queue pairs that have bytes on their way."""
        return {one.qpn for one in self._kept.values()}

    def begin(
        self,
        landing: Landing,
        parts: Parts,
        then: Callable[[], None],
        failed: Callable[[int], None],
        *,
        tells: bool,
    ) -> None:
        """Writes the bytes to ``parts`` of memory, and calls ``then``: at once, since they are
        posted, or when they are there, if it is not sure that there is memory. ``failed`` gets the
        address where there was none. ``tells``: somebody learns by ``then`` that all bytes so far
        are there, which is never sure behind an IOMMU, whose table may change meanwhile; writes
        arrive in order, so the last one shows that those before it were allowed."""
        if not parts:
            then()
            return
        transfers = self._hca.transfers
        is_sure = not (tells and self._hca.iommu is not None) and all(
            transfers.has_memory(*part, write=True) for part in parts
        )
        self._kept[id(landing)] = landing
        self._write(landing, parts, (lambda: None) if is_sure else then, failed)
        if is_sure:
            then()

    def _write(
        self,
        landing: Landing,
        parts: Parts,
        then: Callable[[], None],
        failed: Callable[[int], None],
    ) -> None:
        landing.left = len(parts)

        def landed() -> None:
            landing.left -= 1
            if landing.left == 0:
                self._kept.pop(id(landing), None)
                then()

        def missing(address: int) -> None:
            if self._kept.pop(id(landing), None) is not None:
                failed(address)

        offset = 0
        for address, size in parts:
            self._hca.transfers.write(
                address,
                landing.data[offset : offset + size],
                landed,
                lambda address=address: missing(address),  # type: ignore[misc]
            )
            offset += size

    def again(self) -> None:
        """Writes what was dropped; what no region allows any more is left out."""
        for landing in list(self._kept.values()):
            self._once_more(landing)

    def _once_more(self, landing: Landing) -> None:
        def found(result: Found) -> None:
            if isinstance(result, list):
                self._write(landing, result, lambda: None, lambda _: None)
            elif isinstance(result, Absent):
                self._hca.page_in(result, lambda: self._once_more(landing))
            else:
                del self._kept[id(landing)]

        size = len(landing.data)
        self._hca.tables.translate(landing.key, landing.address, size, landing.access, found)

    def forget(self) -> None:
        """Leaves out all that is not in memory: the tables cannot be read."""
        self._kept.clear()
