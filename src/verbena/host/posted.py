# SPDX-License-Identifier: Apache-2.0
"""A posted store, from the core to its device.

``Accesses`` makes one for each store over a bus. It arrives by an event of the agenda, or earlier
in real order, though at the same time of the computer, when a load follows it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from verbena.host.devices import write_to

if TYPE_CHECKING:
    from verbena.host.clock import Event
    from verbena.host.devices import Device


class PostedStore:
    """``queue`` has those of one device, in the order in which they arrive; ``at`` is in ps."""

    __slots__ = ("_device", "_offset", "_queue", "_size", "_value", "at", "event")
    event: Event
    at: int

    def __init__(
        self, queue: deque[PostedStore], device: Device, offset: int, size: int, value: int
    ) -> None:
        self._queue, self._device = queue, device
        self._offset, self._size, self._value = offset, size, value

    def arrive(self) -> None:
        """It is at the device, as its event says: it is the first of the queue."""
        self._queue.popleft()
        self.deliver()

    def deliver(self) -> None:
        """Lets the device have it; one that has failed or was unmapped since takes
        nothing."""
        if not self._device.is_dead:
            write_to(self._device, self._offset, self._size, self._value)
