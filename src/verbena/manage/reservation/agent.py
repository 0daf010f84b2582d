# SPDX-License-Identifier: Apache-2.0
"""The reservation agent of a host or a switch: it gives away what its output links have left.

Whoever has the node passes it packets of class ``RESERVATION_CLASS``, sends what comes back, and
calls ``tick`` at ``next_deadline``. A host's agent also begins reservations: ``reserve`` and
``release``, whose ends are in ``outcomes``. Nothing is ever given away twice: a link's
reservations together never exceed its budget.

    state of a link  message            then
    ---------------  -----------------  ----------------------------------------------------------
    none             RESERVE, fits      held; RESERVE to the next node
    none             RESERVE, does not  none; REFUSE back
    held             RESERVE again      held, lease renewed; RESERVE to the next node again
    held             GRANT              held; GRANT back
    held             REFUSE             none; REFUSE back
    held             RELEASE            leaving, and nothing is held; RELEASE to the next node
    leaving          RELEASE again      leaving; RELEASE to the next node again
    leaving          RELEASED           none; RELEASED back
    none             RELEASE            none; RELEASED back
    held             the lease is over  none

The destination answers RESERVE with GRANT, and RELEASE with RELEASED. So a path of n links costs 2n
MADs to reserve and 2n to release, and one round trip of n hops each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..agents.packets import MadPacket
from ..attribute_ids import Method
from ..errors import MadError
from ..mad import MAD_BYTES, VendorMad
from .messages import (
    RESERVATION_CLASS,
    RESERVATION_OUI,
    LinkBudget,
    LinkBudgetTable,
    RefusalReason,
    ReservationKind,
    ReservationMessage,
    ReservationStep,
    reservation_mad,
    reservation_packet,
)

__all__ = ["Outcome", "ReservationAgent"]

TIMEOUT, RETRIES = 0.5, 3
_Key = tuple[int, int]  # the source's LID and its number


@dataclass(frozen=True)
class Outcome:
    """How a request of this host has ended.

    ``messages`` are MADs of the exchange that ended, without tries that were lost, ``tries`` how
    often it began, and ``seconds`` the time from the first try. After a refusal ``lid`` and
    ``port`` name the link.
    """

    granted: bool
    reason: RefusalReason
    free: int
    links: int
    messages: int
    tries: int
    seconds: float
    lid: int = 0
    port: int = 0

    def __str__(self) -> str:
        cost = f"{self.messages} messages, {self.seconds:.6f} s"
        if self.granted:
            return f"{self.links} links reserved ({cost})"
        where = f" at LID {self.lid} port {self.port}, which has {self.free} left"
        return f"{self.reason.name}: {self.reason.meaning[:-1]}{where if self.lid else ''} ({cost})"


@dataclass
class _Held:
    """What a reservation holds of a link."""

    port: int
    kind: ReservationKind
    amount: int
    before: int  # LID of the node before; 0: this one
    after: int
    until: float
    is_leaving: bool = False


@dataclass
class _Asked:
    """A request of this host."""

    message: ReservationMessage
    step: ReservationStep
    began: float
    deadline: float
    tries: int = 1


class ReservationAgent:
    """An agent. ``lid`` and ``sm_lid`` return those of its port, and ``output_port`` the port of a
    switch to a LID, or None; a host has one link, and gives the number of its port.

    ``outcomes`` has the end of each reservation that this host began, by its number. ``sent``
    counts MADs. Budgets are only taken from the subnet manager's LID.
    """

    def __init__(
        self,
        lid: Callable[[], int],
        sm_lid: Callable[[], int],
        output_port: Callable[[int], int | None],
        *,
        port: int = 1,
    ) -> None:
        self.outcomes: dict[int, Outcome] = {}
        self.budgets: dict[int, LinkBudget] = {}
        self.sent = 0
        self._lid, self._sm_lid, self._output_port, self._port = lid, sm_lid, output_port, port
        self._held: dict[_Key, _Held] = {}
        self._used: dict[tuple[int, ReservationKind], int] = {}
        self._asked: dict[int, _Asked] = {}
        self._begun: dict[int, ReservationMessage] = {}  # this host's, that were not released
        self._number = 0
        self._now = 0.0
        self._out: list[MadPacket] = []

    # ---- this host's requests ------------------------------------------------------------------

    def reserve(
        self, dlid: int, kind: ReservationKind, amount: int, now: float, *, lease: int = 60
    ) -> tuple[int, list[MadPacket]]:
        """Begin a reservation to a LID; return its number and the packets to send.

        ``lease`` is in seconds. Raises MadError for an amount or a lease that no field holds.
        """
        self._now = now
        self._number += 1
        message = ReservationMessage(
            reservation=self._number,
            source_lid=self._lid(),
            dlid=dlid,
            kind=kind,
            amount=amount,
            lease=lease,
        )
        self._begun[self._number] = message
        self._begin(message, ReservationStep.RESERVE)
        return self._number, self._taken()

    def renew(self, number: int, now: float) -> list[MadPacket]:
        """Begin the lease of a reservation anew; nothing if this host has begun none."""
        return self._again(number, ReservationStep.RESERVE, now)

    def release(self, number: int, now: float) -> list[MadPacket]:
        """Release a reservation of this host; nothing if it has begun none of this number."""
        return self._again(number, ReservationStep.RELEASE, now)

    def _again(self, number: int, step: ReservationStep, now: float) -> list[MadPacket]:
        self._now = now
        message = self._begun.get(number)
        if message is not None:
            self.outcomes.pop(number, None)
            self._begin(message, step)
        if step is ReservationStep.RELEASE:
            self._begun.pop(number, None)
        return self._taken()

    def _begin(self, message: ReservationMessage, step: ReservationStep) -> None:
        asked = _Asked(message, step, self._now, self._now + TIMEOUT)
        self._asked[message.reservation] = asked
        self._handle(step, message, 0)

    def _ended(self, message: ReservationMessage, *, granted: bool) -> None:
        asked = self._asked.pop(message.reservation, None)
        if asked is None:
            return
        self.outcomes[message.reservation] = Outcome(
            granted,
            RefusalReason(message.reason),
            message.free,
            message.links,
            message.messages,
            asked.tries,
            self._now - asked.began,
            message.refusing_lid,
            message.refusing_port,
        )

    # ---- packets -------------------------------------------------------------------------------

    def receive(self, packet: MadPacket, now: float) -> list[MadPacket]:
        """Take a packet and return those to send. Packets of other classes are ignored."""
        self._now = now
        raw = packet.mad
        if len(raw) != MAD_BYTES or raw[1] != RESERVATION_CLASS:
            return []
        mad = VendorMad.unpack(raw)
        if mad.oui != RESERVATION_OUI:
            return []
        try:
            if mad.attribute_id == ReservationStep.BUDGETS and mad.method == Method.SET:
                self._set_budgets(mad, packet)
            elif mad.method == Method.SEND:
                message = mad.attribute(ReservationMessage)
                self._handle(ReservationStep(mad.attribute_id), message, packet.slid)
        except MadError:
            return []
        return self._taken()

    def tick(self, now: float) -> list[MadPacket]:
        """Repeat or give up what has no answer, and end leases; return the packets to send."""
        self._now = now
        for number, asked in list(self._asked.items()):
            if asked.deadline > now:
                continue
            if asked.tries > RETRIES:
                lost = asked.message.replace(reason=RefusalReason.NO_ANSWER)
                self._free((asked.message.source_lid, number))
                self._ended(lost, granted=False)
                continue
            asked.tries += 1
            asked.deadline = now + TIMEOUT
            self._handle(asked.step, asked.message, 0)
        for key in [key for key, held in self._held.items() if held.until <= now]:
            self._free(key)
        return self._taken()

    def next_deadline(self) -> float | None:
        """Return when ``tick`` is due, or None."""
        times = [asked.deadline for asked in self._asked.values()]
        times += [held.until for held in self._held.values()]
        return min(times, default=None)

    def used(self, port: int, kind: ReservationKind) -> int:
        """Return how much of a link is reserved."""
        return self._used.get((port, kind), 0)

    def _taken(self) -> list[MadPacket]:
        sent, self._out = self._out, []
        self.sent += len(sent)
        return sent

    def _send(self, step: int, message: ReservationMessage, lid: int) -> None:
        """Send a message to a neighbour, or end the request here."""
        if not lid:
            self._ended(message, granted=step in (ReservationStep.GRANT, ReservationStep.RELEASED))
            return
        message = message.replace(messages=min(message.messages + 1, 0xFFFF))
        mad = reservation_mad(step, message, message.reservation)
        self._out.append(reservation_packet(mad, self._port, self._lid(), lid))

    # ---- the table -----------------------------------------------------------------------------

    def _handle(self, step: int, message: ReservationMessage, came: int) -> None:
        key = message.source_lid, message.reservation
        held = self._held.get(key)
        if step == ReservationStep.RESERVE:
            self._reserve(key, message, came)
        elif step == ReservationStep.RELEASE:
            if held is not None:
                self._release(held)
                self._send(step, message, held.after)
            else:
                self._send(ReservationStep.RELEASED, message, came)
        elif step == ReservationStep.RELEASED and held is not None:
            self._free(key)
            self._send(step, message, held.before)
        elif step == ReservationStep.GRANT and held is not None and not held.is_leaving:
            free = min(message.free, self._left(held.port, held.kind))
            self._send(step, message.replace(free=free), held.before)
        elif step == ReservationStep.REFUSE and held is not None:
            self._free(key)
            self._send(step, message, held.before)

    def _reserve(self, key: _Key, message: ReservationMessage, came: int) -> None:
        held = self._held.get(key)
        if held is not None and held.is_leaving:
            self._free(key)
            held = None
        if held is None:
            if message.dlid == self._lid():
                self._send(ReservationStep.GRANT, message.replace(free=0xFFFFFFFF), came)
                return
            reason, port = self._hold(key, message, came)
            if reason:
                left = self._left(port, message.kind) if port else 0
                refusal = message.replace(
                    reason=reason, refusing_lid=self._lid(), refusing_port=port, free=left
                )
                self._send(ReservationStep.REFUSE, refusal, came)
                return
            held = self._held[key]
        elif held.before != came:
            refusal = message.replace(reason=RefusalReason.LOOP, refusing_lid=self._lid())
            self._send(ReservationStep.REFUSE, refusal, came)
            return
        held.until = self._now + message.lease
        self._send(
            ReservationStep.RESERVE,
            message.replace(links=min(message.links + 1, 255)),
            held.after,
        )

    def _hold(self, key: _Key, message: ReservationMessage, came: int) -> tuple[RefusalReason, int]:
        """Take the amount from the output link; return why not, and the port."""
        port = self._output_port(message.dlid)
        if port is None:
            return RefusalReason.NO_PATH, 0
        budget = self.budgets.get(port)
        if budget is None:
            return RefusalReason.NO_BUDGET, port
        if message.amount > self._left(port, message.kind):
            return RefusalReason.LINK_FULL, port
        self._held[key] = _Held(
            port, message.kind, message.amount, came, budget.neighbor_lid, self._now
        )
        place = port, message.kind
        self._used[place] = self._used.get(place, 0) + message.amount
        return RefusalReason.NONE, port

    def _left(self, port: int, kind: ReservationKind) -> int:
        budget = self.budgets.get(port)
        if budget is None:
            return 0
        whole = {ReservationKind.BANDWIDTH: budget.bandwidth, ReservationKind.BUFFER: budget.buffer}
        return max(0, whole.get(kind, 0) - self._used.get((port, kind), 0))

    def _release(self, held: _Held) -> None:
        """Give the amount back, and keep for a while where RELEASED has to go."""
        self._used[held.port, held.kind] -= held.amount
        held.amount, held.is_leaving = 0, True
        held.until = self._now + TIMEOUT * (RETRIES + 2)

    def _free(self, key: _Key) -> None:
        held = self._held.pop(key, None)
        if held is not None:
            self._used[held.port, held.kind] -= held.amount

    def _set_budgets(self, mad: VendorMad, packet: MadPacket) -> None:
        """Take a table from the subnet manager, and say so. What is reserved stays reserved."""
        if packet.slid != self._sm_lid():
            return
        if not mad.attribute_modifier:
            self.budgets.clear()
        for budget in mad.attribute(LinkBudgetTable).budgets:
            if budget.port:
                self.budgets[budget.port] = budget
        answer = packet.answer(mad.response().pack())
        self._out.append(answer._replace(port=self._port))
