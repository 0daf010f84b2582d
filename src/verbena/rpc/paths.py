# SPDX-License-Identifier: Apache-2.0
"""What a client has besides its link, if its strategies ask for it: a ring, or datagrams.

The client makes this before it says HELLO, since that names the wake word and the queue pair.
"""

from __future__ import annotations

import msgspec

from .client_calls import ClientCalls
from .datagrams import DatagramWriter
from .frames import LinkHello, LinkWelcome
from .link import Link
from .ring import RingWriter, WakeWord
from .strategies import Strategies

__all__ = ["ClientPaths"]


class ClientPaths:
    """The ring and the datagrams of one client."""

    def __init__(self, link: Link, plan: Strategies) -> None:
        self._link = link
        self._plan = plan
        self._wake: WakeWord | None = None
        self._ring: RingWriter | None = None
        self._datagrams: DatagramWriter | None = None

    def open(self) -> None:
        """Make what the HELLO names."""
        if self._plan.request == "ring":
            self._wake = WakeWord(self._link.pd)
        elif self._plan.request == "datagram":
            self._datagrams = DatagramWriter(self._link, self._link.qp.send_cq)

    def hello(self, plain: LinkHello) -> LinkHello:
        """Return the HELLO with what was made."""
        if self._wake is not None:
            region = self._wake.region
            return msgspec.structs.replace(
                plain, wants_ring=True, wake_addr=region.addr, wake_rkey=region.rkey
            )
        if self._datagrams is not None:
            return msgspec.structs.replace(plain, datagram_qpn=self._datagrams.qp.qp_num)
        return plain

    def use(self, calls: ClientCalls, welcome: LinkWelcome) -> None:
        """Use what the server has."""
        if self._wake is not None and welcome.ring_addr:
            self._ring = RingWriter(
                self._link,
                self._wake,
                welcome.ring_addr,
                welcome.ring_rkey,
                welcome.ring_slots,
                welcome.ring_slot_size,
            )
            calls.use_ring(self._ring)
        if self._datagrams is not None and welcome.datagram_qpn:
            self._datagrams.use(calls, welcome.datagram_qpn, welcome.client, welcome.datagram_room)
            calls.datagrams = self._datagrams

    def close(self) -> None:
        """End all of it."""
        for each in (self._wake, self._ring, self._datagrams):
            if each is not None:
                each.close()
        self._wake, self._ring, self._datagrams = None, None, None
