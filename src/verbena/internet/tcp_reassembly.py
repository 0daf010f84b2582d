# SPDX-License-Identifier: Apache-2.0
"""What came ahead of a gap in a TCP connection (RFC 9293, section 3.10.7.4).

``TcpConnection`` puts the payload of each segment here, and takes what follows in order.
"""

from __future__ import annotations


class TcpReassembly:
    """Pieces by sequence number, which do not overlap, all of them in the window."""

    def __init__(self) -> None:
        self._pieces: dict[int, bytes] = {}

    def __bool__(self) -> bool:
        """Whether something waits for a gap to be filled."""
        return bool(self._pieces)

    @property
    def size(self) -> int:
        """The bytes that wait."""
        return sum(map(len, self._pieces.values()))

    def keep(self, at: int, payload: bytes, first: int, behind: int) -> None:
        """Keep what is new of a payload at ``at``, from ``first`` on (RCV.NXT), and before the end
        of the window, ``behind``."""
        begin, end = at, min(at + len(payload), behind)
        at = max(at, first)
        for start in sorted(self._pieces):
            if at < start:
                self._pieces[at] = payload[at - begin : min(start, end) - begin]
            at = max(at, start + len(self._pieces[start]))
            if at >= end:
                return
        self._pieces[at] = payload[at - begin : end - begin]

    def take(self, first: int) -> bytes:
        """Take out what follows from ``first`` on without a gap."""
        fresh = bytearray()
        while piece := self._pieces.pop(first + len(fresh), b""):
            fresh += piece
        return bytes(fresh)
