# SPDX-License-Identifier: Apache-2.0
"""A ring in the server's memory into which one client writes its requests.

``RingWriter`` is the client's side, ``RingReader`` the server's. A record ends where its slot ends,
and its last word is the number of the record: the server polls that word, which a WRITE places
last. A server that is about to sleep writes 0 into the client's wake word; the client then sends a
BELL behind its record. It looks at the word after posting a record, and again when the WRITE has
completed, and the server looks at its rings after its own WRITE has: one of the two sees the other.
"""

from __future__ import annotations

from verbena.verbs import MR, PD, AccessFlags, SendFlags, SendWR, WROpcode

from ._frames import RecordReader, RecordWriter
from .frames import FRAME_SIZE, FrameKind
from .link import RECORD, Link
from .memory import bucket_of
from .server_calls import ServerCalls

__all__ = ["RING_SLOTS", "RingReader", "RingWriter", "WakeWord"]

RING_SLOTS = 32
_WORD = 8
_LOW = 0xFFFFFFFF
_BELL = int(FrameKind.BELL)
_WRITABLE = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE


class WakeWord:
    """A word of the client's memory in which the server says whether it polls: 1, or 0."""

    def __init__(self, pd: PD) -> None:
        self.region: MR = pd.alloc(_WORD, _WRITABLE)
        self.region.store_u64(0, 0)

    def is_awake(self) -> bool:
        """Return whether the server polls."""
        return self.region.load_u64(0) != 0

    def close(self) -> None:
        """End the registration."""
        self.region.close()


class RingWriter(RecordWriter):
    """The client's side (a RequestPath)."""

    def __init__(
        self, link: Link, wake: WakeWord, addr: int, rkey: int, slots: int, size: int
    ) -> None:
        self.room = size - FRAME_SIZE - _WORD
        self._wake = wake
        self._addr = addr
        self._rkey = rkey
        self._size = size
        self._region: MR = link.pd.alloc(slots * size)
        kinds = bucket_of(size) + 1
        requests: list[list[SendWR | None]] = [[None] * kinds for _ in range(slots)]
        self._requests = requests
        self._use_memory(link, self._region, wake.region, requests)
        link.on_ring = self._on_taken
        link.on_record = self._placed

    def _request(self, slot: int, length: int) -> SendWR:
        """Make the request that writes the last bytes of a slot, at least ``length``."""
        bucket = bucket_of(length)
        length = min(64 << bucket, self._size)
        start = (slot + 1) * self._size - length
        flags = SendFlags.SIGNALED
        if length <= self._link.inline:
            flags |= SendFlags.INLINE
        made = self._requests[slot][bucket] = SendWR(
            RECORD,
            self._region.sge(length, start),
            opcode=WROpcode.RDMA_WRITE,
            send_flags=flags,
            remote_addr=self._addr + start,
            rkey=self._rkey,
        )
        return made

    def _check(self) -> None:
        """Ring the bell if the server sleeps and has not taken everything."""
        if not self._wake.is_awake() and self._taken != self._written:
            self._link.send(_BELL, 0, 0, 0, 0, b"")

    def _placed(self) -> None:
        """A record is in the server's memory."""
        if self._taken != self._written:
            self._check()

    def _on_taken(self, taken: int) -> None:
        """The server has taken so many records."""
        self._taken += (taken - self._taken) & _LOW

    def forget(self, call: int) -> None:
        """A call has its response: nothing is kept for it here."""

    def close(self) -> None:
        """End the registration."""
        self._region.close()


class RingReader(RecordReader):
    """The server's side of one client's ring."""

    def __init__(
        self, link: Link, calls: ServerCalls, slots: int, size: int, wake: tuple[int, int]
    ) -> None:
        self.slots = slots
        self.size = size
        self.region: MR = link.pd.alloc(slots * size, _WRITABLE)
        self._wake = wake
        self._words: MR = link.pd.alloc(2 * _WORD)
        self._words.store_u64(_WORD, 1)
        self._is_awake = False
        self._use_memory(link, self.region, slots, calls.on_frame)

    def wake(self) -> None:
        """Say that the server polls."""
        if not self._is_awake and self._link.ended is None:
            self._is_awake = True
            self._link.write_word(self._words, _WORD, *self._wake)

    def before_sleep(self) -> None:
        """Say that the server sleeps; the completion of that WRITE has it look once more."""
        if self._is_awake and self._link.ended is None:
            self._is_awake = False
            self._link.write_word(self._words, 0, *self._wake)

    def close(self) -> None:
        """End the registrations."""
        self._leave_memory()
        self.region.close()
        self._words.close()
