# SPDX-License-Identifier: Apache-2.0
"""Sends programs their events, so that a program reads one by a single call and the agent hears
nothing of it. ``RdmaCmDevices`` has one ``EventDelivery``.

An event stays unread in the connection manager's table until the kernel says that the program has
taken its message: then it counts, as backlogs and DESTROY_ID want it. A command that ends an
identifier with messages that nobody has taken has to take them back first (``take_back``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from verbena.agent.messages import AnswerFlag

if TYPE_CHECKING:
    from verbena.agent.server import DeviceConnection
    from verbena.manage.cm.rdma_cm import RdmaCm
    from verbena.manage.cm.rdma_events import RdmaEvent

__all__ = ["EventDelivery"]

_TAKE_BACK, _AGAIN = int(AnswerFlag.TAKE_BACK), int(AnswerFlag.AGAIN)
_MANY = 8  # messages, after which it is looked up how many of them were taken
_TOGETHER = 32  # events looked up at once: a socket has room for some thirty messages


class EventDelivery:
    """``made`` returns the message of an event, which gets a serial number."""

    def __init__(
        self, cm: RdmaCm, made: Callable[[DeviceConnection, RdmaEvent, int], bytes]
    ) -> None:
        self._cm = cm
        self._made = made
        self._serial = 0

    def next_serial(self) -> int:
        """Return the number of the next message: programs compare them to know which is newer."""
        self._serial = self._serial + 1 & 0xFFFFFFFF
        return self._serial

    def deliver(self, device: DeviceConnection) -> None:
        """Send the unread events that were not sent, as far as there is room."""
        sent = device.sent
        if device.is_taking_back or device.is_full:
            return
        if len(sent) >= _MANY:
            self.note_reads(device)
        is_last = False
        while not is_last:
            events = self._cm.unread_events(device.channel, len(sent), _TOGETHER)
            is_last = len(events) < _TOGETHER
            for event in events:
                serial = self.next_serial()
                if not device.send_event(self._made(device, event, serial)):
                    return
                sent.append(serial)

    def note_reads(self, device: DeviceConnection) -> None:
        """Count the events whose messages the program has taken."""
        if not device.sent or device.is_taking_back:
            return
        taken = len(device.sent) - device.waiting_messages()
        if taken > 0:
            self._cm.read_events(device.channel, taken)
            del device.sent[:taken]

    def take_back(self, device: DeviceConnection, number: int, rest: bytes, is_group: bool) -> int:
        """Make sure that no message is out that names an identifier, or a group.

        Returns 0, or what the answer says to the program: TAKE_BACK has it take every message from
        the descriptor and give the command again with their serial numbers, ``rest``; AGAIN has it
        give the command again while another thread does so.
        """
        if rest and device.is_taking_back:
            self._taken_back(device, rest)
        else:
            self.note_reads(device)
        if not self._cm.names(device.channel, len(device.sent), number, is_group):
            return 0
        if device.is_taking_back:
            return _AGAIN
        device.is_taking_back = True
        return _TAKE_BACK

    def _taken_back(self, device: DeviceConnection, rest: bytes) -> None:
        """What was sent and not taken back was read. The others are sent again."""
        count = len(rest) // 4
        serials = set(struct.unpack_from(f"={count}I", rest)[1:])
        for at in reversed(range(len(device.sent))):
            if device.sent[at] not in serials:
                self._cm.read_event(device.channel, at)
        device.sent.clear()
        device.is_taking_back = False
        self._cm.has_changed(device.channel)
