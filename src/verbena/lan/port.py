# SPDX-License-Identifier: Apache-2.0
"""A port: what a cable, a hub or a wire gives to a station or a switch.

The owner sets ``on_frame`` and calls ``send``; the medium takes frames from the queue, one after
the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields

from verbena._arguments import checked_class
from verbena.lan.errors import LanTypeError
from verbena.lan.frame import MTU, checked, is_group, padded

QUEUE = 1000
"""Frames that wait in a port unless it is told otherwise; more are dropped, as in a real adapter's
ring."""


@dataclass
class PortCounters:
    """What a port has done. The names of the errors are those of RFC 1643.

    ``sent``: frames whose transmission is decided. A frame is lost as ``excessive`` (16
    collisions), ``late`` (a collision after the slot time), ``crossed`` (it met another frame, and
    the sender did not notice), ``dropped`` (the queue was full or the link was down) or ``cut``
    (the link went down while it was on its way). ``filtered``: arrived by a wire, for
    another address. ``waited_ps``: the time of sent frames from ``send`` to their start.
    """

    queued: int = 0
    sent: int = 0
    sent_bytes: int = 0
    received: int = 0
    received_bytes: int = 0
    filtered: int = 0
    collisions: int = 0
    deferred: int = 0
    excessive: int = 0
    late: int = 0
    crossed: int = 0
    dropped: int = 0
    cut: int = 0
    waited_ps: int = 0

    def __add__(self, other: PortCounters) -> PortCounters:
        names = [each.name for each in fields(self)]
        return PortCounters(**{name: getattr(self, name) + getattr(other, name) for name in names})


@checked_class(LanTypeError, but=("arrive", "send"))
class Port:
    """One end of a medium. ``mac``: only frames to it and to groups arrive; None: all arrive.

    ``capacity``: so many frames wait, with the one that is being sent; more are dropped.
    """

    mtu = MTU

    def __init__(self, starts: Callable[[Port], None], now: Callable[[], int]) -> None:
        self.mac: bytes | None = None
        self.on_frame: Callable[[bytes], None] | None = None
        self.on_link: Callable[[bool], None] | None = None
        self.is_up = True
        self.capacity = QUEUE
        self.queue: deque[tuple[int, bytes]] = deque()
        self.counted = PortCounters()
        self._starts = starts
        self._now = now

    @property
    def counters(self) -> PortCounters:
        """What the port has done so far."""
        return self.counted

    def send(self, frame: bytes) -> None:
        """Queues a frame: destination, source, type, payload. Raises LanError."""
        checked(frame)
        self.counted.queued += 1
        if not self.is_up or len(self.queue) >= self.capacity:
            self.counted.dropped += 1
            return
        self.queue.append((self._now(), padded(frame)))
        if len(self.queue) == 1:
            self._starts(self)

    def arrive(self, frame: bytes) -> None:
        """Called by the medium when the last bit of a frame is here."""
        if self.mac not in (None, frame[:6]) and not is_group(frame):
            self.counted.filtered += 1
            return
        self.counted.received += 1
        self.counted.received_bytes += len(frame)
        if self.on_frame is not None:
            self.on_frame(frame)

    def set_link(self, is_up: bool) -> None:
        """Called by the medium: a port without a link drops what it is given."""
        if is_up == self.is_up:
            return
        self.is_up = is_up
        if not is_up:
            self.counted.dropped += len(self.queue)
            self.queue.clear()
        if self.on_link is not None:
            self.on_link(is_up)
