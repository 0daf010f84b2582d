# SPDX-License-Identifier: Apache-2.0
"""``HostQueue``: the queue pair of a host's queue: commands go, completions come.

``SlotState`` are the states of a command's slot, whose number is its CID. A command ends when its
completion is there; its slot is used again when its capsule has been sent, too. ``done`` of a
command is called with the result and the status of its completion, or with ``LOST`` when the queue
ends. Completions for commands that nobody has sent end the queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum

from verbena.verbs import CQ, MR, PD, QP, AccessFlags, QPState, VerbsError

from .commands import (
    CAPSULE,
    COMPLETION,
    COMPLETION_SIZE,
    FLAG_SGL,
    READ_WRITE,
    SGL_IN_CAPSULE,
    Command,
    pack_command_capsule,
)
from .completions import Completions
from .send_queue import COUNT_MASK, INLINE, KIND_SHIFT, RECORD, SEND, SendQueue

__all__ = ["LOST", "Done", "HostQueue", "SlotState"]

Done = Callable[[int, int], None]
LOST = -1
_KEYED = 0x40 << 24
_IN_CAPSULE = SGL_IN_CAPSULE << 24


class SlotState(Enum):
    """States of a slot."""

    FREE = "has no command"
    SENT = "waits for the completion, and its capsule is inline or out of the send queue"
    SENT_WITH_DATA = "waits for the completion; the send queue may still need its capsule"
    LINGERING = "has its completion; the send queue may still need its capsule"


class HostQueue(Completions):
    """One queue of a controller."""

    def __init__(
        self,
        qid: int,
        entries: int,
        capsule_data: int,
        on_end: Callable[[str], None],
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        self.qid, self.entries = qid, entries
        self.capsule_data = capsule_data
        self._on_end, self._on_room = on_end, on_room
        self.sends = SendQueue(4 * entries, entries)
        self._stride = CAPSULE + capsule_data
        self._free = list(range(entries - 1, 0, -1))  # one less than entries: a full queue is none
        self._done: dict[int, Done] = {}
        self._capsule_counts: dict[int, int] = {}  # of slots that are SENT_WITH_DATA
        self._lingering: deque[tuple[int, int]] = deque()
        self._in_batch = False
        self.is_ended = False

    def prepare(self, qp: QP) -> None:
        """Make its memory, and post the receives, before the target can send."""
        pd: PD = qp.pd
        self.sends.qp = qp
        self._capsules: MR = pd.alloc(self.entries * self._stride, AccessFlags.LOCAL_WRITE)
        self._answers: MR = pd.alloc(self.entries * COMPLETION_SIZE, AccessFlags.LOCAL_WRITE)
        self.view = memoryview(self._capsules)
        self._answer_view = memoryview(self._answers)
        self._answers_at = self._answers.addr, self._answers.lkey
        self._capsules_at, self._capsule_key = self._capsules.addr, self._capsules.lkey
        for slot in range(self.entries):
            self._repost(slot)
        self.sends.flush()

    def limit(self, entries: int) -> None:
        """Have at most so many entries, since the target has no more."""
        self.entries = max(2, min(self.entries, entries))
        self._free = list(range(self.entries - 1, 0, -1))

    def begin(self, cq: CQ, spin: float = 0.0) -> None:
        """Serve it in the running loop."""
        Completions.__init__(self, cq, spin)
        self.start()

    def state_of(self, slot: int) -> SlotState:
        """Return the state of a slot."""
        if slot in self._done:
            with_data = self._capsule_counts.get(slot, 0) > self.sends.retired
            return SlotState.SENT_WITH_DATA if with_data else SlotState.SENT
        lingers = any(each == slot for _, each in self._lingering)
        return SlotState.LINGERING if lingers else SlotState.FREE

    @property
    def room(self) -> int:
        """How many commands may be submitted."""
        return min(len(self._free), self.sends.room)

    @property
    def outstanding(self) -> int:
        """How many commands wait for their completions."""
        return len(self._done)

    def end(self, reason: str) -> None:
        """End it: all commands are lost, and the target can no longer use their memory."""
        if self.is_ended:
            return
        self.stop()
        qp = self.sends.qp
        if qp is not None and not qp.closed:
            with suppress(VerbsError):
                qp.modify(qp_state=QPState.ERR)
        lost, self._done = self._done, {}
        self._free.clear()
        self._on_end(reason)
        for done in lost.values():
            done(0, LOST)

    def release(self) -> None:
        """Let its memory go, after its queue pair was closed."""
        for region in (self._capsules, self._answers):
            if not region.closed:
                region.close()

    # ---- commands ----

    def submit(self, command: Command, done: Done, data: bytes = b"") -> int:
        """Send a command, with data in its capsule if there are any. Returns its CID.

        There must be ``room``. Raises VerbsError.
        """
        slot = self._free.pop()
        at = slot * self._stride
        packed = pack_command_capsule(command._replace(cid=slot, flags=command.flags | FLAG_SGL))
        self.view[at : at + CAPSULE] = packed
        self.view[at + CAPSULE : at + CAPSULE + len(data)] = data
        self._send(slot, at, CAPSULE + len(data), done)
        return slot

    def submit_blocks(
        self,
        opcode: int,
        nsid: int,
        address: int,
        length: int,
        key: int,
        first: int,
        count: int,
        control: int,
        done: Done,
    ) -> None:
        """Send a command for ``count`` blocks, whose data are in registered memory."""
        slot = self._free.pop()
        at = slot * self._stride
        READ_WRITE.pack_into(
            self.view,
            at,
            opcode,
            FLAG_SGL,
            slot,
            nsid,
            address,
            length | (key & 0xFF) << 24,
            key >> 8 | _KEYED,
            first,
            count - 1,
            control,
            0,
        )
        self._send(slot, at, CAPSULE, done)

    def submit_write_in_capsule(
        self, nsid: int, data: memoryview, first: int, count: int, control: int, done: Done
    ) -> None:
        """Send a Write with its data in the capsule, ``capsule_data`` bytes at most."""
        slot = self._free.pop()
        at, length = slot * self._stride, len(data)
        fields = (1, FLAG_SGL, slot, nsid, 0, length, _IN_CAPSULE, first, count - 1, control, 0)
        READ_WRITE.pack_into(self.view, at, *fields)
        self.view[at + CAPSULE : at + CAPSULE + length] = data
        self._send(slot, at, CAPSULE + length, done)

    def _send(self, slot: int, at: int, length: int, done: Done) -> None:
        self._done[slot] = done
        sends = self.sends
        RECORD.pack_into(
            sends.records,
            sends.at,
            0,
            self._capsules_at + at,
            length,
            self._capsule_key,
            SEND,
            INLINE if length == CAPSULE else 0,
            0,
            0,
        )
        sends.at += RECORD.size
        sends.posted += 1
        if length != CAPSULE:
            self._capsule_counts[slot] = sends.posted
        if not self._in_batch:
            sends.flush()

    # ---- completions ----

    def take_batch(self, completions: Iterator[tuple[int, int, int, int, int]]) -> None:
        self._in_batch = True
        try:
            for wr_id, status, _, vendor, length in completions:
                if status:
                    self.end(self.reason(status, vendor))
                    return
                if wr_id >> KIND_SHIFT:
                    self._retire(wr_id & COUNT_MASK)
                else:
                    self._complete(wr_id, length)
            if self.is_ended:
                return
            self._on_room()
            self.sends.flush()
        finally:
            self._in_batch = False

    def _retire(self, count: int) -> None:
        self.sends.retire(count)
        while self._lingering and self._lingering[0][0] <= count:
            self._free.append(self._lingering.popleft()[1])

    def _complete(self, receive: int, length: int) -> None:
        if length < COMPLETION_SIZE:
            self.end(f"the target sent a completion of {length} bytes")
            return
        result, _, _, cid, status = COMPLETION.unpack_from(
            self._answer_view, receive * COMPLETION_SIZE
        )
        done = self._done.pop(cid, None)
        if done is None:
            self.end(f"the target completed the command {cid}, which was not sent")
            return
        self._repost(receive)
        count = self._capsule_counts.pop(cid, 0)
        if count <= self.sends.retired:
            self._free.append(cid)
        else:
            self._lingering.append((count, cid))
        done(result, status)

    def _repost(self, slot: int) -> None:
        at = slot * COMPLETION_SIZE
        begin, key = self._answers_at
        self.sends.add_receive(slot, begin + at, COMPLETION_SIZE, key)
