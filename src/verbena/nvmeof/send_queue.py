# SPDX-License-Identifier: Apache-2.0
"""``SendQueue``: the send requests of a queue pair, posted in batches of packed records.

Both sides' queues use it. Only the last request of a batch is signalled, and READs: its ``wr_id``
has how many requests had been posted, and its completion retires them all, since a send queue
completes in order. Memory that requests use is held until then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any

import numpy as np

from verbena.verbs import QP, SendFlags, WROpcode, recv_dtype, send_dtype

__all__ = ["COUNT_MASK", "KIND_SHIFT", "READ_KIND", "SENT_KIND", "SLOT_SHIFT", "SendQueue", "WC"]

# wr_id, address, length, lkey, opcode, flags, remote address, rkey or the key to invalidate
RECORD = Struct("<QQIIIIQI20x")
RECEIVE = Struct("<QQII")
# wr_id, status, opcode, vendor_err, byte_len
WC = Struct("<QIIII24x")
SEND = int(WROpcode.SEND)
SEND_INVALIDATE = int(WROpcode.SEND_WITH_INV)
WRITE, READ = int(WROpcode.RDMA_WRITE), int(WROpcode.RDMA_READ)
SIGNALED, INLINE = int(SendFlags.SIGNALED), int(SendFlags.INLINE)

# wr_id of a send request: its kind, a slot of the caller's, the count of requests
KIND_SHIFT, SLOT_SHIFT = 60, 40
COUNT_MASK = (1 << SLOT_SHIFT) - 1
SLOT_MASK = (1 << KIND_SHIFT - SLOT_SHIFT) - 1
SENT_KIND, READ_KIND = 1, 2
_SENT, _READ = SENT_KIND << KIND_SHIFT, READ_KIND << KIND_SHIFT


class SendQueue:
    """The send and receive requests that a queue posts. ``room`` counts free places."""

    def __init__(self, room: int, receives: int) -> None:
        self.qp: QP | None = None
        self.size = room
        self.posted = 0  # requests that were packed, ever
        self.retired = 0
        self._sends = np.zeros(room, send_dtype)
        self._receives = np.zeros(receives, recv_dtype)
        self.records = self._sends.view(np.uint8).data
        self.receive_records = self._receives.view(np.uint8).data
        self.at = 0  # bytes of records that wait for ``flush``
        self.receive_at = 0
        self._held: deque[tuple[int, Callable[[Any], None], Any]] = deque()

    @property
    def room(self) -> int:
        """How many requests may be added."""
        return self.size - (self.posted - self.retired)

    def add(
        self,
        opcode: int,
        address: int,
        length: int,
        key: int,
        remote_address: int,
        remote_key: int,
        flags: int = 0,
    ) -> None:
        """Add a request that is not signalled by itself."""
        RECORD.pack_into(
            self.records,
            self.at,
            0,
            address,
            length,
            key,
            opcode,
            flags,
            remote_address,
            remote_key,
        )
        self.at += RECORD.size
        self.posted += 1

    def add_read(
        self,
        slot: int,
        address: int,
        length: int,
        key: int,
        remote_address: int,
        remote_key: int,
    ) -> None:
        """Add a READ, whose completion names the slot."""
        self.posted += 1
        RECORD.pack_into(
            self.records,
            self.at,
            _READ | slot << SLOT_SHIFT | self.posted,
            address,
            length,
            key,
            READ,
            SIGNALED,
            remote_address,
            remote_key,
        )
        self.at += RECORD.size

    def add_receive(self, slot: int, address: int, length: int, key: int) -> None:
        """Add a receive request."""
        RECEIVE.pack_into(self.receive_records, self.receive_at, slot, address, length, key)
        self.receive_at += RECEIVE.size

    def hold(self, release: Callable[[Any], None], memory: Any) -> None:
        """Call ``release`` with the memory when the requests that were added are retired."""
        self._held.append((self.posted, release, memory))

    def flush(self) -> None:
        """Post what was added: receives first, since the peer sends again once it has an answer.

        Raises VerbsError.
        """
        if self.receive_at:
            count, self.receive_at = self.receive_at // RECEIVE.size, 0
            assert self.qp is not None
            self.qp.post_many(self._receives[:count])
        if self.at:
            last = self.at - RECORD.size
            count, self.at = self.at // RECORD.size, 0
            record = self._sends[count - 1]
            if record["opcode"] != READ:
                _FLAGS.pack_into(self.records, last + 28, int(record["flags"]) | SIGNALED)
                _WR_ID.pack_into(self.records, last, _SENT | self.posted)
            assert self.qp is not None
            self.qp.post_many(self._sends[:count])

    def retire(self, count: int) -> None:
        """Requests have completed, up to this count."""
        self.retired = count
        while self._held and self._held[0][0] <= count:
            _, release, memory = self._held.popleft()
            release(memory)

    def release_all(self) -> None:
        """Release what is held: the queue pair is closed."""
        while self._held:
            _, release, memory = self._held.popleft()
            release(memory)


_FLAGS, _WR_ID = Struct("<I"), Struct("<Q")
