# SPDX-License-Identifier: Apache-2.0
"""One direction of a PCIe link: when each packet is on it.

``Slot`` (pcie.py) puts packets on it, also those of later: the completion of a read begins when the
request has arrived at the other side. What is given to the link before that crosses it earlier, as
far as there is room. No packet passes a posted one that was given to the link before it (PCI
Express Base 3.0, 2.4.1).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter

_END = itemgetter(1)  # of a gap

Piece = tuple[int, int]
"""When packets that follow each other without a pause begin, in ps, and their bytes."""


@dataclass
class Direction:
    """When it is free, and what has crossed it. ``time_ps`` says how long bytes take."""

    time_ps: Callable[[int], int]
    free_at: int = 0
    bytes: int = 0
    transactions: int = 0
    busy: int = 0
    _posted_until: int = 0
    _gaps: list[tuple[int, int]] = field(default_factory=list)
    """Times before ``free_at`` at which it is free, as (begin, end), in order."""
    _times: dict[int, int] = field(default_factory=dict)  # of sizes, as the link has them

    def take(
        self, at: int, size: int, full: int, now: int, posted: bool = False,
        seen: list[Piece] | None = None,
    ) -> int:  # fmt: skip
        """Puts ``size`` bytes of packets behind what is there; the time of their end.

        Each packet but the last has ``full`` bytes. They begin at ``at``, which may be later than
        ``now``; the ``now`` of a later call is not before that of this one. ``seen`` gets where
        they are.
        """
        if at < self._posted_until:
            at = self._posted_until
        if not size:
            return at
        duration = self._times.get(size) or self._time(size)
        self.bytes += size
        self.transactions += 1 if size == full else -(-size // full)
        self.busy += duration
        gaps, begin = self._gaps, self.free_at
        if gaps and gaps[0][1] <= now:
            del gaps[: 1 if len(gaps) == 1 else bisect_right(gaps, now, key=_END)]
        if at < begin and gaps:
            end = self._fill(at, size, full, seen)
        else:
            if at > begin:
                if at > now:
                    gaps.append((begin if begin > now else now, at))
                begin = at
            if seen is not None:
                seen.append((begin, size))
            self.free_at = end = begin + duration
        if posted:
            self._posted_until = end
        return end

    def _time(self, size: int) -> int:
        duration = self._times.get(size)
        if duration is None:
            duration = self._times[size] = self.time_ps(size)
        return duration

    def _fill(self, at: int, size: int, full: int, seen: list[Piece] | None) -> int:
        """Puts packets into the gaps, and what does not fit there behind everything; the time of
        their end."""
        gaps = self._gaps
        first = last = bisect_right(gaps, at, key=_END)
        left: list[tuple[int, int]] = []
        while size and last < len(gaps):
            begin, end = gaps[last]
            last += 1
            start = max(at, begin)
            part = self._fitting(end - start, size, full)
            if not part:
                left.append((begin, end))
                continue
            if seen is not None:
                seen.append((start, part))
            at, size = start + self._time(part), size - part
            left += [one for one in ((begin, start), (at, end)) if one[0] < one[1]]
        gaps[first:last] = left
        if not size:
            return at
        if seen is not None:
            seen.append((self.free_at, size))
        self.free_at += self._time(size)
        return self.free_at

    def _fitting(self, room: int, size: int, full: int) -> int:
        """The bytes of those packets that fit into a gap."""
        if self._time(size) <= room:
            return size
        whole = max(0, room // self._time(full) * full)
        while whole and self._time(whole) > room:  # times are rounded
            whole -= full
        return min(whole, (size - 1) // full * full)
