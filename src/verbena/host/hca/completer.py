# SPDX-License-Identifier: Apache-2.0
"""Writes completions to their queues in memory, and interrupts for queues that are armed.

An entry is kept until it is in memory. One that was dropped, since the adapter failed or was
unmapped, is written when the adapter is back, as an error: what it speaks of may be lost, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from verbena.host.hca.formats import CompletionEntry, HcaStatus
from verbena.host.hca.queues import CompletionRing

if TYPE_CHECKING:
    from verbena.host.hca.device import Hca


class Completer:
    """Of one adapter. ``overrun(cq, qpn, why)`` is told of a queue that can take no more."""

    def __init__(self, hca: Hca, overrun: Callable[[CompletionRing, int, str], None]) -> None:
        self._hca, self._overrun = hca, overrun

    def complete(self, cq: CompletionRing, entry: CompletionEntry) -> None:
        """Writes a completion, and interrupts if the queue is armed."""
        if cq.overran:
            return
        if cq.blocked or cq.written - cq.taken >= cq.entries:
            cq.blocked.append(entry)
            if len(cq.blocked) == 1:
                self._look(cq)
            return
        self._add(cq, entry)

    def _add(self, cq: CompletionRing, entry: CompletionEntry) -> None:
        place, cq.written = cq.written, cq.written + 1
        cq.under_way[place] = entry
        self._write(cq, place)
        if cq.is_armed:
            cq.is_due = True  # until the entry is there: both may be dropped
            if not self._hca.is_away:
                cq.is_armed = False
                self.interrupt(cq)

    def _write(self, cq: CompletionRing, place: int) -> None:
        def landed() -> None:
            cq.under_way.pop(place, None)
            if not cq.under_way:
                cq.is_due = False

        data = cq.under_way[place].packed(place, cq.entries)
        self._hca.transfers.write(cq.place(place), data, landed, lambda: self._missing(cq))

    def interrupt(self, cq: CompletionRing) -> None:
        """Interrupts for a queue, if it has a vector."""
        hca = self._hca
        if cq.entry is not None and hca.msix.send(cq.entry):
            return
        if cq.vector is not None:
            hca.interrupt(cq.vector, cq.core)

    # ---- full queues ----

    def _look(self, cq: CompletionRing) -> None:
        """Reads how many entries the program has taken."""
        self._hca.transfers.read(
            cq.record, 8, lambda data: self._make_room(cq, data), lambda: self._missing(cq)
        )

    def _make_room(self, cq: CompletionRing, record: bytes) -> None:
        """Writes what has waited; a queue without room ends its QPs."""
        cq.taken = max(cq.taken, int.from_bytes(record, "little"))
        if cq.written - cq.taken >= cq.entries and cq.blocked:
            why = f"its {cq.entries} entries are all taken: poll it, or give it more"
            self._end(cq, why)
            return
        while cq.blocked and cq.written - cq.taken < cq.entries:
            self._add(cq, cq.blocked.popleft())
        if cq.blocked:
            self._look(cq)

    def _missing(self, cq: CompletionRing) -> None:
        self._end(cq, "there is no memory")

    def _end(self, cq: CompletionRing, why: str) -> None:
        if cq.overran:
            return
        cq.overran = True
        waiting = [*cq.blocked, *cq.under_way.values()]
        cq.blocked.clear()
        self._overrun(cq, waiting[0].qpn if waiting else 0, why)

    # ---- when the adapter is back ----

    def qpns(self) -> set[int]:
        """The queue pairs that have completions on their way."""
        queues = self._hca.cqs.values()
        return {one.qpn for cq in queues for one in (*cq.under_way.values(), *cq.blocked)}

    def again(self) -> None:
        """Writes the completions that were dropped, as errors, and interrupts for them."""
        for cq in self._hca.cqs.values():
            if cq.overran:
                continue
            cq.blocked.extend([_failed(cq.blocked.popleft()) for _ in range(len(cq.blocked))])
            for place in sorted(cq.under_way):
                cq.under_way[place] = _failed(cq.under_way[place])
                self._write(cq, place)
            if cq.under_way and cq.is_due:
                cq.is_armed = False
                self.interrupt(cq)
            if cq.blocked:
                self._look(cq)


def _failed(entry: CompletionEntry) -> CompletionEntry:
    """An entry that says no more that all is there."""
    if entry.status is not HcaStatus.SUCCESS:
        return entry
    return replace(entry, status=HcaStatus.WR_FLUSH_ERR, length=0, immediate=0)
