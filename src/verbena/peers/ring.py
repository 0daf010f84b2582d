# SPDX-License-Identifier: Apache-2.0
"""The memory of small messages: a ring to send from, and slots to receive into.

A session has one ``Ring`` for all its transports. A slot that holds a message which the program has
not released is not posted, so the peer cannot overwrite it.
"""

from __future__ import annotations

from verbena.verbs import MR, PD, QP, AccessFlags

__all__ = ["ARRIVED", "Ring"]

ARRIVED = 1 << 32
"""Set in the ``wr_id`` of receives; the rest is the number of the slot."""
SPARE = 8  # receives for control messages beside those that answer messages


class Ring:
    """Slots in registered memory: ``slots`` to send from, and more than twice as many to receive.

    The peer may have ``slots`` messages here, and as many confirmations on their way.
    """

    def __init__(self, pd: PD, slots: int, slot_size: int) -> None:
        self.slots = slots
        self.slot_size = slot_size
        self.receives = 2 * slots + SPARE
        self._sent = pd.alloc(slots * slot_size, AccessFlags.LOCAL_WRITE)
        self._pd = pd
        arrived = pd.alloc(self.receives * slot_size, AccessFlags.LOCAL_WRITE)
        self._places = [(arrived, slot * slot_size) for slot in range(self.receives)]
        self._busy: set[int] = set()

    def fill(self, number: int, *parts: bytes | memoryview) -> tuple[MR, int, int]:
        """Copy a message into its slot, and return the region, the offset and the length."""
        start = at = (number % self.slots) * self.slot_size
        view = memoryview(self._sent)
        for part in parts:
            view[at : at + len(part)] = part
            at += len(part)
        return self._sent, start, at - start

    def sent(self, number: int, length: int) -> tuple[MR, int, int]:
        """Return where the message of that number lies, to send it again."""
        return self._sent, (number % self.slots) * self.slot_size, length

    def view(self, slot: int) -> memoryview:
        """Return the bytes of a receive slot."""
        region, offset = self._places[slot]
        return memoryview(region)[offset : offset + self.slot_size]

    def hold(self, slot: int) -> None:
        """A message lies in the slot until ``release``."""
        self._busy.add(slot)

    def replace(self, slot: int) -> None:
        """Give the slot other memory, since a view of the program's lives on over the old one."""
        self._places[slot] = self._pd.alloc(self.slot_size, AccessFlags.LOCAL_WRITE), 0

    def release(self, slot: int) -> None:
        """The message in the slot is not needed any more."""
        self._busy.discard(slot)

    def post(self, qp: QP, slot: int) -> None:
        """Post the receive of a slot."""
        region, offset = self._places[slot]
        qp.recv(region, offset, self.slot_size, wr_id=ARRIVED | slot)

    def post_all(self, qp: QP) -> None:
        """Post the receives of all slots that hold no message."""
        for slot in range(self.receives):
            if slot not in self._busy:
                self.post(qp, slot)

    def close(self) -> None:
        """End the registrations."""
        self._sent.close()
        for region, _ in self._places:
            region.close()
