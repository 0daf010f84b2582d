# SPDX-License-Identifier: Apache-2.0
"""Traps of a node: they are repeated until the subnet manager represses them (IBA 13.4.9, 14.3.10).

``NodeAgent.traps`` is the ``TrapSender``. The agents call ``notify``; whoever has the clock calls
``due`` at ``next_due`` and sends what it returns. Times are in seconds. A notice that equals one
that still waits is not made again, and after a repressed one the next equal one keeps the distance
of a repetition.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..attribute_ids import Method
from ..codes import CapabilityMask, NodeType, PortState, lifetime_seconds
from ..mad import LidRoutedSmp
from ..notices import LocalChangesTrap, Notice, NoticeType, TrapNumber, trap_notice
from ..record import Record
from ..smp_attributes import PortInfo
from .packets import MadPacket

if TYPE_CHECKING:
    from .node_agent import NodeAgent
    from .node_ports import NodePort

__all__ = ["MOST_NOTICES", "TrapSender"]

MOST_NOTICES = 32  # that wait at a node; the oldest is dropped for another one
TRAP_BIT = CapabilityMask.TRAP


@dataclass
class WaitingTrap:
    """A trap that has not been repressed."""

    port: NodePort
    notice: Notice
    transaction_id: int
    due: float


class TrapSender:
    """The traps of a node that wait, and the notices that a Get returns."""

    def __init__(self, node: NodeAgent) -> None:
        self._node = node
        self._waiting: dict[int, WaitingTrap] = {}  # by transaction ID
        self._notices: deque[tuple[NodePort, Notice]] = deque(maxlen=MOST_NOTICES)
        self._sent_at: dict[tuple[NodePort, Notice], float] = {}
        self._next_id = 1
        self.sent = 0  # traps and repetitions since the start

    def notify(self, port: NodePort, number: int, detail: Record) -> None:
        """Make a notice and a trap of an end port. Both are made once while an equal one waits.

        Nothing is made before a subnet manager has given the port its own LID.
        """
        end = port.end_port
        if not end.master_sm_lid:
            return
        kind = self._node.profile.node_type
        notice = trap_notice(number, detail, issuer_lid=end.lid, producer=kind or NodeType.CA)
        if (end, notice) not in self._notices:
            self._notices.append((end, notice))
        if not PortInfo.get(end.info, "capability_mask") & TRAP_BIT:
            return
        if any(each.port is end and each.notice == notice for each in self._waiting.values()):
            return
        if len(self._waiting) >= MOST_NOTICES:
            del self._waiting[min(self._waiting)]
        before = self._sent_at.pop((end, notice), -math.inf)
        due = before + self.period(end)
        number = self._next_id
        self._next_id += 1
        self._waiting[number] = WaitingTrap(end, notice, number, due)
        self._node.surroundings.traps_wait(self._node)

    def local_changes(self, port: NodePort, **changed: bool) -> None:
        """Make trap 144; ``changed`` are fields of ``LocalChangesTrap`` other than the mask."""
        end = port.end_port
        detail = LocalChangesTrap(
            lid=end.lid,
            capability_mask=PortInfo.get(end.info, "capability_mask"),
            capability_mask2=PortInfo.get(end.info, "capability_mask2"),
            other_local_changes=bool(changed),
            **changed,
        )
        self.notify(end, TrapNumber.LOCAL_CHANGES, detail)

    @staticmethod
    def period(port: NodePort) -> float:
        """Seconds between repetitions: the subnet's time-out, as PortInfo has it."""
        return lifetime_seconds(PortInfo.get(port.info, "subnet_timeout"))

    @property
    def next_due(self) -> float | None:
        """When the next trap is to be sent, in seconds; minus infinity: at once; None: never."""
        return min((each.due for each in self._waiting.values()), default=None)

    def due(self, now: float) -> list[MadPacket]:
        """Return the traps to send at ``now``; each is to be sent again a period later.

        A port that has no subnet manager's LID, or is not ACTIVE, drops its traps.
        """
        packets = []
        for each in list(self._waiting.values()):
            if each.due > now:
                continue
            if not each.port.master_sm_lid or each.port.state != PortState.ACTIVE:
                del self._waiting[each.transaction_id]
                continue
            each.due = now + self.period(each.port)
            self._sent_at[each.port, each.notice] = now
            packets.append(self._packet(each))
            self.sent += 1
        self._forget(now)
        return packets

    def _packet(self, trap: WaitingTrap) -> MadPacket:
        smp = LidRoutedSmp(method=Method.TRAP, transaction_id=trap.transaction_id)
        port = trap.port
        return MadPacket(
            smp.with_attribute(trap.notice).pack(),
            port.number,
            dlid=port.master_sm_lid,
            slid=port.lid,
            sl=PortInfo.get(port.info, "master_sm_sl"),
        )

    def _forget(self, now: float) -> None:
        """Forget when traps were sent that may be made again without a delay."""
        waiting = {(each.port, each.notice) for each in self._waiting.values()}
        for key, sent in list(self._sent_at.items()):
            if key not in waiting and sent + self.period(key[0]) <= now:
                del self._sent_at[key]

    def repress(self, mad: bytes) -> bool:
        """End the repetition of the trap that a TrapRepress names. Returns whether it waits."""
        number = int.from_bytes(mad[8:16], "big")
        return self._waiting.pop(number, None) is not None

    # ---- the attribute Notice ------------------------------------------------------------------

    def first_notice(self, port: NodePort) -> Notice:
        """Return the oldest notice of an end port, with the number of those behind it."""
        mine = [notice for end, notice in self._notices if end is port]
        if not mine:
            return Notice(notice_type=NoticeType.EMPTY)
        return mine[0].replace(count=len(mine) - 1)

    def clear_notice(self, port: NodePort, data: bytes) -> Notice:
        """Remove the oldest notice if a Set has this one, and return the one behind it."""
        first = self.first_notice(port)
        given = Notice.unpack(data)
        if given.replace(count=0, toggle=False) == first.replace(count=0, toggle=False):
            for each in self._notices:
                if each[0] is port:
                    self._notices.remove(each)
                    break
        return self.first_notice(port)
