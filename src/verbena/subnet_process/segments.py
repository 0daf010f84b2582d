# SPDX-License-Identifier: Apache-2.0
"""RMPP between two agents of a fabric of which one does it itself, as with ``rmpp_version`` 0.

Between agents that leave RMPP to Linux' kernel a message is carried as one. ``MadPort`` gives this
what a program that does RMPP itself is to get, or has sent: it gets segments by its window, and
they are sent again, and given up with an ABORT, as long as it does not acknowledge them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from verbena.manage.errors import MadError
from verbena.manage.rmpp_transfers import RmppOutcome, RmppTransfers

if TYPE_CHECKING:
    from verbena.manage.agents import MadPacket

    from .live_subnet import LiveSubnet
    from .mad_port import MadPort

__all__ = ["SegmentedMessages"]


class SegmentedMessages:
    """The transfers of the ports at which the kernel would do RMPP; a peer is a LID."""

    def __init__(self, live: LiveSubnet) -> None:
        self._live = live
        self._ports: dict[MadPort, RmppTransfers] = {}
        self._ways: dict[tuple[MadPort, int], MadPacket] = {}
        """A packet to each peer, without its MAD."""

    def begin(self, packet: MadPacket, message: bytes) -> None:
        """Send a whole message, which has arrived with this packet, as segments in its place."""
        origin = self._live.subnet.port_of_lid(packet.slid)
        if origin is None:
            return
        port = self._live.mad_port(origin.node, origin.number)
        self._ways[port, packet.dlid] = packet._replace(mad=b"", port=origin.number)
        transfers = self._ports.setdefault(port, RmppTransfers())
        try:
            outcome = transfers.send(packet.dlid, message, self._live.now)
        except MadError:  # it is under way: the request was repeated
            return
        self._send(port, outcome)

    def take(self, port: MadPort, packet: MadPacket) -> bytes | None:
        """Take a packet for an agent whose RMPP the kernel does. Returns a whole message."""
        self._ways[port, packet.slid] = packet.answer(b"")
        transfers = self._ports.setdefault(port, RmppTransfers())
        outcome = transfers.receive(packet.slid, packet.mad, self._live.now)
        self._send(port, outcome)
        return outcome.received[0][1] if outcome.received else None

    def _send(self, port: MadPort, outcome: RmppOutcome) -> None:
        for peer, mad in outcome.packets:
            assert isinstance(peer, int)
            self._live.send(port, self._ways[port, peer]._replace(mad=mad))

    def next_deadline(self) -> float | None:
        """Return when ``tick`` has something to do, in seconds of the subnet's time."""
        due = (transfers.timer() for transfers in self._ports.values())
        return min((each for each in due if each is not None), default=None)

    def tick(self, here: float) -> None:
        """Send again, or give up, what is not acknowledged."""
        for port, transfers in list(self._ports.items()):
            due = transfers.timer()
            if due is not None and due <= here:
                self._send(port, transfers.expire(here))
