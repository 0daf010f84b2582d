# SPDX-License-Identifier: Apache-2.0
"""What the links of a server share, in one protection domain: a CQ, receives, datagrams.

The server makes a ``Station`` for each device by which clients come. The CQ grows with the number
of links.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from verbena.aio import AsyncCQ
from verbena.peers.transport import Sharing
from verbena.verbs import PD, WC, CompChannel, VerbsError

from .datagrams import DatagramServer
from .link import Link
from .memory import RECEIVES, SharedReceives
from .poller import Poller
from .ring import RingReader
from .server_calls import ServerCalls

__all__ = ["Station"]

_FIRST = 4096  # entries of the CQ
_EACH = 256  # entries for each link
_SHARED = 512  # receives for all links


class EarlyFrames:
    """Keeps completions of a queue pair whose link is not there yet (a PollTarget)."""

    def __init__(self) -> None:
        self.kept: list[WC] = []

    def completed(self, wc: WC) -> None:
        """Keep a completion."""
        self.kept.append(wc)

    def must_hear(self) -> bool:
        """Return False: the server hears always."""
        return False


class Station:
    """The shared part of a server, in one protection domain."""

    def __init__(self, pd: PD, spin: float, slot_size: int, is_shared: bool) -> None:
        self.pd = pd
        self.channel: CompChannel = pd.context.create_comp_channel()
        self.acq = AsyncCQ(pd.context.create_cq(_FIRST, self.channel))
        self.poller = Poller(self.acq.cq, spin, True)
        self.poller.stray = self._stray
        self.poller.before_sleep.append(self._before_sleep)
        self.receives: SharedReceives | None = None
        if is_shared:
            self.receives = SharedReceives(pd, _SHARED, slot_size)
        self.rings: dict[Link, RingReader] = {}
        self._datagrams: DatagramServer | None = None
        self._links = 0
        self.is_retired = False  # its agent has ended: it serves the clients that it has
        self.poller.start()

    @property
    def is_idle(self) -> bool:
        """No link completes to the CQ."""
        return self._links == 0

    def sharing(self) -> Sharing:
        """Return what a queue pair is made with."""
        if self.receives is None:
            return Sharing(cq=self.acq)
        return Sharing(cq=self.acq, srq=self.receives.srq)

    def enter(self) -> None:
        """One more link completes to the CQ."""
        self._links += 1
        need = _SHARED + (self._links + 1) * _EACH
        if need > self.acq.cq.cqe:
            with suppress(VerbsError):
                self.acq.cq.resize(2 * need)

    def abandon(self) -> None:
        """A link that was to complete there does not."""
        self._links -= 1

    def leave(self, link: Link) -> None:
        """One less does."""
        self._links -= 1
        ring = self.rings.pop(link, None)
        if ring is not None:
            self.poller.scans.remove(ring.scan)
            ring.close()

    def ring(self, link: Link, calls: ServerCalls, slots: int, wake: tuple[int, int]) -> RingReader:
        """Make a ring for a client. The last word of each slot is read and written as one."""
        size = link.room - link.room % 8
        made = self.rings[link] = RingReader(link, calls, slots, size, wake)
        self.poller.scans.append(made.scan)
        link.on_bell = made.wake
        calls.on_unknown_cancel = lambda call: _scanned(made)
        return made

    def datagrams(self, port: int) -> DatagramServer:
        """Return the queue pair for datagrams."""
        if self._datagrams is None:
            self._datagrams = DatagramServer(self.pd, self.poller, self.acq.cq, port)
        return self._datagrams

    def forget_sender(self, number: int) -> None:
        """A client of the datagrams has gone."""
        if self._datagrams is not None and number:
            self._datagrams.remove(number)

    def expect(self, qpn: int) -> None:
        """A queue pair is being connected."""
        self.poller.targets[qpn] = EarlyFrames()

    def replay(self, early: Any, link: Link) -> None:
        """Give a link what came before it was there."""
        if isinstance(early, EarlyFrames):
            for wc in early.kept:
                link.completed(wc)

    def _stray(self, wc: WC) -> None:
        if self.receives is not None and wc.wr_id < RECEIVES:
            self.receives.post(wc.wr_id)

    def _before_sleep(self) -> None:
        for ring in self.rings.values():
            ring.before_sleep()

    def close(self) -> None:
        """Close everything; the links have been closed."""
        self.poller.close()
        if self._datagrams is not None:
            self._datagrams.close()
        if self.receives is not None:
            self.receives.close()
        self.acq.close()
        self.acq.cq.close()
        self.channel.close()


def _scanned(ring: RingReader) -> None:
    """The request of a call that is cancelled may lie in the ring."""
    ring.scan()
