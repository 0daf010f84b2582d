# SPDX-License-Identifier: Apache-2.0
"""Subscriptions to notices (InformInfo), and the Reports that the SA sends to subscribers.

``SubnetAdministration`` passes InformInfo requests on, calls ``report`` for each notice, and sends
what ``due`` returns. A Report is repeated until ReportResp comes, ``RETRIES`` times.

    state        event                      then
    -----------  -------------------------  ------------------------------------------
    subscribed   a notice that matches      a Report is sent, with a number of its own
    reporting    ReportResp                 subscribed
    reporting    no ReportResp in time      the Report is sent again
    reporting    none after all retries     the Report is given up and counted
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..agents.packets import MadPacket
from ..attribute_ids import Method, SaAttribute, SaStatus
from ..codes import gid_text
from ..mad import GENERAL_QKEY, SaMad
from ..notices import Notice, NoticeReport
from ..sa_records import InformInfo, InformInfoRecord
from .refusal import SaRefusal

__all__ = ["Subscription", "Subscriptions"]

ALL_LIDS, ANY, ANY_PRODUCER = 0xFFFF, 0xFFFF, 0xFFFFFF
RETRIES = 3
TIMEOUT = 1.0  # seconds until a Report is repeated


@dataclass(frozen=True)
class Subscription:
    """Who wants which notices: the subscriber's address and its InformInfo."""

    lid: int
    gid: bytes
    qpn: int
    inform: InformInfo
    sl: int = 0
    p_key: int = 0xFFFF

    def wants(self, notice: NoticeReport) -> bool:
        """Whether a notice is one of those that were asked for (IBA 13.4.8.3)."""
        wanted = self.inform
        if any(wanted.gid):
            if wanted.gid != notice.issuer_gid:
                return False
        elif wanted.lid_range_begin != ALL_LIDS:
            end = wanted.lid_range_end or wanted.lid_range_begin
            if not wanted.lid_range_begin <= notice.issuer_lid <= end:
                return False
        return (
            bool(wanted.is_generic) == notice.is_generic
            and wanted.notice_type in (ANY, notice.notice_type)
            and wanted.trap_number in (ANY, notice.trap_number)
            and wanted.producer in (ANY_PRODUCER, notice.producer)
        )


@dataclass
class _Report:
    subscription: Subscription
    packet: MadPacket
    deadline: float
    tries: int = 0


@dataclass
class Subscriptions:
    """All subscriptions, and the Reports that wait for ReportResp. ``lid`` is the SA's.

    ``given_up`` counts Reports without a response to any try.
    """

    port: int
    subscriptions: dict[tuple[int, int, bytes], Subscription] = field(default_factory=dict)
    given_up: int = 0
    _waiting: dict[int, _Report] = field(default_factory=dict)
    _number: int = 0

    def subscribe(self, inform: InformInfo, packet: MadPacket, gid: bytes) -> InformInfo:
        """Enter or end a subscription. Raises SaRefusal for the end of one that is not there."""
        qpn = inform.qpn if inform.qpn > 1 else 1
        plain = inform.replace(subscribe=0, resp_time_value=0, qpn=qpn)
        key = packet.slid, qpn, plain.pack()
        if inform.subscribe:
            made = Subscription(packet.slid, gid, qpn, inform, packet.sl, packet.p_key)
            self.subscriptions[key] = made
        elif self.subscriptions.pop(key, None) is None:
            raise SaRefusal(SaStatus.REQUEST_INVALID, f"{gid_text(gid)} has no such subscription")
        return inform

    def records(self) -> Iterator[InformInfoRecord]:
        """Return the subscriptions as records; their number counts those of one subscriber."""
        numbers: dict[bytes, int] = {}
        for each in self.subscriptions.values():
            number = numbers.get(each.gid, 0)
            numbers[each.gid] = number + 1
            yield InformInfoRecord(
                subscriber_gid=each.gid, enumeration=number, inform_info=each.inform
            )

    def report(self, notice: Notice, issuer_gid: bytes, lid: int, now: float) -> list[MadPacket]:
        """Return the Reports of a notice to all who want it. ``lid`` is the SA's own."""
        full = NoticeReport.unpack(notice.pack()[:64] + issuer_gid)
        sent = []
        for each in list(self.subscriptions.values()):
            if not each.wants(full):
                continue
            self._number = self._number + 1 & 0xFFFFFFFF or 1
            mad = SaMad(
                method=Method.REPORT,
                transaction_id=self._number,
                attribute_id=SaAttribute.NOTICE,
            ).with_attribute(full)
            packet = MadPacket(
                mad.replace(attribute_id=SaAttribute.NOTICE).pack(),
                self.port,
                each.lid,
                lid,
                each.qpn,
                1,
                each.sl,
                each.p_key,
                GENERAL_QKEY,
            )
            self._waiting[self._number] = _Report(each, packet, now + TIMEOUT)
            sent.append(packet)
        return sent

    def answered(self, transaction: int, slid: int) -> None:
        """Take a ReportResp."""
        number = transaction & 0xFFFFFFFF
        waiting = self._waiting.get(number)
        if waiting is not None and waiting.subscription.lid == slid:
            del self._waiting[number]

    def due(self, now: float) -> list[MadPacket]:
        """Return the Reports that are to be repeated now."""
        sent = []
        for number, each in list(self._waiting.items()):
            if each.deadline > now:
                continue
            if each.tries >= RETRIES:
                del self._waiting[number]
                self.given_up += 1
                continue
            each.tries += 1
            each.deadline = now + TIMEOUT
            sent.append(each.packet)
        return sent

    def next_deadline(self) -> float | None:
        """Return when a Report is to be repeated, or None."""
        return min((each.deadline for each in self._waiting.values()), default=None)

    def remove_lids(self, here: set[int]) -> None:
        """End the subscriptions of ports that are not here any more."""
        for key in [key for key in self.subscriptions if key[0] not in here]:
            del self.subscriptions[key]
        for number in [n for n, each in self._waiting.items() if each.subscription.lid not in here]:
            del self._waiting[number]

    def clear(self) -> None:
        """End all subscriptions."""
        self.subscriptions.clear()
        self._waiting.clear()
