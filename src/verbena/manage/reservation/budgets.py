# SPDX-License-Identifier: Apache-2.0
"""The subnet manager's part in reservations: it tells each node what its links may give away.

A program makes a ``LinkBudgets`` beside its ``SubnetManager`` if it wants reservations, calls
``program`` after a sweep, and passes on packets of the class. A budget is a share of the link's
rate, and a number of blocks of the neighbour's buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..agents.packets import MadPacket
from ..attribute_ids import Method
from ..mad import MAD_BYTES, VendorMad
from ..sm.discovered import SubnetNode, SubnetPort
from ..sm.discovered_fabric import port_rate
from ..sm.subnet_manager import SubnetManager
from .messages import (
    BUDGETS_OF_TABLE,
    RESERVATION_CLASS,
    RESERVATION_OUI,
    LinkBudget,
    LinkBudgetTable,
    ReservationStep,
    reservation_mad,
    reservation_packet,
)

__all__ = ["LinkBudgets"]

TIMEOUT, RETRIES = 0.5, 3


@dataclass
class _Waiting:
    packet: MadPacket
    deadline: float
    tries: int = 1


class LinkBudgets:
    """Budgets of a subnet. ``share`` of each link's rate can be reserved, and ``buffer`` blocks.

    ``sent`` counts MADs, and ``silent`` has the LIDs of nodes that have no reservation agent.
    """

    def __init__(self, manager: SubnetManager, *, share: float = 0.8, buffer: int = 128) -> None:
        self.manager, self.share, self.buffer = manager, share, buffer
        self.sent = 0
        self.silent: set[int] = set()
        self._waiting: dict[int, _Waiting] = {}
        self._number = 0

    @property
    def is_done(self) -> bool:
        """Every node has answered, or is among the silent."""
        return not self._waiting

    def program(self, now: float) -> list[MadPacket]:
        """Return the packets that give all nodes their budgets, after a sweep."""
        self._waiting.clear()
        self.silent.clear()
        sent = []
        for lid, tables in self._tables():
            for block, table in enumerate(tables):
                self._number += 1
                mad = reservation_mad(
                    ReservationStep.BUDGETS, table, self._number, method=Method.SET, modifier=block
                )
                packet = reservation_packet(mad, self.manager.port, self.manager.lid, lid)
                self._waiting[self._number] = _Waiting(packet, now + TIMEOUT)
                sent.append(packet)
        self.sent += len(sent)
        return sent

    def receive(self, packet: MadPacket, now: float) -> list[MadPacket]:
        """Take a packet; there is never one to send."""
        raw = packet.mad
        if len(raw) == MAD_BYTES and raw[1] == RESERVATION_CLASS and raw[3] == Method.GET_RESP:
            mad = VendorMad.unpack(raw)
            if mad.oui == RESERVATION_OUI:
                self._waiting.pop(mad.transaction_id & 0xFFFFFFFF, None)
        return []

    def tick(self, now: float) -> list[MadPacket]:
        """Return the packets that are to be repeated."""
        sent = []
        for number, each in list(self._waiting.items()):
            if each.deadline > now:
                continue
            if each.tries > RETRIES:
                self.silent.add(each.packet.dlid)
                del self._waiting[number]
                continue
            each.tries += 1
            each.deadline = now + TIMEOUT
            sent.append(each.packet)
        self.sent += len(sent)
        return sent

    def next_deadline(self) -> float | None:
        """Return when ``tick`` is due, or None."""
        return min((each.deadline for each in self._waiting.values()), default=None)

    def _tables(self) -> Iterator[tuple[int, list[LinkBudgetTable]]]:
        for node in self.manager.subnet.nodes.values():
            for end in node.end_ports:
                ports = list(node.ports.values()) if node.is_switch else [end]
                budgets = [self._budget(port) for port in ports if port.peer is not None]
                tables = [
                    _table(budgets[at : at + BUDGETS_OF_TABLE])
                    for at in range(0, len(budgets), BUDGETS_OF_TABLE)
                ]
                yield end.lid, tables

    def _budget(self, port: SubnetPort) -> LinkBudget:
        assert port.peer is not None
        rate = port_rate(port.info)
        return LinkBudget(
            port=port.number,
            neighbor_lid=_lid_of(port.peer.node, port.peer),
            bandwidth=int(rate.gbps * 1000 * self.share),
            buffer=self.buffer,
        )


def _lid_of(node: SubnetNode, port: SubnetPort) -> int:
    return node.ports[0].lid if node.is_switch else port.lid


def _table(budgets: list[LinkBudget]) -> LinkBudgetTable:
    empty = [LinkBudget()] * (BUDGETS_OF_TABLE - len(budgets))
    return LinkBudgetTable(budgets=(*budgets, *empty))
