# SPDX-License-Identifier: Apache-2.0
"""The memory of frames: slots to send from, and receives, of one link or shared by all of a server.

Links use this. Requests are made once and posted often, which costs a third of making them for each
frame. A frame is sent with its length rounded up to a power of two, so that few requests do.
"""

from __future__ import annotations

from typing import Any

from verbena.verbs import MR, PD, QP, SRQ, AccessFlags, RecvWR, SendFlags, SendWR, VerbsError

__all__ = ["RECEIVES", "FrameSlots", "OwnReceives", "SharedReceives", "bucket_of"]

RECEIVES = 1 << 32
"""``wr_id`` below this are numbers of receive slots."""
SPARE = 4  # receives for CREDIT frames, which need no credit
_LEAST = 6  # 64 bytes


def bucket_of(size: int) -> int:
    """Return which power of two a size is rounded up to, counted from 64.

    >>> bucket_of(33), bucket_of(64), bucket_of(65), bucket_of(4096)
    (0, 0, 1, 6)
    """
    return max(0, (size - 1).bit_length() - _LEAST)


class FrameSlots:
    """A ring of slots to send from; every fourth part of it one request is signaled."""

    def __init__(self, pd: PD, slots: int, size: int, inline: int, tag: int) -> None:
        self.slots = slots
        self.size = size
        self.region: MR = pd.alloc(slots * size)
        self.view = memoryview(self.region)
        self.inline = inline
        self._tag = tag
        self._step = max(1, slots // 4)
        count = bucket_of(size) + 1
        self.requests: list[list[SendWR | None]] = [[None] * count for _ in range(slots)]
        # A look-up by units of 64 bytes takes half the time of bucket_of.
        self._buckets = [bucket_of(64 * units + 1) for units in range(-(-size // 64))]

    def request(self, slot: int, length: int) -> SendWR:
        """Return the request that sends so many bytes of a slot."""
        bucket = self._buckets[(length - 1) >> 6]
        made = self.requests[slot][bucket]
        if made is None:
            made = self.requests[slot][bucket] = self._make(slot, 64 << bucket)
        return made

    def completes(self, slot: int) -> bool:
        """Return whether the request of a slot has a completion of its own."""
        return slot % self._step == self._step - 1

    def signal(self, slot: int) -> None:
        """Give the requests of a slot completions of their own from now on."""
        made = self.requests[slot]
        made[:] = [self._make(slot, 64 << bucket, True) for bucket in range(len(made))]

    def _make(self, slot: int, length: int, signaled: bool = False) -> SendWR:
        length = min(length, self.size)
        flags = SendFlags.INLINE if length <= self.inline else SendFlags(0)
        if signaled or self.completes(slot):
            flags |= SendFlags.SIGNALED
        piece = self.region.sge(length, slot * self.size)
        return SendWR(self._tag | slot, piece, send_flags=flags)

    def close(self) -> None:
        """End the registration."""
        self.view.release()
        self.region.close()


class OwnReceives:
    """The receives of one link."""

    def __init__(self, pd: PD, slots: int, size: int) -> None:
        self.count = slots + SPARE
        self.size = size
        self.region: MR = pd.alloc(self.count * size, AccessFlags.LOCAL_WRITE)
        self.view = memoryview(self.region)
        self._queue: Any = None
        self._requests = [
            RecvWR(slot, self.region.sge(size, slot * size)) for slot in range(self.count)
        ]

    def post_all(self, queue: QP | SRQ) -> None:
        """Post all receives to a new queue pair."""
        self._queue = queue
        queue.post_recv(self._requests)

    def post(self, slot: int) -> None:
        """Post the receive of a slot whose frame was taken."""
        try:
            self._queue.post_recv(self._requests[slot])
        except VerbsError:
            return  # the queue pair has failed since

    def close(self) -> None:
        """End the registration."""
        self.view.release()
        self.region.close()


class SharedReceives(OwnReceives):
    """The receives of all links of a server, in a protection domain: one shared receive queue."""

    def __init__(self, pd: PD, slots: int, size: int) -> None:
        super().__init__(pd, slots, size)
        self.srq: SRQ = pd.create_srq(max_wr=self.count)
        self.post_all(self.srq)

    def close(self) -> None:
        self.srq.close()
        super().close()
