# SPDX-License-Identifier: Apache-2.0
"""A ring in the server's memory into which one client writes its requests.

``RingWriter`` is the client's side, ``RingReader`` the server's. A record ends where its slot ends,
and its last word is the number of the record: the server polls that word, which a WRITE places
last. A server that is about to sleep writes 0 into the client's wake word; the client then sends a
BELL behind its record. It looks at the word after posting a record, and again when the WRITE has
completed, and the server looks at its rings after its own WRITE has: one of the two sees the other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from verbena.verbs import MR, PD, AccessFlags, SendFlags, SendWR, WROpcode

from .frames import FRAME, FRAME_SIZE, FrameKind
from .link import RECORD, Link
from .memory import bucket_of
from .server_calls import ServerCalls

__all__ = ["RING_SLOTS", "RingReader", "RingWriter", "WakeWord"]

RING_SLOTS = 32
_WORD = 8
_LOW = 0xFFFFFFFF
_KEPT = 256  # bytes of the longest request of which a slot keeps how it is written
_REQUEST, _BELL = int(FrameKind.REQUEST), int(FrameKind.BELL)
_WRITABLE = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE
_Record = tuple[Callable[..., None], int, int, SendWR]


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


class RingWriter:
    """The client's side (a RequestPath)."""

    def __init__(
        self, link: Link, wake: WakeWord, addr: int, rkey: int, slots: int, size: int
    ) -> None:
        self.room = size - FRAME_SIZE - _WORD
        self._link = link
        self._wake = wake
        self._addr = addr
        self._rkey = rkey
        self._slots = slots
        self._size = size
        self._written = 0
        self._taken = 0
        self._region: MR = link.pd.alloc(slots * size)
        self._view = memoryview(self._region)
        self._requests: dict[tuple[int, int], SendWR] = {}
        self._ready: list[dict[int, _Record]] = [{} for _ in range(slots)]
        link.on_ring = self._on_taken
        link.on_record = self._placed

    def send(self, flags: int, method: int, call: int, count: int, data: bytes) -> bool:
        """Write a request; False if the ring is full."""
        if self._link.ended is not None:
            return True  # the call fails with the link
        written = self._written
        if written - self._taken >= self._slots:
            return False
        slot = written % self._slots
        length = len(data)
        pack, at, before, request = self._ready[slot].get(length) or self._make(slot, length)
        self._written = written = written + 1
        # The last two are the word.
        pack(
            *(self._view, at, _REQUEST, flags, method, 0, call, count, length, 0),
            *(data, written & _LOW, before),
        )
        self._link.post_record(request)
        if not self._wake.is_awake():
            self._check()
        return True

    def _make(self, slot: int, length: int) -> _Record:
        """Return how a request with so many bytes is written into a slot.

        That is what packs its record, where, how many bytes precede the word, and the WRITE.
        """
        padded = -length % 8 + length
        before = FRAME_SIZE + padded
        at = (slot + 1) * self._size - _WORD - before
        pack = struct.Struct(f"{FRAME.format}{padded}sII").pack_into
        made = pack, at, before, self._request(slot, before + _WORD)
        if length <= _KEPT:
            self._ready[slot][length] = made
        return made

    def _request(self, slot: int, length: int) -> SendWR:
        bucket = bucket_of(length)
        found = self._requests.get((slot, bucket))
        if found is None:
            length = min(64 << bucket, self._size)
            start = (slot + 1) * self._size - length
            flags = SendFlags.SIGNALED
            if length <= self._link.inline:
                flags |= SendFlags.INLINE
            found = self._requests[slot, bucket] = SendWR(
                RECORD,
                self._region.sge(length, start),
                opcode=WROpcode.RDMA_WRITE,
                send_flags=flags,
                remote_addr=self._addr + start,
                rkey=self._rkey,
            )
        return found

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
        self._view.release()
        self._region.close()


class RingReader:
    """The server's side of one client's ring."""

    def __init__(
        self, link: Link, calls: ServerCalls, slots: int, size: int, wake: tuple[int, int]
    ) -> None:
        self.slots = slots
        self.size = size
        self.region: MR = link.pd.alloc(slots * size, _WRITABLE)
        self._view = memoryview(self.region)
        self._link = link
        self._calls = calls
        self._wake = wake
        self._words: MR = link.pd.alloc(2 * _WORD)
        self._words.store_u64(_WORD, 1)
        self._is_awake = False
        self._load = self.region.load_u64
        self._taken = 0
        self._end = size - _WORD

    def scan(self) -> int:
        """Take the records that are there, and return how many those were."""
        try:
            return self._scan()
        except Exception as error:  # the client wrote something else
            self._link.broken(error)
            return 0

    def _scan(self) -> int:
        count = 0
        while True:
            word = self._load(self._end)
            if word & _LOW != (self._taken + 1) & _LOW or self._link.ended is not None:
                return count
            count += 1
            at = self._end - (word >> 32)
            if not self._end - self.size + _WORD <= at <= self._end - FRAME_SIZE:
                raise ValueError("a record that does not fit its slot")
            kind, flags, method, _, call, deadline, length, _ = FRAME.unpack_from(self._view, at)
            data = bytes(self._view[at + FRAME_SIZE : at + FRAME_SIZE + length])
            self._taken += 1
            self._end = (self._taken % self.slots + 1) * self.size - _WORD
            self._link.taken = self._taken & _LOW
            del kind
            self._calls.on_frame(_REQUEST, flags, method, call, deadline, data)
            if self._taken - self._link.told >= self.slots // 2:
                self._link.tell()

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
        del self._load
        self._view.release()
        self.region.close()
        self._words.close()
