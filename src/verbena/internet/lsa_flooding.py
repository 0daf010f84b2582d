# SPDX-License-Identifier: Apache-2.0
"""Neighbours of a link-state router, and how LSAs reach them (RFC 2328, section 13).

``LinkState`` decides what is flooded to whom. ``LsaFlooding`` sends it again until it is
acknowledged; it relies on ``Neighbour.unacknowledged`` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import IPv4Address

from verbena.internet.interface import Interface
from verbena.internet.lsa import Lsa, OspfPacket, encode_update
from verbena.internet.timer import Timer

LSAS_PER_UPDATE_BYTES = 1200


class NeighbourState(Enum):
    INIT = "init"
    FULL = "full"


@dataclass(slots=True)
class Neighbour:
    """Another router on an interface; ``unacknowledged`` are LSAs that it has not confirmed."""

    router: IPv4Address
    address: IPv4Address
    interface: Interface
    dead: Timer
    retransmit: Timer
    state: NeighbourState = NeighbourState.INIT
    unacknowledged: dict[IPv4Address, Lsa] = field(default_factory=dict)


class LsaFlooding:
    """``send`` sends a packet to an address on an interface; ``retransmit`` is in ps."""

    def __init__(
        self, send: Callable[[OspfPacket, bytes, Interface, IPv4Address], None], retransmit: int
    ) -> None:
        self._send = send
        self._retransmit = retransmit

    def give(self, neighbour: Neighbour, lsas: list[Lsa]) -> None:
        """Send LSAs until they are acknowledged."""
        for lsa in lsas:
            neighbour.unacknowledged[lsa.router] = lsa
        self._send_lsas(neighbour, lsas)
        if not neighbour.retransmit.running:
            neighbour.retransmit.start(self._retransmit)

    def _send_lsas(self, neighbour: Neighbour, lsas: list[Lsa]) -> None:
        """In packets of at most some 1,200 bytes each, or one LSA if that is longer."""
        group: list[Lsa] = []
        size = 0
        for lsa in lsas:
            length = 24 + 12 * len(lsa.links)
            if group and size + length > LSAS_PER_UPDATE_BYTES:
                self._send_update(neighbour, group)
                group, size = [], 0
            group.append(lsa)
            size += length
        if group:
            self._send_update(neighbour, group)

    def _send_update(self, neighbour: Neighbour, lsas: list[Lsa]) -> None:
        kind = OspfPacket.UPDATE
        self._send(kind, encode_update(lsas), neighbour.interface, neighbour.address)

    def give_again(self, neighbour: Neighbour) -> None:
        if neighbour.unacknowledged and neighbour.state is NeighbourState.FULL:
            self._send_lsas(neighbour, list(neighbour.unacknowledged.values()))
            neighbour.retransmit.start(self._retransmit)

    def receive_acknowledgement(
        self, confirmed: list[tuple[IPv4Address, int]], neighbour: Neighbour
    ) -> None:
        for router, sequence in confirmed:
            waiting = neighbour.unacknowledged.get(router)
            if waiting is not None and waiting.sequence <= sequence:
                del neighbour.unacknowledged[router]
        if not neighbour.unacknowledged:
            neighbour.retransmit.stop()
