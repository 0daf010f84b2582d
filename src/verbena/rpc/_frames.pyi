# SPDX-License-Identifier: Apache-2.0

from collections import deque
from typing import Any

from verbena.peers.errors import Ended
from verbena.verbs import MR, WC, SendWR

from .link import Link, OnFrame
from .memory import FrameSlots, OwnReceives

class FrameEnd:
    """The part of a link that runs for each frame. Its fields are the link's, which sets them."""

    ended: Ended | None
    """Why it has ended; None: it has not."""
    on_frame: OnFrame
    """Gets each frame that is not in parts, or all of its payload."""
    on_ring: Any
    """Gets the number of records of the ring that the peer has taken."""
    taken: int
    """Records of the peer's ring that were taken here."""
    told: int
    """So many of those the peer was told of."""
    held: int
    """The slot whose receive is posted with the next frame; -1: none."""
    holds: bool
    """Whether receives are held so."""
    _credits: int
    _sent: int
    _completed: int
    _slots: int
    _owed: int
    _half: int
    _outbox: deque[tuple[int, int, int, int, int, bytes]]
    _leaving: list[Any]
    _post: Any
    _out: FrameSlots
    _receives: OwnReceives
    def _use_memory(self, out: FrameSlots, receives: OwnReceives, post: Any) -> None:
        """Take frames from ``receives``, an OwnReceives, and send them from FrameSlots by a call of
        ``post``. The link closes both only once it has ended."""
    def send(
        self, kind: int, flags: int, method: int, call: int, count: int, payload: bytes
    ) -> None:
        """Send a frame with a payload of at most ``room`` bytes, now or when there is a credit."""
    def completed(self, wc: WC) -> None:
        """Take a completion: PollTarget."""
    def _go_on(self) -> None:
        """After a completion: send what waited for it, and give credits back."""

class RecordWriter:
    """The part of a ring's writer that runs for each record."""

    _written: int
    _taken: int
    _link: Link
    def _use_memory(
        self, link: Link, region: MR, wake: MR, requests: list[list[SendWR | None]]
    ) -> None:
        """Pack records into a region. ``wake``: the region whose first word is not 0 while the
        server polls. ``requests``: a list for each slot of SendWR by bucket, or None."""
    def send(self, flags: int, method: int, call: int, count: int, data: bytes) -> bool:
        """Write a request; False if the ring is full."""

class RecordReader:
    """The part of a ring's reader that runs for each look at the ring and each record."""

    _taken: int
    _link: Link
    def _use_memory(self, link: Link, region: MR, slots: int, on_frame: OnFrame) -> None:
        """Take the records of a region, which has so many slots. ``link``: a FrameEnd."""
    def _leave_memory(self) -> None:
        """Look no more."""
    def scan(self) -> int:
        """Take the records that are there, and return how many those were."""
